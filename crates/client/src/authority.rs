//! Ways to the authority: through the proxy, encrypted end to end, with and without a login; and through its socket.

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use sallyport_access::{ClusterName, HostRole};
use sallyport_ca::{Trust, server_name, tls};
use sallyport_wire::alpn;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::catalogue_client::CatalogueClient;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::v1::devices_client::DevicesClient;
use sallyport_wire::v1::factors_client::FactorsClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::logins_client::LoginsClient;
use sallyport_wire::v1::provisioning_client::ProvisioningClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::session_factors_client::SessionFactorsClient;
use sallyport_wire::v1::sessions_client::SessionsClient;
use sallyport_wire::v1::sso_client::SsoClient;
use sallyport_wire::v1::suites_client::SuitesClient;
use tokio::net::UnixStream;
use tonic::transport::{self, Uri};

use super::channel::{Channel, Prover, channel_over, endpoint};
use super::dial::tls_connect;
use super::profile::Stored;
use crate::error::{Doing, Error, Result};

/// How a client knows that it talks to the right cluster before it has any of its certificates.
#[derive(Debug, Clone)]
pub enum FirstTrust {
    /// The pin came with a token, a link or by hand.
    Pin(String),
    /// An earlier login left the certificates.
    Known {
        /// What its certificates are checked against.
        trust: Box<Trust>,
        /// Its name.
        cluster: ClusterName,
    },
}

/// A channel to the authority with the certificates of a login, which follows nothing that it hears.
pub(super) async fn plain(stored: &Stored) -> Result<transport::Channel> {
    let identity = stored.tls_identity()?;
    let config = tls::client_config(&stored.trust()?, Some((&identity.0, &identity.1)), &[alpn::AUTH])
        .doing("use the stored certificates")?;
    let name = server_name(HostRole::Auth, &stored.profile.cluster);
    let stream = tls_connect(&stored.profile.proxy, config, &name).await?;
    channel_over(endpoint(), stream, "talk to the authority").await
}

/// A channel to the authority without a certificate, for logging in.
pub fn login<'a>(proxy: &'a str, first: &'a FirstTrust) -> BoxFuture<'a, Result<LoginClient<Channel>>> {
    Box::pin(async move {
        let stream = match first {
            FirstTrust::Pin(pin) => {
                let config = tls::pinned_client_config(pin, &[alpn::AUTH])
                    .map_err(|error| Error::Pin(Arc::new(error)))?;
                // The pin names the authority's key; the name in the certificate adds nothing to that.
                tls_connect(proxy, config, "auth.sallyport.internal").await?
            }
            FirstTrust::Known { trust, cluster } => {
                let config =
                    tls::client_config(trust, None, &[alpn::AUTH]).doing("use the stored certificates")?;
                tls_connect(proxy, config, &server_name(HostRole::Auth, cluster)).await?
            }
        };
        Ok(LoginClient::new(Channel::plain(channel_over(endpoint(), stream, "talk to the authority").await?)))
    })
}

/// The pin of the server that answers at an address: only to be shown to a person who can compare it.
pub fn unverified_pin(proxy: &str) -> BoxFuture<'_, Result<String>> {
    Box::pin(async move {
        let (config, seen) = tls::danger::unverified_client_config(&[alpn::AUTH]).doing("set up TLS")?;
        let _stream = tls_connect(proxy, config, "auth.sallyport.internal").await?;
        seen.pin().ok_or_else(|| Error::NoPin { proxy: proxy.to_owned() })
    })
}

/// A connection to the authority, and the clients of its services.
#[derive(Debug)]
pub struct Authority {
    channel: Channel,
    /// The proxy on the way to it, where there is one.
    proxy: Option<String>,
}

impl Authority {
    /// Over a channel that goes through this proxy.
    pub(super) fn through(proxy: String, channel: Channel) -> Self {
        Self { channel, proxy: Some(proxy) }
    }

    /// Through the socket in the authority's data directory on this machine, with no login.
    pub fn of_data_dir(directory: &Path) -> BoxFuture<'_, Result<Self>> {
        Box::pin(
            async move { Ok(Self { channel: socket(&directory.join("admin.sock")).await?, proxy: None }) },
        )
    }

    /// The same, where calls that want a proof of a factor first are made once more when `prover` has seen to it.
    #[must_use]
    pub fn proven_by(self, prover: Arc<dyn Prover>) -> Self {
        Self { channel: self.channel.proven_by(prover), ..self }
    }

    /// The public address of the proxy on the way to it, where there is one.
    pub fn proxy(&self) -> Option<&str> {
        self.proxy.as_deref()
    }

    /// Users, roles, tokens, locks and resources.
    pub fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Certificates that are made by hand, and those that are denied.
    pub fn certificates(&self) -> CertificatesClient<Channel> {
        CertificatesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Rotations of the certificate authorities.
    pub fn rotation(&self) -> RotationClient<Channel> {
        RotationClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Single sign-on.
    pub fn sso(&self) -> SsoClient<Channel> {
        SsoClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Suites of algorithms.
    pub fn suites(&self) -> SuitesClient<Channel> {
        SuitesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Sessions that run.
    pub fn sessions(&self) -> SessionsClient<Channel> {
        SessionsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Databases, and who may use them.
    pub fn databases(&self) -> DatabasesClient<Channel> {
        DatabasesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Resources of the catalogue.
    pub fn catalogue(&self) -> CatalogueClient<Channel> {
        CatalogueClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Trusted devices.
    pub fn devices(&self) -> DevicesClient<Channel> {
        DevicesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Logins that are open.
    pub fn logins(&self) -> LoginsClient<Channel> {
        LoginsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// The caller's own factors.
    pub fn factors(&self) -> FactorsClient<Channel> {
        FactorsClient::new(self.channel.clone())
    }

    /// The second factor for each of the caller's sessions.
    pub fn session_factors(&self) -> SessionFactorsClient<Channel> {
        SessionFactorsClient::new(self.channel.clone())
    }

    /// Tokens of SCIM clients.
    pub fn provisioning(&self) -> ProvisioningClient<Channel> {
        ProvisioningClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Nodes, recordings, and questions about access.
    pub fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }
}

/// Room for a list of 20,000 nodes.
const MESSAGE_LIMIT: usize = 64 << 20;

async fn socket(path: &Path) -> Result<Channel> {
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                "no authority is running there".to_owned()
            }
            std::io::ErrorKind::PermissionDenied => "it belongs to another user".to_owned(),
            _ => error.to_string(),
        };
        Error::NoSocket { path: path.to_owned(), why }
    };
    let stream = UnixStream::connect(path).await.map_err(failed)?;
    let stream = parking_lot::Mutex::new(Some(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let taken = stream.lock().take();
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("the connection was lost")) }
    });
    endpoint().connect_with_connector(connector).await.map(Channel::plain).map_err(|error| Error::Unusable {
        doing: format!("talk to {}", path.display()),
        source: Arc::new(error),
    })
}
