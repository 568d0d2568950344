//! Channels that a server opens by itself: none leads anywhere on the user's machine that the user has not offered to it.

use std::sync::Arc;

use russh::keys::{Certificate, PrivateKey};
use russh::server::{Auth, ChannelOpenHandle, Config, Handle, Handler, Msg, Session};
use russh::{Channel, Error};
use sallyport_access::HostRole;
use sallyport_ssh::client::{Connection, Endpoint, connect};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;

use crate::openssh::rig::{Cluster, NODE, settings};

/// A server that lets everybody in, and listens wherever it is asked to.
struct Willing;

impl Handler for Willing {
    type Error = Error;

    async fn auth_openssh_certificate(&mut self, _: &str, _: &Certificate) -> Result<Auth, Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        reply.accept().await;
        Ok(())
    }

    async fn tcpip_forward(&mut self, _: &str, _: &mut u32, _: &mut Session) -> Result<bool, Error> {
        Ok(true)
    }
}

/// A connection to such a server, whose agent is not offered to it; and what the server opens channels with.
async fn connected(cluster: &Cluster, agent: &std::path::Path) -> (Connection, Handle) {
    let host = cluster.host(NODE, HostRole::Node);
    let config = Arc::new(Config {
        keys: vec![PrivateKey::from_openssh(&host.private).unwrap()],
        certificates: vec![Certificate::from_openssh(&host.certificate).unwrap()],
        ..Config::default()
    });
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let running = russh::server::run_stream(config, theirs, Willing).await.unwrap();
        let _ = tell.send(running.handle());
        let _ = running.await;
    });
    let mut settings = settings(cluster);
    settings.agent = Some(agent.to_owned());
    let connection = connect(ours, &cluster.user().credentials(), settings).await.unwrap();
    (connection, told.await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_channel_that_a_server_opens_unasked_leads_anywhere() {
    let cluster = Cluster::new();
    let socket = cluster.directory.path().join("agent");
    let agent = UnixListener::bind(&socket).unwrap();
    let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = inside.local_addr().unwrap().port();
    let (connection, server) = connected(&cluster, &socket).await;

    for (what, opened) in [
        ("the agent", server.channel_open_agent().await),
        ("the display", server.channel_open_x11("127.0.0.1", 6000).await),
        ("a session", server.channel_open_session().await),
        ("a port", server.channel_open_direct_tcpip("127.0.0.1", port.into(), "127.0.0.1", 1).await),
        ("a socket", server.channel_open_direct_streamlocal(socket.to_str().unwrap()).await),
        ("a forward", server.channel_open_forwarded_tcpip("127.0.0.1", port.into(), "127.0.0.1", 1).await),
        ("a forward of a socket", server.channel_open_forwarded_streamlocal("/run/there").await),
    ] {
        assert!(opened.is_err(), "{what}");
    }

    // One forward is asked for: of one address and port, and no wider.
    let at = |host: &str, port| Endpoint::Port { host: host.to_owned(), port };
    let silent = Arc::new(|_: &str| {});
    let _forward =
        connection.forward_remote(at("127.0.0.1", 8022), at("127.0.0.1", port), silent).await.unwrap();
    for (host, port) in [
        ("0.0.0.0", 8022),
        ("", 8022),
        ("*", 8022),
        ("::", 8022),
        ("localhost", 8022),
        ("127.0.0.1", 8023),
        ("127.0.0.1", 0),
        ("127.0.0.1", 8022 + 65_536),
    ] {
        let opened = server.channel_open_forwarded_tcpip(host, port, "127.0.0.1", 1).await;
        assert!(opened.is_err(), "{host}:{port}");
    }
    let through = server.channel_open_forwarded_tcpip("127.0.0.1", 8022, "127.0.0.1", 1).await.unwrap();
    // What was asked for is there, and is the only thing that has got here.
    inside.accept().await.unwrap();
    drop(through);
    let none_waits = |error: std::io::Error| assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    none_waits(inside.into_std().unwrap().accept().unwrap_err());
    none_waits(agent.into_std().unwrap().accept().unwrap_err());
}
