//! The authorities' public keys in the formats of OpenSSH.

use crate::Trust;

/// Lines for `known_hosts`: hosts whose names match the patterns are known by certificates of this cluster's host
/// CA. A pattern with a port is written as `[host]:port`, as OpenSSH does.
#[must_use]
pub fn known_hosts_lines(trust: &Trust, patterns: &[String]) -> String {
    let patterns = patterns.join(",");
    trust.host_ssh_lines().map(|line| format!("@cert-authority {patterns} {line}\n")).collect()
}

/// Lines for the file that `sshd_config` names as `TrustedUserCAKeys`.
#[must_use]
pub fn trusted_user_ca_lines(trust: &Trust) -> String {
    trust.user_ssh_lines().map(|line| format!("{line}\n")).collect()
}

/// Lines for one account's `authorized_keys`: users of this cluster whose certificates name one of the principals
/// may log in there.
#[must_use]
pub fn authorized_keys_lines(trust: &Trust, principals: &[String]) -> String {
    let principals = principals.join(",");
    trust
        .user_ssh_lines()
        .map(|line| format!("cert-authority,principals=\"{principals}\" {line}\n"))
        .collect()
}
