//! The pages for browsers: built files of `web/`, and the JSON calls that they make.
//!
//! A call goes on to the authority over the proxy's own connection, with the address of the browser. Nothing here knows a
//! person: there is no cookie, and what a page may do follows from the id in its link and from what is proven there.

mod answer;
mod approve;
mod calls;
mod enrol;
mod factors;
mod fields;
mod files;
mod invite;
pub(super) mod limits;
mod login;
mod origin;
mod pages;
mod sso;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests;

use std::sync::Arc;

use self::calls::{Authority, Calls};
use self::origin::Origins;
use crate::member::authority_client::{AuthorityClient, Telling};
use crate::member::cluster_cache::ClusterCache;
use crate::routes::Routes;

/// The pages, their files and their calls. `address` is the public one as people type it, `names` are all that may stand in a
/// browser's address bar.
pub(super) fn routes(
    view: Arc<ClusterCache>,
    address: &str,
    names: &[String],
    client: AuthorityClient,
) -> Routes {
    let authority: Authority<Telling> = Arc::new(move || client.web());
    pages::routes(view, address).and(files::routes()).and(calls(Calls::new(authority, Origins::new(names))))
}

fn calls<S: calls::Channel>(calls: Calls<S>) -> Routes {
    let browser =
        login::routes::<S>(&calls).and(approve::routes::<S>(&calls)).and(factors::routes::<S>(&calls));
    browser.and(sso::routes::<S>(&calls)).and(enrol::routes::<S>(&calls)).and(invite::routes::<S>(&calls))
}
