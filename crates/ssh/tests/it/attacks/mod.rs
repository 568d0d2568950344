//! Attacks on the node by the accounts that it serves, and on a user's machine by the servers that the user copies from: each
//! does what such an account or server could do, and shows what is refused.

mod copy;
mod native_host;
mod opened;
mod own_account;
mod paths;
mod tracing;
