//! The pages: one document, filled in for its address, with what a browser without scripts shows of it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;

use super::fields::Word;
use crate::member::cluster_cache::ClusterCache;
use crate::routes::Routes;

/// As `web/` builds it.
pub(super) const DOCUMENT: &str = include_str!("../../../../../web/dist/index.html");

/// What the pages need to know.
#[derive(Clone)]
struct Pages {
    view: Arc<ClusterCache>,
    /// `host:port` as people type it.
    address: Arc<str>,
}

/// `/`, `/login`, `/web/sso/callback` and those below it, `/approve`, `/factors`, `/enrol` and `/invite/{token}`.
pub(super) fn routes(view: Arc<ClusterCache>, address: &str) -> Routes {
    let pages = Pages { view, address: Arc::from(address) };
    Routes::default()
        .page("/", get(front).with_state(pages.clone()))
        .page("/login", get(login).with_state(pages.clone()))
        .page("/web/sso/callback", get(login).with_state(pages.clone()))
        .page("/web/sso/callback/{connector}", get(login).with_state(pages.clone()))
        .page("/approve", get(approve).with_state(pages.clone()))
        .page("/factors", get(factors).with_state(pages.clone()))
        .page("/enrol", get(enrol).with_state(pages.clone()))
        .page("/invite/{token}", get(invite).with_state(pages))
}

/// What stands on a page where scripts do not run.
struct Plain {
    title: String,
    /// Markup: what comes from outside is escaped in it.
    body: String,
}

impl Pages {
    /// The cluster and the address, for text between tags and in quotes.
    fn known(&self) -> (String, String) {
        (escape(self.view.cluster().as_str()), escape(&self.address))
    }

    fn page(&self, plain: &Plain) -> Html<String> {
        let (cluster, address) = self.known();
        Html(filled(&cluster, &address, plain))
    }
}

/// Everything here is escaped already.
fn filled(cluster: &str, address: &str, Plain { title, body }: &Plain) -> String {
    let plain = format!("<main><section class=\"card\"><h1>{title}</h1>\n{body}</section></main>");
    // Once through, so that nothing that is filled in is read as a place to fill in.
    let mut page = String::with_capacity(DOCUMENT.len() + plain.len() + 256);
    let mut rest = DOCUMENT;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (place, after) = after.split_once("}}").unwrap_or((after, ""));
        page.push_str(match place {
            "cluster" => cluster,
            "address" => address,
            "title" => title,
            "noscript" => &plain,
            _ => "",
        });
        rest = after;
    }
    page.push_str(rest);
    page
}

/// For text between tags and in quotes.
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
    let (cluster, address) = pages.known();
    pages.page(&Plain {
        title: format!("Sallyport: {cluster}"),
        body: format!(
            "<p>This is the one address of the cluster <b>{cluster}</b>: servers, databases and applications are reached \
             through it.</p>\n<p>Log in, then connect:</p>\n<pre><code>sallyport login --proxy {address} --user YOU\n\
             sallyport ls\nsallyport ssh LOGIN@NODE</code></pre>\n<p>The certificate authorities: <a \
             href=\"/ca/user/openssh\">user, for sshd</a>, <a href=\"/ca/host/known_hosts\">host, for known_hosts</a>, <a \
             href=\"/ca/user/tls\">user, TLS</a>, <a href=\"/ca/host/tls\">host, TLS</a>.</p>"
        ),
    })
}

async fn login(State(pages): State<Pages>) -> Html<String> {
    let (cluster, address) = pages.known();
    pages.page(&Plain {
        title: format!("Log in to {cluster}"),
        body: format!(
            "<p>This page needs JavaScript, by which a browser uses passkeys. Switch it on for this address and load the page \
             again, or log in with your password in the terminal:</p>\n<pre><code>sallyport login --proxy {address} --user \
             YOU</code></pre>"
        ),
    })
}

async fn approve(State(pages): State<Pages>) -> Html<String> {
    pages.page(&Plain {
        title: "Confirm a request".to_owned(),
        body: "<p>This page needs JavaScript, by which a browser uses passkeys. Switch it on for this address and load the \
               page again. Nothing is approved until then, and the request expires by itself.</p>"
            .to_owned(),
    })
}

async fn factors(State(pages): State<Pages>) -> Html<String> {
    pages.page(&Plain {
        title: "Your factors".to_owned(),
        body: "<p>This page needs JavaScript. Switch it on for this address and load the page again, or use the \
               terminal:</p>\n<pre><code>sallyport mfa ls\nsallyport mfa rm NAME</code></pre>"
            .to_owned(),
    })
}

async fn enrol(State(pages): State<Pages>) -> Html<String> {
    pages.page(&Plain {
        title: "Add a passkey".to_owned(),
        body: "<p>This page needs JavaScript, by which a browser makes passkeys. Switch it on for this address and load the \
               page again. Nothing is added until then, and the request expires by itself.</p>"
            .to_owned(),
    })
}

async fn invite(State(pages): State<Pages>, Path(token): Path<String>) -> Response {
    if !Word::is(&token) {
        let plain =
            Plain { title: "No such invitation".to_owned(), body: "<p>Ask for a new link.</p>".to_owned() };
        return (StatusCode::NOT_FOUND, pages.page(&plain)).into_response();
    }
    // The pin is in the link's fragment, which a browser does not send: the page can only tell where it is.
    let (cluster, address) = pages.known();
    let page = pages.page(&Plain {
        title: format!("Welcome to {cluster}"),
        body: format!(
            "<p>You were invited. Passwords are set in your own terminal, not on this page, so that no web page ever \
             sees them. Run this command with the whole link from your message, in quotes, including what follows the \
             <code>#</code>:</p>\n<pre><code>sallyport signup 'https://{address}/invite/{token}#...'</code></pre>\n<p>The part \
             after <code>#</code> is how the program knows that it talks to the right cluster.</p>\n<p>To make a passkey in \
             place of a password, switch JavaScript on for this address and load the page again.</p>"
        ),
    });
    page.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup_nor_a_place_to_fill_in() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
        let plain = Plain { title: "{{noscript}}".to_owned(), body: "{{cluster}}".to_owned() };
        let page = filled("{{noscript}}", "{{address}}", &plain);
        assert!(page.contains("data-cluster=\"{{noscript}}\""), "{page}");
        assert!(page.contains("<h1>{{noscript}}</h1>\n{{cluster}}"), "{page}");
        let kept = page.matches("{{").count();
        assert_eq!(kept, 5, "all places of the document are filled in, and nothing else: {page}");
    }
}
