//! Hosts: how they join, what they are called, what is known of them, and the OpenSSH servers that proxies stand before.

pub(crate) mod heard;
pub(crate) mod heartbeats;
pub(crate) mod joining;
pub(crate) mod login_words;
pub(crate) mod membership;
pub(crate) mod names;
pub(crate) mod presence;
pub(crate) mod registry;
pub(crate) mod removing;
pub(crate) mod selection;
pub(crate) mod server_document;
pub(crate) mod servers;
pub(crate) mod targets;
pub(crate) mod tokens;
