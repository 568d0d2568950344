//! `sallyport proxy ssh`: what OpenSSH's ProxyCommand runs. Standard input and output become a stream to a node.
//!
//! Every `ssh` waits for this to start, so it reads what the connection needs and nothing else.

mod quick;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::BytesMut;
use futures::future::poll_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Stdin};

use crate::db;
use crate::error::{CliError, CliResult, Exit};
use crate::factor;
use crate::global::Global;
use crate::killed::until_killed;
use crate::resource;
use crate::ssh::target::{self, Target};
pub(crate) use quick::take;
use sallyport_client::channel::Channel;
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::Asking;
use sallyport_client::transport::{Ending, NodeStream};
use sallyport_client::{connect, transport};

/// Bytes that are copied at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes of ssh's that may go out before the proxy has answered.
const EARLY_BYTES: usize = 64 * 1024;

/// Commands for programs rather than people.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Proxy {
    /// Connect standard input and output to the SSH service of a node, for ProxyCommand.
    Ssh(Args),
    /// Listen on this machine for clients of databases, and carry their connections to the cluster.
    Db(db::ProxyArgs),
    #[command(flatten)]
    Resource(resource::Proxy),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Use the stored login to this cluster.
    #[arg(long)]
    cluster: Option<String>,
    /// Let the helper daemon end SSH here and go on by the node's own protocol, which takes fewer round trips. Without a
    /// helper, with nodes that know SSH alone, and with SALLYPORT_FRONT=ssh, SSH goes end to end as without this.
    #[arg(long)]
    native: bool,
    /// LOGIN@NODE:PORT as ssh's %r@%h:%p gives it. The port is ignored: a node has one SSH service.
    target: String,
}

pub(crate) async fn run(global: &Global, command: Proxy) -> CliResult<ExitCode> {
    match command {
        Proxy::Ssh(args) => pipe(global, args).await.map_err(|error| error.exit(Exit::Connection)),
        Proxy::Db(args) => db::proxy(global, args).await,
        Proxy::Resource(command) => resource::proxy(global, command).await,
    }
}

async fn pipe(global: &Global, args: Args) -> CliResult<ExitCode> {
    // Whatever comes this way goes by SSH end to end.
    let Args { cluster, native: _, target } = args;
    let target = target::parse(&target)?;
    let stored = global.profiles().load_valid_of(cluster.as_deref())?;
    let channel = connect::proxy(&stored).await?;
    until_killed(carry(channel, Arc::new(stored), target)).await
}

async fn carry(channel: Channel, stored: Arc<Stored>, target: Target) -> CliResult<ExitCode> {
    let (node, login) = (target.host, target.login.unwrap_or_default());
    let lost = |ending: &Ending, error: io::Error| {
        let said = ending.error(&node, &login).map(CliError::from);
        said.unwrap_or_else(|| CliError::new(format!("the connection was lost: {error}")))
    };
    let (mut input, mut early) = (tokio::io::stdin(), BytesMut::new());
    let asking = Asking::default();
    let opened = factor::proven(&stored, &asking, &[], async || {
        let (mut stream, ending) = transport::open(channel.clone(), &stored, &node, &login);
        match open(&mut stream, &mut input, &mut early).await {
            Ok(()) => Ok((stream, ending)),
            Err(error) => Err(lost(&ending, error)),
        }
    });
    let (stream, ending) = opened.await?;
    let (mut from_node, mut to_node) = tokio::io::split(stream);

    let upstream = async {
        let mut buffer = early;
        loop {
            buffer.clear();
            buffer.reserve(CHUNK_BYTES);
            match input.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if to_node.write_all(&buffer).await.is_err() {
                break;
            }
        }
        let _ = to_node.shutdown().await;
        std::future::pending::<()>().await;
    };
    let downstream = async {
        let mut output = tokio::io::stdout();
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK_BYTES);
            match from_node.read_buf(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(lost(&ending, error)),
            }
            // ssh has gone away.
            if output.write_all(&buffer).await.is_err() || output.flush().await.is_err() {
                return Ok(());
            }
            buffer.clear();
        }
    };
    tokio::select! {
        ended = downstream => ended.map(|()| ExitCode::SUCCESS),
        () = upstream => Ok(ExitCode::SUCCESS),
    }
}

/// Drives the question to the proxy's answer, and sends what ssh says meanwhile. It is kept, to be said again where a second factor has
/// to be proven before.
async fn open(stream: &mut NodeStream, input: &mut Stdin, early: &mut BytesMut) -> io::Result<()> {
    stream.write_all(early).await?;
    let mut ended = false;
    loop {
        early.reserve(CHUNK_BYTES);
        let sent = early.len();
        tokio::select! {
            opened = poll_fn(|context| stream.poll_open(context)) => return opened,
            read = input.read_buf(early), if !ended && sent < EARLY_BYTES => match read {
                Ok(0) | Err(_) => ended = true,
                Ok(_) => stream.write_all(early.get(sent..).unwrap_or_default()).await?,
            },
        }
    }
}
