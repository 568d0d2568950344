//! The HTTPS pages of the public address.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;

use super::well_known;
use crate::health::{Health, health_routes};
use crate::member::cluster_cache::ClusterCache;
use crate::routes::Routes;

/// What the pages need to know.
#[derive(Clone)]
struct Pages {
    view: Arc<ClusterCache>,
    /// `host:port` as people type it.
    address: Arc<str>,
}

/// Nothing here runs scripts, is framed or is cached by accident; the invite's token stays out of referrers.
const HEADERS: [(header::HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000"),
];

/// `/`, `/invite/{token}`, `/ca/{kind}/{format}`, `/healthz`, `/readyz`, and what [`well_known`] has.
pub(crate) fn routes(view: Arc<ClusterCache>, address: &str, health: Health) -> Routes {
    let keys = well_known::routes(Arc::clone(&view), address);
    let pages = Pages { view, address: Arc::from(address) };
    Routes::default()
        .page("/", get(front).with_state(pages.clone()))
        .page("/invite/{token}", get(invite).with_state(pages))
        .and(keys)
        .and(health_routes(health))
        .answering(harden)
}

fn harden(mut response: Response) -> Response {
    // gRPC answers pass by here as well when the routers are merged; these headers do not concern them.
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

fn page(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>body{{font:16px/1.5 system-ui,sans-serif;\
         max-width:44rem;margin:3rem auto;padding:0 1rem;color:#1b1f24;background:#fff}}pre{{background:#f2f4f6;\
         padding:.8rem;overflow-x:auto;border-radius:4px}}@media(prefers-color-scheme:dark){{body{{color:#e6e8ea;\
         background:#15181b}}pre{{background:#22272c}}}}</style></head><body><h1>{title}</h1>\n{body}\n</body></html>\n"
    ))
}

/// For text that ends up between tags.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

async fn front(State(pages): State<Pages>) -> Html<String> {
    let (cluster, address) = (escape(pages.view.cluster().as_str()), escape(&pages.address));
    page(
        &format!("Sallyport: {cluster}"),
        &format!(
            "<p>This is the one address of the cluster <b>{cluster}</b>: servers are reached through it.</p>\n\
             <p>Log in, then connect:</p>\n<pre>sallyport login --proxy {address} --user YOU\nsallyport ls\n\
             sallyport ssh LOGIN@NODE</pre>\n\
             <p>The certificate authorities: <a href=\"/ca/user/openssh\">user, for sshd</a>, \
             <a href=\"/ca/host/known_hosts\">host, for known_hosts</a>, <a href=\"/ca/user/tls\">user, TLS</a>, \
             <a href=\"/ca/host/tls\">host, TLS</a>.</p>"
        ),
    )
}

async fn invite(State(pages): State<Pages>, Path(token): Path<String>) -> Response {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if token.is_empty() || token.len() > 256 || !token.chars().all(fine) {
        return (StatusCode::NOT_FOUND, page("No such invitation", "<p>Ask for a new link.</p>"))
            .into_response();
    }
    // The pin is in the link's fragment, which a browser does not send: the page can only tell where it is.
    let (cluster, address) = (escape(pages.view.cluster().as_str()), escape(&pages.address));
    page(
        &format!("Welcome to {cluster}"),
        &format!(
            "<p>You were invited. Passwords are set in your own terminal, not on this page, so that no web page ever \
             sees them. Run this command with the whole link from your message, in quotes, including what follows the \
             <code>#</code>:</p>\n<pre>sallyport signup 'https://{address}/invite/{token}#...'</pre>\n\
             <p>The part after <code>#</code> is how the program knows that it talks to the right cluster.</p>"
        ),
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
