//! Single sign-on by OpenID Connect, and by GitHub: connectors as documents, the way through a provider, and the users that come of it.
//!
//! A person is a subject of an issuer ([`people`]), never a name or a mail address. What the provider has said is verified by the
//! crate `oidc`, which fetches nothing; [`provider`] fetches, within bounds. What a person gets is computed at each login from what
//! the provider says then ([`claims`]).

mod asking;
pub(crate) mod claims;
mod client;
pub(crate) mod connector;
pub(crate) mod connectors;
pub(crate) mod document;
pub(crate) mod error;
pub(crate) mod failure;
mod first_factor;
pub(crate) mod flow;
mod github;
mod grants;
mod hubs;
mod lapse;
mod linking;
pub(crate) mod logout;
pub(crate) mod pages;
pub(crate) mod people;
mod provider;
mod reconsidering;
pub(crate) mod records;
mod refreshing;
mod result;
mod ruled;
mod settings;
mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
pub(in crate::authority) mod tests;
mod written;
