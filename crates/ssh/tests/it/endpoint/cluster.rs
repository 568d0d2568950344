//! A cluster's certificates, a node that answers one question, and a carrier that writes down what it carries.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use sallyport_access::{
    ClusterName, HostId, HostRole, Identity, Login, NodeName, Principal, RoleName, Traits, UserName,
};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::tls::node::{NodeClient, node_server_config};
use sallyport_ca::{Authority, CaError, CaKind, HostRequest, SshOptions, Trust, issue_host, issue_user};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::tls::rustls::ServerConfig;
use sallyport_sal::tls::rustls::pki_types::UnixTime;
use sallyport_sal::tls::rustls::time_provider::TimeProvider;
use sallyport_sal::{KeyPurpose, Suite};
use sallyport_ssh::endpoint::{Early, EndpointStream, Parting, Tickets, accept};
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use uuid::Uuid;

use crate::endpoint::{ANSWERED, ASKED};

const ALPN: &[u8] = b"sallyport-native/1";

pub(crate) struct Cluster {
    custody: Arc<SealedCustody>,
    users: Arc<Authority>,
    hosts: Arc<Authority>,
    pub(crate) trust: Trust,
    pub(crate) now: OffsetDateTime,
    _directory: Arc<tempfile::TempDir>,
}

/// A client with a certificate: chain and key in PEM.
pub(crate) struct Guest {
    chain: String,
    key: String,
}

impl From<&Node> for Guest {
    fn from(node: &Node) -> Self {
        Self { chain: node.chain.clone(), key: node.key.clone() }
    }
}

/// A node, with the tickets that it has given and what it was asked.
#[derive(Clone)]
pub(crate) struct Node {
    id: HostId,
    chain: String,
    key: String,
    tickets: Arc<Tickets>,
    asked: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// What became of a connection.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) said_early: bool,
    pub(crate) was_early: bool,
    pub(crate) resumed: bool,
    pub(crate) user: String,
    pub(crate) heard: Vec<u8>,
    /// How often the client spoke after it had listened, until it had its answer.
    pub(crate) flights: usize,
    /// The client's first flight.
    pub(crate) sent: Vec<u8>,
}

/// What a flight that was sent again has brought.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) resumed: bool,
    pub(crate) early_read: bool,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let sealing = Arc::new(SealingKey::create(&directory.path().join("seal.key")).unwrap());
        let custody = Arc::new(SealedCustody::new(sealing));
        let now = OffsetDateTime::now_utc();
        let make = |kind| Arc::new(authority(kind, &custody, now));
        let (users, hosts) = (make(CaKind::User), make(CaKind::Host));
        let trust = Trust::from_authorities(&[&users, &hosts], None).unwrap();
        Self { custody, users, hosts, trust, now, _directory: directory }
    }

    /// The same at another time, as far as accepts ask for the time.
    pub(crate) fn at(&self, after: Duration) -> Self {
        Self {
            custody: Arc::clone(&self.custody),
            users: Arc::clone(&self.users),
            hosts: Arc::clone(&self.hosts),
            trust: self.trust.clone(),
            now: self.now + after,
            _directory: Arc::clone(&self._directory),
        }
    }

    /// After a rotation of the user CA.
    pub(crate) fn with_other_user_ca(&self) -> Self {
        let users = Arc::new(authority(CaKind::User, &self.custody, self.now));
        let trust = Trust::from_authorities(&[&users, &self.hosts], None).unwrap();
        Self { users, trust, ..self.at(Duration::ZERO) }
    }

    pub(crate) fn user(&self, name: &str, ttl: Duration) -> Guest {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let identity = Identity {
            principal: Principal::User {
                name: UserName::new(name).unwrap(),
                roles: vec![RoleName::new("dev").unwrap()],
                logins: vec![Login::new("root").unwrap()],
                traits: Traits::new(),
            },
            login_id: Uuid::new_v4(),
            device: None,
            pinned_to: None,
            valid_after: self.now,
            valid_before: self.now,
        };
        let issued = issue_user(
            &self.users,
            &identity,
            ssh.public_line(),
            tls.spki_der(),
            self.now,
            ttl,
            &SshOptions::default(),
        );
        Guest { chain: issued.unwrap().tls_pem, key: tls.pkcs8_pem().to_string() }
    }

    pub(crate) fn node(&self, name: &str) -> Node {
        self.host(name, HostRole::Node)
    }

    pub(crate) fn proxy(&self, name: &str) -> Node {
        self.host(name, HostRole::Proxy)
    }

    fn host(&self, name: &str, role: HostRole) -> Node {
        let ssh = SshKeyPair::generate_for(Suite::BalancedV1, KeyPurpose::HostSsh, name).unwrap();
        let tls = TlsKey::generate_for(Suite::BalancedV1, KeyPurpose::HostTls).unwrap();
        let id = HostId::new();
        let request = HostRequest {
            id,
            name: &NodeName::new(name).unwrap(),
            role,
            join_id: Uuid::new_v4(),
            public_names: &[],
            ssh_public_key: ssh.public_line(),
            tls_spki: tls.spki_der(),
        };
        let issued = issue_host(&self.hosts, &request, self.now, Duration::DAY).unwrap();
        Node {
            id,
            chain: issued.tls_pem,
            key: tls.pkcs8_pem().to_string(),
            tickets: Arc::default(),
            asked: Arc::default(),
        }
    }

    pub(crate) fn client(&self, guest: &Guest, node: &str) -> NodeClient {
        NodeClient::new(&self.trust, (&guest.chain, &guest.key), ALPN, node).unwrap()
    }

    pub(crate) fn server(&self, node: &Node) -> Serving {
        let mut config = node_server_config(&self.trust, &node.chain, &node.key, ALPN).unwrap();
        config.time_provider = Arc::new(Clock(self.now));
        Serving { config, trust: self.trust.clone(), now: self.now }
    }

    pub(crate) async fn talk(&self, node: &Node, client: &NodeClient) -> Talk {
        self.try_talk(node, client).await.unwrap()
    }

    pub(crate) async fn try_talk(&self, node: &Node, client: &NodeClient) -> io::Result<Talk> {
        self.attempt(node, client, Early::AtOnce).await
    }

    pub(crate) async fn talk_with(&self, node: &Node, client: &NodeClient, early: Early) -> Talk {
        self.attempt(node, client, early).await.unwrap()
    }

    /// One question and its answer, over a carrier that writes down.
    async fn attempt(&self, node: &Node, client: &NodeClient, early: Early) -> io::Result<Talk> {
        let (near, far) = duplex(1 << 20);
        let serving = tokio::spawn({
            let (node, config) = (node.clone(), self.server(node));
            async move { node.serve(far, &config, early).await }
        });
        let mut carrier = Carrier::new(near);
        let outcome = async {
            let mut stream = EndpointStream::connect(&mut carrier, client, self.now)?;
            let said_early = stream.is_early();
            stream.write_all(ASKED).await?;
            stream.flush().await?;
            let mut heard = vec![0; ANSWERED.len()];
            stream.read_exact(&mut heard).await?;
            let was_early = stream.was_early();
            let flights = stream_flights(&mut stream);
            // Tickets come behind the answer; a client that goes before has none.
            stream.read_to_end(&mut heard).await?;
            // The node may have gone by now.
            let _ = stream.shutdown().await;
            io::Result::Ok((said_early, was_early, heard, flights))
        };
        let (said_early, was_early, heard, flights) = match outcome.await {
            Ok(outcome) => outcome,
            Err(error) => {
                drop(carrier);
                let _ = serving.await.unwrap();
                return Err(error);
            }
        };
        let (user, resumed) = serving.await.unwrap()?;
        Ok(Talk { said_early, was_early, resumed, user, heard, flights, sent: carrier.first })
    }

    /// The first flight of a client with a ticket, which reaches no node.
    pub(crate) async fn record(&self, client: &NodeClient) -> Vec<u8> {
        let (near, mut far) = duplex(1 << 20);
        let mut stream = EndpointStream::connect(near, client, self.now).unwrap();
        assert!(stream.is_early());
        stream.write_all(ASKED).await.unwrap();
        stream.flush().await.unwrap();
        drop(stream);
        let mut recorded = Vec::new();
        far.read_to_end(&mut recorded).await.unwrap();
        recorded
    }

    pub(crate) async fn replay(&self, node: &Node, flight: &[u8]) -> Replayed {
        self.replay_with(node, flight, Early::AtOnce).await
    }

    /// Sends a recorded flight, and nothing more.
    pub(crate) async fn replay_with(&self, node: &Node, flight: &[u8], early: Early) -> Replayed {
        let (mut near, far) = duplex(1 << 20);
        near.write_all(flight).await.unwrap();
        near.shutdown().await.unwrap();
        let serving = self.server(node);
        let accepted = accept(far, &serving.config, &node.tickets, serving.now).await;
        let Ok(accepted) = accepted else { return Replayed { resumed: false, early_read: false } };
        let resumed = accepted.is_resumed();
        let mut stream = accepted.admit(serving.now + Duration::HOUR, early);
        let mut read = Vec::new();
        let _ = stream.read_to_end(&mut read).await;
        Replayed { resumed, early_read: !read.is_empty() }
    }

    /// How a client that has a ticket is judged by this trust at this time, by a node that gave it and has not forgotten.
    pub(crate) async fn judge(&self, node: &Node, client: &NodeClient) -> Result<Identity, CaError> {
        let flight = self.record(client).await;
        let (mut near, far) = duplex(1 << 20);
        near.write_all(&flight).await.unwrap();
        let given = OffsetDateTime::now_utc();
        let accepted = accept(far, &self.server(node).config, &node.tickets, given).await.unwrap();
        assert!(accepted.is_resumed());
        self.trust.identify_peer(accepted.certificates(), self.now)
    }
}

fn authority(kind: CaKind, custody: &SealedCustody, now: OffsetDateTime) -> Authority {
    Authority::generate(kind, &ClusterName::new("prod").unwrap(), custody, Suite::BalancedV1, now).unwrap()
}

/// Stands still.
#[derive(Debug)]
struct Clock(OffsetDateTime);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.unix_timestamp()).unwrap();
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

/// What a node serves with.
#[derive(Clone)]
pub(crate) struct Serving {
    config: ServerConfig,
    trust: Trust,
    now: OffsetDateTime,
}

impl Node {
    pub(crate) fn id(&self) -> String {
        self.id.to_string()
    }

    pub(crate) fn asked(&self) -> Vec<Vec<u8>> {
        self.asked.lock().clone()
    }

    pub(crate) fn with_tickets(&self, tickets: Tickets) -> Self {
        Self { tickets: Arc::new(tickets), ..self.clone() }
    }

    /// The same host in a new process.
    pub(crate) fn restarted(&self) -> Self {
        Self { asked: Arc::default(), ..self.with_tickets(Tickets::default()) }
    }

    /// Lets a client in, hears its question and answers it. Gives who it was, and whether it had a ticket.
    pub(crate) async fn serve(
        &self,
        stream: DuplexStream,
        serving: &Serving,
        early: Early,
    ) -> io::Result<(String, bool)> {
        let accepted = accept(stream, &serving.config, &self.tickets, serving.now).await?;
        let identity = serving.trust.identify_peer(accepted.certificates(), serving.now);
        let identity = identity.map_err(io::Error::other)?;
        let resumed = accepted.is_resumed();
        let mut stream = accepted.admit(identity.valid_before, early);
        let mut asked = vec![0; ASKED.len()];
        stream.read_exact(&mut asked).await?;
        self.asked.lock().push(asked);
        stream.write_all(ANSWERED).await?;
        stream.flush().await?;
        stream.shutdown().await?;
        Ok((identity.display_name(), resumed))
    }

    /// Hears a question, answers, and lets go of the stream at once.
    pub(crate) async fn serve_and_drop(&self, stream: DuplexStream, serving: &Serving) {
        let accepted = accept(stream, &serving.config, &self.tickets, serving.now).await.unwrap();
        let mut stream = Parting::new(accepted.admit(serving.now + Duration::HOUR, Early::AtOnce));
        let mut asked = vec![0; ASKED.len()];
        stream.read_exact(&mut asked).await.unwrap();
        stream.write_all(ANSWERED).await.unwrap();
    }

    /// Says back what comes.
    pub(crate) async fn echo(&self, stream: DuplexStream, serving: &Serving) {
        let accepted = accept(stream, &serving.config, &self.tickets, serving.now).await.unwrap();
        let stream = accepted.admit(serving.now + Duration::HOUR, Early::AtOnce);
        let (mut reading, mut writing) = tokio::io::split(stream);
        tokio::io::copy(&mut reading, &mut writing).await.unwrap();
        writing.shutdown().await.unwrap();
    }
}

/// Carries a client's bytes, and counts how often it spoke after it had listened.
struct Carrier {
    inner: DuplexStream,
    first: Vec<u8>,
    flights: usize,
    listened: bool,
}

impl Carrier {
    fn new(inner: DuplexStream) -> Self {
        Self { inner, first: Vec::new(), flights: 0, listened: true }
    }
}

fn stream_flights(stream: &mut EndpointStream<&mut Carrier>) -> usize {
    stream.get_ref().flights
}

impl AsyncRead for Carrier {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if read.is_ready() {
            self.listened = true;
        }
        read
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if std::mem::take(&mut self.listened) {
            self.flights += 1;
        }
        if self.flights == 1 {
            self.first.extend_from_slice(data);
        }
        Pin::new(&mut self.inner).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
