//! A proxy that was taken over: it has a true proxy's certificate and key and does with them what it likes. Calls to the
//! authority it passes on, so that an agent behind it learns what the authority has to say; tunnels it keeps.

use std::sync::Arc;

use sallyport_ca::Trust;
use sallyport_ca::tls::{ClientAuth, server_config};
use sallyport_server::config::HostPort;
use sallyport_wire::alpn;
use sallyport_wire::tunnel::{self, Handle, Incoming, Tunnel};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::member::Member;

pub(crate) struct HostileProxy {
    pub(crate) address: HostPort,
    /// Tunnels of agents, as they come.
    tunnels: mpsc::Receiver<(Handle, Incoming)>,
    task: AbortHandle,
}

impl Drop for HostileProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HostileProxy {
    /// With what a proxy has joined with, before the authority behind `behind`.
    pub(crate) async fn start(member: &Member, trust: &Trust, behind: &HostPort) -> Self {
        let chain = &member.issued.tls_certificate_pem;
        let config = server_config(trust, chain, &member.key, &[alpn::TUNNEL], ClientAuth::Required).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(super::loopback()).await.unwrap();
        let address = HostPort { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let (sender, tunnels) = mpsc::channel(16);
        let behind = behind.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, sender, behind) = (acceptor.clone(), sender.clone(), behind.clone());
                tokio::spawn(serve(stream, acceptor, sender, behind));
            }
        });
        Self { address, tunnels, task: task.abort_handle() }
    }

    /// The next tunnel that an agent opens.
    pub(crate) async fn tunnel(&mut self) -> (Handle, Incoming) {
        tokio::time::timeout(super::PATIENCE, self.tunnels.recv()).await.expect("a tunnel").unwrap()
    }
}

async fn serve(
    mut stream: TcpStream,
    acceptor: TlsAcceptor,
    tunnels: mpsc::Sender<(Handle, Incoming)>,
    behind: HostPort,
) {
    // The whole of a client's hello comes at once on loopback.
    let mut hello = vec![0; 16 * 1024];
    let Ok(count) = stream.peek(&mut hello).await else { return };
    if hello[..count].windows(alpn::AUTH.len()).any(|part| part == alpn::AUTH) {
        let Ok(mut far) = TcpStream::connect((behind.host.as_str(), behind.port)).await else { return };
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
    } else if let Ok(tls) = acceptor.accept(stream).await {
        let _ = tunnels.send(Tunnel::server(tls, tunnel::Config::default())).await;
    }
}

/// Whether a stream that the proxy opens reaches the node's SSH, as which user it likes to say.
pub(crate) async fn greets(tunnel: &Handle) -> bool {
    let header = serde_json::json!({
        "kind": "ssh", "client_addr": "192.0.2.7:1234", "user": "alice", "ssh_alone": true,
    });
    let Ok(mut stream) = tunnel.open(header.to_string().into()) else { return false };
    let mut greeting = [0; 4];
    stream.read_exact(&mut greeting).await.is_ok_and(|_| &greeting == b"SSH-")
}
