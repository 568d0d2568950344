//! `sallyport proxy ssh`: what OpenSSH's ProxyCommand runs. Standard input and output become a stream to a node.
//!
//! Every `ssh` waits for this to start, so it reads what the connection needs and nothing else.

mod quick;

use std::process::ExitCode;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::db;
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::killed::until_killed;
use crate::resource;
use crate::ssh::target;
pub(crate) use quick::take;
use sallyport_client::{connect, transport};

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
    let login = target.login.unwrap_or_default();
    let (stream, ending) = transport::open(channel, &Arc::new(stored), &target.host, &login);
    let (mut from_node, mut to_node) = tokio::io::split(stream);

    let upstream = async {
        let mut input = tokio::io::stdin();
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(64 * 1024);
            match input.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if to_node.write_all(&buffer).await.is_err() {
                break;
            }
            buffer.clear();
        }
        let _ = to_node.shutdown().await;
        std::future::pending::<()>().await;
    };
    let downstream = async {
        let mut output = tokio::io::stdout();
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(64 * 1024);
            match from_node.read_buf(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    return Err(ending.error(&target.host, &login).map_or_else(
                        || CliError::new(format!("the connection was lost: {error}")),
                        CliError::from,
                    ));
                }
            }
            // ssh has gone away.
            if output.write_all(&buffer).await.is_err() || output.flush().await.is_err() {
                return Ok(());
            }
            buffer.clear();
        }
    };
    let carrying = async {
        tokio::select! {
            ended = downstream => ended.map(|()| ExitCode::SUCCESS),
            () = upstream => Ok(ExitCode::SUCCESS),
        }
    };
    until_killed(carrying).await
}
