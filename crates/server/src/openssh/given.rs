//! What a server of OpenSSH gets from the cluster that it joins.

use time::OffsetDateTime;

use super::layout::Layout;

/// What the cluster gave.
#[derive(Debug)]
pub struct Given {
    /// The cluster's name.
    pub cluster: String,
    /// The server's id there.
    pub id: String,
    /// The server's name there.
    pub name: String,
    /// The host certificate, one line.
    pub host_certificate: String,
    /// The SSH keys of the user and openssh CAs, a line each; more while one replaces the other.
    pub user_cas: Vec<String>,
    /// Certificates that were taken back, as a key revocation list.
    pub revoked: Vec<u8>,
    /// When the certificate ends.
    pub valid_until: OffsetDateTime,
    /// Whether the certificate is a new one.
    pub renewed: bool,
    /// sshd's side.
    pub layout: Layout,
    /// Whether sshd's configuration is ours to change.
    pub applied: bool,
}
