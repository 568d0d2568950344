//! What every host of the cluster does, whether it is a proxy or runs an agent: its identity and how that is renewed, what it knows of the
//! cluster, the events that wait for the authority, and what it tells of itself.

pub(crate) mod authority_client;
pub(crate) mod client_sightings;
pub(crate) mod cluster_cache;
pub(crate) mod confirming;
pub(crate) mod directory;
pub(crate) mod host;
pub(crate) mod host_keys;
pub(crate) mod joining;
pub(crate) mod reporting;
pub(crate) mod session_factors;
pub(crate) mod spool;
pub(crate) mod starting;
pub(crate) mod watching;
