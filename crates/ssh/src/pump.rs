//! Carrying bytes between an SSH channel and another stream, with back-pressure and half-close in both directions.

use bytes::BytesMut;
use russh::{Channel, ChannelId, ChannelMsg, ChannelReadHalf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Stream;

/// Bytes read at once: as much as fits into an SSH packet.
const CHUNK_BYTES: usize = 32 * 1024;

/// How much went which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// From the channel into the stream.
    pub(crate) from_channel: u64,
    /// From the stream into the channel.
    pub(crate) to_channel: u64,
}

/// Carries until both ends are done or one is gone, then closes the channel.
///
/// The two directions never wait for each other: an SSH connection stops being read while a channel's reader lags,
/// so a reader that waited for a write to that connection would wait for ever.
pub(crate) async fn pump<M, S>(channel: Channel<M>, stream: S) -> Carried
where
    M: From<(ChannelId, ChannelMsg)> + Send + Sync + 'static,
    S: Stream,
{
    let (mut incoming, outgoing) = channel.split();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut carried = Carried::default();
    let to_channel = &mut carried.to_channel;
    let from_channel = &mut carried.from_channel;

    let outward = async {
        let mut buffer = BytesMut::with_capacity(2 * CHUNK_BYTES);
        loop {
            buffer.reserve(CHUNK_BYTES);
            match reader.read_buf(&mut buffer).await {
                Ok(0) => return outgoing.eof().await.is_ok(),
                Ok(read) => *to_channel += read as u64,
                Err(_) => return false,
            }
            if outgoing.data_bytes(buffer.split().freeze()).await.is_err() {
                return false;
            }
        }
    };
    {
        tokio::pin!(outward);
        let mut outward_done = false;
        let inward = inward(&mut incoming, &mut writer, from_channel);
        tokio::pin!(inward);
        let half_closed = loop {
            tokio::select! {
                half_closed = &mut inward => break half_closed,
                healthy = &mut outward, if !outward_done => {
                    outward_done = true;
                    if !healthy {
                        break false;
                    }
                }
            }
        };
        if half_closed && !outward_done {
            outward.await;
        }
    }
    let _ = outgoing.close().await;
    carried
}

/// True when the far end only said that it sends no more, and may still read.
async fn inward(
    incoming: &mut ChannelReadHalf,
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    carried: &mut u64,
) -> bool {
    while let Some(message) = incoming.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                *carried += data.len() as u64;
                if writer.write_all(&data).await.is_err() || writer.flush().await.is_err() {
                    return false;
                }
            }
            ChannelMsg::Eof => return writer.shutdown().await.is_ok(),
            ChannelMsg::Close => return false,
            _ => {}
        }
    }
    false
}
