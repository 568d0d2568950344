//! A connection under its limits, until it ends or is cut.

use std::sync::Arc;
use std::time::Duration;

use sallyport_audit::Code;
use tokio::time::{Instant, sleep, timeout};

use super::limits::Verdict;
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
    let mut changes = shared.server.directory.changes();
    let mut changes_end = false;
    let mut warned = false;
    let mut nowhere_to_go = shared.back_end.gone();
    let (reason, is_ours) = loop {
        let ask_again = match shared.limits(warned) {
            Verdict::Over(reason) => break (reason, true),
            Verdict::Warn(told) => {
                warned = true;
                shared.tell_terminals(&told);
                continue;
            }
            Verdict::Fine(ask_again) => ask_again,
        };
        tokio::select! {
            ended = &mut session => return Some(ended),
            () = &mut login_deadline, if shared.access.get().is_none() => {
                break (format!("no login within {} s", login_timeout.as_secs()), true);
            }
            () = shared.wake.notified() => {
                // A lock may have come while the login was decided.
                if let Some(reason) = shared.ending() {
                    break (reason, true);
                }
            }
            changed = changes.changed(), if !changes_end => {
                changes_end = changed.is_err();
                if let Some(reason) = shared.locked() {
                    break (reason, true);
                }
            }
            reason = &mut nowhere_to_go => break (reason, false),
            () = sleep(ask_again) => {}
        }
    };
    tracing::info!(%reason, "cutting a connection");
    if is_ours {
        let sessions = shared.sessions_running();
        if shared.access.get().is_some() {
            let event = shared.event(Code::SessionCut).message(&reason);
            shared.server.sink.emit(event.field("sessions", sessions));
        }
        // Otherwise whoever was there has told the sessions, or they find that nobody is.
        shared.cut(&reason);
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
