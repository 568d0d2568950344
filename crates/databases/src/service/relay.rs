//! Carries the bytes of a session both ways, as fast as the slower end takes them, and has them looked at in passing.
//!
//! Neither direction waits for the other: a client that sends ahead and a server that answers would each wait for the other to
//! read. Nothing is kept of a direction that is quiet: its buffer is given back while it waits.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use sallyport_session::limits::words;
use sallyport_session::{Activity, Record, Stop, Unrecordable};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::io::poll_read_buf;

use super::connect::Upstream;
use super::control::Control;
use super::notes::Notes;
use super::observer::{Observer, Taken, Totals};
use super::pace::Pace;
use crate::postgres::error::{Refusal, SqlState};
use crate::postgres::exchange::{Exchange, FromClient, FromServer};
use crate::postgres::frame::{Flow, Limits, Malformed, Walked};
use crate::postgres::message::encode;

/// What is read at once: little of what comes seldom, much of what comes fast.
const LEAST_BYTES: usize = 4 * 1024;
const MOST_BYTES: usize = 64 * 1024;

/// What a server may have to say to a client that has said goodbye. A server that cannot send its result ends the statement, too.
const MOST_UNREAD_BYTES: u64 = 16 << 20;

/// How long what is to be recorded waits for more of it.
const GATHERED: Duration = Duration::from_millis(200);

/// How a session ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client said goodbye.
    Goodbye,
    /// The client was gone without.
    ClientGone,
    /// The server closed the connection.
    ServerGone {
        /// What was wrong with the connection, when it was not closed in order.
        problem: Option<String>,
        /// It owed answers.
        busy: bool,
    },
    /// What came is not the protocol.
    Malformed { client: bool, error: Malformed },
    /// It may not go on.
    Cut(Stop),
}

/// What a session carried.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Carried {
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
    pub(crate) totals: Totals,
}

/// One direction.
struct Way<R, W> {
    from: R,
    to: W,
    flow: Flow,
    buffer: BytesMut,
    /// So much of the buffer may go on.
    go: usize,
    /// So much of it was looked at and may not go on yet: what it is waits to be recorded.
    held: usize,
    /// What is read at once now.
    want: usize,
    carried: u64,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Way<R, W> {
    fn new(from: R, to: W, buffer: BytesMut) -> Self {
        let flow = Flow::new(Limits::default());
        Self { from, to, flow, buffer, go: 0, held: 0, want: LEAST_BYTES, carried: 0 }
    }

    /// Waits until there is more, and takes as much as is there at once.
    async fn fill(&mut self) -> io::Result<usize> {
        let (from, buffer) = (&mut self.from, &mut self.buffer);
        let want = self.want;
        let read = poll_fn(|cx| {
            if buffer.capacity() - buffer.len() < want {
                buffer.reserve(want);
            }
            let mut read = 0;
            while buffer.len() < buffer.capacity() && read < want {
                match poll_read_buf(Pin::new(&mut *from), cx, buffer) {
                    Poll::Ready(Ok(0)) => break,
                    Poll::Ready(Ok(more)) => read += more,
                    Poll::Ready(Err(error)) if read == 0 => return Poll::Ready(Err(error)),
                    Poll::Ready(Err(_)) => break,
                    Poll::Pending if read == 0 => {
                        if buffer.is_empty() {
                            *buffer = BytesMut::new();
                        }
                        return Poll::Pending;
                    }
                    Poll::Pending => break,
                }
            }
            Poll::Ready(Ok(read))
        })
        .await?;
        self.want = match read {
            read if read >= want => (want * 2).min(MOST_BYTES),
            read if read < want / 4 => (want / 2).max(LEAST_BYTES),
            _ => want,
        };
        self.carried += read as u64;
        Ok(read)
    }

    /// Sends what may go. When this is given up half way, the rest is what may go.
    async fn push(&mut self) -> io::Result<()> {
        while self.go > 0 {
            let bytes = self.buffer.get(..self.go).unwrap_or_default();
            let sent = self.to.write(bytes).await?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.buffer.advance(sent);
            self.go -= sent;
        }
        self.to.flush().await
    }
}

/// What both directions look at.
struct Middle<'a> {
    followed: Mutex<(Exchange, Observer)>,
    room: Notify,
    gathering: Notify,
    record: &'a Record,
    activity: &'a Activity,
    pace: Pace,
    notes: Notes<'a>,
}

impl<'a> Middle<'a> {
    fn with<T>(&self, work: impl FnOnce(&mut Exchange, &mut Observer) -> T) -> T {
        let mut followed = self.followed.lock();
        let (exchange, observer) = &mut *followed;
        work(exchange, observer)
    }

    /// Waits while too much of what the client has said has no answer yet.
    async fn has_room(&self) {
        while !self.with(|exchange, _| exchange.has_room()) {
            self.room.notified().await;
        }
    }

    /// Whether the server owes an answer.
    fn is_busy(&self) -> bool {
        self.with(|exchange, _| exchange.is_busy())
    }

    fn walk_client(&self, flow: &mut Flow, bytes: &[u8]) -> (Walked, bool) {
        self.with(|exchange, observer| {
            let now = self.activity.elapsed();
            exchange.at(now);
            observer.at(now);
            let walked = flow.walk(bytes, &mut FromClient { exchange, said: observer });
            self.activity.busy(exchange.is_busy());
            (walked, exchange.is_over())
        })
    }

    fn walk_server(&self, flow: &mut Flow, bytes: &[u8], to_end: bool) -> Walked {
        self.with(|exchange, observer| {
            let now = self.activity.elapsed();
            exchange.at(now);
            observer.at(now);
            let reader = &mut FromServer { exchange };
            let walked = if to_end { flow.walk_to_end(bytes, reader) } else { flow.walk(bytes, reader) };
            for happening in exchange.happened() {
                observer.happened(happening);
            }
            self.activity.busy(exchange.is_busy());
            walked
        })
    }

    /// Puts on record what was seen, once enough is together: the rest follows within [`GATHERED`]. A process that is killed
    /// loses no more of its recordings than what waits for the disk in any case.
    async fn put(&self, all: bool) -> Result<(), Unrecordable> {
        let Taken { frames, size, events, waits } = self.with(|_, observer| observer.take(all));
        if waits {
            self.gathering.notify_one();
        }
        for event in events {
            self.record.emit(event);
        }
        if !all && frames.is_empty() {
            return Ok(());
        }
        let record: &'a Record = self.record;
        self.notes.put(frames, size, |frames, size| Box::pin(record.frames(frames, size))).await
    }

    /// Sees to it that nothing waits for long.
    async fn gathered(&self) -> Unrecordable {
        loop {
            self.gathering.notified().await;
            sleep(GATHERED).await;
            if let Err(why) = self.put(true).await {
                return why;
            }
        }
    }
}

/// Carries a session to its end. Gives back the connection to the server, which may not have ended.
pub(crate) async fn run<S>(
    client: S,
    upstream: Upstream,
    (client_rest, server_rest): (BytesMut, BytesMut),
    followed: (Exchange, Observer),
    control: Control<'_>,
    cancel: impl AsyncFnOnce(),
) -> (End, Carried, Upstream)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (record, activity, pace) = (control.record, control.activity, control.shared.pace);
    let middle = Middle {
        followed: Mutex::new(followed),
        room: Notify::new(),
        gathering: Notify::new(),
        record,
        activity,
        pace,
        notes: Notes::default(),
    };
    let (client_read, client_write) = split(client);
    let (server_read, server_write) = split(upstream);
    let mut up = Way::new(client_read, server_write, client_rest);
    let mut down = Way::new(server_read, client_write, server_rest);
    let mut cut = std::pin::pin!(control.ends());
    let mut end = {
        let mut downward = std::pin::pin!(from_server(&mut down, &middle));
        let (end, is_down) = tokio::select! {
            biased;
            why = &mut cut => (End::Cut(why), false),
            end = &mut downward => (end, true),
            end = from_client(&mut up, &middle) => (end, false),
            why = middle.gathered() => (End::Cut(why.into()), false),
        };
        if matches!(end, End::Goodbye | End::ClientGone) {
            let patience = if matches!(end, End::ClientGone) { pace.gone } else { pace.goodbye };
            let by = Instant::now() + patience;
            // A server that looks after its clients (client_connection_check_interval) would end the statement of a client that is
            // half gone.
            if !(matches!(end, End::Goodbye) && middle.is_busy()) {
                let _ = timeout_at(by, up.to.shutdown()).await;
            }
            // What is on the way may still be wanted, and a server that has nothing to do closes at once. A client that
            // takes nothing any more has ended this direction itself.
            match is_down {
                true => end,
                false => tokio::select! {
                    biased;
                    why = &mut cut => End::Cut(why),
                    _ = timeout_at(by, downward) => end,
                },
            }
        } else {
            end
        }
    };
    if matches!(end, End::Goodbye) && middle.is_busy() {
        end = tokio::select! {
            biased;
            why = &mut cut => End::Cut(why),
            end = hear_out(&mut down, &middle) => end,
            why = middle.gathered() => End::Cut(why.into()),
            () = sleep(pace.finishes) => End::Cut(Stop::Ended(format!(
                "the client has said goodbye, and its statement has run for {} since",
                words(pace.finishes)
            ))),
        };
    }
    let (busy, said) =
        middle.with(|exchange, _| (exchange.is_busy(), exchange.last_words().map(str::to_owned)));
    // Where the server has said why, the agent does not say it again.
    let told = said.is_some();
    let end = match (end, said) {
        (End::ServerGone { .. }, Some(said)) => End::ServerGone { problem: Some(said), busy },
        (end, _) => end,
    };
    if let Some(refusal) = last_words(&end).filter(|_| !told) {
        let _ = timeout(pace.last_words, tell(&mut down, &middle, &refusal)).await;
        if busy {
            cancel().await;
        }
        if up.flow.is_between() && up.go == 0 && up.held == 0 {
            let goodbye = async {
                up.to.write_all(&encode(b'X', b"")).await?;
                up.to.shutdown().await
            };
            let _ = timeout(pace.last_words, goodbye).await;
        }
    } else if busy && matches!(end, End::ClientGone) {
        // No client is left to take the answer, and a user that is in use cannot be closed.
        cancel().await;
    }
    // Without an end in order, what is on the way to the client may be lost, and its own end looks like a fault.
    let _ = timeout(pace.last_words, down.to.shutdown()).await;
    let totals = middle.with(|exchange, observer| {
        observer.ends(exchange.oldest());
        observer.totals
    });
    let _ = middle.put(true).await;
    let carried = Carried { from_client: up.carried, to_client: down.carried, totals };
    (end, carried, down.from.unsplit(up.to))
}

async fn from_client<S, R>(up: &mut Way<R, WriteHalf<S>>, middle: &Middle<'_>) -> End
where
    R: AsyncRead + Unpin,
    S: AsyncWrite + Unpin,
{
    let mut first = !up.buffer.is_empty();
    loop {
        middle.has_room().await;
        if !std::mem::take(&mut first) {
            match up.fill().await {
                Ok(0) | Err(_) => return End::ClientGone,
                Ok(_) => {}
            }
        }
        middle.activity.note();
        let (walked, over) = middle.walk_client(&mut up.flow, &up.buffer);
        // A recording that has failed where it must not ends the session before anything more reaches the database.
        up.held = walked.may_go;
        if let Err(why) = middle.put(false).await {
            return End::Cut(why.into());
        }
        up.go = std::mem::take(&mut up.held);
        if up.push().await.is_err() {
            // The server is gone. What it said last is still to be read, and its end is found there.
            let _ = timeout(middle.pace.goodbye, std::future::pending::<()>()).await;
            return End::ServerGone { problem: None, busy: true };
        }
        match walked.failed {
            Some(error) => return End::Malformed { client: true, error },
            None if over => return End::Goodbye,
            None => {}
        }
    }
}

async fn from_server<S, W>(down: &mut Way<ReadHalf<S>, W>, middle: &Middle<'_>) -> End
where
    S: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut first = !down.buffer.is_empty();
    loop {
        let problem = match std::mem::take(&mut first) {
            true => None,
            false => match down.fill().await {
                Ok(0) => Some(None),
                Ok(_) => None,
                // Servers that are killed do not end TLS in order.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Some(None),
                Err(error) => Some(Some(error.to_string())),
            },
        };
        if let Some(problem) = problem {
            let busy = middle.with(|exchange, _| exchange.is_busy());
            return End::ServerGone { problem, busy };
        }
        let walked = middle.walk_server(&mut down.flow, &down.buffer, false);
        middle.room.notify_one();
        // Before anything is waited for: an end that comes meanwhile has to send the rest of the message first.
        down.go = walked.may_go;
        if let Err(why) = middle.put(false).await {
            return End::Cut(why.into());
        }
        if down.push().await.is_err() {
            return End::ClientGone;
        }
        if let Some(error) = walked.failed {
            return End::Malformed { client: false, error };
        }
    }
}

/// Has the server finish what it is in the middle of, for the record alone: a client has said goodbye and takes nothing more.
/// PostgreSQL itself reads the goodbye after the statement, and commits that.
async fn hear_out<S, W>(down: &mut Way<ReadHalf<S>, W>, middle: &Middle<'_>) -> End
where
    S: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let before = down.carried;
    loop {
        down.buffer.advance(std::mem::take(&mut down.go));
        if down.carried - before > MOST_UNREAD_BYTES {
            return End::ClientGone;
        }
        let in_order = match down.fill().await {
            Ok(0) => true,
            Ok(_) => {
                let walked = middle.walk_server(&mut down.flow, &down.buffer, false);
                down.go = walked.may_go;
                if let Err(why) = middle.put(false).await {
                    return End::Cut(why.into());
                }
                match walked.failed {
                    Some(error) => return End::Malformed { client: false, error },
                    None => continue,
                }
            }
            Err(_) => false,
        };
        // A server that is stopped or dies has not finished it.
        let (busy, told) = middle.with(|exchange, _| (exchange.is_busy(), exchange.last_words().is_some()));
        return match busy && (told || !in_order) {
            true => End::ServerGone { problem: None, busy },
            false => End::Goodbye,
        };
    }
}

/// What the client reads at an end that is not its own doing.
fn last_words(end: &End) -> Option<Refusal> {
    match end {
        End::Goodbye | End::ClientGone => None,
        End::ServerGone { .. } => Some(
            Refusal::new(SqlState::ConnectionFailure, "the connection to the database was lost")
                .hint("connect again; a transaction that was not committed is undone"),
        ),
        End::Malformed { client: true, error } => {
            Some(Refusal::new(SqlState::ProtocolViolation, error.to_string()))
        }
        End::Malformed { client: false, error } => {
            Some(Refusal::new(SqlState::ConnectionFailure, format!("from the database: {error}")))
        }
        End::Cut(stop) => Some(Refusal::new(SqlState::AdminShutdown, stop.to_string())),
    }
}

/// Ends the message that the client is being sent, and says why nothing follows.
async fn tell<R, W>(down: &mut Way<R, W>, middle: &Middle<'_>, refusal: &Refusal) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    down.push().await?;
    while !down.flow.is_between() {
        let walked = middle.walk_server(&mut down.flow, &down.buffer, true);
        down.go = walked.may_go;
        down.push().await?;
        if walked.failed.is_some() || (!down.flow.is_between() && down.fill().await? == 0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    down.to.write_all(&refusal.to_bytes()).await?;
    down.to.shutdown().await
}
