//! Ways to the authority: through the proxy, encrypted end to end, with and without a login; and through its socket.

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use sallyport_access::{ClusterName, HostRole};
use sallyport_ca::{CaError, Trust, TrustBundle, server_name, tls};
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
use super::dial::{Secured, tls_connect};
use super::profile::Stored;
use crate::error::{Doing, Error, Result, TlsFailure};

/// What a client does whose trust is of an earlier login.
const STORED: &str = "use the stored certificates";

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
        .doing(STORED)?;
    let name = server_name(HostRole::Auth, &stored.profile.cluster);
    let stream = tls_connect(&stored.profile.proxy, config, &name).await?;
    channel_over(endpoint(), stream, "talk to the authority").await
}

/// A channel to the authority without a certificate, for logging in.
pub fn login<'a>(proxy: &'a str, first: &'a FirstTrust) -> BoxFuture<'a, Result<LoginClient<Channel>>> {
    Box::pin(async move { to_log_in(first.connect(proxy).await?).await })
}

async fn to_log_in(stream: Secured) -> Result<LoginClient<Channel>> {
    Ok(LoginClient::new(Channel::plain(channel_over(endpoint(), stream, "talk to the authority").await?)))
}

fn bad_pin(error: CaError) -> Error {
    Error::Pin(Arc::new(error))
}

impl FirstTrust {
    /// TLS to an authority that any of its certificate authorities has certified.
    async fn connect(&self, proxy: &str) -> Result<Secured> {
        match self {
            Self::Pin(pins) => {
                let config = tls::pinned_client_config(pins, &[alpn::AUTH]).map_err(bad_pin)?;
                // The pin names the authority's key; the name in the certificate adds nothing to that.
                tls_connect(proxy, config, "auth.sallyport.internal").await
            }
            Self::Known { trust, cluster } => {
                let config = tls::client_config(trust, None, &[alpn::AUTH]).doing(STORED)?;
                tls_connect(proxy, config, &server_name(HostRole::Auth, cluster)).await
            }
        }
    }

    /// Each of its certificate authorities by itself, with its pin, in the order in which they were given.
    fn each(&self) -> Result<Vec<(String, Self)>> {
        match self {
            Self::Pin(pins) => {
                let pins = tls::parse_pin(pins).map_err(bad_pin)?;
                Ok(pins.split(',').map(|pin| (pin.to_owned(), Self::Pin(pin.to_owned()))).collect())
            }
            Self::Known { trust, cluster } => {
                let bundle = trust.to_bundle();
                let alone = |(pin, certificate): (String, &String)| {
                    let alone =
                        TrustBundle { host_tls_certificates: vec![certificate.clone()], ..bundle.clone() };
                    let trust = Box::new(Trust::from_bundle(&alone).doing(STORED)?);
                    Ok((pin, Self::Known { trust, cluster: cluster.clone() }))
                };
                trust.pins().into_iter().zip(&bundle.host_tls_certificates).map(alone).collect()
            }
        }
    }
}

/// TLS to the authority, and the pin of the certificate authority by which its server was verified. What a client knows of a cluster may name
/// several, and a false cluster may have put those of another beside its own: so each is tried by itself, and the pin is of the one that
/// has certified the key by which the server of this very connection has proven itself.
async fn verified(proxy: &str, first: &FirstTrust) -> Result<(Secured, String)> {
    let mut refused = None;
    for (pin, alone) in first.each()? {
        match alone.connect(proxy).await {
            Ok(stream) => return Ok((stream, pin)),
            Err(error) if is_of_another(&error) => {
                refused.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| Error::NoPin { proxy: proxy.to_owned() }))
}

/// [`login`], and the pin of the certificate authority by which the authority was verified that is spoken to.
pub(crate) fn login_by_pin<'a>(
    proxy: &'a str,
    first: &'a FirstTrust,
) -> BoxFuture<'a, Result<(LoginClient<Channel>, String)>> {
    Box::pin(async move {
        let (stream, pin) = verified(proxy, first).await?;
        Ok((to_log_in(stream).await?, pin))
    })
}

/// Whether a server was refused because another certificate authority has certified it.
fn is_of_another(error: &Error) -> bool {
    let Error::Tls { why, .. } = error else { return false };
    matches!(why, TlsFailure::OtherPin { .. } | TlsFailure::UnknownIssuer { .. })
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sallyport_access::{HostId, NodeName};
    use sallyport_ca::keys::{SshKeyPair, TlsKey};
    use sallyport_ca::tls::ClientAuth;
    use sallyport_ca::{Authority as CertAuthority, CaKind, HostRequest, issue_host};
    use sallyport_sal::Suite;
    use sallyport_sal::custody::{SealedCustody, SealingKey};
    use time::{Duration, OffsetDateTime};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use uuid::Uuid;

    use super::*;

    /// The CAs of a cluster, all of which are called the same.
    struct Cluster {
        users: CertAuthority,
        hosts: CertAuthority,
    }

    impl Cluster {
        fn new(directory: &Path, key: &str) -> Self {
            Self::of(directory, key, Suite::BalancedV1)
        }

        fn of(directory: &Path, key: &str, suite: Suite) -> Self {
            let path: PathBuf = directory.join(key);
            let custody = SealedCustody::new(Arc::new(SealingKey::create(&path).unwrap()));
            let (name, now) = (ClusterName::new("main").unwrap(), OffsetDateTime::now_utc());
            let make = |kind| CertAuthority::generate(kind, &name, &custody, suite, now).unwrap();
            Self { users: make(CaKind::User), hosts: make(CaKind::Host) }
        }

        fn pin(&self) -> String {
            self.hosts.tls().unwrap().pin()
        }

        /// Its bundle, with the host CAs of these others in front.
        fn known(&self, others: &[&Self]) -> FirstTrust {
            let mut bundle = TrustBundle::from_authorities(&[&self.users, &self.hosts], None).unwrap();
            for other in others {
                bundle.host_tls_certificates.splice(..0, other.hosts.public_keys().tls);
            }
            let cluster = ClusterName::new("main").unwrap();
            FirstTrust::Known { trust: Box::new(Trust::from_bundle(&bundle).unwrap()), cluster }
        }

        /// An authority of it, which shows the host CAs of these others, too, behind its own certificate. Gives its address.
        async fn serve(&self, others: &[&Self]) -> String {
            let ssh = SshKeyPair::generate(Suite::BalancedV1, "auth").unwrap();
            let key = TlsKey::generate(Suite::BalancedV1).unwrap();
            let request = HostRequest {
                id: HostId::new(),
                name: &NodeName::new("auth").unwrap(),
                role: HostRole::Auth,
                join_id: Uuid::from_u128(9),
                public_names: &[],
                ssh_public_key: ssh.public_line(),
                tls_spki: key.spki_der(),
            };
            let now = OffsetDateTime::now_utc();
            let issued = issue_host(&self.hosts, &request, now, Duration::days(1)).unwrap();
            let (own, authority) = issued.tls_pem.split_at(issued.tls_pem.rfind("-----BEGIN").unwrap());
            let others: String = others.iter().flat_map(|other| other.hosts.public_keys().tls).collect();
            let trust = Trust::from_authorities(&[&self.users, &self.hosts], None).unwrap();
            let chain = format!("{own}{others}{authority}");
            let config =
                tls::server_config(&trust, &chain, &key.pkcs8_pem(), &[alpn::AUTH], ClientAuth::None);
            let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    // A client that refuses it is the test's to see.
                    let _ = acceptor.accept(stream).await;
                }
            });
            address
        }
    }

    async fn by(address: &str, first: &FirstTrust) -> Result<String> {
        verified(address, first).await.map(|(_, pin)| pin)
    }

    #[tokio::test]
    async fn attacks_a_false_authority_is_never_named_as_the_one_whose_certificates_it_shows() {
        let directory = tempfile::tempdir().unwrap();
        let main = Cluster::new(directory.path(), "main");
        let false_one = Cluster::new(directory.path(), "false");
        let (true_pin, false_pin) = (main.pin(), false_one.pin());
        let at_main = main.serve(&[]).await;
        let (at_false, with_ours) = (false_one.serve(&[]).await, false_one.serve(&[&main]).await);

        // The person has confirmed the false one's pin, or was given both.
        let pinned = |pins: &str| FirstTrust::Pin(pins.to_owned());
        for address in [&at_false, &with_ours] {
            assert_eq!(by(address, &pinned(&false_pin)).await.unwrap(), false_pin);
            assert!(by(address, &pinned(&true_pin)).await.is_err());
            // An earlier login was to the false one, whose bundle says that the true one's is a host CA of its own.
            assert_eq!(by(address, &false_one.known(&[&main])).await.unwrap(), false_pin);
            assert!(by(address, &main.known(&[])).await.is_err());
        }
        assert_eq!(by(&at_false, &pinned(&format!("{true_pin},{false_pin}"))).await.unwrap(), false_pin);
        // Where the false authority passes the connection on, the client names the true one.
        assert_eq!(by(&at_main, &false_one.known(&[&main])).await.unwrap(), true_pin);
    }

    #[tokio::test]
    async fn the_pin_is_of_the_authority_in_use_whichever_a_client_knows_first() {
        let directory = tempfile::tempdir().unwrap();
        // Their certificates are signed by different kinds of keys, as where a rotation goes to another suite.
        let of = |name, suite| Cluster::of(directory.path(), name, suite);
        let (old, new) = (of("old", Suite::Legacy), of("new", Suite::BalancedV1));
        let (at_old, at_new) = (old.serve(&[]).await, new.serve(&[]).await);
        let both = format!("{}, {}", old.pin().to_uppercase(), new.pin());
        for first in [FirstTrust::Pin(both), old.known(&[&new]), new.known(&[&old])] {
            assert_eq!(by(&at_old, &first).await.unwrap(), old.pin(), "{first:?}");
            assert_eq!(by(&at_new, &first).await.unwrap(), new.pin(), "{first:?}");
        }
        let neither = Cluster::new(directory.path(), "neither");
        for first in [FirstTrust::Pin(neither.pin()), neither.known(&[])] {
            assert!(is_of_another(&by(&at_old, &first).await.unwrap_err()), "{first:?}");
        }
        assert!(matches!(by(&at_old, &FirstTrust::Pin("sha256:7".to_owned())).await, Err(Error::Pin(_))));
    }
}
