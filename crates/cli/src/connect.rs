//! Connections to the authority (through the proxy, encrypted end to end) and to the proxy itself.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use sallyport_access::{ClusterName, HostRole};
use sallyport_ca::tls::ProxyClient;
use sallyport_ca::{CaError, Trust, server_name, tls};
use sallyport_wire::carrier::{Answer, Begun, CarrierError};
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::sessions_client::SessionsClient;
use sallyport_wire::v1::suites_client::SuitesClient;
use sallyport_wire::{FRAME_BYTES, READ_AHEAD_BYTES, alpn, carrier};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;
use tonic::transport::{self, Endpoint, Uri};
use tracing::field::{Empty, display};
use tracing::{Instrument, Span, info_span};

use crate::carrier::{ANSWER, Wanted, answered, explain as explain_quic, opened, quic};
use crate::error::{CliError, CliResult, Context, Exit, chain};
use crate::follow::Channel;
use crate::global::Global;
use crate::profile::{self, Stored};
use crate::pulse::Watched;
use crate::trace::{self, Counted, PHASE};
use crate::ui;

pub(crate) use crate::pulse::Pulse;

/// Long enough for a distant cluster, short enough for a person.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection that was dialled beside another is as good as a new one for so long.
const BESIDE: Duration = Duration::from_secs(5);

/// What one stream of a warm connection may have on its way,
const WARM_STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// and all of them together: the most that HTTP/2 has (RFC 9113 §6.9.1).
const LARGEST_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// How a client knows that it talks to the right cluster before it has any of its certificates.
#[derive(Debug, Clone)]
pub(crate) enum FirstTrust {
    /// The pin came with a token, a link or by hand.
    Pin(String),
    /// An earlier login left the certificates.
    Known { trust: Box<Trust>, cluster: ClusterName },
}

/// Where an administration command goes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct AuthorityArgs {
    /// The authority's data directory on this machine: administer it through its socket, with no login.
    #[arg(long, global = true, env = "SALLYPORT_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// A TLS connection to the cluster.
type Secured = TlsStream<BufReader<Counted<TcpStream>>>;

/// A connection to the proxy, by whichever carrier.
type Carried = Either<Secured, Counted<carrier::Stream>>;

fn unreached(proxy: &str, why: &str) -> CliError {
    CliError::new(format!("cannot connect to {proxy}: {why}"))
        .hint("check the address and that the cluster is up: sallyport status --proxy HOST:PORT")
        .exit(Exit::Connection)
}

/// At most [`CONNECT_TIMEOUT`] of what opens a connection.
async fn within<T>(proxy: &str, opening: impl Future<Output = std::io::Result<T>>) -> CliResult<T> {
    tokio::time::timeout(CONNECT_TIMEOUT, opening)
        .await
        .map_err(|_| unreached(proxy, &format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
        .map_err(|error| unreached(proxy, &error.to_string()))
}

/// Opens TCP to the cluster's address.
pub(crate) async fn dial(proxy: &str) -> CliResult<TcpStream> {
    within(proxy, async { connect_tcp(&look_up(proxy).await?).await }).await
}

/// Why the proxy of a login gave no sign of itself.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// There was no connection.
    Nothing,
    /// Something takes connections there, and does not prove a certificate of the cluster.
    Other(CliError),
}

/// Looks whether the proxy is there: it is, once it has proven its certificate. It is asked for its pages, which take no certificate of
/// the user's, so that one that has expired hinders nothing.
pub(crate) async fn look(stored: &Stored) -> Result<(), Unanswered> {
    let proxy = &stored.profile.proxy;
    let stream = dial(proxy).await.map_err(|_| Unanswered::Nothing)?;
    let proving = async {
        let config = tls::client_config(&stored.trust()?, None, &[alpn::HTTP11])
            .doing("use the stored certificates")?;
        let name = server_name(HostRole::Proxy, &stored.profile.cluster);
        tls_over(stream, proxy, config, &name).await
    };
    proving.await.map(drop).map_err(Unanswered::Other)
}

async fn look_up(proxy: &str) -> std::io::Result<Vec<SocketAddr>> {
    let finding = info_span!(target: PHASE, "name");
    Ok(tokio::net::lookup_host(proxy).instrument(finding).await?.collect())
}

async fn connect_tcp(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let dialling = info_span!(target: PHASE, "dial", network.peer.address = Empty);
    async {
        let began = Instant::now();
        let stream = TcpStream::connect(addresses).await?;
        stream.set_nodelay(true)?;
        trace::dialled(began.elapsed());
        if !Span::current().is_disabled() {
            Span::current().record("network.peer.address", display(stream.peer_addr()?));
        }
        Ok(stream)
    }
    .instrument(dialling)
    .await
}

async fn tls_connect(proxy: &str, config: ClientConfig, name: &str) -> CliResult<Secured> {
    tls_over(dial(proxy).await?, proxy, config, name).await
}

async fn tls_over(stream: TcpStream, proxy: &str, config: ClientConfig, name: &str) -> CliResult<Secured> {
    let name = ServerName::try_from(name.to_owned()).doing("name the server")?;
    let stream = BufReader::with_capacity(READ_AHEAD_BYTES, Counted::new(stream));
    let shaking = TlsConnector::from(Arc::new(config)).connect(name, stream);
    tokio::time::timeout(CONNECT_TIMEOUT, shaking.instrument(info_span!(target: PHASE, "tls")))
        .await
        .map_err(|_| {
            CliError::new(format!("{proxy} accepted the connection but did not finish the TLS handshake"))
                .exit(Exit::Connection)
        })?
        .map_err(|error| explain_tls(proxy, &error))
}

/// TLS failures in words: the likely cause first, the library's own words behind it.
fn explain_tls(proxy: &str, error: &std::io::Error) -> CliError {
    let refusal = tls::refusal(error);
    // rustls would show the certificate's fault in its own terms.
    let said = refusal.map_or_else(|| chain(error, &error.to_string()), ToString::to_string);
    let lower = said.to_ascii_lowercase();
    // The far end's refusal names no time; our own names both.
    let clock = match refusal {
        Some(_) => said.clone(),
        None => format!("{said}; this machine's clock says {}", ui::timestamp(OffsetDateTime::now_utc())),
    };
    if let Some(CaError::OtherPin { .. }) = refusal {
        CliError::new(format!("{proxy} is not the cluster of this pin: {said}"))
            .hint("get the pin from an administrator (sallyport admin status shows it), or a new invite link")
            .exit(Exit::Connection)
    } else if lower.contains("expired") {
        CliError::new(format!("a certificate has expired, or this machine's clock is wrong ({clock})"))
            .hint("date; then sallyport login")
            .exit(Exit::NotLoggedIn)
    } else if lower.contains("notyetvalid") || lower.contains("not yet valid") {
        CliError::new(format!(
            "a certificate is not valid yet, so this machine's clock is probably wrong ({clock})"
        ))
        .hint("date; a minute of difference is tolerated")
        .exit(Exit::Connection)
    } else if matches!(refusal, Some(CaError::UnknownIssuer { .. })) || lower.contains("unknownissuer") {
        CliError::new(format!(
            "{proxy} is not the cluster you logged in to, or its certificate authority was replaced ({said})"
        ))
        .hint("if you know why, get the new pin from an administrator: sallyport login --proxy HOST:PORT --ca-pin PIN")
        .exit(Exit::Connection)
    } else if lower.contains("invalid message") || lower.contains("corrupt") {
        CliError::new(format!("{proxy} does not speak TLS ({said})"))
            .hint("check the port: a cluster has one address for everything")
            .exit(Exit::Connection)
    } else {
        CliError::new(format!("the TLS handshake with {proxy} failed: {said}")).exit(Exit::Connection)
    }
}

async fn channel_over<S>(endpoint: Endpoint, stream: S, doing: &'static str) -> CliResult<transport::Channel>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = std::sync::Mutex::new(Some(stream));
    // One connection is made by hand for its errors; a lost one is not silently dialled again.
    let connector = tower::service_fn(move |_: Uri| {
        let taken = stream.lock().ok().and_then(|mut slot| slot.take());
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("the connection was lost")) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| {
        CliError::new(format!("cannot {doing}: {}", chain(&error, &error.to_string()))).exit(Exit::Connection)
    })
}

fn endpoint() -> Endpoint {
    Endpoint::from_static("http://cluster.invalid")
        .user_agent(concat!("sallyport/", env!("CARGO_PKG_VERSION")))
        .expect("letters, digits, a slash and dots make a header value")
        .max_frame_size(FRAME_BYTES)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20))
}

/// A channel to the authority with the certificates of a login.
pub(crate) async fn authority(stored: &Stored) -> CliResult<Channel> {
    authority_plain(stored).await.map(|channel| Channel::following(channel, stored))
}

/// As [`authority`], for whoever keeps the profile up to date.
pub(crate) async fn authority_plain(stored: &Stored) -> CliResult<transport::Channel> {
    let identity = stored.tls_identity()?;
    let config = tls::client_config(&stored.trust()?, Some((&identity.0, &identity.1)), &[alpn::AUTH])
        .doing("use the stored certificates")?;
    let name = server_name(HostRole::Auth, &stored.profile.cluster);
    let stream = tls_connect(&stored.profile.proxy, config, &name).await?;
    channel_over(endpoint(), stream, "talk to the authority").await
}

/// A channel to the proxy's own API with the certificates of a login.
pub(crate) async fn proxy(stored: &Stored) -> CliResult<Channel> {
    let (stream, _) = proxy_stream(stored, None).await?;
    let channel = channel_over(endpoint(), stream, "talk to the proxy").await?;
    Ok(Channel::following(channel, stored))
}

/// What is kept of the proxy from one connection to the next, with one login: whoever logs in anew begins anew.
#[derive(Debug)]
pub(crate) struct Kept {
    by_quic: ProxyClient,
    /// What was dialled beside a connection that did not come to be, and when.
    beside: Arc<Mutex<Option<(Instant, Secured)>>>,
}

impl Kept {
    pub(crate) fn new(stored: &Stored) -> CliResult<Self> {
        let identity = stored.tls_identity()?;
        let by_quic = ProxyClient::new(&stored.trust()?, (&identity.0, &identity.1), alpn::H2_BY_QUIC)
            .doing("use the stored certificates")?;
        Ok(Self { by_quic, beside: Arc::default() })
    }

    fn take_beside(&self) -> Option<Secured> {
        let taken = self.beside.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.filter(|(since, _)| since.elapsed() < BESIDE).map(|(_, stream)| stream)
    }
}

/// How a connection to the proxy has begun.
#[derive(Debug, Clone)]
pub(crate) enum How {
    Tcp,
    Quic,
    /// With a ticket, and no answer yet.
    QuicEarly(Answer),
}

impl How {
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
            Self::QuicEarly(_) => "quic (0-RTT)",
        }
    }
}

/// As [`proxy`], for many streams and a long time.
pub(crate) async fn proxy_warm(stored: &Stored, kept: &Kept) -> CliResult<(Channel, Pulse, How)> {
    let (stream, how) = proxy_stream(stored, Some(kept)).await?;
    let (stream, pulse) = Watched::new(stream);
    // A stream whose reader has stopped holds its own window and nobody else's. What one window holds is what
    // OpenSSH has on its way in one channel.
    let endpoint = endpoint()
        .initial_stream_window_size(WARM_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(LARGEST_WINDOW_BYTES)
        .keep_alive_while_idle(true);
    let channel = channel_over(endpoint, stream, "talk to the proxy").await?;
    Ok((Channel::following(channel, stored), pulse, how))
}

async fn proxy_stream(stored: &Stored, kept: Option<&Kept>) -> CliResult<(Carried, How)> {
    let wanted = Wanted::here()?;
    let identity = stored.tls_identity()?;
    let config = tls::client_config(&stored.trust()?, Some((&identity.0, &identity.1)), &[alpn::H2])
        .doing("use the stored certificates")?;
    let (proxy, name) = (&stored.profile.proxy, server_name(HostRole::Proxy, &stored.profile.cluster));
    let by_tcp = |stream| (Either::Left(stream), How::Tcp);
    if wanted == Wanted::Tcp {
        return tls_connect(proxy, config, &name).await.map(by_tcp);
    }
    if let Some(stream) = kept.filter(|_| wanted == Wanted::Auto).and_then(Kept::take_beside) {
        return Ok(by_tcp(stream));
    }
    let addresses = within(proxy, look_up(proxy)).await?;
    // Where a name has several addresses, TCP goes through them.
    let Some(first) = addresses.first().copied() else { return Err(unreached(proxy, "no address")) };
    let by_quic = match kept {
        Some(kept) => kept.by_quic.config(OffsetDateTime::now_utc()),
        None => {
            let mut by_quic = config.clone();
            by_quic.alpn_protocols = vec![alpn::H2_BY_QUIC.to_vec()];
            Arc::new(by_quic)
        }
    };
    let failed = |error: &CarrierError| explain_quic(proxy, &chain(error, &error.to_string()));
    let mut begun = None;
    if let Some(kept) = kept
        && carrier::has_won(first)
    {
        let early = carrier::connect_early(first, &name, Arc::clone(&by_quic)).await;
        match early.map_err(|error| failed(&error))? {
            Begun::Early(stream, answer) => {
                let how = How::QuicEarly(answer.clone());
                let (slot, unused) = (Arc::clone(&kept.beside), Arc::clone(&kept.beside));
                let beside = beside(proxy.clone(), addresses, config, name, slot);
                let beside: BoxFuture<'static, ()> =
                    if wanted == Wanted::Auto { beside.boxed() } else { std::future::pending().boxed() };
                tokio::spawn(async move {
                    answered(first, answer, beside).await;
                    tokio::time::sleep(BESIDE).await;
                    let old = |(since, _): &mut (Instant, _)| since.elapsed() >= BESIDE;
                    drop(unused.lock().unwrap_or_else(PoisonError::into_inner).take_if(old));
                });
                return Ok((Either::Right(opened(stream)), how));
            }
            Begun::Full(handshake) => begun = Some(handshake),
        }
    }
    let quic = async {
        let dialled = tokio::time::timeout(ANSWER, quic(first, &name, by_quic, begun)).await;
        dialled.map_err(|_| explain_quic(proxy, "no answer by UDP"))?.map_err(|error| failed(&error))
    };
    if wanted == Wanted::Quic {
        let stream = quic.await.inspect_err(|_| carrier::lose(first))?;
        carrier::win(first);
        return Ok((Either::Right(stream), How::Quic));
    }
    let dial = within(proxy, connect_tcp(&addresses));
    if first.ip().is_loopback() {
        // However busy it is, nothing is nearer.
        return tls_over(dial.await?, proxy, config, &name).await.map(by_tcp);
    }
    let shake = |stream| tls_over(stream, proxy, config, &name);
    match carrier::race(dial, shake, quic, first).await? {
        carrier::Winner::Tcp(stream) => Ok(by_tcp(stream)),
        carrier::Winner::Quic(stream) => Ok((Either::Right(stream), How::Quic)),
    }
}

/// Puts a connection by TCP beside one by QUIC that has begun early: nothing is said on it, so that nothing begins by it. Where
/// it cannot be had, whoever waits for it waits in vain.
async fn beside(
    proxy: String,
    addresses: Vec<SocketAddr>,
    config: ClientConfig,
    name: String,
    slot: Arc<Mutex<Option<(Instant, Secured)>>>,
) {
    let connecting = async {
        let dialled = within(&proxy, connect_tcp(&addresses)).await?;
        tokio::time::sleep(carrier::GRACE).await;
        tls_over(dialled, &proxy, config, &name).await
    };
    match connecting.await {
        Ok(stream) => *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), stream)),
        Err(_) => std::future::pending().await,
    }
}

/// Whether the proxy proves a name, so that programs that know of no other find it there.
pub(crate) async fn proves(stored: &Stored, name: &str) -> CliResult<bool> {
    let identity = stored.tls_identity()?;
    let config = tls::client_config(&stored.trust()?, Some((&identity.0, &identity.1)), &[alpn::H2])
        .doing("use the stored certificates")?;
    // As long as it is the cluster's, what remains is the name.
    proxy_stream(stored, None).await?;
    Ok(tls_connect(&stored.profile.proxy, config, name).await.is_ok())
}

/// A channel to the authority without a certificate, for logging in.
pub(crate) async fn login(proxy: &str, first: &FirstTrust) -> CliResult<LoginClient<Channel>> {
    let stream = match first {
        FirstTrust::Pin(pin) => {
            let config = tls::pinned_client_config(pin, &[alpn::AUTH]).map_err(|error| {
                CliError::new(format!("the pin is not usable: {error}"))
                    .hint("a pin looks like sha256: followed by 64 hexadecimal digits")
                    .exit(Exit::Usage)
            })?;
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
}

/// The pin of whatever answers at an address: only to be shown to a person who can compare it.
pub(crate) async fn unverified_pin(proxy: &str) -> CliResult<String> {
    let (config, seen) = tls::danger::unverified_client_config(&[alpn::AUTH]).doing("set up TLS")?;
    let _stream = tls_connect(proxy, config, "auth.sallyport.internal").await?;
    seen.pin()
        .ok_or_else(|| CliError::new(format!("{proxy} sent no certificate authority")).exit(Exit::Connection))
}

/// How an administration command reaches the authority.
#[derive(Debug)]
pub(crate) struct Authority {
    channel: Channel,
    /// The proxy on the way to it, where there is one.
    proxy: Option<String>,
}

impl Authority {
    /// Through the socket in a data directory where one is named, else with the stored login.
    pub(crate) async fn open(global: &Global, args: &AuthorityArgs) -> CliResult<Self> {
        let (channel, proxy) = match &args.data_dir {
            Some(directory) => (socket(&directory.join("admin.sock")).await?, None),
            None => {
                let stored = profile::load_valid(global)?;
                (authority(&stored).await?, Some(stored.profile.proxy))
            }
        };
        Ok(Self { channel, proxy })
    }

    /// The public address of the proxy on the way to it, where there is one.
    pub(crate) fn proxy(&self) -> Option<&str> {
        self.proxy.as_deref()
    }

    pub(crate) fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    pub(crate) fn certificates(&self) -> CertificatesClient<Channel> {
        CertificatesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    pub(crate) fn rotation(&self) -> RotationClient<Channel> {
        RotationClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    pub(crate) fn suites(&self) -> SuitesClient<Channel> {
        SuitesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    pub(crate) fn sessions(&self) -> SessionsClient<Channel> {
        SessionsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    pub(crate) fn databases(&self) -> DatabasesClient<Channel> {
        DatabasesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    pub(crate) fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }
}

/// Room for a list of 20,000 nodes.
const MESSAGE_LIMIT: usize = 64 << 20;

async fn socket(path: &Path) -> CliResult<Channel> {
    let failed = |error: &std::io::Error| {
        let error_text = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                "no authority is running there".to_owned()
            }
            std::io::ErrorKind::PermissionDenied => "it belongs to another user".to_owned(),
            _ => error.to_string(),
        };
        CliError::new(format!("cannot connect to {}: {error_text}", path.display()))
            .hint("start the authority, or log in and leave --data-dir away")
            .exit(Exit::Connection)
    };
    let stream = UnixStream::connect(path).await.map_err(|error| failed(&error))?;
    let stream = std::sync::Mutex::new(Some(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let taken = stream.lock().ok().and_then(|mut slot| slot.take());
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("the connection was lost")) }
    });
    endpoint().connect_with_connector(connector).await.map(Channel::plain).map_err(|error| {
        CliError::new(format!("cannot talk to {}: {}", path.display(), chain(&error, &error.to_string())))
            .exit(Exit::Connection)
    })
}
