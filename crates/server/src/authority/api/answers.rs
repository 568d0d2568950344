//! Calls that are answered by one message: how many of a caller's are served at a time, and how much of the authority's memory
//! may wait for callers who do not take it.
//!
//! An answer lies in memory until its peer's window has room for it (RFC 9113 §5.2), and a peer that gives none would let as
//! many lie there as it asks for. So the answers that wait for one caller have a bound, past which its calls are refused, and
//! refusals are headers alone, which need no window. The connection of a peer that has taken nothing of an answer for too long
//! is closed. Answers that go on are bounded by [`crate::authority::streams`].

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::Status;

use crate::authority::api::finishing::finished;
use crate::authority::caller::{Caller, name_of};
use crate::authority::gate::calls::Gate;
use crate::authority::streams::Streamed;
use crate::tasks::Tasks;

/// Largest message from a caller: a batch of events or a piece of a recording.
pub(crate) const MESSAGE_BYTES: usize = 4 << 20;

/// Longest name of a method that is put on record as it was asked for.
const LONGEST_METHOD: usize = 64;

/// `Service.Method` of a path, where it looks like one.
pub(crate) fn method_of(path: &str) -> String {
    let named = path.strip_prefix("/sallyport.v1.").and_then(|rest| rest.split_once('/'));
    let word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match named {
        Some((service, method)) if path.len() <= LONGEST_METHOD && word(service) && word(method) => {
            format!("{service}.{method}")
        }
        _ => "unknown".to_owned(),
    }
}

/// Answers that may wait for one caller. A program that reads leaves none waiting, however many it asks for at once.
const MOST_ANSWERS: usize = 128;
/// Bytes of them. One answer may be longer, since lists are.
const MOST_BYTES: usize = 16 << 20;
/// Calls of one caller that are being served, on all of its connections: what two connections may have. A call whose message
/// never ends is one of them, with what has come of it.
const MOST_CALLS: usize = 512;
/// Bytes of the messages of these calls, as they come. None is longer than [`MESSAGE_BYTES`].
const MOST_HEARD: usize = 64 << 20;
/// Connections of one caller.
const MOST_CONNECTIONS: usize = 256;
/// An answer is handed on in pieces of this size, so that what the peer has no window for stays here, where it is counted.
const PIECE_BYTES: usize = 16 * 1024;
/// How often the authority looks for answers that a peer does not take, within its patience with the connection.
const LOOKS: u32 = 8;

/// What waits for each caller.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<HashMap<String, Waits>>>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Waits {
    connections: usize,
    calls: usize,
    heard: usize,
    answers: usize,
    bytes: usize,
}

impl Waiting {
    fn change<T>(&self, caller: &str, change: impl FnOnce(&mut Waits) -> T) -> T {
        let mut table = self.0.lock();
        let waits = table.entry(caller.to_owned()).or_default();
        let changed = change(waits);
        if *waits == Waits::default() {
            table.remove(caller);
        }
        changed
    }

    /// A connection of a caller's; none when it has as many as it may have.
    pub(crate) fn connect(&self, caller: &Caller) -> Option<Connection> {
        let whose = name_of(caller);
        let is_bounded = !matches!(caller, Caller::LocalAdmin);
        let admitted = self.change(&whose, |waits| {
            let admitted = !is_bounded || waits.connections < MOST_CONNECTIONS;
            waits.connections += usize::from(admitted);
            admitted
        });
        admitted.then(|| Connection { whose, is_bounded, waiting: self.clone(), taken: Taken::default() })
    }
}

/// When something of each answer of a connection was taken last.
#[derive(Debug, Clone, Default)]
struct Taken(Arc<Mutex<(u64, BTreeMap<u64, Instant>)>>);

/// One connection, and the answers that wait on it.
#[derive(Debug)]
pub(crate) struct Connection {
    whose: String,
    is_bounded: bool,
    waiting: Waiting,
    taken: Taken,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.waiting.change(&self.whose, |waits| waits.connections -= 1);
    }
}

impl Connection {
    /// Waits until an answer has waited for so long without anything being taken of it.
    pub(crate) async fn stalled(&self, patience: Duration) {
        loop {
            tokio::time::sleep(patience / LOOKS).await;
            let now = Instant::now();
            let taken = self.taken.0.lock();
            if taken.1.values().any(|at| now.saturating_duration_since(*at) >= patience) {
                return;
            }
        }
    }

    /// Lets a call in, unless it is one too many or its answer would be.
    fn begin(&self) -> Result<Call, Status> {
        self.waiting.change(&self.whose, |waits| {
            // Half of it is for the answers of calls that are being served now.
            let is_short = waits.answers >= MOST_ANSWERS || waits.bytes >= MOST_BYTES / 2;
            if self.is_bounded && is_short {
                return Err(full_of(*waits));
            }
            if self.is_bounded && waits.calls >= MOST_CALLS {
                return Err(Status::resource_exhausted(format!(
                    "{MOST_CALLS} of your calls are being served, which is the most allowed; wait for some of them and call again"
                )));
            }
            waits.calls += 1;
            Ok(())
        })?;
        Ok(Call {
            whose: self.whose.clone(),
            is_bounded: self.is_bounded,
            waiting: self.waiting.clone(),
            heard: AtomicUsize::new(0),
        })
    }

    /// Room for an answer.
    fn keep(&self, bytes: usize) -> Result<Kept, Status> {
        self.waiting.change(&self.whose, |waits| {
            let over = waits.answers >= MOST_ANSWERS || waits.bytes.saturating_add(bytes) > MOST_BYTES;
            if self.is_bounded && waits.answers > 0 && over {
                return Err(full_of(*waits));
            }
            waits.answers += 1;
            waits.bytes += bytes;
            Ok(())
        })?;
        let mut taken = self.taken.0.lock();
        let number = taken.0;
        taken.0 += 1;
        taken.1.insert(number, Instant::now());
        drop(taken);
        Ok(Kept {
            number,
            bytes,
            whose: self.whose.clone(),
            waiting: self.waiting.clone(),
            taken: self.taken.clone(),
        })
    }
}

/// A call that is being served, until there is an answer or its caller has given it up.
#[derive(Debug)]
struct Call {
    whose: String,
    is_bounded: bool,
    waiting: Waiting,
    /// Bytes that count for it.
    heard: AtomicUsize,
}

impl Call {
    /// Takes more of its message. One that is as long as the longest holds no more, for what is read of it goes as it comes.
    fn hear(&self, bytes: usize) -> Result<(), Status> {
        let before = self.heard.load(Ordering::Relaxed);
        let after = before.saturating_add(bytes).min(MESSAGE_BYTES);
        let more = after - before;
        if more == 0 {
            return Ok(());
        }
        self.waiting.change(&self.whose, |waits| {
            if self.is_bounded && waits.heard + more > MOST_HEARD {
                return Err(Status::resource_exhausted(format!(
                    "{} bytes of your calls have come, and their ends have not; finish them and call again",
                    waits.heard
                )));
            }
            waits.heard += more;
            Ok(())
        })?;
        self.heard.store(after, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let heard = self.heard.load(Ordering::Relaxed);
        self.waiting.change(&self.whose, |waits| {
            waits.calls -= 1;
            waits.heard -= heard;
        });
    }
}

/// What a caller sends, counted as it comes.
struct Heard {
    body: Body,
    call: Arc<Call>,
}

impl HttpBody for Heard {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
        match bytes.map_or(Ok(()), |bytes| self.call.hear(bytes.len())) {
            Ok(()) => Poll::Ready(frame),
            Err(status) => Poll::Ready(Some(Err(axum::Error::new(status)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn full_of(waits: Waits) -> Status {
    Status::resource_exhausted(format!(
        "{} answers to your calls, {} bytes, wait for your program to read them, and no more are kept; read them and call again",
        waits.answers, waits.bytes
    ))
}

/// Room for one answer, until its peer has taken it or is gone.
#[derive(Debug)]
struct Kept {
    number: u64,
    bytes: usize,
    whose: String,
    waiting: Waiting,
    taken: Taken,
}

impl Kept {
    /// Something of it was taken.
    fn progress(&self) {
        let mut taken = self.taken.0.lock();
        taken.1.insert(self.number, Instant::now());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.taken.0.lock().1.remove(&self.number);
        self.waiting.change(&self.whose, |waits| {
            waits.answers -= 1;
            waits.bytes -= self.bytes;
        });
    }
}

/// Lets a call in where its answer has room, and keeps the answer within the bounds until it was taken.
pub(crate) async fn within_bounds<F: Future<Output = Response> + Send + 'static>(
    gate: &Gate,
    caller: &Caller,
    (connection, tasks): (&Connection, &Tasks),
    request: Request,
    serve: impl FnOnce(Request) -> F,
) -> Response {
    let method = method_of(request.uri().path());
    let call = match connection.begin() {
        Ok(call) => Arc::new(call),
        Err(full) => {
            drop(request);
            return gate.refuse(caller, &method, full).await.into_http();
        }
    };
    let heard = Arc::clone(&call);
    let request = request.map(|body| Body::new(Heard { body, call: heard }));
    let response = finished(tasks, &method, call, serve(request)).await;
    if response.extensions().get::<Streamed>().is_some() || response.body().is_end_stream() {
        return response;
    }
    let (parts, mut body) = response.into_parts();
    // The message is there already: nothing is waited for.
    let first = body.frame().await;
    let data = match first {
        Some(Ok(frame)) => frame.into_data(),
        Some(Err(error)) => return Response::from_parts(parts, failing(error)),
        None => return Response::from_parts(parts, Body::empty()),
    };
    let handed = match data {
        Ok(rest) => match connection.keep(rest.len()) {
            Ok(place) => Handed { rest, trailers: None, body, place: Some(place) },
            Err(full) => {
                drop(body);
                return gate.refuse(caller, &method, full).await.into_http();
            }
        },
        Err(trailers) => Handed { rest: Bytes::new(), trailers: Some(trailers), body, place: None },
    };
    Response::from_parts(parts, Body::new(handed))
}

/// An answer that failed before it began.
fn failing(error: axum::Error) -> Body {
    Body::from_stream(futures::stream::iter([Err::<Bytes, _>(error)]))
}

/// An answer, piece by piece. The last byte goes alone: that it is asked for says that the peer has a window for all before it,
/// and when what follows is asked for, the whole is the peer's.
struct Handed {
    rest: Bytes,
    trailers: Option<Frame<Bytes>>,
    body: Body,
    place: Option<Kept>,
}

impl HttpBody for Handed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(trailers)));
            }
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(more) => self.rest = more,
                    Err(trailers) => {
                        self.place = None;
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                ended => {
                    self.place = None;
                    return Poll::Ready(ended);
                }
            }
        }
        if let Some(place) = &self.place {
            place.progress();
        }
        let length = match self.rest.len() {
            all @ (0 | 1) => all,
            all @ 2..=PIECE_BYTES => all - 1,
            _ => PIECE_BYTES,
        };
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialling::PeerInfo;

    fn connection(waiting: &Waiting, port: u16) -> Connection {
        waiting.connect(&Caller::Anonymous { from: PeerInfo::direct(([192, 0, 2, 1], port).into()) }).unwrap()
    }

    #[test]
    fn a_caller_has_one_bound_on_all_of_its_connections_and_gets_it_back() {
        let waiting = Waiting::default();
        let (one, other) = (connection(&waiting, 1), connection(&waiting, 2));
        let mut places: Vec<Kept> = (0..MOST_ANSWERS / 2).map(|_| one.keep(10).unwrap()).collect();
        places.extend((0..MOST_ANSWERS / 2).map(|_| other.keep(10).unwrap()));
        assert!(one.keep(0).is_err() && other.begin().is_err());
        places.truncate(1);
        // A long answer has room only where nothing else waits.
        assert!(one.begin().is_ok() && one.keep(MOST_BYTES).is_err());
        places.clear();
        let long = one.keep(2 * MOST_BYTES).unwrap();
        assert!(other.keep(1).is_err() && other.begin().is_err());
        drop(long);
        // What is served now has the other half.
        let half = one.keep(MOST_BYTES / 2).unwrap();
        assert!(other.begin().is_err() && other.keep(MOST_BYTES / 2).is_ok());
        drop((half, one, other));
        assert!(waiting.0.lock().is_empty());
    }

    #[test]
    fn a_caller_has_a_bounded_number_of_calls_on_all_of_its_connections() {
        let waiting = Waiting::default();
        let (one, other) = (connection(&waiting, 1), connection(&waiting, 2));
        let mut calls: Vec<Call> = (0..MOST_CALLS / 2).map(|_| one.begin().unwrap()).collect();
        calls.extend((0..MOST_CALLS / 2).map(|_| other.begin().unwrap()));
        assert!(one.begin().is_err() && other.begin().is_err());
        let stranger = Caller::Anonymous { from: PeerInfo::direct(([192, 0, 2, 2], 1).into()) };
        assert!(waiting.connect(&stranger).unwrap().begin().is_ok());
        let operator = waiting.connect(&Caller::LocalAdmin).unwrap();
        let local: Vec<_> = (0..=MOST_CALLS).map(|_| operator.begin()).collect();
        assert!(local.iter().all(Result::is_ok));
        calls.pop();
        assert!(one.begin().is_ok());
        // And of bytes of them.
        let full = MOST_HEARD / MESSAGE_BYTES;
        for call in &calls[..full] {
            call.hear(MESSAGE_BYTES).unwrap();
            call.hear(MESSAGE_BYTES).unwrap();
        }
        assert!(calls[full].hear(1).is_err());
        calls.remove(0);
        assert!(calls[full].hear(1).is_ok());
        drop((calls, local, operator, one, other));
        assert!(waiting.0.lock().is_empty());
    }

    #[test]
    fn a_caller_has_a_bounded_number_of_connections() {
        let waiting = Waiting::default();
        let open: Vec<Connection> = (0..MOST_CONNECTIONS).map(|_| connection(&waiting, 1)).collect();
        let stranger = |last| Caller::Anonymous { from: PeerInfo::direct(([192, 0, 2, last], 1).into()) };
        assert!(waiting.connect(&stranger(1)).is_none() && waiting.connect(&stranger(2)).is_some());
        drop(open);
        assert!(waiting.connect(&stranger(1)).is_some());
        // The operator's socket has its own bound.
        let local: Vec<_> = (0..=MOST_CONNECTIONS).map(|_| waiting.connect(&Caller::LocalAdmin)).collect();
        assert!(local.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_which_nothing_is_taken_ends_the_patience() {
        let waiting = Waiting::default();
        let connection = connection(&waiting, 1);
        let patience = Duration::from_secs(30);
        let stalls = |within| tokio::time::timeout(within, connection.stalled(patience));
        assert!(stalls(patience * 10).await.is_err(), "nothing waits");
        let place = connection.keep(10).unwrap();
        for _ in 0..20 {
            assert!(stalls(patience / 2).await.is_err(), "it goes on, however slowly");
            place.progress();
        }
        assert!(stalls(patience * 2).await.is_ok());
        drop(place);
        assert!(stalls(patience * 10).await.is_err());
    }

    #[tokio::test]
    async fn what_is_handed_on_in_pieces_is_what_was_said() {
        for length in [0, 1, 2, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 3] {
            let said = Bytes::from((0..length).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<_>>());
            let handed = Handed { rest: said.clone(), trailers: None, body: Body::empty(), place: None };
            assert_eq!(handed.collect().await.unwrap().to_bytes(), said);
        }
    }
}
