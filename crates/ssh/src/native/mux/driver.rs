//! The task of one connection: it reads, hands on, and writes.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{sleep, timeout};

use super::batch::Batch;
use super::ports::{Breach, End, Role};
use super::table::Mux;
use crate::Stream;
use crate::native::frame::{Farewell, Frame, FrameError};

/// Bytes read at once, from a connection that is busy and from one that is not.
const BUSY_BYTES: usize = 128 * 1024;
const IDLE_BYTES: usize = 4 * 1024;
/// How long the first flight waits for something to be in it.
const CORK: Duration = Duration::from_millis(10);
/// How long the far end has to take what is said last, and to end its side.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Asking for signs of life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keepalive {
    /// Silence after which it is asked.
    pub(crate) interval: Duration,
    /// Questions without an answer that are too many.
    pub(crate) most: usize,
}

/// Runs a connection to its end. Dropping the future ends it without a word. `begun` is what was read already.
pub(crate) async fn run<S: Stream>(
    mux: Mux,
    stream: S,
    begun: BytesMut,
    mut role: impl Role,
    keepalive: Option<Keepalive>,
) -> End {
    let _over = Over(mux.clone());
    let (reader, writer) = tokio::io::split(stream);
    let end = {
        let reading = read(&mux, reader, begun, &mut role);
        let writing = write(&mux, writer);
        tokio::pin!(reading, writing);
        tokio::select! {
            end = &mut reading => match end {
                Ok(end) => end,
                Err(breach) => {
                    let reason = breach.to_string();
                    tracing::debug!(%reason, "the far end broke the protocol");
                    mux.finish(Farewell::Protocol, &reason);
                    let _ = timeout(LAST_WORDS, &mut writing).await;
                    End { told: None, reason }
                }
            },
            // All is said, or nothing can be said any more. The far end may still be reading, or have said why: ending the
            // stream under it would take that away.
            written = &mut writing => match (timeout(LAST_WORDS, &mut reading).await, written) {
                (Ok(Ok(end)), _) if end.told.is_some() => end,
                (_, Err(error)) => End { told: None, reason: error.to_string() },
                (_, Ok(())) => End { told: None, reason: String::new() },
            },
            () = stopped_answering(&mux, keepalive) => {
                End { told: None, reason: "it stopped answering".to_owned() }
            }
        }
    };
    mux.over(end.clone());
    end
}

/// Tells all channels of the end, however it comes.
struct Over(Mux);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over(End { told: None, reason: String::new() });
    }
}

/// Why a stream has no first frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoFirstFrame {
    #[error("the stream ended")]
    Ended,
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Stream(#[from] io::Error),
}

/// Reads the first frame of a stream.
///
/// # Errors
/// Why there is none.
pub(crate) async fn first_frame(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> Result<Frame, NoFirstFrame> {
    loop {
        if let Some(frame) = Frame::decode(buffer)? {
            return Ok(frame);
        }
        buffer.reserve(IDLE_BYTES);
        if stream.read_buf(buffer).await? == 0 {
            return Err(NoFirstFrame::Ended);
        }
    }
}

async fn read<S: AsyncRead>(
    mux: &Mux,
    mut reader: ReadHalf<S>,
    mut buffer: BytesMut,
    role: &mut impl Role,
) -> Result<End, Breach> {
    let mut size = IDLE_BYTES;
    loop {
        while let Some(frame) = Frame::decode(&mut buffer)? {
            if let Frame::Goodbye { why, reason } = frame {
                return Ok(End { told: Some(why), reason });
            }
            mux.dispatch(frame, role)?;
        }
        if buffer.is_empty() && size == IDLE_BYTES {
            // What was handed on is its taker's; an idle connection keeps next to nothing.
            buffer = BytesMut::new();
        }
        if buffer.capacity() - buffer.len() < size / 2 {
            buffer.reserve(size);
        }
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return Ok(End { told: None, reason: String::new() }),
            Ok(read) => size = if read < IDLE_BYTES / 2 { IDLE_BYTES } else { BUSY_BYTES },
            Err(error) => return Ok(End { told: None, reason: error.to_string() }),
        }
        mux.0.heard.store(true, Ordering::Relaxed);
    }
}

/// Writes what is to be written, until all is said.
async fn write<S: AsyncWrite>(mux: &Mux, mut writer: WriteHalf<S>) -> io::Result<()> {
    let contiguous = !writer.is_write_vectored();
    let cork = sleep(CORK);
    tokio::pin!(cork);
    let mut corked = true;
    loop {
        let mut batch = Batch::new(contiguous);
        let more = mux.gather(&mut batch);
        if batch.len() > 0 {
            batch.close_small();
            while batch.has_remaining() {
                if writer.write_buf(&mut batch).await? == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            writer.flush().await?;
            continue;
        }
        if !more {
            let ended = writer.shutdown().await;
            mux.said();
            return ended;
        }
        tokio::select! {
            () = mux.0.work.notified() => {}
            () = &mut cork, if corked => {
                corked = false;
                mux.uncork();
            }
        }
    }
}

/// Asks for signs of life; returns when there are none.
async fn stopped_answering(mux: &Mux, keepalive: Option<Keepalive>) {
    let Some(Keepalive { interval, most }) = keepalive else { return std::future::pending().await };
    let mut asked = 0;
    loop {
        sleep(interval).await;
        if mux.0.heard.swap(false, Ordering::Relaxed) {
            asked = 0;
        } else if asked >= most {
            return;
        } else {
            asked += 1;
            // Who has so many answers to read is not heard of either.
            let _ = mux.answer(&Frame::Ping(asked as u64));
        }
    }
}
