//! Calling the authority: over TCP, or inside this process, always TLS end to end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderValue;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sallyport_access::{ClusterName, HostRole};
use sallyport_sal::selection;
use sallyport_wire::alpn;
use sallyport_wire::fips::FIPS_HEADER;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::provisioning_client::ProvisioningClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::session_factors_client::SessionFactorsClient;
use sallyport_wire::v1::web_client::WebClient;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};

use crate::ServerError;
use crate::config::HostPort;
use crate::dialling::{BoxIo, CONNECT_TIMEOUT, PeerInfo, ServeAuthority, dial, handshake};
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::Credentials;
use crate::tasks;
use crate::telemetry;

/// HTTP/2 pings that find out whether the authority is still there.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes in flight inside the process.
const IN_PROCESS_BUFFER_BYTES: usize = 256 * 1024;
/// Recordings go up one stream: a window of 1 MiB carries 80 Mbit/s over 100 ms, which no set of sessions sustains.
const WINDOW_BYTES: u32 = 1024 * 1024;
/// Longest single message from the authority: a role or trust bundle is kilobytes.
const MESSAGE_LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// Longest answer for a page: the options of a ceremony, with the credentials that a user has.
const PAGE_ANSWER_LIMIT_BYTES: usize = 256 * 1024;

/// Where the authority is.
#[derive(Clone)]
pub(crate) enum Route {
    /// In this process.
    Here(ServeAuthority),
    /// At an address: the authority's own, or a proxy's, which passes the connection on.
    At(HostPort),
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Here(_) => f.write_str("in this process"),
            Self::At(address) => write!(f, "at {address}"),
        }
    }
}

impl Route {
    async fn connect(&self) -> io::Result<BoxIo> {
        match self {
            Self::Here(serve) => {
                let (near, far) = tokio::io::duplex(IN_PROCESS_BUFFER_BYTES);
                tasks::start(serve(Box::new(far), PeerInfo::direct(SocketAddr::from(([127, 0, 0, 1], 0)))));
                Ok(Box::new(near))
            }
            Self::At(address) => dial(address).await.map(|stream| Box::new(stream) as BoxIo),
        }
    }
}

type SettingsFuture = Pin<Box<dyn Future<Output = io::Result<BoxIo>> + Send>>;

/// A channel whose connections are made by `connect`, the first when it is needed.
fn channel(connect: impl Fn() -> SettingsFuture + Clone + Send + Sync + 'static) -> Channel {
    Endpoint::from_static("http://authority.sallyport.internal")
        .user_agent(concat!("sallyport/", env!("CARGO_PKG_VERSION")))
        .expect("letters, digits, a slash and dots make a header value")
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(2 * WINDOW_BYTES)
        .connect_with_connector_lazy(tower::service_fn(move |_| {
            let connecting = connect();
            async move { connecting.await.map(TokioIo::new) }
        }))
}

/// A channel whose calls say which trace they are part of, and whether this process takes all cryptography from a FIPS module.
#[derive(Debug, Clone)]
pub(crate) struct Telling<S = Channel> {
    inner: S,
    fips: bool,
}

impl<S: Service<http::Request<Body>>> Service<http::Request<Body>> for Telling<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        telemetry::tell(request.headers_mut());
        if self.fips {
            request.headers_mut().insert(FIPS_HEADER, HeaderValue::from_static("1"));
        }
        self.inner.call(request)
    }
}

/// Calls to the authority with this host's identity, always the newest: a connection is good for no longer than the
/// certificate that it was made with.
#[derive(Clone)]
pub(crate) struct AuthorityClient {
    connect: Arc<dyn Fn() -> SettingsFuture + Send + Sync>,
    credentials: Credentials,
    current: Arc<Mutex<Option<Current>>>,
    /// Whether calls say that this process is in FIPS mode.
    fips: bool,
}

/// The channel in use, and the certificate that it was made for.
struct Current {
    chain: String,
    channel: Channel,
}

impl std::fmt::Debug for AuthorityClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorityClient").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl AuthorityClient {
    /// Connects when first used and again after every loss and every renewal.
    pub(crate) fn new(route: Route, credentials: Credentials, view: Arc<ClusterCache>) -> Self {
        let server = sallyport_ca::server_name(HostRole::Auth, view.cluster());
        let own = credentials.clone();
        // What an authority demands of others it is held to itself when its configuration is read, with what runs in its process.
        let fips = matches!(route, Route::Here(_)) || selection::global().is_fips();
        let connect = move || -> SettingsFuture {
            let (route, credentials) = (route.clone(), own.clone());
            let (view, server) = (Arc::clone(&view), server.clone());
            Box::pin(async move {
                let config = credentials.client(&view.trust(), alpn::AUTH).map_err(io::Error::other)?;
                let tls = handshake(route.connect().await?, config, &server).await?;
                Ok(Box::new(tls) as BoxIo)
            })
        };
        Self { connect: Arc::new(connect), credentials, current: Arc::default(), fips }
    }

    /// The service for hosts.
    pub(crate) fn fleet(&self) -> FleetClient<Telling> {
        FleetClient::new(self.channel()).max_decoding_message_size(MESSAGE_LIMIT_BYTES)
    }

    /// The service that rotations go by.
    pub(crate) fn databases(&self) -> DatabasesClient<Telling> {
        DatabasesClient::new(self.channel()).max_decoding_message_size(MESSAGE_LIMIT_BYTES)
    }

    /// See [`AuthorityClient::fleet`].
    pub(crate) fn rotation(&self) -> RotationClient<Telling> {
        RotationClient::new(self.channel())
    }

    /// The service that SCIM clients are answered by.
    pub(crate) fn provisioning(&self) -> ProvisioningClient<Telling> {
        ProvisioningClient::new(self.channel()).max_decoding_message_size(MESSAGE_LIMIT_BYTES)
    }

    /// The service for administration, of which hosts may use little.
    pub(crate) fn admin(&self) -> AdminClient<Telling> {
        AdminClient::new(self.channel())
    }

    /// What is proven for sessions.
    pub(crate) fn session_factors(&self) -> SessionFactorsClient<Telling> {
        SessionFactorsClient::new(self.channel())
    }

    /// The service for browsers at a proxy's pages.
    pub(crate) fn web(&self) -> WebClient<Telling> {
        WebClient::new(self.channel()).max_decoding_message_size(PAGE_ANSWER_LIMIT_BYTES)
    }

    fn channel(&self) -> Telling {
        let identity = self.credentials.identity();
        let mut current = self.current.lock();
        if let Some(current) = current.as_ref().filter(|current| current.chain == identity.tls_chain) {
            return Telling { inner: current.channel.clone(), fips: self.fips };
        }
        // Calls that are under way hold on to the former one.
        let connect = Arc::clone(&self.connect);
        let channel = channel(move || connect());
        *current = Some(Current { chain: identity.tls_chain.clone(), channel: channel.clone() });
        Telling { inner: channel, fips: self.fips }
    }
}

/// A channel for the first contact, which believes the host CA of the given pin and nothing else.
pub(crate) async fn first_contact(
    address: &HostPort,
    pin: &str,
    cluster: &ClusterName,
) -> Result<Channel, ServerError> {
    let refused = |problem: String, fix: String| ServerError::Join { what: "this host", problem, fix };
    let config = sallyport_ca::tls::pinned_client_config(pin, &[alpn::AUTH])
        .map_err(|error| crate::member::host::certificates("cannot use the CA pin", error))?;
    let config = Arc::new(config);
    let server = sallyport_ca::server_name(HostRole::Auth, cluster);
    // Connected here already, so that the person reads why and not "transport error".
    let tcp = dial(address).await.map_err(|error| {
        let fix = "check that this is the cluster's address, that the cluster runs, and that no firewall is in between";
        refused(format!("cannot reach {address}: {error}"), fix.to_owned())
    })?;
    let tls = handshake(tcp, Arc::clone(&config), &server)
        .await
        .map_err(|error| {
            let fix = format!(
                "check that {address} is the cluster's address, and that the CA pin is the one printed with the token"
            );
            refused(format!("{address} did not prove to be the pinned cluster: {error}"), fix)
        })?;
    let first = Arc::new(Mutex::new(Some(Box::new(tls) as BoxIo)));
    let address = address.clone();
    Ok(channel(move || {
        let ready = first.lock().take();
        let (address, config, server) = (address.clone(), Arc::clone(&config), server.clone());
        Box::pin(async move {
            match ready {
                Some(io) => Ok(io),
                None => Ok(Box::new(handshake(dial(&address).await?, config, &server).await?) as BoxIo),
            }
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_call_of_a_host_in_fips_mode_says_so_and_no_other_does() {
        for fips in [true, false] {
            let heard = tower::service_fn(|request: http::Request<Body>| async move {
                Ok::<_, std::convert::Infallible>(request.headers().get(FIPS_HEADER).cloned())
            });
            let mut telling = Telling { inner: heard, fips };
            let said = telling.call(http::Request::new(Body::empty())).await.unwrap();
            assert_eq!(said.is_some_and(|said| said == "1"), fips);
        }
    }
}
