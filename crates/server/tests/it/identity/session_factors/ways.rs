//! Every way in to every protocol.

use std::path::Path;
use std::process::Stdio;

use sallyport_access::{DeviceCustody, HostRole, Kind};
use sallyport_databases::postgres::startup::Startup;
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::v1::proxy_database_request::Frame as DatabaseFrame;
use sallyport_wire::v1::proxy_resource_request::Frame as ResourceFrame;
use sallyport_wire::v1::proxy_ssh_request::Frame as SshFrame;
use sallyport_wire::v1::transport_client::TransportClient;
use sallyport_wire::{SESSION_FACTOR_HEADER, alpn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::places::Places;
use super::watched::{JOINABLE, OWNERS, Watched};
use super::*;
use crate::identity::devices::{self, Machine};

/// What became of a session that was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Became {
    Opened,
    /// A factor is demanded.
    Wanting(String),
    /// A trusted device is demanded, and the login is from none that will do.
    Untrusted(String),
}

fn became(status: &Status) -> Option<Became> {
    let Some(header) = status.metadata().get(SESSION_FACTOR_HEADER) else {
        return untrusted(status.message());
    };
    assert!(status.message().contains("sallyport mfa pre-auth"), "{status:?}");
    Some(Became::Wanting(header.to_str().unwrap().to_owned()))
}

/// What a connection to the proxy goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Tcp,
    Quic,
}

/// A way in. To nodes and registered servers it has their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The whole way by our own client.
    Ssh(&'static str, By),
    /// The native protocol, as far as the proxy: `ssh::it::node::doors` has what the node does.
    Native(By),
    /// Stock `ssh -J`.
    Jump(&'static str),
    /// Another user's session is joined, the whole way by our own client.
    Join(&'static str, By),
    /// The same by the native protocol, as far as the proxy. Our own client joins by SSH alone.
    NativeJoin(By),
    /// The same by stock `ssh -J`.
    JumpJoin(&'static str),
    /// TLS to the agent, as far as the proxy.
    DatabaseEndToEnd(By),
    /// PostgreSQL's own bytes inside a call.
    DatabaseInCall(By),
    /// PostgreSQL inside TLS that says so (ALPN `postgresql`).
    DatabaseInTls,
    /// Stock psql, which asks for TLS in PostgreSQL's own words.
    Psql,
    /// As far as the proxy.
    Resource(&'static str, By),
}

/// The ways in to a kind: a kind that is new has to say its own here.
fn entries(kind: Kind) -> Vec<Entry> {
    use By::{Quic, Tcp};
    match kind {
        Kind::Node => {
            let mut all = vec![
                Entry::Native(Tcp),
                Entry::Native(Quic),
                Entry::NativeJoin(Tcp),
                Entry::NativeJoin(Quic),
            ];
            for node in ["web-1", "seen-1", "seen-2", "stock-1", "stock-2"] {
                all.extend([Entry::Ssh(node, Tcp), Entry::Ssh(node, Quic), Entry::Jump(node)]);
            }
            for node in JOINABLE {
                all.extend([Entry::Join(node, Tcp), Entry::Join(node, Quic), Entry::JumpJoin(node)]);
            }
            all
        }
        Kind::Database => vec![
            Entry::DatabaseEndToEnd(Tcp),
            Entry::DatabaseEndToEnd(Quic),
            Entry::DatabaseInCall(Tcp),
            Entry::DatabaseInCall(Quic),
            Entry::DatabaseInTls,
            Entry::Psql,
        ],
        Kind::App => vec![Entry::Resource("app", Tcp), Entry::Resource("app", Quic)],
    }
}

pub(super) async fn first<Frame, Answer>(
    frame: Frame,
    call: impl AsyncFnOnce(
        tokio_stream::wrappers::ReceiverStream<Frame>,
    ) -> Result<tonic::Response<tonic::Streaming<Answer>>, Status>,
) -> Result<(), Status> {
    let (send, receive) = tokio::sync::mpsc::channel(1);
    send.send(frame).await.ok().unwrap();
    let mut answers = call(tokio_stream::wrappers::ReceiverStream::new(receive)).await?.into_inner();
    answers.message().await.map(drop)
}

/// A user in front of all of it.
struct Before<'t> {
    user: &'t User,
    agent: &'t str,
    places: &'t Places,
    watched: &'t Watched,
}

impl Before<'_> {
    /// Tries a way in; none where what is refused is not a factor's, such as an agent that has not heard of its resources yet.
    async fn attempt(&self, entry: Entry) -> Option<Became> {
        let agents = vec![self.agent.to_owned()];
        let outcome = match entry {
            Entry::Ssh(node, by) => return self.by_ssh(node, by).await,
            Entry::Jump(node) => return self.by_jump(node).await,
            Entry::Join(node, by) => return self.joins(node, by).await,
            Entry::JumpJoin(node) => return self.joins_by_jump(node).await,
            Entry::DatabaseInCall(by) => return self.in_call(by).await,
            Entry::DatabaseInTls => return self.in_tls().await,
            Entry::Psql => return self.by_psql().await,
            Entry::Native(by) | Entry::NativeJoin(by) => {
                let joins = matches!(entry, Entry::NativeJoin(_));
                let login = if joins { JOIN_LOGIN.to_owned() } else { os_login() };
                let node = "web-1".to_owned();
                let target = v1::SshTarget { node, login, native: true, ..Default::default() };
                let frame = v1::ProxySshRequest { frame: Some(SshFrame::Target(target)) };
                let mut proxy = TransportClient::new(self.proxy(by).await);
                first(frame, async |asked| proxy.proxy_ssh(asked).await).await
            }
            Entry::DatabaseEndToEnd(by) => {
                let target = v1::DatabaseTarget {
                    database: "shop".to_owned(),
                    end_to_end: true,
                    db_user: "app".to_owned(),
                    db_name: "shop".to_owned(),
                    agents,
                };
                let frame = v1::ProxyDatabaseRequest { frame: Some(DatabaseFrame::Target(target)) };
                let mut proxy = TransportClient::new(self.proxy(by).await);
                first(frame, async |asked| proxy.proxy_database(asked).await).await
            }
            Entry::Resource(kind, by) => {
                let target = v1::ResourceTarget { kind: kind.to_owned(), name: "wiki".to_owned(), agents };
                let frame = v1::ProxyResourceRequest { frame: Some(ResourceFrame::Target(target)) };
                let mut proxy = TransportClient::new(self.proxy(by).await);
                first(frame, async |asked| proxy.proxy_resource(asked).await).await
            }
        };
        match outcome {
            Ok(()) => Some(Became::Opened),
            Err(status) => became(&status),
        }
    }

    async fn proxy(&self, by: By) -> Channel {
        match by {
            By::Tcp => self.user.connect().await.unwrap(),
            By::Quic => self.user.connect_by_quic().await,
        }
    }

    /// The whole way: the proxy asks, and the node asks for itself.
    async fn by_ssh(&self, node: &str, by: By) -> Option<Became> {
        let (user, login) = (self.user, os_login());
        match support::open(self.proxy(by).await, node, &login).await {
            Ok(stream) => {
                let settings = user.settings(node, &login);
                let connected = sallyport_ssh::client::connect(stream, &user.credentials(), settings).await;
                let (out, err, _) = support::exec(&connected.ok()?, "echo in").await;
                (out == "in\n").then_some(Became::Opened).or_else(|| said(&err))
            }
            Err(status) => became(&status),
        }
    }

    async fn by_jump(&self, node: &str) -> Option<Became> {
        let directory = tempfile::tempdir().unwrap();
        let mut ssh = self.jump(directory.path());
        stock(ssh.arg(format!("{}@{node}", os_login())).arg("echo in")).await
    }

    /// Stock ssh through the proxy, without a host yet.
    fn jump(&self, directory: &Path) -> Command {
        let key = self.user.write_keys(directory);
        let (key, address) = (key.display(), &self.user.proxy);
        let known = "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
        let jump =
            format!("ssh -F none -i {key} {known} -W %h:%p -p {} alice@{}", address.port, address.host);
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "none", "-i", &key.to_string()]).args(known.split(' '));
        ssh.args(["-o", &format!("ProxyCommand={jump}")]);
        ssh
    }

    async fn joins(&self, node: &str, by: By) -> Option<Became> {
        match support::open(self.proxy(by).await, node, JOIN_LOGIN).await {
            Ok(stream) => joined(self.watched.join(node, self.user, stream).await),
            Err(status) => became(&status),
        }
    }

    async fn joins_by_jump(&self, node: &str) -> Option<Became> {
        let directory = tempfile::tempdir().unwrap();
        let mut ssh = self.jump(directory.path());
        ssh.arg("-tt").arg(format!("{JOIN_LOGIN}@{node}"));
        joined(self.watched.join_by_stock(node, &mut ssh).await)
    }

    async fn by_psql(&self) -> Option<Became> {
        let directory = tempfile::tempdir_in(&self.places.directory).unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            sallyport_testing::write_private(&path, text).unwrap();
            path.display().to_string()
        };
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-w", "-c", "select 'in'"]);
        psql.env("PGHOST", "127.0.0.1").env("PGPORT", self.user.proxy.port.to_string());
        psql.env("PGUSER", "app").env("PGDATABASE", "shop").env("PGOPTIONS", "-c sallyport.database=shop");
        psql.env("PGSSLMODE", "verify-ca").env("PGSSLCERT", write("cert.pem", &self.user.tls_chain));
        psql.env("PGSSLKEY", write("key.pem", &self.user.tls_key));
        psql.env("PGSSLROOTCERT", write("ca.pem", &self.places.trust.host_tls_certificates.concat()));
        stock(psql.env_remove("PGSERVICE")).await
    }

    async fn in_tls(&self) -> Option<Became> {
        let server = sallyport_ca::server_name(HostRole::Proxy, &support::cluster());
        let config = self.user.tls(alpn::POSTGRESQL);
        let mut stream = support::tls(&self.user.proxy, config, &server).await.unwrap();
        stream.write_all(&startup()).await.unwrap();
        let mut answer = Vec::new();
        while answer.len() < 5 || answer.first() == Some(&b'E') {
            if stream.read_buf(&mut answer).await.ok()? == 0 {
                break;
            }
        }
        answered(&answer)
    }

    async fn in_call(&self, by: By) -> Option<Became> {
        let (send, receive) = tokio::sync::mpsc::channel(2);
        let target = v1::DatabaseTarget { database: "shop".to_owned(), ..Default::default() };
        for frame in [DatabaseFrame::Target(target), DatabaseFrame::Data(startup().into())] {
            send.send(v1::ProxyDatabaseRequest { frame: Some(frame) }).await.ok().unwrap();
        }
        let asked = tokio_stream::wrappers::ReceiverStream::new(receive);
        let mut proxy = TransportClient::new(self.proxy(by).await);
        let mut answers = match proxy.proxy_database(asked).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return became(&status),
        };
        while let Ok(Some(answer)) = answers.message().await {
            if let Some(v1::proxy_database_response::Frame::Data(bytes)) = answer.frame {
                return answered(&bytes);
            }
        }
        None
    }
}

/// What a stock program says that prints "in" where it is let in.
async fn stock(command: &mut Command) -> Option<Became> {
    let ran = command.stdin(Stdio::null()).output().await.unwrap();
    match ran.stdout.as_slice() {
        b"in\n" => Some(Became::Opened),
        _ => said(&String::from_utf8_lossy(&ran.stderr)),
    }
}

/// What came of joining.
fn joined(outcome: Result<(), String>) -> Option<Became> {
    outcome.map_or_else(|text| said(&text), |()| Some(Became::Opened))
}

/// What a person reads.
fn said(text: &str) -> Option<Became> {
    let Some((_, demand)) = text.split_once("require_session_mfa: ") else { return untrusted(text) };
    Some(Became::Wanting(demand.chars().take_while(char::is_ascii_lowercase).collect()))
}

/// The same of a device.
fn untrusted(text: &str) -> Option<Became> {
    let (demand, _) = text.split_once("(device_trust: ")?.1.split_once(')')?;
    Some(Became::Untrusted(demand.to_owned()))
}

/// The first packet of a client of PostgreSQL's.
fn startup() -> Vec<u8> {
    let parameters = [("user", "app"), ("database", "shop"), ("options", "-c sallyport.database=shop")];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Startup { minor: 0, parameters: parameters.into() }.to_bytes()
}

/// What came of it: PostgreSQL lets the client in, or the answer is an error.
fn answered(bytes: &[u8]) -> Option<Became> {
    match bytes.first()? {
        b'R' => Some(Became::Opened),
        _ => said(&String::from_utf8_lossy(bytes)),
    }
}

/// A role that has the proxy record at the servers that are to be.
fn recording() -> String {
    format!(
        "kind: role\nversion: v1\nmetadata: {{name: seen}}\nspec: {{allow: {{logins: [{}], node_labels: {{recorded: 'true'}}}}, options: \
         {{session_recording: proxy}}}}\n",
        os_login()
    )
}

/// Gives a user these roles, and has them log in with them.
async fn with_roles(cluster: &Cluster, name: &str, roles: &str) -> User {
    put(
        cluster,
        format!("kind: user\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{roles: [{roles}]}}\n"),
    )
    .await;
    let pin = support::pin(&mut cluster.admin().await).await;
    support::log_in(&cluster.proxy(), &pin, name, None).await.unwrap()
}

/// A role as [`role`] makes it for alice, who may watch what others do.
fn alice_role(options: &str) -> String {
    let joins = format!("    join_sessions: [{{roles: [{OWNERS}], modes: [observer]}}]\n  options:");
    role("alice-role", options).replacen("  options:", &joins, 1)
}

/// All that is to be got into, and who is to get in.
struct Stage {
    cluster: Cluster,
    alice: User,
    agent: String,
    places: Places,
    watched: Watched,
    all: Vec<Entry>,
}

impl Stage {
    /// Where no role demands anything, and alice may have all of it.
    async fn set() -> Self {
        let (cluster, _) = scene("").await;
        put(&cluster, recording()).await;
        put(&cluster, alice_role("")).await;
        let alice = with_roles(&cluster, "alice", "alice-role, seen").await;
        let places = Places::servers(&cluster, &alice).await.with_postgres(&cluster).await;
        cluster.user("bob", &[&os_login()]).await;
        let bob = with_roles(&cluster, "bob", &format!("{OWNERS}, seen")).await;
        let agent = agent_of(&cluster).await;
        let watched = Watched::of(&bob).await;
        let mut kinds: Vec<Kind> = sallyport_protocols::ALL.iter().map(|row| row.kind).collect();
        kinds.dedup();
        let all: Vec<Entry> = kinds.into_iter().flat_map(entries).collect();
        for kind in Kind::ALL {
            assert!(entries(*kind).iter().all(|entry| all.contains(entry)), "no protocol has {kind:?}");
        }
        let stage = Self { cluster, alice, agent, places, watched, all };
        stage.all_become(&stage.alice, &Became::Opened, "without a demand").await;
        stage
    }

    fn before<'t>(&'t self, user: &'t User) -> Before<'t> {
        Before { user, agent: &self.agent, places: &self.places, watched: &self.watched }
    }

    /// Each way in, side by side, until all have come to this for a user.
    async fn all_become(&self, user: &User, expected: &Became, what: &str) {
        let before = self.before(user);
        let one = async |entry: &Entry| {
            let what = format!("{entry:?} {what}");
            until(&what, async || before.attempt(*entry).await.filter(|became| became == expected)).await;
        };
        futures::future::join_all(self.all.iter().map(one)).await;
    }

    /// The same at once.
    async fn all_are(&self, user: &User, expected: &Became, what: &str) {
        let before = self.before(user);
        let one = async |entry: &Entry| (*entry, before.attempt(*entry).await);
        for (entry, became) in futures::future::join_all(self.all.iter().map(one)).await {
            assert_eq!(became.as_ref(), Some(expected), "{entry:?} {what}");
        }
    }
}

/// Protocol by protocol, way by way, rule by rule: none opens a session without what the roles demand, and each does with it.
#[tokio::test(flavor = "multi_thread")]
async fn every_way_in_to_every_protocol_asks_for_the_factor_that_roles_demand() {
    let stage = Stage::set().await;
    let Stage { cluster, alice, .. } = &stage;
    let bench = Bench::at(cluster).await;
    let mut key = bench.first_passkey(alice).await;
    for demand in ["yes", "hardware"] {
        put(cluster, alice_role(&format!("require_session_mfa: {demand}, session_mfa_ttl: 5m"))).await;
        // A login of its own for each: what was proven by the former does not count.
        let again = bench.logged_in(&mut key).await;
        let refused = Became::Wanting(demand.to_owned());
        stage.all_become(&again, &refused, &format!("refused for want of {demand}")).await;
        let nodes = ["web-1", "seen-1", "seen-2", "stock-1", "stock-2"];
        let nodes = nodes.map(|node| to("node", node, &os_login(), ""));
        let others = [to("db", "shop", "app", "shop"), to("app", "wiki", "", "")];
        // Stock ssh -J does not tell the proxy the login, so that what it asks for is any. That is joining, too.
        let any = [to("node", "web-1", "", "")];
        bench.proves(&again, &mut key, wanted(&[&nodes[..], &others, &any].concat())).await;
        stage.all_are(&again, &Became::Opened, &format!("with {demand}")).await;
        stage.all_are(alice, &refused, "of another login").await;
    }
    let started = bench.events("SP2000I", "alice").await;
    let on = |node: &str| {
        started.iter().any(|event| event["node"] == node && event["fields"]["session_factor"] == "laptop")
    };
    assert!(on("web-1") && on("seen-1") && on("seen-2"), "{started:?}");
}

/// The same of the trusted device that a login has to come from.
#[tokio::test(flavor = "multi_thread")]
async fn every_way_in_to_every_protocol_asks_for_the_device_that_roles_demand() {
    let stage = Stage::set().await;
    let Stage { cluster, alice: from_none, .. } = &stage;
    let bench = Bench::at(cluster).await;
    let from = async |custody: DeviceCustody| {
        let token = devices::token(cluster, &["alice"], custody == DeviceCustody::Hardware).await;
        let mut machine = Machine::new();
        machine.enroll(from_none, custody, &token).await.unwrap();
        machine.log_in(&bench, from_none).await.unwrap()
    };
    let (from_file, from_hardware) = (from(DeviceCustody::File).await, from(DeviceCustody::Hardware).await);
    for (demand, refused, let_in) in [
        ("required", &[from_none][..], &[&from_file, &from_hardware][..]),
        ("required-hardware", &[from_none, &from_file], &[&from_hardware]),
    ] {
        put(cluster, alice_role(&format!("device_trust: {demand}"))).await;
        for user in refused {
            stage.all_become(user, &Became::Untrusted(demand.to_owned()), "is refused").await;
        }
        for user in let_in {
            stage.all_are(user, &Became::Opened, &format!("with {demand}")).await;
        }
    }
}

/// A stock server hears the login from inside the SSH that the proxy passes on, so that telling the proxy one that needs no factor is no way
/// to one that does.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_needs_no_factor_is_no_way_to_another_at_a_registered_server() {
    let (cluster, _) = scene("require_session_mfa: yes, session_mfa_ttl: 5m").await;
    let guest = "{allow: {logins: [guest], node_labels: {'*': '*'}}}";
    put(&cluster, format!("kind: role\nversion: v1\nmetadata: {{name: guest}}\nspec: {guest}\n")).await;
    let alice = with_roles(&cluster, "alice", "alice-role, guest").await;
    let _places = Places::servers(&cluster, &alice).await;
    let bench = Bench::at(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    agent_of(&cluster).await;
    for node in ["stock-1", "stock-2"] {
        let opened = until(node, async || {
            let opened = alice.open(node, "guest").await;
            opened.map_or_else(|status| became(&status).map(Err), |stream| Some(Ok(stream))).filter(
                |opened| {
                    // The proxy has heard of the server.
                    opened.is_ok() || matches!(opened, Err(Became::Wanting(_)))
                },
            )
        })
        .await;
        if let Ok(stream) = opened {
            let settings = alice.settings(node, &os_login());
            let inside =
                sallyport_ssh::client::connect(stream, &alice.credentials(), settings).await.unwrap();
            panic!("{node}: {:?} ran as {}", support::exec(&inside, "echo in").await, os_login());
        }
        bench.proves(&alice, &mut key, wanted(&[to("node", node, "guest", "")])).await;
        assert!(alice.open(node, "guest").await.is_ok(), "{node}: it is proven for all logins there");
        assert_eq!(alice.run(node, &os_login(), "echo in").await.0, "in\n", "{node}");
    }
}
