//! Connections to the proxy by whichever carrier, and channels that keep the profile up to date.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use sallyport_access::{ClusterName, HostRole};
use sallyport_ca::tls::ProxyClient;
use sallyport_ca::{Trust, server_name, tls};
use sallyport_wire::carrier::{Answer, Begun, CarrierError};
use sallyport_wire::{alpn, carrier};
use time::OffsetDateTime;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::either::Either;

use super::authority::{self, Authority};
use super::carrier::{ANSWER, Wanted, answered, explain as explain_quic, opened, quic};
use super::channel::{Channel, channel_over, endpoint};
use super::dial::{Secured, connect_tcp, dial, look_up, tls_connect, tls_over, unreached, within};
use super::follow;
use super::liveness::{Liveness, watched};
use super::profile::Stored;
use super::trace::Counted;
use crate::error::{Doing, Error, Result, chain};

/// A connection that was dialled beside another is as good as a new one for so long.
const BESIDE: Duration = Duration::from_secs(5);

/// What one stream of a warm connection may have on its way,
const WARM_STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// and all of them together: the most that HTTP/2 has (RFC 9113 §6.9.1).
const LARGEST_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// A connection to the proxy, by whichever carrier.
type Carried = Either<Secured, Counted<carrier::Stream>>;

/// A channel to the authority with the certificates of a login.
pub fn authority(stored: &Stored) -> BoxFuture<'_, Result<Channel>> {
    Box::pin(async move { authority::plain(stored).await.map(|channel| followed(channel, stored)) })
}

/// The services of the authority with the certificates of a login.
pub fn services(stored: &Stored) -> BoxFuture<'_, Result<Authority>> {
    Box::pin(async move { Ok(Authority::through(stored.profile.proxy.clone(), authority(stored).await?)) })
}

fn followed(channel: tonic::transport::Channel, stored: &Stored) -> Channel {
    Channel::followed(channel, Arc::new(follow::Profile(Arc::new(stored.clone()))))
}

/// Why the proxy of a login gave no sign of itself.
#[derive(Debug)]
pub enum Unanswered {
    /// There was no connection.
    Nothing,
    /// Something takes connections there, and does not prove a certificate of the cluster.
    Other(Error),
}

/// Looks whether the proxy is there: it is, once it has proven its certificate. It is asked for its pages, which take no certificate of
/// the user's, so that one that has expired hinders nothing.
pub fn look(stored: &Stored) -> BoxFuture<'_, Result<(), Unanswered>> {
    Box::pin(async move {
        let proxy = &stored.profile.proxy;
        let stream = dial(proxy).await.map_err(|_| Unanswered::Nothing)?;
        let proving = async {
            let config = tls::client_config(&stored.trust()?, None, &[alpn::HTTP11])
                .doing("use the stored certificates")?;
            let name = server_name(HostRole::Proxy, &stored.profile.cluster);
            tls_over(stream, proxy, config, &name).await
        };
        proving.await.map(drop).map_err(Unanswered::Other)
    })
}

/// A connection to the proxy's pages, by HTTP/1.1 and without a certificate, as a browser has one.
pub fn pages<'a>(
    proxy: &'a str,
    trust: &'a Trust,
    cluster: &'a ClusterName,
) -> BoxFuture<'a, Result<Secured>> {
    Box::pin(async move {
        let config = tls::client_config(trust, None, &[alpn::HTTP11]).doing("set up TLS")?;
        tls_connect(proxy, config, &server_name(HostRole::Proxy, cluster)).await
    })
}

/// A channel to the proxy's own API with the certificates of a login.
pub fn proxy(stored: &Stored) -> BoxFuture<'_, Result<Channel>> {
    Box::pin(async move {
        let (stream, _) = proxy_stream(stored, None).await?;
        let channel = channel_over(endpoint(), stream, "talk to the proxy").await?;
        Ok(followed(channel, stored))
    })
}

/// What is kept of the proxy from one connection to the next, with one login: another login begins anew.
#[derive(Debug)]
pub struct Kept {
    by_quic: ProxyClient,
    /// What was dialled beside a connection that did not come to be, and when.
    beside: Arc<Mutex<Option<(Instant, Secured)>>>,
}

impl Kept {
    /// Nothing yet, of the proxy of a login.
    ///
    /// # Errors
    /// The login's certificates cannot be used.
    pub fn new(stored: &Stored) -> Result<Self> {
        let identity = stored.tls_identity()?;
        let by_quic = ProxyClient::new(&stored.trust()?, (&identity.0, &identity.1), alpn::H2_BY_QUIC)
            .doing("use the stored certificates")?;
        Ok(Self { by_quic, beside: Arc::default() })
    }

    fn take_beside(&self) -> Option<Secured> {
        let taken = self.beside.lock().take();
        taken.filter(|(since, _)| since.elapsed() < BESIDE).map(|(_, stream)| stream)
    }
}

/// How a connection to the proxy has begun.
#[derive(Debug, Clone)]
pub enum How {
    /// By TLS on TCP.
    Tcp,
    /// By QUIC, with a whole handshake.
    Quic,
    /// With a ticket, and no answer yet.
    QuicEarly(Answer),
}

impl How {
    /// For a log.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
            Self::QuicEarly(_) => "quic (0-RTT)",
        }
    }
}

/// As [`proxy`], for many streams and a long time.
pub fn proxy_warm<'a>(stored: &'a Stored, kept: &'a Kept) -> BoxFuture<'a, Result<(Channel, Liveness, How)>> {
    Box::pin(async move {
        let (stream, how) = proxy_stream(stored, Some(kept)).await?;
        let (stream, liveness) = watched(stream);
        // A stream whose reader has stopped holds its own window and no other stream's. What one window holds is what
        // OpenSSH has on its way in one channel.
        let endpoint = endpoint()
            .initial_stream_window_size(WARM_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(LARGEST_WINDOW_BYTES)
            .keep_alive_while_idle(true);
        let channel = channel_over(endpoint, stream, "talk to the proxy").await?;
        Ok((followed(channel, stored), liveness, how))
    })
}

async fn proxy_stream(stored: &Stored, kept: Option<&Kept>) -> Result<(Carried, How)> {
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
                    drop(unused.lock().take_if(old));
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
/// it cannot be had, this future does not end.
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
        Ok(stream) => *slot.lock() = Some((Instant::now(), stream)),
        Err(_) => std::future::pending().await,
    }
}

/// Whether the proxy proves a name, so that programs that know of no other find it there.
pub fn proves<'a>(stored: &'a Stored, name: &'a str) -> BoxFuture<'a, Result<bool>> {
    Box::pin(async move {
        let identity = stored.tls_identity()?;
        let config = tls::client_config(&stored.trust()?, Some((&identity.0, &identity.1)), &[alpn::H2])
            .doing("use the stored certificates")?;
        // As long as it is the cluster's, what remains is the name.
        proxy_stream(stored, None).await?;
        Ok(tls_connect(&stored.profile.proxy, config, name).await.is_ok())
    })
}
