//! The architecture that this one is measured against: a key pair and a certificate for each connection, and TLS with them
//! inside the stream to the agent. See [`Danger`](crate::config::danger::Danger).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sallyport_access::HostRole;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::server_name;
use sallyport_databases::postgres::error::{Refusal, SqlState};
use sallyport_sal::KeyPurpose;
use sallyport_wire::{tunnel, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tracing::{Span, warn};

use crate::ServerError;
use crate::dialling::handshake;
use crate::member::authority_client::AuthorityClient;
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::{Credentials, certificates};
use crate::proxy::client::{Client, Source, Target};

/// How long the authority may take for a certificate; ten wait at a time.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Most that goes on at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Makes keys for connections to agents.
#[derive(Debug, Clone)]
pub(crate) struct FreshKeys {
    pub(crate) credentials: Credentials,
    pub(crate) client: AuthorityClient,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) public_names: Arc<[String]>,
}

impl FreshKeys {
    /// Carries a session's bytes as [`super::relay::carry`] does, in TLS with a key of its own.
    pub(super) async fn carry(
        &self,
        mut client: impl Client,
        agent: tunnel::Stream,
        first: Bytes,
        first_byte: Span,
    ) {
        let agent = match self.connect(agent).await {
            Ok(agent) => agent,
            Err(error) => {
                warn!(error = %ServerError::chain(&error), "no key for a connection to an agent");
                let refusal =
                    Refusal::new(SqlState::CannotConnectNow, "the proxy could not prove itself to the agent");
                let _ = client.send(Bytes::from(refusal.to_bytes())).await;
                return client.finish().await;
            }
        };
        let (mut from, mut to) = client.split();
        let (mut received, mut sent) = tokio::io::split(agent);
        let up = async {
            let mut next = Some(first);
            while let Some(bytes) = next {
                sent.write_all(&bytes).await?;
                sent.flush().await?;
                next = from.next().await?;
            }
            sent.shutdown().await
        };
        let down = async {
            let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
            let mut first_byte = Some(first_byte);
            while received.read_buf(&mut buffer).await? > 0 {
                drop(first_byte.take());
                to.send(buffer.split().freeze()).await?;
                buffer.reserve(CHUNK_BYTES);
            }
            to.finish().await;
            Ok::<(), std::io::Error>(())
        };
        let mut down = std::pin::pin!(down);
        let ended = tokio::select! {
            ended = down.as_mut() => ended,
            ended = up => match ended {
                Ok(()) => down.await,
                Err(error) => Err(error),
            },
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection with a key of its own ended");
        }
    }

    async fn connect(&self, agent: tunnel::Stream) -> Result<TlsStream<tunnel::Stream>, ServerError> {
        let failed =
            |error: &dyn std::fmt::Display| certificates("a key for one connection", error.to_string());
        let trust = self.view.trust();
        let suite = trust.suite();
        let making =
            tokio::task::spawn_blocking(move || TlsKey::generate_for(suite, KeyPurpose::ProxyToAgent));
        let key = making.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        let host = self.credentials.identity();
        let ssh = SshKeyPair::from_openssh(host.ssh_key.expose()).map_err(|error| failed(&error))?;
        let request = v1::RenewHostRequest {
            ssh_public_key: ssh.public_line().to_owned(),
            tls_public_key: key.spki_der().to_vec().into(),
            public_names: self.public_names.to_vec(),
        };
        let mut fleet = self.client.fleet();
        let answer = tokio::time::timeout(CALL_TIMEOUT, fleet.renew_host(request)).await;
        let issued = answer
            .map_err(|_| failed(&"no answer from the authority"))?
            .map_err(|status| failed(&status.message()))?
            .into_inner();
        let pair = (issued.tls_certificate_pem.as_str(), key.pkcs8_pem());
        let mut config = sallyport_ca::tls::client_config(&trust, Some((pair.0, pair.1.as_str())), &[])
            .map_err(|error| failed(&error))?;
        config.resumption = Resumption::disabled();
        let name = server_name(HostRole::Node, &host.cluster);
        handshake(agent, Arc::new(config), &name).await.map_err(|error| failed(&error))
    }
}
