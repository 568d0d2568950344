//! The stream between the library and a peer, of which each side is driven by hand.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;
use crate::transport::message::{CHANNEL_DATA, REQUEST_SUCCESS};
use crate::transport::tests::in_both;

/// Far more than any of this takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// The far end of a stream: its transport, which is driven by hand.
struct Far {
    stream: DuplexStream,
    transport: Transport,
    heard: Vec<Bytes>,
}

impl Far {
    /// Hears what comes next, and answers nothing yet. False at the end.
    async fn hear(&mut self) -> bool {
        self.transport.input().reserve(BLOCK_BYTES);
        let read = timeout(DEADLINE, self.stream.read_buf(self.transport.input())).await.unwrap();
        if !read.is_ok_and(|length| length > 0) {
            return false;
        }
        while let Some(step) = self.transport.next().unwrap() {
            if let Step::Message(payload) | Step::Farewell(payload) = step {
                self.heard.push(payload);
            }
        }
        true
    }

    /// Everything that waits goes in one write.
    async fn answer(&mut self) {
        let said = self.transport.output().split();
        self.stream.write_all(&said).await.unwrap();
    }

    async fn say(&mut self, draft: &Draft) {
        self.transport.send(&draft.0).unwrap();
        self.answer().await;
    }

    fn numbers(&self) -> Vec<u8> {
        self.heard.iter().map(|payload| payload[0]).collect()
    }
}

fn limits(bytes: u64) -> super::super::Limits {
    super::super::Limits { bytes, ..Default::default() }
}

/// What a client of ours has, and the server that it has logged in to. Either asks for new keys at these limits.
fn of_server(bytes: u64) -> (ClearStream, Far) {
    let (client, server) = in_both(limits(bytes));
    let (near, stream) = duplex(1 << 20);
    let mut clear = ClearStream::of_server(Box::new(near), client);
    clear.has_greeted = true;
    clear.told.clear();
    (clear, Far { stream, transport: server, heard: Vec::new() })
}

/// What a server of ours has, and its client.
fn of_client(bytes: u64) -> (ClearStream, Far) {
    let (client, server) = in_both(limits(bytes));
    let (near, stream) = duplex(1 << 20);
    let mut clear = ClearStream::of_client(Box::new(near), server, "root");
    clear.has_greeted = true;
    clear.told.clear();
    (clear, Far { stream, transport: client, heard: Vec::new() })
}

fn data(length: usize) -> Draft {
    Draft::new(CHANNEL_DATA).u32(0).string(&vec![7; length])
}

/// Packets as the library writes them.
fn written(drafts: &[Draft]) -> BytesMut {
    let mut out = BytesMut::new();
    for draft in drafts {
        packet(&mut out, draft).unwrap();
    }
    out
}

/// The payload that the library reads next; none at the end.
async fn read(clear: &mut ClearStream) -> io::Result<Option<Bytes>> {
    let mut head = [0; HEAD_BYTES];
    if timeout(DEADLINE, clear.read(&mut head[..1])).await.unwrap()? == 0 {
        return Ok(None);
    }
    clear.read_exact(&mut head[1..]).await?;
    let length = u32::from_be_bytes(*head.first_chunk().unwrap()) as usize - 1;
    let mut payload = vec![0; length];
    clear.read_exact(&mut payload).await?;
    Ok(Some(payload.into()))
}

fn reason(error: &io::Error) -> String {
    error.to_string()
}

#[tokio::test]
async fn an_upload_goes_on_where_the_server_answers_all_at_once_and_is_silent_then() {
    let (mut clear, mut far) = of_server(100_000);
    let upload = written(&vec![data(20_000); 40]);
    let server = tokio::spawn(async move {
        while far.heard.len() < 40 {
            assert!(far.hear().await, "the upload ends at {}", far.heard.len());
            // KEXINIT when the client's has come; REPLY and NEWKEYS together when its share has.
            far.answer().await;
        }
    });
    timeout(DEADLINE, clear.write_all(&upload)).await.expect("the upload hangs").unwrap();
    timeout(DEADLINE, clear.flush()).await.unwrap().unwrap();
    server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_renew_keys_in_time_loses_the_connection() {
    let late = "did not renew keys in time";
    // One that never answers, to this side's writes and to its reads.
    for reads in [false, true] {
        let (mut clear, mut far) = of_server(u64::MAX);
        clear.transport.renew_keys().unwrap();
        let begun = Instant::now();
        let error = match reads {
            true => timeout(2 * PATIENCE, clear.read_u8()).await.unwrap().unwrap_err(),
            false => {
                let upload = written(&[data(1)]);
                timeout(2 * PATIENCE, clear.write_all(&upload)).await.unwrap().unwrap_err()
            }
        };
        assert_eq!(reason(&error), late);
        assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < PATIENCE + Duration::from_secs(1));
        assert!(far.hear().await);
        assert_eq!(far.numbers(), [DISCONNECT], "it is told");
    }
    // One that proposes and says no more.
    let (mut clear, mut far) = of_client(u64::MAX);
    far.transport.renew_keys().unwrap();
    far.answer().await;
    let error = timeout(2 * PATIENCE, clear.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(reason(&error), late);
    // One that trickles.
    let (mut clear, mut far) = of_client(u64::MAX);
    clear.transport.renew_keys().unwrap();
    let trickle = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            far.say(&Draft::new(IGNORE).string(b"x")).await;
        }
    };
    let upload = written(&[data(1)]);
    let error = tokio::select! {
        written = timeout(2 * PATIENCE, clear.write_all(&upload)) => written.unwrap().unwrap_err(),
        () = trickle => unreachable!(),
    };
    assert_eq!(reason(&error), late);
}

#[tokio::test(start_paused = true)]
async fn what_the_library_does_not_read_does_not_cost_the_peer_its_time() {
    let (mut clear, mut far) = of_client(u64::MAX);
    clear.transport.renew_keys().unwrap();
    // The library polls once, and is elsewhere while the peer answers, with a message before.
    assert!(timeout(Duration::from_secs(1), clear.read_u8()).await.is_err());
    far.say(&data(1)).await;
    tokio::time::advance(3 * PATIENCE).await;
    assert_eq!(read(&mut clear).await.unwrap().unwrap()[0], CHANNEL_DATA);
    assert!(
        timeout(Duration::from_secs(1), clear.read_u8()).await.is_err(),
        "nothing is there, and nothing is late"
    );
    assert!(far.hear().await);
    far.answer().await;
    assert!(timeout(Duration::from_secs(1), clear.read_u8()).await.is_err());
    assert!(far.hear().await);
    far.answer().await;
    let upload = written(&[data(1)]);
    timeout(DEADLINE, clear.write_all(&upload)).await.unwrap().unwrap();
    assert!(!clear.transport.is_exchanging());
}

#[tokio::test]
async fn what_is_read_ahead_is_bounded_with_what_each_message_costs() {
    let too_much = "sent too much before it renewed keys";
    // Messages of one byte; and those that are not kept.
    for kept in [true, false] {
        let (mut clear, mut far) = of_client(u64::MAX);
        clear.limits =
            Limits { ahead_bytes: 10 * (MESSAGE_BYTES + 10), wire_bytes: 4000, ..Limits::default() };
        let draft = if kept { data(1) } else { Draft::new(IGNORE).string(&[0; 100]) };
        let (enough, few) = if kept { (11, 10) } else { (40, 10) };
        clear.transport.renew_keys().unwrap();
        for _ in 0..few {
            far.say(&draft).await;
        }
        let upload = written(&[data(1)]);
        let some = timeout(Duration::from_millis(20), clear.write_all(&upload)).await;
        assert!(some.is_err(), "some may come: {some:?}");
        assert_eq!(clear.ahead.len(), if kept { few } else { 0 });
        for _ in few..enough {
            far.say(&draft).await;
        }
        let error = timeout(DEADLINE, clear.write_all(&upload)).await.unwrap().unwrap_err();
        assert_eq!(reason(&error), too_much);
    }
    // What is kept keeps nothing else: each message is alone in its memory.
    let (mut clear, mut far) = of_client(u64::MAX);
    clear.transport.renew_keys().unwrap();
    far.say(&data(1)).await;
    let _ = timeout(Duration::from_millis(20), clear.write_all(&written(&[data(1)]))).await;
    let kept = clear.ahead.pop_front().unwrap();
    assert!(kept.try_into_mut().unwrap().capacity() < 64);
}

/// A stream that lets go of what is written at a flush.
struct Buffers {
    held: Vec<u8>,
    inner: DuplexStream,
}

impl AsyncRead for Buffers {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, to)
    }
}

impl AsyncWrite for Buffers {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.held.is_empty() {
            let written = ready!(Pin::new(&mut this.inner).poll_write(cx, &this.held))?;
            this.held.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut *this).poll_flush(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn answers_leave_a_stream_that_buffers() {
    let (client, server) = in_both(limits(u64::MAX));
    let (inner, stream) = duplex(1 << 20);
    let mut clear = ClearStream::of_client(Box::new(Buffers { held: Vec::new(), inner }), server, "root");
    clear.told.clear();
    let mut far = Far { stream, transport: client, heard: Vec::new() };
    let peer = async {
        far.transport.renew_keys().unwrap();
        far.answer().await;
        while far.transport.is_renewing() {
            assert!(far.hear().await);
            far.answer().await;
        }
        // And an answer that is no part of an exchange.
        far.say(&Draft::new(200)).await;
        while far.heard.is_empty() && far.transport.came() < 1 {
            assert!(far.hear().await);
        }
    };
    tokio::select! {
        done = timeout(DEADLINE, peer) => done.expect("the answers stay in the stream"),
        read = clear.read_u8() => panic!("the library hears nothing of it: {read:?}"),
    }
}

#[tokio::test]
async fn the_library_reads_why_the_peer_left_while_it_wrote() {
    let (mut clear, mut far) = of_client(u64::MAX);
    clear.transport.renew_keys().unwrap();
    far.say(&data(1)).await;
    far.transport.farewell(11, "gone");
    far.answer().await;
    drop(far);
    // Packets that wait for new keys go nowhere, and that is no error.
    timeout(DEADLINE, clear.write_all(&written(&vec![data(1000); 3]))).await.unwrap().unwrap();
    timeout(DEADLINE, clear.flush()).await.unwrap().unwrap();
    assert_eq!(read(&mut clear).await.unwrap().unwrap()[0], CHANNEL_DATA);
    let farewell = read(&mut clear).await.unwrap().unwrap();
    assert!(farewell[0] == DISCONNECT && farewell.ends_with(b"gone\0\0\0\0"), "{farewell:?}");
    assert!(read(&mut clear).await.unwrap().is_none());
}

#[tokio::test]
async fn an_answer_that_does_not_go_does_not_hide_what_the_peer_said() {
    let (mut clear, mut far) = of_client(u64::MAX);
    // Each asks for an answer, which is not taken any more.
    far.say(&Draft::new(200)).await;
    far.say(&data(1)).await;
    far.transport.farewell(11, "gone");
    far.answer().await;
    drop(far);
    assert_eq!(read(&mut clear).await.unwrap().unwrap()[0], CHANNEL_DATA);
    assert_eq!(read(&mut clear).await.unwrap().unwrap()[0], DISCONNECT);
    // Where it said no more, the library hears of the stream.
    let (mut clear, mut far) = of_client(u64::MAX);
    far.say(&Draft::new(200)).await;
    drop(far);
    assert_eq!(read(&mut clear).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn messages_without_a_meaning_are_answered_and_not_handed_on() {
    for (mut clear, mut far) in [of_client(u64::MAX), of_server(u64::MAX)] {
        let unknown = [79, 83, 89, 101, 127, 128, 192, 255];
        for number in unknown {
            far.say(&Draft::new(number)).await;
        }
        far.say(&Draft::new(REQUEST_SUCCESS)).await;
        far.say(&Draft::new(CHANNEL_FAILURE).u32(0)).await;
        let before = clear.transport.said();
        assert_eq!(read(&mut clear).await.unwrap().unwrap()[0], REQUEST_SUCCESS);
        assert_eq!(read(&mut clear).await.unwrap().unwrap()[0], CHANNEL_FAILURE);
        assert_eq!(clear.transport.said() - before, unknown.len() as u64);
    }
}

#[tokio::test]
async fn packets_of_the_library_that_are_too_short_end_the_connection() {
    for length in [0_u32, 1] {
        let (mut clear, _far) = of_client(u64::MAX);
        let error = clear.write_all(&length.to_be_bytes()).await.and(clear.write_all(&[0; 8]).await);
        assert!(reason(&error.unwrap_err()).contains("malformed"), "{length}");
    }
}
