//! Carrying bytes between an SSH channel and another stream, with back-pressure and half-close in both directions.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use russh::{Channel, ChannelId, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::Stream;

/// Bytes read at once: as much as fits into an SSH packet.
const CHUNK_BYTES: usize = 32 * 1024;

/// Bytes of a channel that wait for a stream which takes none, before the channel's connection is not read any more.
const QUEUE_BYTES: usize = 256 * 1024;

/// Bytes that the channels of one connection may hold beyond that, in all: more than two ends with 16 MiB windows
/// can have under way. See [`Slack`].
const SLACK_BYTES: usize = 32 << 20;

/// The memory that keeps a connection from locking up.
///
/// An SSH connection is one queue: while one channel's packets wait for a slow stream, nothing of the connection is
/// read or written. When that stream is slow because *it* waits for us to take what it sends on the same connection,
/// both wait for ever. So a channel whose stream takes nothing goes on taking packets from the connection as long as
/// its other direction waits, out of this budget, which all channels of a connection share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slack(Arc<AtomicUsize>);

impl Slack {
    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= SLACK_BYTES);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// How much went which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// From the channel into the stream.
    pub(crate) from_channel: u64,
    /// From the stream into the channel.
    pub(crate) to_channel: u64,
}

/// Whether the direction from the stream into the channel waits for the connection.
#[derive(Debug, Default)]
struct Outward {
    waits: AtomicBool,
    began: Notify,
}

/// Carries until both ends are done or one is gone, then closes the channel.
pub(crate) async fn pump<M, S>(channel: Channel<M>, stream: S, slack: Slack) -> Carried
where
    M: From<(ChannelId, ChannelMsg)> + Send + Sync + 'static,
    S: Stream,
{
    let (mut incoming, outgoing) = channel.split();
    let (reader, mut writer) = tokio::io::split(stream);
    let mut carried = Carried::default();
    let state = Outward::default();
    {
        let mut outward = pin!(outward(reader, &outgoing, &state, &mut carried.to_channel));
        let mut outward_done = false;
        let half_closed = {
            let mut inward =
                pin!(inward(&mut incoming, &mut writer, &state, slack, &mut carried.from_channel));
            loop {
                tokio::select! {
                    half_closed = &mut inward => break half_closed,
                    healthy = &mut outward, if !outward_done => {
                        outward_done = true;
                        if !healthy {
                            break false;
                        }
                    }
                }
            }
        };
        // The far end sends no more, but may still read. It may also go away without reading to the end.
        if half_closed && !outward_done {
            tokio::select! {
                _ = outward => {}
                () = closed(&mut incoming) => {}
            }
        }
    }
    let _ = outgoing.close().await;
    carried
}

/// From the stream into the channel. False when either is gone.
async fn outward<M>(
    mut reader: impl AsyncRead + Unpin,
    outgoing: &ChannelWriteHalf<M>,
    state: &Outward,
    carried: &mut u64,
) -> bool
where
    M: From<(ChannelId, ChannelMsg)> + Send + Sync + 'static,
{
    let mut buffer = BytesMut::with_capacity(2 * CHUNK_BYTES);
    loop {
        buffer.reserve(CHUNK_BYTES);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return outgoing.eof().await.is_ok(),
            Ok(read) => *carried += read as u64,
            Err(_) => return false,
        }
        let mut send = pin!(outgoing.data_bytes(buffer.split().freeze()));
        let sent = match futures::poll!(send.as_mut()) {
            std::task::Poll::Ready(sent) => sent,
            std::task::Poll::Pending => {
                state.waits.store(true, Ordering::Release);
                state.began.notify_one();
                let sent = send.await;
                state.waits.store(false, Ordering::Release);
                sent
            }
        };
        if sent.is_err() {
            return false;
        }
    }
}

/// Packets that wait for the stream, and what they owe to the slack.
struct Queue {
    packets: VecDeque<Bytes>,
    bytes: usize,
    borrowed: usize,
    slack: Slack,
}

impl Queue {
    /// Room for one more packet, borrowing when the other direction waits as well.
    fn has_room(&mut self, other_waits: bool) -> bool {
        if self.bytes < QUEUE_BYTES + self.borrowed {
            return true;
        }
        let more = other_waits && self.slack.take(CHUNK_BYTES);
        if more {
            self.borrowed += CHUNK_BYTES;
        }
        more
    }

    fn push(&mut self, packet: Bytes) {
        self.bytes += packet.len();
        self.packets.push_back(packet);
    }

    /// Drops what was written of the first packet.
    fn written(&mut self, count: usize) {
        self.bytes = self.bytes.saturating_sub(count);
        if let Some(first) = self.packets.front_mut() {
            let _ = first.split_to(count.min(first.len()));
            if first.is_empty() {
                self.packets.pop_front();
            }
        }
        if self.borrowed > 0 && self.bytes < QUEUE_BYTES {
            self.slack.give_back(std::mem::take(&mut self.borrowed));
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.slack.give_back(self.borrowed);
    }
}

/// From the channel into the stream. True when the far end only said that it sends no more.
async fn inward(
    incoming: &mut ChannelReadHalf,
    writer: &mut (impl AsyncWrite + Unpin),
    state: &Outward,
    slack: Slack,
    carried: &mut u64,
) -> bool {
    let mut queue = Queue { packets: VecDeque::new(), bytes: 0, borrowed: 0, slack };
    let mut eof = false;
    loop {
        if queue.packets.is_empty() {
            if writer.flush().await.is_err() {
                return false;
            }
            if eof {
                return writer.shutdown().await.is_ok();
            }
        }
        let first = queue.packets.front().cloned().unwrap_or_default();
        let room = !eof && queue.has_room(state.waits.load(Ordering::Acquire));
        tokio::select! {
            message = incoming.wait(), if room => match message {
                Some(ChannelMsg::Data { data }) => {
                    *carried += data.len() as u64;
                    if !data.is_empty() {
                        queue.push(data);
                    }
                }
                Some(ChannelMsg::Eof) => eof = true,
                Some(ChannelMsg::Close) | None => {
                    // What was sent before the close still belongs to the stream.
                    return drain(queue, writer).await;
                }
                Some(_) => {}
            },
            written = writer.write(&first), if !first.is_empty() => match written {
                Ok(0) | Err(_) => return false,
                Ok(count) => queue.written(count),
            },
            () = state.began.notified(), if !eof && !room => {}
        }
    }
}

async fn drain(mut queue: Queue, writer: &mut (impl AsyncWrite + Unpin)) -> bool {
    while let Some(packet) = queue.packets.pop_front() {
        if writer.write_all(&packet).await.is_err() {
            return false;
        }
    }
    let _ = writer.shutdown().await;
    false
}

/// Returns when the far end has closed the channel.
async fn closed(incoming: &mut ChannelReadHalf) {
    while !matches!(incoming.wait().await, Some(ChannelMsg::Close) | None) {}
}
