//! Workloads of the access path, in memory and on one thread, each the same every time.

use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sallyport_access::{
    ClusterName, HostId, HostRole, Identity, Labels, Login, Node, NodeKind, NodeName, Policies, Principal,
    Role, RoleName, SessionId, Traits, UserName,
};
use sallyport_audit::recording::{Body, Encoder, Frame};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::tls::node::{NodeClient, node_server_config};
use sallyport_ca::{Authority, CaKind, HostRequest, SshOptions, Trust, issue_host, issue_user};
use sallyport_databases::postgres::exchange::{Exchange, FromClient, FromServer, Number, Said};
use sallyport_databases::postgres::frame::{Flow, Limits, Reader};
use sallyport_databases::postgres::message::{Frontend, encode};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::hpke::{Kem, RecipientKeys};
use sallyport_sal::tls::rustls::ServerConfig;
use sallyport_sal::{KeyAlgorithm, KeyPurpose, Suite};
use sallyport_ssh::endpoint::{Early, EndpointStream, Tickets, accept};
use sallyport_ssh::measure::{KeyExchange, Pair, Shape};
use sallyport_wire::tunnel::{Config, Tunnel};
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::LabError;

/// Bytes of a frame that a tunnel carries.
const FRAME_BYTES: usize = 16 * 1024;
/// Frames in a row, as a download has them.
const FRAMES: usize = 64;
/// What a session writes at a time, and how much of it makes a chunk of the recording.
const OUTPUT_BYTES: usize = 32 * 1024;
const FLUSH_BYTES: usize = 256 * 1024;
/// Room of a stream in memory.
const ROOM_BYTES: usize = 256 * 1024;
const ALPN: &[u8] = b"sallyport-native/1";
const CLUSTER: &str = "lab";
const NODE: &str = "lab-node";
const ASKED: &[u8] = b"true\n";
const ANSWERED: &[u8] = b"done\n";

/// A part of the access path that is done again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A native connection without a ticket: both sides' mutual TLS, the check of the user, a question and its answer.
    NativeCold,
    /// The same with a ticket, the question as early data.
    NativeWarm,
    /// Both sides of a login by SSH with certificates, through the node's settings.
    SshLogin,
    /// A frame of 16 KiB from one end of a tunnel to the other: framing, credit, and the tasks of both ends.
    TunnelFrame,
    /// A stream of a tunnel from its opening to its end, with a few bytes each way.
    TunnelStream,
    /// A MiB of rows from PostgreSQL, in messages of 128 bytes, walked over.
    PostgresRows,
    /// A statement to PostgreSQL and its answer, walked over and read for the record.
    PostgresStatement,
    /// A MiB of a session's output on record: framed, compressed and sealed, as it is while much passes.
    Recording,
    /// A user's certificate that was verified before: what every connection after the first costs.
    Identity,
    /// The access decision.
    Decision,
}

/// All of them, in the order of the table.
pub const WORKLOADS: [Workload; 10] = [
    Workload::NativeCold,
    Workload::NativeWarm,
    Workload::SshLogin,
    Workload::TunnelStream,
    Workload::TunnelFrame,
    Workload::PostgresStatement,
    Workload::PostgresRows,
    Workload::Recording,
    Workload::Identity,
    Workload::Decision,
];

impl Workload {
    /// Its name, on the command line and in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NativeCold => "native-cold",
            Self::NativeWarm => "native-warm",
            Self::SshLogin => "ssh-login",
            Self::TunnelFrame => "tunnel-frame",
            Self::TunnelStream => "tunnel-stream",
            Self::PostgresRows => "postgres-rows",
            Self::PostgresStatement => "postgres-statement",
            Self::Recording => "recording",
            Self::Identity => "identity",
            Self::Decision => "decision",
        }
    }

    /// What is counted of it.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::NativeCold | Self::NativeWarm => "connection, both sides",
            Self::SshLogin => "login, both sides",
            Self::TunnelFrame => "frame of 16 KiB, both ends",
            Self::TunnelStream => "stream, both ends",
            Self::PostgresRows | Self::Recording => "MiB",
            Self::PostgresStatement => "statement",
            Self::Identity => "certificate",
            Self::Decision => "decision",
        }
    }

    /// How many make a difference that is well above what a start of the program varies by.
    pub(super) fn count(self) -> u64 {
        match self {
            Self::NativeCold | Self::SshLogin => 20,
            Self::NativeWarm => 30,
            Self::TunnelFrame | Self::PostgresRows => 20,
            Self::Recording => 10,
            Self::Decision => 400,
            Self::TunnelStream | Self::PostgresStatement | Self::Identity => 2_000,
        }
    }

    /// Units of one run.
    pub(super) fn units(self) -> u64 {
        if self == Self::TunnelFrame { FRAMES as u64 } else { 1 }
    }

    /// Does it so many times, after some that make what is kept.
    ///
    /// # Errors
    /// When something does not work; none of it depends on the machine.
    pub fn run(self, count: u64) -> Result<(), LabError> {
        const FIRST: u64 = 3;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(broken)?;
        let mut workload = self.prepare(&runtime)?;
        for _ in 0..FIRST + count {
            workload()?;
        }
        Ok(())
    }

    fn prepare<'r>(
        self,
        runtime: &'r Runtime,
    ) -> Result<Box<dyn FnMut() -> Result<(), LabError> + 'r>, LabError> {
        Ok(match self {
            Self::NativeCold | Self::NativeWarm => {
                let parties = Parties::new()?;
                Box::new(move || runtime.block_on(parties.connect(self == Self::NativeWarm)))
            }
            Self::SshLogin => {
                let shape = Shape {
                    host: KeyAlgorithm::Ed25519,
                    host_certificate: true,
                    exchange: KeyExchange::MlKem768X25519,
                    user: KeyAlgorithm::Ed25519,
                    user_certificate: true,
                };
                let pair = Pair::of(shape).map_err(broken)?;
                Box::new(move || {
                    runtime.block_on(async {
                        let (near, far) = duplex(ROOM_BYTES);
                        both(pair.connect(near, || ()), pair.accept(far)).await
                    })
                })
            }
            Self::TunnelFrame | Self::TunnelStream => {
                let (near, far) = duplex(ROOM_BYTES);
                let inside = runtime.enter();
                let (proxy, towards_proxy) = Tunnel::server(near, Config::default());
                let (agent, mut incoming) = Tunnel::client(far, Config::default());
                drop(inside);
                let chunk = Bytes::from(vec![0x5a; if self == Self::TunnelFrame { FRAME_BYTES } else { 64 }]);
                let chunks = if self == Self::TunnelFrame { FRAMES } else { 1 };
                Box::new(move || {
                    // Where no program takes streams, a tunnel opens none either.
                    let (_, _, incoming) = (&agent, &towards_proxy, &mut incoming);
                    runtime.block_on(async {
                        let mut there = proxy.open(Bytes::from_static(b"header")).map_err(broken)?;
                        let sends = async {
                            for _ in 0..chunks {
                                there.send(chunk.clone()).await.map_err(broken)?;
                            }
                            there.finish();
                            there.receive().await.map_err(broken)
                        };
                        let receives = async {
                            let (_, mut here) =
                                incoming.next().await.ok_or_else(|| broken("the tunnel has ended"))?;
                            let mut received = 0;
                            while let Some(bytes) = here.receive().await.map_err(broken)? {
                                received += bytes.len();
                            }
                            here.send(Bytes::from_static(ANSWERED)).await.map_err(broken)?;
                            here.finish();
                            Ok::<_, LabError>(received)
                        };
                        let (answer, received) = tokio::join!(sends, receives);
                        let expected = chunk.len() * chunks;
                        if answer?.as_deref() == Some(ANSWERED) && received? == expected {
                            return Ok(());
                        }
                        Err(broken("a tunnel lost bytes"))
                    })
                })
            }
            Self::PostgresRows => {
                let row = encode(b'D', &[0x2a; 123]);
                let rows = row.repeat((1 << 20) / row.len());
                Box::new(move || {
                    let mut exchange = Exchange::default();
                    ask(&mut exchange)?;
                    walk(&rows, 16 * 1024, &mut FromServer { exchange: &mut exchange })
                })
            }
            Self::PostgresStatement => {
                let answer = [encode(b'C', b"SELECT 1\0"), encode(b'Z', b"I")].concat();
                let mut exchange = Exchange::default();
                Box::new(move || {
                    ask(&mut exchange)?;
                    walk(&answer, answer.len(), &mut FromServer { exchange: &mut exchange })?;
                    if exchange.happened().is_empty() { Err(broken("nothing was on record")) } else { Ok(()) }
                })
            }
            Self::Recording => {
                let holder = RecipientKeys::generate(Kem::X25519).map_err(broken)?;
                let mut head = BytesMut::new();
                let session = SessionId::new();
                let mut encoder = Encoder::new(session, &holder.public(), &mut head).map_err(broken)?;
                let output = Bytes::from(log_lines(OUTPUT_BYTES));
                Box::new(move || {
                    for _ in 0..(1 << 20) / FLUSH_BYTES {
                        for _ in 0..FLUSH_BYTES / OUTPUT_BYTES {
                            encoder.push(&Frame {
                                at: std::time::Duration::ZERO,
                                body: Body::Output(output.clone()),
                            });
                        }
                        let mut chunk = BytesMut::new();
                        encoder.flush(&mut chunk).map_err(broken)?;
                        if chunk.len() < OUTPUT_BYTES / 64 {
                            return Err(broken("nothing is on record"));
                        }
                    }
                    Ok(())
                })
            }
            Self::Identity => {
                let parties = Parties::new()?;
                let chain = parties.chain()?;
                Box::new(move || parties.trust.identify_peer(&chain, parties.now).map(drop).map_err(broken))
            }
            Self::Decision => {
                let (policies, identity, node, login, now) = decision()?;
                Box::new(move || {
                    policies.decide(&identity, &node, &login, &[], now).map(drop).map_err(broken)
                })
            }
        })
    }
}

fn broken(error: impl std::fmt::Display) -> LabError {
    LabError::Failed { what: "a workload that is counted".to_owned(), said: error.to_string() }
}

/// Both sides of something, on one thread.
async fn both<E: std::fmt::Display>(
    one: impl Future<Output = Result<(), E>>,
    other: impl Future<Output = Result<(), E>>,
) -> Result<(), LabError> {
    let (one, other) = tokio::join!(one, other);
    one.and(other).map_err(broken)
}

/// Lines of a log, which compress as such do.
fn log_lines(bytes: usize) -> Vec<u8> {
    let mut lines = Vec::with_capacity(bytes + 128);
    let mut number: u32 = 1;
    while lines.len() < bytes {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let line = format!("INFO request id={number:08x} path=/v1/items/{} status=200\n", number >> 20);
        lines.extend_from_slice(line.as_bytes());
    }
    lines.truncate(bytes);
    lines
}

/// Hears what the record would.
struct Heard;

impl Said for Heard {
    fn said(&mut self, _: Number, _: &Frontend<'_>) {}
    fn long(&mut self, _: Number, _: u8, _: u32, _: u32, _: &[u8]) {}
}

fn ask(exchange: &mut Exchange) -> Result<(), LabError> {
    let statement = encode(b'Q', b"select id, name, price from items where id = 4711\0");
    walk(&statement, statement.len(), &mut FromClient { exchange, said: &mut Heard })
}

/// Walks over bytes as they come from the network.
fn walk(bytes: &[u8], step: usize, reader: &mut impl Reader) -> Result<(), LabError> {
    let mut flow = Flow::new(Limits::default());
    for part in bytes.chunks(step.max(1)) {
        if let Some(failed) = flow.walk(part, reader).failed {
            return Err(broken(failed));
        }
    }
    Ok(())
}

/// A cluster's certificates: a user and a node.
struct Parties {
    trust: Trust,
    now: OffsetDateTime,
    client: NodeClient,
    server: ServerConfig,
    tickets: Arc<Tickets>,
    user: String,
}

impl Parties {
    fn new() -> Result<Self, LabError> {
        let suite = Suite::BalancedV1;
        let directory = tempfile::tempdir().map_err(broken)?;
        let sealing = SealingKey::create(&directory.path().join("seal.key")).map_err(broken)?;
        let custody = SealedCustody::new(Arc::new(sealing));
        let now = OffsetDateTime::now_utc();
        let cluster = ClusterName::new(CLUSTER).map_err(broken)?;
        let authority = |kind| Authority::generate(kind, &cluster, &custody, suite, now).map_err(broken);
        let (users, hosts) = (authority(CaKind::User)?, authority(CaKind::Host)?);
        let trust = Trust::from_authorities(&[&users, &hosts], None).map_err(broken)?;

        let ssh = SshKeyPair::generate(suite, "lab").map_err(broken)?;
        let tls = TlsKey::generate(suite).map_err(broken)?;
        let identity = user(now)?;
        let (line, spki, options) = (ssh.public_line(), tls.spki_der(), SshOptions::default());
        let issued =
            issue_user(&users, &identity, line, spki, now, Duration::HOUR, &options).map_err(broken)?;
        let user = issued.tls_pem;
        let client = NodeClient::new(&trust, (&user, &tls.pkcs8_pem()), ALPN, NODE).map_err(broken)?;

        let ssh = SshKeyPair::generate_for(suite, KeyPurpose::HostSsh, NODE).map_err(broken)?;
        let tls = TlsKey::generate_for(suite, KeyPurpose::HostTls).map_err(broken)?;
        let request = HostRequest {
            id: HostId::new(),
            name: &NodeName::new(NODE).map_err(broken)?,
            role: HostRole::Node,
            join_id: Uuid::nil(),
            public_names: &[],
            ssh_public_key: ssh.public_line(),
            tls_spki: tls.spki_der(),
        };
        let issued = issue_host(&hosts, &request, now, Duration::DAY).map_err(broken)?;
        let server = node_server_config(&trust, &issued.tls_pem, &tls.pkcs8_pem(), ALPN).map_err(broken)?;
        Ok(Self { trust, now, client, server, tickets: Arc::default(), user })
    }

    /// The user's certificates.
    fn chain(&self) -> Result<Vec<sallyport_sal::tls::rustls::pki_types::CertificateDer<'static>>, LabError> {
        use sallyport_sal::tls::rustls::pki_types::CertificateDer;
        use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
        CertificateDer::pem_slice_iter(self.user.as_bytes()).collect::<Result<_, _>>().map_err(broken)
    }

    /// A connection with one question, with a ticket or without.
    async fn connect(&self, warm: bool) -> Result<(), LabError> {
        let (near, far) = duplex(ROOM_BYTES);
        // Past the end of the node's certificate a client forgets the tickets that it has.
        let now = if warm { self.now } else { self.now + Duration::DAY * 3 };
        let asks = async {
            let mut stream = EndpointStream::connect(near, &self.client, now).map_err(broken)?;
            stream.write_all(ASKED).await.map_err(broken)?;
            stream.flush().await.map_err(broken)?;
            let mut heard = Vec::new();
            // Tickets come behind the answer.
            stream.read_to_end(&mut heard).await.map_err(broken)?;
            if heard != ANSWERED {
                return Err(broken("another answer"));
            }
            // The node may have gone by now.
            let _ = stream.shutdown().await;
            Ok(())
        };
        let answers = async {
            let accepted = accept(far, &self.server, &self.tickets, self.now).await.map_err(broken)?;
            let identity = self.trust.identify_peer(accepted.certificates(), self.now).map_err(broken)?;
            let mut stream = accepted.admit(identity.valid_before, Early::AtOnce);
            let mut asked = [0; ASKED.len()];
            stream.read_exact(&mut asked).await.map_err(broken)?;
            stream.write_all(ANSWERED).await.map_err(broken)?;
            stream.flush().await.map_err(broken)?;
            stream.shutdown().await.map_err(broken)
        };
        let (asked, answered) = tokio::join!(asks, answers);
        asked.and(answered)
    }
}

fn user(now: OffsetDateTime) -> Result<Identity, LabError> {
    Ok(Identity {
        principal: Principal::User {
            name: UserName::new("lab").map_err(broken)?,
            roles: ["dev", "staff"]
                .into_iter()
                .map(RoleName::new)
                .collect::<Result<_, _>>()
                .map_err(broken)?,
            logins: vec![Login::new("deploy").map_err(broken)?],
            traits: Traits::new(),
        },
        login_id: Uuid::nil(),
        device: None,
        pinned_to: None,
        valid_after: now,
        valid_before: now + Duration::HOUR,
    })
}

fn decision() -> Result<(Policies, Identity, Node, Login, OffsetDateTime), LabError> {
    let role = |name: &str, spec: &str| {
        Role::parse(&format!("kind: role\nversion: v1\nmetadata: {{name: {name}}}\nspec: {spec}\n"))
            .map_err(|errors| broken(format!("{errors:?}")))
    };
    let roles = [
        role("staff", "{allow: {logins: [nobody], node_labels: {env: [lab]}}, deny: {logins: [root]}}")?,
        role("dev", "{allow: {logins: [deploy], node_labels: {env: [staging, 'dev-*'], team: [web, db]}}}")?,
        role("admin", "{allow: {logins: [root], node_labels: {'*': '*'}}}")?,
    ];
    let policies = Policies::compile(&roles).map_err(broken)?;
    let now = OffsetDateTime::UNIX_EPOCH + Duration::seconds(1_900_000_000);
    let labels: Labels = [("env", "staging"), ("team", "web")].into_iter().collect();
    let node = Node {
        id: HostId::new(),
        name: NodeName::new("web-1").map_err(broken)?,
        labels,
        kind: NodeKind::Sallyport,
    };
    Ok((policies, user(now)?, node, Login::new("deploy").map_err(broken)?, now))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_workload_works() {
        for workload in WORKLOADS {
            workload.run(2).unwrap_or_else(|error| panic!("{}: {error}", workload.name()));
        }
    }
}
