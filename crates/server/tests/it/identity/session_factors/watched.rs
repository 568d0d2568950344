//! Sessions of another user's, which the users of the table join.

use std::process::Stdio;

use sallyport_ssh::client::{Connection, Output, SessionRequest, Terminal, WindowSize};
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::v1::sessions_client::SessionsClient;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::process::Command;

use super::*;

/// Where sessions can be joined: at a node, and at registered servers where the proxy records.
pub(super) const JOINABLE: [&str; 3] = ["web-1", "seen-1", "seen-2"];

/// What the terminal of each session shows.
const SCREEN: &str = "the first screen";

/// The role whose sessions are joined.
pub(super) const OWNERS: &str = "bob-role";

/// A session at each place. They end with this.
pub(super) struct Watched {
    ids: Vec<(String, String)>,
    _open: Vec<Connection>,
}

fn with_terminal(line: String) -> SessionRequest {
    let terminal = Terminal { term: "xterm".to_owned(), size: WindowSize::default(), modes: Vec::new() };
    SessionRequest { terminal: Some(terminal), ..SessionRequest::exec(line) }
}

impl Watched {
    /// Begins them, by a user who may log in there.
    pub(super) async fn of(owner: &User) -> Self {
        let mut open = Vec::new();
        for node in JOINABLE {
            let connection = until(node, async || {
                let stream = owner.open(node, &os_login()).await.ok()?;
                let settings = owner.settings(node, &os_login());
                sallyport_ssh::client::connect(stream, &owner.credentials(), settings).await.ok()
            })
            .await;
            let line = format!("echo {SCREEN}; exec sleep 60");
            let mut session = connection.start(with_terminal(line)).await.unwrap();
            open.push(connection);
            tokio::spawn(async move { while session.next().await.is_some() {} });
        }
        let ids = until("the sessions to be listed", async || {
            let mut sessions = SessionsClient::new(owner.authority().await);
            let listed = sessions.list_sessions(v1::ListSessionsRequest::default()).await.ok()?.into_inner();
            let found = listed.sessions.into_iter().filter(|one| one.terminal);
            let found: Vec<_> = found.map(|one| (one.node, one.session_id)).collect();
            (found.len() == JOINABLE.len()).then_some(found)
        })
        .await;
        Self { ids, _open: open }
    }

    fn line(&self, node: &str) -> String {
        let (_, id) = self.ids.iter().find(|(name, _)| name == node).unwrap();
        format!("{id} observer")
    }

    /// Joins by our own client, over a stream that the proxy has opened. `Err` is what the user reads, where there is anything.
    pub(super) async fn join<S>(&self, node: &str, user: &User, stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settings = user.settings(node, JOIN_LOGIN);
        let connected = sallyport_ssh::client::connect(stream, &user.credentials(), settings).await;
        let connected = connected.map_err(|_| String::new())?;
        let mut session = connected.start(with_terminal(self.line(node))).await.map_err(|_| String::new())?;
        let mut read = Vec::new();
        while let Some(output) = session.next().await {
            match output {
                Output::Stdout(bytes) | Output::Stderr(bytes) => read.extend_from_slice(&bytes),
                _ => {}
            }
            if String::from_utf8_lossy(&read).contains(SCREEN) {
                return Ok(());
            }
        }
        Err(String::from_utf8_lossy(&read).into_owned())
    }

    /// The same by stock ssh, whose command and host stand already.
    pub(super) async fn join_by_stock(&self, node: &str, ssh: &mut Command) -> Result<(), String> {
        ssh.arg(self.line(node)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut ssh = ssh.kill_on_drop(true).spawn().unwrap();
        // While it is open, the one who watches stays.
        let _input = ssh.stdin.take();
        let (mut read, mut output) = (Vec::new(), ssh.stdout.take().unwrap());
        while output.read_buf(&mut read).await.unwrap() > 0 {
            if String::from_utf8_lossy(&read).contains(SCREEN) {
                return Ok(());
            }
        }
        ssh.stderr.take().unwrap().read_to_end(&mut read).await.unwrap();
        Err(String::from_utf8_lossy(&read).into_owned())
    }
}
