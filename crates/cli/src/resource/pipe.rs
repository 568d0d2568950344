//! `sallyport proxy KIND`: standard input and output are the connection.

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::fs::FileType;
use sallyport_access::Kind;
use sallyport_helper::resources::{Resources, Wanted};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

use super::catalog;
use crate::error::{CliResult, Context};
use crate::factor::Here;
use crate::global::Global;
use crate::killed::until_killed;

/// Most that is copied at once, between a terminal or a file and the connection.
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name, as ls shows it.
    name: String,
    /// Use the stored login to this cluster.
    #[arg(long)]
    cluster: Option<String>,
}

pub(super) async fn run(global: &Global, kind: Kind, args: Args) -> CliResult<ExitCode> {
    let stored = global.profiles().load_valid_of(args.cluster.as_deref())?;
    let wanted = Wanted { kind, name: catalog::parse(kind, &args.name)? };
    let doing = "use standard input and output";
    let input = std::io::stdin().as_fd().try_clone_to_owned().doing(doing)?;
    let output = std::io::stdout().as_fd().try_clone_to_owned().doing(doing)?;
    let resources = Resources::by_the_helper(&global.profiles(), &stored).asking(Arc::new(Here));
    let carrying = async {
        if can_be_waited_for(&input) && can_be_waited_for(&output) {
            resources.carry(&wanted, input, output).await?;
        } else {
            between(&resources, &wanted).await?;
        }
        Ok(ExitCode::SUCCESS)
    };
    tokio::task::LocalSet::new().run_until(until_killed(carrying)).await
}

/// Pipes and sockets are; terminals and files are not.
fn can_be_waited_for(descriptor: &OwnedFd) -> bool {
    rustix::fs::fstat(descriptor)
        .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket))
}

/// Copies between standard input and output and a socket that is carried.
async fn between(resources: &Resources, wanted: &Wanted) -> CliResult {
    let doing = "make a pair of sockets";
    let (near, far) = std::os::unix::net::UnixStream::pair().doing(doing)?;
    near.set_nonblocking(true).doing(doing)?;
    let (from, to) = UnixStream::from_std(near).doing(doing)?.into_split();
    let twice = far.try_clone().doing(doing)?;
    // A read of a terminal cannot be given up, so nothing waits for it once the other direction has ended.
    let input = tokio::task::spawn_local(copy(tokio::io::stdin(), to));
    let output = async {
        let copied = copy(from, tokio::io::stdout()).await;
        if copied.is_err() {
            // Standard output is closed, and answers cannot be read. Both halves are gone with this, and the session ends.
            input.abort();
        }
    };
    let (carried, ()) =
        tokio::join!(resources.carry(wanted, OwnedFd::from(twice), OwnedFd::from(far)), output);
    input.abort();
    Ok(carried?)
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..count).unwrap_or_default()).await?;
        to.flush().await?;
    }
}
