//! This machine's node, fed by the tunnel.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Tasks;
use sallyport_access::Node;
use sallyport_audit::Sink;
use sallyport_audit::recording::Recorders;
use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::hpke::RecipientPublic;
use sallyport_session::LiveSessions;
use sallyport_ssh::endpoint::Early;
use sallyport_ssh::helper::pam_session;
use sallyport_ssh::node::{Apart, HostIdentity, NodeConfig, NodeServer};
use sallyport_ssh::session::{Helper, LoginRecords, ShadowFile};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::client_context::ServeStream;
use super::endpoints::{Endpoints, Native};
use crate::ServerError;
use crate::config::{HostPort, NodeSection};
use crate::files;
use crate::member::client_sightings::Sightings;
use crate::member::cluster_cache::ClusterCache;
use crate::member::directory::Known;
use crate::member::host::{Credentials, certificates};
use crate::member::session_factors::AuthorityFactors;

/// What the SSH server starts from.
pub(crate) struct Start<'a> {
    /// This node by its own configuration.
    pub(crate) own: Node,
    pub(crate) section: &'a NodeSection,
    pub(crate) proxy: &'a HostPort,
    /// Ports that this process listens on.
    pub(crate) listening: Vec<u16>,
    pub(crate) directory: &'a Path,
    pub(crate) credentials: Credentials,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) sightings: Sightings,
    pub(crate) factors: AuthorityFactors,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

/// The SSH server of the agent.
#[derive(Clone)]
pub(crate) struct SshNode {
    server: NodeServer,
    endpoints: Arc<Endpoints>,
    recorders: Recorders,
}

impl std::fmt::Debug for SshNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SshNode").field("recorders", &self.recorders).finish_non_exhaustive()
    }
}

fn host(identity: &crate::member::host::HostIdentity) -> Result<HostIdentity, ServerError> {
    let key = SshKeyPair::from_openssh(identity.ssh_key.expose())
        .map_err(|error| certificates("the SSH host key cannot be used", error))?;
    HostIdentity::new(&key, &identity.ssh_certificate)
        .map_err(|error| certificates("the SSH host certificate cannot be used", error))
}

/// Where PAM looks for the rules of a service.
const PAM_SERVICES: [&str; 3] = ["/etc/pam.d", "/usr/lib/pam.d", "/usr/share/pam.d"];

/// Refuses a service without rules: PAM would use those of `other`, which are seldom what the administrator meant who
/// wrote the name.
fn pam_service(name: &str) -> Result<(), ServerError> {
    if PAM_SERVICES.iter().any(|directory| Path::new(directory).join(name).is_file()) {
        return Ok(());
    }
    Err(ServerError::BadState {
        path: Path::new("/etc/pam.d").join(name),
        problem: "there is no such PAM service".to_owned(),
        fix: "write that file (docs/node.md has one), or remove node.pam_account".to_owned(),
    })
}

/// What it takes to open PAM sessions: this process is root, the system has runuser, and PAM has rules for it.
fn pam_sessions(root: bool, program: bool, rules: bool) -> Result<(), ServerError> {
    let remove = "or remove node.pam_session";
    let (problem, fix) = match (root, program, rules) {
        (false, ..) => ("only root can open PAM sessions", format!("run the node as root, {remove}")),
        (_, false, _) => ("this machine has no runuser", format!("install util-linux, {remove}")),
        (.., false) => {
            ("there is no such PAM service", format!("write that file (docs/node.md has one), {remove}"))
        }
        (true, true, true) => return Ok(()),
    };
    let path = Path::new(PAM_SERVICES[0]).join(pam_session::SERVICE);
    Err(ServerError::BadState { path, problem: problem.to_owned(), fix })
}

/// The account that sessions start from.
pub(crate) fn os_user() -> String {
    let id = rustix::process::geteuid();
    if id.is_root() {
        return "root".to_owned();
    }
    std::env::var("USER").unwrap_or_else(|_| id.as_raw().to_string())
}

impl SshNode {
    pub(crate) fn start(start: Start<'_>) -> Result<Self, ServerError> {
        let recordings = start.directory.join("recordings");
        files::private_directory(&recordings)?;
        start.section.pam_account.as_deref().map_or(Ok(()), pam_service)?;
        if start.section.pam_session {
            let root = rustix::process::geteuid().is_root();
            pam_sessions(root, pam_session::program().is_some(), pam_session::has_rules())?;
        }
        let recipient = recording_key(&start.view)?;
        let recorders = Recorders::open(&recordings, recipient).map_err(|source| ServerError::File {
            action: "record sessions in",
            path: recordings,
            source,
        })?;
        let mut config = NodeConfig {
            accept_env: start.section.allow_env.clone(),
            gateway_ports: start.section.gateway_ports,
            login_records: start.section.login_records.then(LoginRecords::default),
            kill_orphans: start.section.kill_orphans,
            pam_account: start.section.pam_account.clone(),
            pam_session: start.section.pam_session,
            shadow: ShadowFile {
                refuse_locked: start.section.refuse_locked_accounts,
                ..ShadowFile::default()
            },
            apart: match start.section.forwards_to_cluster {
                true => Apart::default(),
                false => Apart {
                    named: vec![(start.proxy.host.clone(), start.proxy.port)],
                    own_ports: start.listening,
                },
            },
            ..NodeConfig::default()
        };
        if let Some(program) = &start.section.helper {
            config.helper = Helper { program: program.clone(), ..Helper::default() };
        }
        let (own, node) = (start.own.id, Arc::new(start.own));
        let directory = Known {
            view: Arc::clone(&start.view),
            node,
            host: own,
            sightings: start.sightings,
            factors: start.factors,
        };
        let sink = Arc::clone(&start.sink);
        let server = NodeServer::new(
            config,
            &host(&start.credentials.identity())?,
            Arc::new(directory),
            start.sink,
            recorders.clone(),
        );
        let endpoints = Arc::new(Endpoints {
            server: server.clone(),
            credentials: start.credentials.clone(),
            view: Arc::clone(&start.view),
            sink,
            native_door: start.section.native_door,
            early: if start.section.early_data { Early::AtOnce } else { Early::AfterHandshake },
            native: Native::default(),
        });
        let node = Self { server, endpoints, recorders };
        let server = node.server.clone();
        start.credentials.present_with(Box::new(move |identity| {
            server.set_host(&host(identity)?);
            Ok(())
        }));
        start.tasks.spawn(node.clone().follow(start.view, start.stop));
        Ok(node)
    }

    /// Uses changed recording keys.
    async fn follow(self, view: Arc<ClusterCache>, stop: CancellationToken) {
        let mut changes = view.changes();
        loop {
            tokio::select! {
                changed = changes.changed() => match (changed, recording_key(&view)) {
                    (Err(_), _) => return,
                    (Ok(()), Ok(recipient)) => self.recorders.set_recipient(recipient),
                    (Ok(()), Err(error)) => warn!(%error, "recordings are still sealed to the former key"),
                },
                () = stop.cancelled() => return,
            }
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.server.connections_open()
    }

    /// Waits for open connections to end; gives how many are left.
    pub(crate) async fn drained(&self, patience: Duration) -> usize {
        self.server.emptied(patience).await
    }

    /// Cuts what is left, and waits for its records and until what it ran has ended, for at most [`sallyport_ssh::node::CUT_PATIENCE`].
    pub(crate) async fn end_all(&self) {
        self.server.drain(Duration::ZERO).await;
    }

    /// The sessions that run.
    pub(crate) fn live(&self) -> LiveSessions {
        self.server.live()
    }

    /// What writes the recordings.
    pub(crate) fn recorders(&self) -> Recorders {
        self.recorders.clone()
    }

    /// Serves a stream of the tunnel.
    pub(crate) fn serve(&self) -> ServeStream {
        let endpoints = Arc::clone(&self.endpoints);
        Arc::new(move |stream, client| {
            let endpoints = Arc::clone(&endpoints);
            Box::pin(async move { endpoints.serve(stream, client).await })
        })
    }
}

fn recording_key(view: &ClusterCache) -> Result<RecipientPublic, ServerError> {
    view.trust().recording_key().ok_or_else(|| {
        certificates("sessions cannot be recorded", "the cluster's trust has no recording key".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pam_sessions_take_root_and_runuser_and_its_rules() {
        assert!(pam_sessions(true, true, true).is_ok());
        let refused = |root, program, rules| pam_sessions(root, program, rules).unwrap_err().to_string();
        assert_eq!(
            refused(false, true, true),
            "/etc/pam.d/runuser: only root can open PAM sessions; run the node as root, or remove node.pam_session"
        );
        assert!(refused(true, false, true).contains("install util-linux"));
        assert!(refused(true, true, false).contains("no such PAM service"));
    }
}
