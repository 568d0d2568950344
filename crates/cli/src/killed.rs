//! Commands that a signal ends, whose connections by QUIC are to be told so.

use std::future::Future;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::error::{CliResult, Context};
use sallyport_client::carrier;

/// Runs a command, until a signal ends the process. The system tells the other end when a TCP connection loses its process;
/// of QUIC it knows nothing, so that [`carrier::finish`] must be given the time. Where nothing goes by QUIC, and where the command
/// itself looks out for signals, they do what they always do.
///
/// # Errors
/// Those of `command`.
pub(crate) async fn until_killed(command: impl Future<Output = CliResult<ExitCode>>) -> CliResult<ExitCode> {
    let killed = async {
        carrier::is_open().await;
        let watch = |kind: SignalKind| signal(kind).doing("watch for signals");
        let mut terminate = watch(SignalKind::terminate())?;
        let mut hang_up = watch(SignalKind::hangup())?;
        let mut interrupt = watch(SignalKind::interrupt())?;
        let number = tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = hang_up.recv() => SignalKind::hangup(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        };
        // As shells have it.
        Ok(ExitCode::from(128 + u8::try_from(number.as_raw_value()).unwrap_or(0)))
    };
    tokio::select! {
        biased;
        outcome = command => outcome,
        outcome = killed => outcome,
    }
}
