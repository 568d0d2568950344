//! The pure part of a SCIM 2.0 service provider (RFC 7643, RFC 7644): requests of a provisioning client go in with the time, and
//! answers and what was changed come out. Nothing is listened to and nothing is kept here.
//!
//! * [`Provider::handle`] answers a [`Request`] with a [`Response`]; what carries them has looked at the bearer token before;
//! * [`Backend`] keeps a connector's users and groups: the storage implements it, and [`contract::suite`] holds it to what it
//!   promises. A connector reaches what was made through it, and nothing else. [`MemoryDirectory`] is one for tests;
//! * a [`Resource`] is what is stored, a [`Draft`] what a client says of it: attributes in the form of their schema, and the
//!   client's own identifier apart from them;
//! * [`Filter`] and [`Patch`] read what clients write, within bounds of length and depth.
//!
//! A user is what the client says, no more: no attribute grants anything here, no password is taken, and a user is
//! [active](Draft::is_active) only by a value that says so.

mod backend;
pub mod contract;
mod discovery;
mod error;
mod exchange;
mod filter;
mod json;
mod kind;
mod listing;
mod memberships;
mod memory;
mod parameters;
mod patch;
mod path;
mod provider;
mod refused;
mod resource;
mod route;
mod schema;
mod shown;
mod text;
mod values;
mod version;

pub use backend::{Backend, BackendError, Each, EachMember, Member, Narrow};
pub use error::ScimError;
pub use exchange::{Done, Request, Response, What};
pub use filter::{Filter, Literal, MAX_FILTER_BYTES, MAX_FILTER_DEPTH, Operator};
pub use json::MAX_BODY_BYTES;
pub use kind::Kind;
pub use listing::{MAX_PAGE, MAX_PAGE_BYTES};
pub use memberships::MAX_GROUP_DEPTH;
pub use memory::{Connector, MemoryDirectory};
pub use parameters::MAX_QUERY_BYTES;
pub use patch::{MAX_PATCH_COMPARISONS, MAX_PATCH_VALUES, Patch};
pub use path::AttributePath;
pub use provider::Provider;
pub use resource::{Draft, Resource, UnknownMember};
pub use text::fold;
pub use values::{MAX_MEMBERS, MAX_NAME_BYTES, MAX_RESOURCE_BYTES, MAX_TEXT_BYTES, MAX_VALUES};
