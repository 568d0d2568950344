//! The HTTPS pages of the public address.

use std::sync::Arc;

use axum::http::{HeaderValue, header};
use axum::response::Response;

use super::{web, well_known};
use crate::health::{Health, health_routes};
use crate::member::authority_client::AuthorityClient;
use crate::member::cluster_cache::ClusterCache;
use crate::routes::Routes;

/// Nothing but the pages' own script runs, nothing is framed, sent elsewhere or kept by accident; an invite's token stays out of
/// referrers. Markup is made by Svelte's policy of Trusted Types alone.
const HEADERS: [(header::HeaderName, &str); 9] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types svelte-trusted-html",
    ),
    (
        header::HeaderName::from_static("permissions-policy"),
        "publickey-credentials-get=(self), publickey-credentials-create=(self), camera=(), microphone=(), geolocation=()",
    ),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000"),
];

/// The pages of [`web`], `/ca/{kind}/{format}`, `/healthz`, `/readyz`, and what [`well_known`] has.
pub(crate) fn routes(
    view: Arc<ClusterCache>,
    address: &str,
    names: &[String],
    client: AuthorityClient,
    health: Health,
) -> Routes {
    let keys = well_known::routes(Arc::clone(&view), address);
    web::routes(view, address, names, client).and(keys).and(health_routes(health)).answering(harden)
}

fn harden(mut response: Response) -> Response {
    // gRPC answers pass by here as well when the routers are merged; these headers do not concern them.
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
