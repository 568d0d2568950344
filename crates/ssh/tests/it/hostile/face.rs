//! The two SSH servers that a client from outside reaches: a node's, and the proxy's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sallyport_access::Identity;
use sallyport_ca::Trust;
use sallyport_ssh::BoxedStream;
use sallyport_ssh::jump::{Answered, Dial, Jump, JumpConfig, Question, Refusal};
use sallyport_ssh::node::Directory;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::hostile::raw::{Packet, Raw, message, number_at};
use crate::world::{Cluster, World};

/// How long a client may stay unknown here, where tests do not wait for its end.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Which server is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// Runs commands.
    Node,
    /// Leads to nodes.
    Proxy,
}

/// What a channel has at its far end.
#[derive(Clone, Copy)]
pub(crate) enum Far {
    /// Sends as much as is taken.
    Flood,
    /// Takes nothing.
    Deaf,
    /// Ends at once.
    Short,
}

impl Face {
    /// Opens the channel that this server is for.
    pub(crate) fn open(self, number: u32, window: u32, most: u32, far: Far) -> Packet {
        match self {
            Self::Node => Raw::open(number, window, most),
            Self::Proxy => {
                let host = match far {
                    Far::Flood => "flood",
                    Far::Deaf => "deaf",
                    Far::Short => "short",
                };
                let open = Packet::new(message::CHANNEL_OPEN).string("direct-tcpip").number(number);
                open.number(window).number(most).string(host).number(22).string("127.0.0.1").number(1)
            }
        }
    }

    /// Has a channel with this at its far end, and gives the server's number for it; none when the server ends the
    /// connection.
    pub(crate) fn running(self, raw: &mut Raw, window: u32, most: u32, far: Far) -> Option<u32> {
        raw.send(&self.open(0, window, most, far)).ok()?;
        let confirmed = raw.receive_kind(message::CHANNEL_CONFIRMATION).ok()?;
        let channel = number_at(&confirmed, 5);
        if self == Self::Node {
            let command = match far {
                Far::Flood => "head -c 300000000 /dev/zero",
                Far::Deaf => "sleep 1000",
                Far::Short => "exit 7",
            };
            raw.send(&Raw::exec(channel, command)).ok()?;
        }
        Some(channel)
    }
}

struct Nodes {
    cluster: Arc<Cluster>,
    node: SocketAddr,
}

#[async_trait]
impl Dial for Nodes {
    fn trust(&self) -> Arc<Trust> {
        self.cluster.trust()
    }

    /// Asked of a client that calls itself `mfa`.
    async fn question(&self, _: &Identity, _: &str, _: SocketAddr) -> Option<Question> {
        Some(Question { words: "prove it".to_owned(), challenge: "x".to_owned(), sessions: Vec::new() })
    }

    async fn answer(&self, _: &Question, typed: &str, _: &str, _: SocketAddr) -> Answered {
        if typed == "right" { Answered::Done } else { Answered::Again(format!("{typed} is wrong")) }
    }

    async fn dial(
        &self,
        _: &Identity,
        _: &str,
        host: &str,
        _: SocketAddr,
        _: CancellationToken,
    ) -> Result<BoxedStream, Refusal> {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        match host {
            "web-1" => {
                let stream =
                    TcpStream::connect(self.node).await.map_err(|error| Refusal::new(error.to_string()))?;
                return Ok(Box::new(stream));
            }
            "flood" => {
                tokio::spawn(async move {
                    let block = vec![0; 64 * 1024];
                    for _ in 0..4800 {
                        theirs.write_all(&block).await?;
                    }
                    io::Result::Ok(())
                });
            }
            "deaf" => {
                tokio::spawn(async move {
                    let _held = theirs;
                    std::future::pending::<()>().await;
                });
            }
            "short" => drop(theirs),
            other => return Err(Refusal::new(format!("there is no node {other}"))),
        }
        Ok(Box::new(ours))
    }
}

/// A server under attack, in a world of its own.
pub(crate) struct Target {
    pub(crate) face: Face,
    pub(crate) world: World,
    pub(crate) address: SocketAddr,
    jump: Option<Arc<Jump>>,
}

impl Target {
    /// A server that lets clients stay unknown for so long.
    pub(crate) async fn new(face: Face, login_timeout: Duration) -> Self {
        let world = World::with("", |config| config.login_timeout = login_timeout).await;
        let mut target = Self { face, address: world.address, world, jump: None };
        if face == Face::Proxy {
            target.before_the_node(JumpConfig { auth_timeout: login_timeout, ..JumpConfig::default() }).await;
        }
        target
    }

    /// A proxy with these limits.
    pub(crate) async fn proxy(config: JumpConfig) -> Self {
        let world = World::new().await;
        let mut target = Self { face: Face::Proxy, address: world.address, world, jump: None };
        target.before_the_node(config).await;
        target
    }

    async fn before_the_node(&mut self, config: JumpConfig) {
        let world = &self.world;
        world.issue_host_key("proxy");
        let read = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
        let dial = Arc::new(Nodes { cluster: world.cluster.clone(), node: world.address });
        let jump = Arc::new(Jump::new(config, &read("proxy"), &read("proxy-cert.pub"), dial).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.address = listener.local_addr().unwrap();
        let serving = jump.clone();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream, peer, Arc::new(|_| Ok(()))).await });
            }
        });
        self.jump = Some(jump);
    }

    /// Connections of the server that is attacked.
    pub(crate) fn connections(&self) -> usize {
        self.jump.as_ref().map_or_else(|| self.world.server.connections_open(), |jump| jump.connections())
    }

    /// `ssh` to the node, through the proxy when that is what is attacked.
    pub(crate) fn ssh(&self, command: &str) -> Command {
        if self.face == Face::Node {
            return self.world.ssh(&[], &[command]);
        }
        // The host certificate that the world can issue besides the node's is for this name.
        let shell = self.world.remote_shell().replace("HostKeyAlias=web-1", "HostKeyAlias=web-2");
        let (ssh, _) = shell.rsplit_once(" -p ").unwrap();
        let through = format!("-oProxyCommand={ssh} -p {} -W web-1:22 jump@127.0.0.1", self.address.port());
        self.world.ssh(&[&through], &[command])
    }
}
