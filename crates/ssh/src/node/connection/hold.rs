//! A connection under its limits, until it ends or is cut.

use std::sync::Arc;
use std::time::Duration;

use sallyport_audit::Code;
use sallyport_session::{Stop, watch};
use tokio::time::{Instant, sleep, timeout};

use super::limits;
use super::shared::Shared;

/// How long a client has to hear of the end after it was told, before its line is dropped.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Holds a connection to its limits until it ends, and gives how; or none after it was cut, with the reason told.
pub(super) async fn hold<T, F: Future<Output = ()>>(
    shared: &Arc<Shared>,
    began: Instant,
    mut session: impl Future<Output = T> + Unpin,
    goodbye: impl FnOnce(String) -> F,
) -> Option<T> {
    let login_timeout = shared.server.config.login_timeout;
    let login_deadline = tokio::time::sleep_until(began + login_timeout);
    tokio::pin!(login_deadline);
    let mut nowhere_to_go = shared.back_end.gone();
    let (stop, is_ours) = loop {
        tokio::select! {
            ended = &mut session => return Some(ended),
            () = &mut login_deadline, if shared.access.get().is_none() => {
                break (Stop::Ended(format!("no login within {} s", login_timeout.as_secs())), true);
            }
            // A lock may have come while the login was decided, and limits count from now on: both are asked anew.
            () = shared.decided.notified() => {}
            stop = watch::stopped(shared.as_ref(), &shared.ending, None) => break (stop, true),
            reason = &mut nowhere_to_go => break (Stop::Ended(reason), false),
        }
    };
    let reason = limits::told(&stop);
    tracing::info!(%reason, "cutting a connection");
    if is_ours {
        let sessions = shared.sessions_running();
        if shared.access.get().is_some() {
            let event = shared.event(Code::SessionCut).message(&reason);
            shared.server.sink.emit(event.field("sessions", sessions));
        }
        // Otherwise the node behind has told the sessions why, or they find that it is gone.
        shared.cut(stop);
    }
    // The sessions say it on their standard error; when they have, or have had their time, the line goes.
    let sessions_gone = async {
        while shared.sessions_running() > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = timeout(LAST_WORDS, sessions_gone).await;
    let goodbye = async {
        goodbye(reason).await;
        let _ = (&mut session).await;
    };
    let _ = timeout(LAST_WORDS, goodbye).await;
    shared.line.cancel();
    None
}
