//! A client of a Sallyport cluster: the stored login, connections to the proxy and the authority, and the streams inside them.
//!
//! A program that reaches nodes or databases embeds this. It begins with [`profile::Profiles`], which has the logins of a user;
//! [`connect::proxy`] makes a connection with one of them, and [`transport::open`] a stream to a node, for an SSH client.
//! [`login::Login`] makes a login, [`browser_login::BrowserLogin`] one that is proven in a browser, and [`key_login::KeyLogin`] one that is proven
//! with a security key here. Channels keep the stored login up to date while the cluster changes its certificate authorities
//! ([`follow`]). A program that uses QUIC lets [`carrier::finish`] end its connections.
//!
//! Nothing here reads arguments, asks a person or prints. Errors ([`error::Error`]) say what happened, of which kind it is, and what
//! to try. Some settings are variables of the environment: `SALLYPORT_CARRIER` ([`carrier`]) and `SALLYPORT_FRONT` ([`native`]).

pub mod advice;
pub mod agents;
pub mod authority;
pub mod browser_login;
pub mod carrier;
pub mod channel;
pub mod connect;
pub mod demanded;
pub mod device;
pub mod dial;
pub mod error;
pub mod factors;
pub mod follow;
pub mod key_login;
pub mod liveness;
pub mod login;
mod login_keys;
mod loopback;
pub mod native;
pub mod native_history;
pub mod no_public_key;
pub mod own_ssh_key;
pub mod profile;
pub mod session_factor;
mod signing;
pub mod ssh_agent;
pub mod ssh_credentials;
pub mod times;
pub mod trace;
pub mod transport;
pub mod trust;
mod vouched;
