//! The node against stock OpenSSH: everything here is a real `ssh`, `scp`, `sftp` or `rsync`, over loopback; but for
//! `doors`, which runs the same sessions through both front doors with our own client, and `native`.
//!
//! Logins are to the account that runs the tests. A test that needs root to become another account says so, and says
//! when it was left out.

mod at_once;
mod custody;
mod denied;
mod doors;
mod exchange;
mod files;
mod forward;
mod gone;
mod input;
mod joining;
mod keys;
mod left;
pub(crate) mod limits;
mod native;
mod orphans;
pub(crate) mod pam_session;
mod ready;
mod relay;
mod running;
mod told;
mod x11;
