//! Taking part in another user's session: `ssh -t sallyport-join@NODE SESSION [MODE]`.
//!
//! The login is reserved: no user has sessions of their own by it. Whose certificate it is and what the roles say about
//! joining is decided here, on the node, for the session that is named, and again whenever roles or locks change.

mod error;
mod hub;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sallyport_access::{Identity, JoinTarget, Refusal, SessionId};
use sallyport_access::{JoinMode, JoinPermit};
use sallyport_audit::recording::SessionMetadata;
use sallyport_audit::{Code, Event};
use sallyport_session::Participant;
use time::OffsetDateTime;
use tokio::time::{sleep, timeout};

use error::JoinError;
pub(super) use hub::Hub;
use hub::Next;

use super::endpoint::ChannelEndpoint;
use super::running::RunningSession;
use super::wanted::{INPUT_RECORDED, Wanted};
use crate::printable::printable;
use crate::session::{Channel, Exit, Incoming, Kind, Output};

/// How long the words about what one joins stay before the screen covers them.
const WELCOME: Duration = Duration::from_millis(1200);
/// How long a terminal that takes nothing is waited for at the end.
const GOODBYE: Duration = Duration::from_secs(1);
/// A moderator who presses the key that ends the session has so long to press it again.
const SURE: Duration = Duration::from_secs(5);

/// Why a participant no longer takes part.
enum Leaving {
    /// They left, or their connection did.
    Left,
    /// The session is over.
    Over,
    /// They may not any more, or were cut.
    Cut(String),
}

/// Serves a channel of a user who joins.
pub(super) async fn serve(endpoint: ChannelEndpoint, wanted: Wanted, identity: Identity) {
    let shared = endpoint.shared.clone();
    let refuse = |error: JoinError| {
        let message = error.to_string();
        shared.refused(shared.event(Code::SessionRefused).message(&message));
        message
    };
    let line = match &wanted.kind {
        Kind::Exec(line) => printable(line),
        Kind::Shell | Kind::Sftp => String::new(),
    };
    let (id, mode) = match asked(&line) {
        Ok(asked) => asked,
        Err(error) => return endpoint.refuse(&error.to_string()).await,
    };
    let Some(entry) = shared.server.running.find(|one| one.about().session_id == id) else {
        return endpoint.refuse(&refuse(JoinError::NotRunning(id))).await;
    };
    let permit = match may(&endpoint, &identity, &entry, mode) {
        Ok(permit) => permit,
        Err(refusal) => return endpoint.refuse(&refuse(refusal.into())).await,
    };
    let Some(hub) = entry.hub() else {
        return endpoint.refuse(&refuse(JoinError::NoTerminal)).await;
    };
    let user = identity.display_name();
    let since = OffsetDateTime::now_utc();
    // Who only watches does not make the terminal smaller.
    let size = wanted.terminal.as_ref().map(|terminal| terminal.size).filter(|_| mode == JoinMode::Peer);
    let who = Participant { user: user.clone(), mode, since };
    let (number, arrived) = match hub.enter(who, size) {
        Ok(entered) => entered,
        Err(error) => return endpoint.refuse(&refuse(error)).await,
    };
    let about = entry.about();
    let event = |code| -> Event {
        shared
            .event(code)
            .user(user.as_str())
            .login(about.login.as_str())
            .session(id)
            .field("owner", about.user.as_str())
            .field("mode", mode.as_str())
    };
    shared.server.live.touch(id);
    shared.server.sink.emit(event(Code::SessionJoined).field("rule", permit.rule()));
    let began = Instant::now();
    let seat = Seat { endpoint: &endpoint, hub: &hub, number, mode };
    let leaving = tokio::select! {
        leaving = async {
            // While this waits, the session waits for nothing: the announcement is bounded.
            hub.announce(number, &format!("{user} joined as {}", mode.as_str())).await;
            seat.watch(&arrived, &welcome(about, mode, hub.records_input())).await
        } => leaving,
        leaving = seat.listen(|| {
            let reason = format!("ended by {user}");
            let _ = shared.server.live.end(&id, &reason);
            shared.server.sink.emit(event(Code::SessionTerminated));
        }) => leaving,
        reason = not_any_more(&endpoint, &identity, &entry, mode, &permit) => Leaving::Cut(reason),
    };
    let typed = hub.leave(number);
    shared.server.live.touch(id);
    let duration = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let left = event(Code::SessionLeft).field("bytes_typed", typed).field("duration_ms", duration);
    shared.server.sink.emit(match &leaving {
        Leaving::Cut(reason) => left.message(reason),
        Leaving::Left | Leaving::Over => left,
    });
    hub.announce(number, &format!("{user} left")).await;
    let goodbye = async {
        match leaving {
            Leaving::Cut(reason) => endpoint.refuse(&reason).await,
            Leaving::Left | Leaving::Over => {
                let text = match leaving {
                    Leaving::Over => "\r\n[sallyport: the session has ended]\r\n",
                    _ => "\r\n[sallyport: you left the session]\r\n",
                };
                let _ = endpoint.send(Channel::Stdout, Bytes::from_static(text.as_bytes())).await;
                let _ = endpoint.exited(&Exit::Status(0)).await;
                let _ = endpoint.eof().await;
                endpoint.close().await;
            }
        }
    };
    let _ = timeout(GOODBYE, goodbye).await;
}

/// `SESSION [MODE]`.
fn asked(line: &str) -> Result<(SessionId, JoinMode), JoinError> {
    let mut words = line.split_whitespace();
    let (id, mode) = (words.next().ok_or(JoinError::Usage)?, words.next());
    if words.next().is_some() {
        return Err(JoinError::Usage);
    }
    let id = id.parse::<SessionId>()?;
    let mode = match mode {
        None => JoinMode::Observer,
        Some(text) => *JoinMode::ALL.iter().find(|mode| mode.as_str() == text).ok_or(JoinError::Usage)?,
    };
    Ok((id, mode))
}

/// Decides whether they may take part, now.
fn may(
    endpoint: &ChannelEndpoint,
    identity: &Identity,
    entry: &RunningSession,
    mode: JoinMode,
) -> Result<JoinPermit, Refusal> {
    let directory = &endpoint.shared.server.directory;
    let node = directory.node();
    let session = JoinTarget { node: &node, owner: &entry.about().user, owner_roles: entry.owner_roles() };
    directory.policies().may_join(identity, session, mode, &directory.locks(), OffsetDateTime::now_utc())
}

/// Waits until they may not take part any more: a role or lock changed, or the certificate ended.
async fn not_any_more(
    endpoint: &ChannelEndpoint,
    identity: &Identity,
    entry: &RunningSession,
    mode: JoinMode,
    permit: &JoinPermit,
) -> String {
    let mut changes = endpoint.shared.server.directory.changes();
    let left = permit.valid_until() - OffsetDateTime::now_utc();
    let expiry = sleep(left.try_into().unwrap_or_default());
    tokio::pin!(expiry);
    loop {
        // Asked after subscribing: something may have changed since they were let in.
        if let Err(refusal) = may(endpoint, identity, entry, mode) {
            return refusal.public_message();
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
            () = &mut expiry => return "your certificate has expired; log in again: sallyport login".to_owned(),
        }
    }
}

fn welcome(about: &SessionMetadata, mode: JoinMode, records_input: bool) -> String {
    let what = format!("the session of {} as {} on {}", about.user, about.login, about.node);
    match mode {
        JoinMode::Observer => format!("[sallyport: you watch {what}; q leaves]\r\n"),
        JoinMode::Peer => {
            let more =
                if records_input { format!("[sallyport: {INPUT_RECORDED}]\r\n") } else { String::new() };
            format!(
                "[sallyport: you take part in {what}; what you type goes there; Enter ~ . leaves]\r\n{more}"
            )
        }
        JoinMode::Moderator => {
            format!("[sallyport: you watch {what}; q leaves, t ends the session]\r\n")
        }
    }
}

/// One who takes part.
struct Seat<'a> {
    endpoint: &'a ChannelEndpoint,
    hub: &'a Hub,
    number: u64,
    mode: JoinMode,
}

impl Seat<'_> {
    async fn say(&self, text: String) -> bool {
        self.endpoint.send(Channel::Stdout, Bytes::from(text)).await.is_ok()
    }

    /// Shows the session until it is over.
    async fn watch(&self, arrived: &tokio::sync::Notify, welcome: &str) -> Leaving {
        if !self.say(welcome.to_owned()).await {
            return Leaving::Left;
        }
        sleep(WELCOME).await;
        if !self.draw().await {
            return Leaving::Left;
        }
        loop {
            let more = arrived.notified();
            let sent = match self.hub.take(self.number) {
                None => {
                    more.await;
                    true
                }
                Some(Next::Output(bytes)) => {
                    self.endpoint.send(Channel::Stdout, Bytes::from(bytes)).await.is_ok()
                }
                Some(Next::Skipped(bytes)) => {
                    let text = format!("\r\n[sallyport: {bytes} bytes skipped: you read too slowly]\r\n");
                    self.say(text).await && self.draw().await
                }
                Some(Next::Over) => return Leaving::Over,
            };
            if !sent {
                return Leaving::Left;
            }
        }
    }

    async fn draw(&self) -> bool {
        let screen = self.hub.screen(self.number).await;
        self.endpoint.send(Channel::Stdout, Bytes::from(screen)).await.is_ok()
    }

    /// Takes what they type, until they leave. `end` ends the session.
    async fn listen(&self, end: impl Fn()) -> Leaving {
        let mut pressed: Option<Instant> = None;
        loop {
            match self.endpoint.inbox.next().await {
                Some(Incoming::Data(bytes)) => {
                    self.endpoint.inbox.consumed(bytes.len());
                    if self.mode == JoinMode::Peer {
                        self.hub.type_in(self.number, bytes).await;
                        continue;
                    }
                    for byte in bytes {
                        match byte {
                            // q, Q, Ctrl-C
                            b'q' | b'Q' | 3 => return Leaving::Left,
                            b't' if self.mode == JoinMode::Moderator => {
                                if pressed.is_some_and(|at| at.elapsed() < SURE) {
                                    end();
                                } else {
                                    pressed = Some(Instant::now());
                                    self.say(
                                        "\r\n[sallyport: press t again to end the session]\r\n".to_owned(),
                                    )
                                    .await;
                                }
                            }
                            _ => pressed = None,
                        }
                    }
                }
                Some(Incoming::Resize(size)) => self.hub.resize(self.number, size),
                Some(Incoming::Cut(reason)) => return Leaving::Cut(reason),
                // A watcher without a terminal may have no input at all.
                Some(Incoming::Eof | Incoming::Signal(_)) => {}
                None => return Leaving::Left,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_read_from_the_command() {
        let id = SessionId::new();
        assert_eq!(asked(&format!("{id}")), Ok((id, JoinMode::Observer)));
        assert_eq!(asked(&format!(" {id}  peer ")), Ok((id, JoinMode::Peer)));
        for wrong in ["", "web-1", &format!("{id} root"), &format!("{id} peer please")] {
            assert!(asked(wrong).unwrap_err().to_string().contains("sallyport sessions ls"), "{wrong}");
        }
    }
}
