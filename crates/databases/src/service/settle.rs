//! Sees off the server's end of a session.
//!
//! PostgreSQL notices that a client has gone when it next reads or writes: until then it works on, and a statement that catches
//! its cancellation goes on and commits. So the agent watches the connection until the server closes it, and where that does
//! not come has the process terminated (`pg_terminate_backend`), again and again until it is gone. Until then the session is
//! one in the list and in every count.

use std::io;
use std::time::Duration;

use sallyport_access::DatabaseUserMode;
use sallyport_audit::Code;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::admin::{Admin, literal};
use super::asked::Wanted;
use super::connect::{self, ConnectError, Upstream};
use super::running::{Entry, Running};
use super::shared::Shared;

/// What is read of a server that does not stop to speak, each time that its end is waited for. One that has more to say
/// waits for it to be read, in which it can be terminated as well.
const MOST_WASTE_BYTES: usize = 16 << 20;
/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The server's end of a session whose client is gone or cut off.
pub(crate) struct Backend<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) wanted: &'a Wanted,
    pub(crate) entry: &'a Entry,
    pub(crate) stream: Upstream,
    /// The connection has failed in a way that says nothing of the process: nothing more is to be read of it.
    pub(crate) failed: bool,
}

impl Backend<'_> {
    /// Waits for the server to close the connection, which it does when the process ends, and terminates the process once where
    /// it does not. Whether it is gone; where it is not, an event says so.
    pub(crate) async fn goes(&mut self) -> bool {
        let pace = self.shared.pace;
        if self.closes(Instant::now() + pace.cancelled).await {
            return true;
        }
        let problem = match self.terminate().await {
            // Of a connection that has failed this is the only news that there can be.
            Err(ConnectError::UnknownProcess { .. }) if self.failed => return true,
            signalled => signalled.err(),
        };
        if self.closes(Instant::now() + pace.terminated).await {
            return true;
        }
        self.left(problem);
        false
    }

    /// Goes on terminating the process until it is gone, or nothing is to be expected any more: of a server that has not said
    /// which process it is, nothing is.
    pub(crate) async fn see_off(mut self) {
        if self.process().is_none() {
            return;
        }
        let mut pause = self.shared.pace.terminated;
        let end = Instant::now() + self.shared.pace.gives_up;
        while Instant::now() < end {
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            if self.closes(end.min(Instant::now() + pause)).await {
                return;
            }
            match self.terminate().await {
                Ok(()) => {}
                Err(ConnectError::UnknownProcess { .. }) if self.failed => return,
                Err(problem) => tracing::debug!(%problem, "a database's process could not be terminated"),
            }
        }
    }

    /// The process's number at the server.
    pub(crate) fn process(&self) -> Option<u32> {
        self.entry.upstream.get().and_then(|running| running.key.as_ref()).map(|key| key.process)
    }

    /// Whether the server closes the connection by then. What it still says is thrown away.
    async fn closes(&mut self, by: Instant) -> bool {
        if self.failed {
            sleep_until(by).await;
            return false;
        }
        let stream = &mut self.stream;
        let closing = async {
            let mut waste = vec![0; 16 * 1024];
            let mut left = MOST_WASTE_BYTES;
            loop {
                match stream.read(&mut waste).await {
                    Ok(0) => return true,
                    Ok(read) => left = left.saturating_sub(read),
                    Err(error) => return is_end(&error),
                }
                if left == 0 {
                    std::future::pending::<()>().await;
                }
            }
        };
        match timeout_at(by, closing).await {
            Ok(true) => true,
            Ok(false) => {
                self.failed = true;
                sleep_until(by).await;
                false
            }
            Err(_) => false,
        }
    }

    /// Has the server terminate the session's process, as the user that it is of: each may end their own.
    ///
    /// # Errors
    /// Why it was not signalled: [`ConnectError::UnknownProcess`] where there is none of this number that is this user's in this database.
    async fn terminate(&self) -> Result<(), ConnectError> {
        let Some(Running { tls, key: Some(key), .. }) = self.entry.upstream.get() else {
            return Err(ConnectError::NoProcess);
        };
        let wanted = self.wanted;
        let name = wanted.db_name();
        let mut own = Admin::log_in(self.shared, wanted, tls.clone(), name).await;
        if own.is_err() {
            // The certificate of the session's beginning may have ended, and the user be given none any more.
            let anew = match self.shared.settings.credentials.held(wanted) {
                Some(held) => Ok(Some(held)),
                None => connect::tls_for(self.shared, wanted).await,
            };
            own = match anew {
                Ok(tls) => Admin::log_in(self.shared, wanted, tls, name).await,
                Err(error) => Err(error),
            };
        }
        let admin = match own {
            Ok(admin) => Ok(admin),
            // A user that was made for its sessions is closed to logins by now; who makes users may be allowed to end them.
            Err(_) if wanted.permit.options().user_mode != DatabaseUserMode::Off => {
                Admin::connect(self.shared, &Wanted { provisioning: true, ..wanted.clone() }).await
            }
            Err(error) => Err(error),
        };
        let mut admin = admin?;
        // A pooler may have made the number up. So it has to be a process of this user's in this database.
        let terminate = format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid = {} and usename = {} and datname = {}",
            key.process,
            literal(wanted.user()),
            literal(name)
        );
        let patience = self.shared.settings.patience;
        let ended = timeout_at(Instant::now() + patience, admin.run(&terminate)).await;
        admin.close().await;
        let rows = ended.map_err(|_| ConnectError::Silent(patience))??;
        if rows.is_empty() {
            return Err(ConnectError::UnknownProcess {
                process: key.process,
                user: wanted.user().to_owned(),
            });
        }
        Ok(())
    }

    fn left(&self, failed: Option<ConnectError>) {
        let why = failed
            .map_or_else(|| "it goes on although it was terminated".to_owned(), |error| error.to_string());
        let mut event = self
            .entry
            .about
            .event(Code::DatabaseBackendLeft)
            .message(format!("the session's process at the database has not ended: {why}"));
        if let Some(process) = self.process() {
            event = event.field("process", process);
        }
        metrics::counter!("sallyport_database_backends_left_total").increment(1);
        self.shared.settings.sink.emit(event);
    }
}

/// Whether a connection that fails so was ended by the server's machine, which does that when nothing has it open any more. What
/// the network or TLS have against a connection (no route, a time that ran out, a record that does not fit) says nothing of the
/// process at its other end.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_fails_is_no_process_that_has_ended() {
        use io::ErrorKind;
        for kind in [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset] {
            assert!(is_end(&kind.into()), "{kind:?}");
        }
        for kind in [
            ErrorKind::TimedOut,
            ErrorKind::HostUnreachable,
            ErrorKind::InvalidData,
            ErrorKind::ConnectionAborted,
        ] {
            assert!(!is_end(&kind.into()), "{kind:?}");
        }
    }
}
