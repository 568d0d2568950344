//! What the SSH library calls back for: the host's certificate, banners, the end, and a forwarded agent.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use russh::client::{ChannelOpenHandle, DisconnectReason, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelId, ChannelOpenFailure};
use sallyport_access::{HostRole, Principal};
use sallyport_ca::keys::fingerprint;
use sallyport_ca::{CaError, Trust};
use ssh_key::Certificate;
use ssh_key::public::KeyData;
use time::OffsetDateTime;
use tracing::{debug, warn};

use super::endpoint::Endpoint;
use super::error::ClientError;
use super::refusals::Refusals;
use super::remotes::Remotes;
use super::settings::{Extras, Whom};
use super::x11::Display;
use crate::agent::{Binding, connect_forwarded};
use crate::algorithms;
use crate::pump::{Slack, pump};

/// What the callbacks learn and the connection's user asks for.
#[derive(Debug, Default)]
pub(super) struct Said {
    texts: Mutex<Texts>,
    /// The user asked for agent forwarding on some session; until then no agent channel is accepted.
    pub(super) agent_wanted: AtomicBool,
    /// What proves the host to the user's agent, once it is known.
    pub(super) binding: OnceLock<Binding>,
    /// What a session was offered; until then no connection to a display is accepted.
    display: Mutex<Option<Arc<Display>>>,
}

#[derive(Debug, Default)]
struct Texts {
    banner: String,
    end: String,
}

impl Said {
    /// Lets programs of the host through to this display.
    pub(super) fn offer_display(&self, display: Arc<Display>) {
        *self.display.lock() = Some(display);
    }

    pub(super) fn display(&self) -> Option<Arc<Display>> {
        self.display.lock().clone()
    }

    /// The banners so far: servers explain refusals there.
    pub(super) fn banner(&self) -> String {
        self.with(|texts| texts.banner.trim().to_owned())
    }

    /// Why the connection ended, as far as either side said.
    pub(super) fn end(&self) -> String {
        self.with(|texts| texts.end.clone())
    }

    pub(super) fn set_end(&self, text: String) {
        self.with(|texts| texts.end = text);
    }

    pub(super) fn add_banner(&self, banner: &str) {
        self.with(|texts| {
            if texts.banner.len() + banner.len() <= BANNER_BYTES {
                texts.banner.push_str(banner);
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Texts) -> T) -> T {
        act(&mut self.texts.lock())
    }
}

/// Longest banner kept, in bytes: a hostile host must not fill memory or a terminal.
const BANNER_BYTES: usize = 16 * 1024;

/// Whether a host is the one that was dialled: its certificate is of the cluster's host CA, in force, for the name asked
/// for, and of the sort of host that it should be.
///
/// # Errors
/// [`ClientError::HostCertificate`].
pub(super) fn believe(
    trust: &Trust,
    host: &str,
    whom: Whom,
    certificate: &Certificate,
) -> Result<(), ClientError> {
    let now = OffsetDateTime::now_utc();
    let refused = |source| ClientError::HostCertificate { host: host.to_owned(), source };
    let verified = match whom {
        Whom::Target | Whom::Server => trust.verify_target_ssh(certificate, host, now),
        Whom::Proxy => trust.verify_proxy_ssh(certificate, host, now),
    };
    let identity = verified.map_err(refused)?;
    let is_proxy = matches!(identity.principal, Principal::Host { role: HostRole::Proxy, .. });
    if whom == Whom::Server && is_proxy {
        let (got, expected) = ("proxy".to_owned(), format!("the server {host} itself"));
        return Err(refused(CaError::WrongRole { got, expected }));
    }
    debug!(%host, node = %identity.display_name(), "host certificate accepted");
    Ok(())
}

/// What there is to say of a host that has no certificate.
pub(super) fn plain(host: &str, fingerprint: String) -> ClientError {
    ClientError::PlainHostKey { host: host.to_owned(), fingerprint }
}

/// The callbacks of one connection.
pub(super) struct Events {
    pub(super) host: String,
    pub(super) trust: Arc<Trust>,
    pub(super) agent: Option<PathBuf>,
    pub(super) said: Arc<Said>,
    pub(super) refusals: Refusals,
    pub(super) slack: Slack,
    pub(super) remotes: Arc<Remotes>,
    pub(super) extras: Extras,
    pub(super) widest_window: u32,
}

impl Events {
    /// Whether a host that has proven that it holds `key` is the one that was dialled.
    ///
    /// # Errors
    /// [`ClientError::HostCertificate`], or [`ClientError::PlainHostKey`] for one without a certificate whose key is not pinned.
    pub(super) fn judge(&self, key: &KeyData, certificate: Option<&Certificate>) -> Result<(), ClientError> {
        let Some(certificate) = certificate else {
            let pinned = self.extras.pinned.as_deref();
            let pinned = pinned.and_then(|line| ssh_key::PublicKey::from_openssh(line.trim()).ok());
            if pinned.is_some_and(|pinned| pinned.key_data() == key) {
                debug!(host = %self.host, "pinned host key accepted");
                return Ok(());
            }
            return Err(plain(&self.host, fingerprint(key)));
        };
        believe(&self.trust, &self.host, self.extras.whom, certificate)
    }
}

impl Handler for Events {
    type Error = ClientError;

    async fn channel_open_confirmation(
        &mut self,
        _: ChannelId,
        _: u32,
        _: u32,
        session: &mut Session,
    ) -> Result<(), ClientError> {
        self.widest_window = algorithms::widest_window(session.remote_sshid());
        Ok(())
    }

    fn adjust_window(&mut self, _: ChannelId, current: u32) -> u32 {
        algorithms::wider_window(current, self.widest_window)
    }

    async fn auth_banner(&mut self, banner: &str, _: &mut Session) -> Result<(), ClientError> {
        self.said.add_banner(banner);
        Ok(())
    }

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, ClientError> {
        self.judge(shown.public_key().key_data(), shown.certificate()).map(|()| true)
    }

    async fn channel_open_failure(
        &mut self,
        _: ChannelId,
        _: ChannelOpenFailure,
        description: &str,
        _: &str,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        self.refusals.came(description);
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        if let Some(source) = self.extras.agent.clone()
            && self.said.agent_wanted.load(Ordering::Acquire)
        {
            let slack = self.slack.clone();
            tokio::spawn(async move {
                match source.open().await {
                    Ok(agent) => {
                        reply.accept().await;
                        pump(channel, agent, slack).await;
                    }
                    Err(error) => {
                        debug!(%error, "no agent to forward");
                        reply.reject(ChannelOpenFailure::ConnectFailed).await;
                    }
                }
            });
            return Ok(());
        }
        let socket = self.agent.clone().filter(|_| self.said.agent_wanted.load(Ordering::Acquire));
        let Some(socket) = socket else {
            warn!(host = %self.host, "the host asked for the SSH agent, which was not offered to it");
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        let (slack, said) = (self.slack.clone(), Arc::clone(&self.said));
        // Apart from the connection's own loop: a stuck agent must not stop the session.
        tokio::spawn(async move {
            match connect_forwarded(&socket, said.binding.get()).await {
                Ok(agent) => {
                    reply.accept().await;
                    pump(channel, agent, slack).await;
                }
                Err(error) => {
                    debug!(socket = %socket.display(), %error, "no SSH agent to forward");
                    reply.reject(ChannelOpenFailure::ConnectFailed).await;
                }
            }
        });
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        channel: Channel<Msg>,
        address: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        // What is no port was not asked for either.
        let port = u16::try_from(port).unwrap_or_default();
        let from = Endpoint::Port { host: address.to_owned(), port };
        self.remotes.take(from, channel, reply, self.slack.clone()).await;
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        let from = Endpoint::Socket { path: path.to_owned() };
        self.remotes.take(from, channel, reply, self.slack.clone()).await;
        Ok(())
    }

    // A client of ours never asks for these, so a host that opens them is up to something.
    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        channel: Channel<Msg>,
        address: &str,
        port: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        let Some(display) = self.said.display() else {
            warn!(host = %self.host, "the host asked for the display, which was not offered to it");
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        let slack = self.slack.clone();
        let from = (address.chars().take(64).collect(), port);
        tokio::spawn(async move {
            reply.accept().await;
            let (near, far) = Display::pipe();
            let serve = async {
                if let Err(reason) = display.serve(from, far).await {
                    warn!(%reason, "a program of the host was not let through to the display");
                }
            };
            tokio::join!(pump(channel, near, slack), serve);
        });
        Ok(())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<ClientError>) -> Result<(), ClientError> {
        match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                self.said.set_end(info.message);
                Ok(())
            }
            DisconnectReason::Error(error) => {
                // An end without a word of farewell is all that `Disconnect` and `HUP` say.
                let silent = matches!(error, ClientError::Ssh(russh::Error::Disconnect | russh::Error::HUP));
                let text = match &error {
                    _ if silent => String::new(),
                    ClientError::Ssh(russh::Error::KeepaliveTimeout) => "it stopped answering".to_owned(),
                    ClientError::Ssh(inner) => inner.to_string(),
                    other => other.to_string(),
                };
                self.said.set_end(text);
                Err(error)
            }
        }
    }
}
