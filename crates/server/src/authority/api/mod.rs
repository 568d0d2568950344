//! The API: each of its services takes the authority's services that it uses.

pub(crate) mod admin;
pub(crate) mod answers;
pub(crate) mod catalogue;
pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod databases;
pub(crate) mod devices;
pub(crate) mod factors;
mod finishing;
pub(crate) mod hosts;
pub(crate) mod login;
pub(crate) mod logins;
pub(crate) mod provisioning;
pub(crate) mod rotation;
pub(crate) mod serve;
pub(crate) mod session_factors;
pub(crate) mod sessions;
pub(crate) mod sso;
pub(crate) mod suites;
mod visible;
pub(crate) mod web;
