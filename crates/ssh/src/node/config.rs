//! Settings of a node's SSH server.

use std::time::Duration;

use russh::server::Config;
use russh::{MethodKind, MethodSet, SshId};

use super::apart::Apart;
use super::identity::HostIdentity;
use crate::algorithms;
use crate::capabilities::IDENTIFICATION;
use crate::inbound;
use crate::session::{Helper, LoginRecords, ShadowFile};

/// Settings of a node's SSH server.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// How a session process is started. Default: this program once more.
    pub helper: Helper,
    /// Variables that clients may set: names, or beginnings of names ended by `*`. Default: language, terminal and
    /// colour. What a dynamic linker or shell obeys does not belong here.
    pub accept_env: Vec<String>,
    /// How long a client may take to authenticate. Default 30 s, range 1 s to 10 min.
    pub login_timeout: Duration,
    /// Authentication attempts on one connection. Default 10: an agent that holds several keys tries them all.
    pub max_auth_attempts: usize,
    /// Silence after which a client is asked whether it is still there. Default 15 s.
    pub keepalive_interval: Duration,
    /// Questions without an answer after which it is not. Default 3.
    pub keepalive_max: usize,
    /// Forwarded connections that may be open at once on one SSH connection. Default 256.
    pub max_forwards: usize,
    /// Let clients say on which addresses the node listens for them (`ssh -R`). Default: the loopback ones, whatever
    /// they say. Any machine that reaches the node then reaches what its users forward.
    pub gateway_ports: bool,
    /// Enter sessions with a terminal into utmp, wtmp and lastlog, when the node is root and the files are there. Default: the
    /// system's.
    pub login_records: Option<LoginRecords>,
    /// End what still runs of a command or shell when that has ended, however it was detached. Costs one more process for
    /// each session. Default: no, as sshd.
    pub kill_orphans: bool,
    /// Ask PAM's account management about the account of each connection, by this service (a file in `/etc/pam.d`). Works
    /// in a build with the feature `pam`; in another, everybody is refused. Default: PAM is not asked.
    pub pam_account: Option<String>,
    /// What of the shadow file closes an account, where PAM is not asked. Default: its day of expiry.
    pub shadow: ShadowFile,
    /// Where clients may not have the node connect to (`ssh -L`). Default: none is apart.
    pub apart: Apart,
    /// Open a session of PAM's around each session, by runuser(1) and the service of that name. For a node that is root.
    /// Costs three more processes for each session. Default: no.
    pub pam_session: bool,
    /// Whether the accounts that sessions run as can neither alter nor remove what the node keeps of them. Default: whether
    /// this process is root. Where they can, a session that has to be recorded (`record_session: strict`) does not begin.
    pub out_of_reach: bool,
    /// How much later than a proxy this server may hear of a lock: for so long a client that is gone may have been cut off by it.
    /// Default 1 s.
    pub late_word: Duration,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            helper: Helper::default(),
            accept_env: ["LANG", "LANGUAGE", "LC_*", "COLORTERM", "NO_COLOR", "TERM"]
                .map(str::to_owned)
                .into(),
            login_timeout: Duration::from_secs(30),
            max_auth_attempts: 10,
            keepalive_interval: Duration::from_secs(15),
            keepalive_max: 3,
            max_forwards: 256,
            gateway_ports: false,
            login_records: Some(LoginRecords::default()),
            kill_orphans: false,
            pam_account: None,
            shadow: ShadowFile::default(),
            apart: Apart::default(),
            pam_session: false,
            out_of_reach: nix::unistd::geteuid().is_root(),
            late_word: Duration::from_secs(1),
        }
    }
}

impl NodeConfig {
    /// Whether a client may set this variable.
    pub(super) fn accepts(&self, name: &str) -> bool {
        self.accept_env.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == allowed,
        })
    }

    /// What the library is told, which speaks inside [`crate::transport`].
    pub(crate) fn ssh(&self, host: &HostIdentity) -> Config {
        inside(Config {
            server_id: SshId::Standard(IDENTIFICATION.into()),
            keys: vec![host.key.clone()],
            window_size: inbound::FIRST_WINDOW_BYTES,
            maximum_packet_size: 32 * 1024,
            channel_buffer_size: algorithms::CHANNEL_PACKETS,
            event_buffer_size: 32,
            // Dead peers are found by keepalives, idle people by the roles' own limit.
            inactivity_timeout: None,
            keepalive_interval: Some(self.keepalive_interval),
            keepalive_max: self.keepalive_max,
            nodelay: true,
            ..Config::default()
        })
    }
}

/// The library exchanges nothing and asks for no proof: [`crate::transport`] has exchanged keys and let the user in.
pub(crate) fn inside(config: Config) -> Config {
    Config {
        methods: MethodSet::from(&[MethodKind::None][..]),
        // Nothing is refused there.
        auth_rejection_time: Duration::ZERO,
        auth_rejection_time_initial: Some(Duration::ZERO),
        limits: algorithms::inside_limits(),
        preferred: algorithms::inside(),
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_set_only_harmless_variables() {
        let config = NodeConfig::default();
        for name in ["LANG", "LC_ALL", "LC_TIME", "TERM", "COLORTERM"] {
            assert!(config.accepts(name), "{name}");
        }
        for name in ["LD_PRELOAD", "PATH", "BASH_ENV", "LANGX", "", "SSH_AUTH_SOCK", "ENV"] {
            assert!(!config.accepts(name), "{name}");
        }
    }
}
