//! A node's stream by way of the helper, for `sallyport ssh` and its like.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::LocalBoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tracing::{Instrument, info_span};

use super::control;
use super::endpoint::{self, Endpoint, Taken};
use super::request::{Request, answer};
use super::setting::Setting;
use crate::error::Result;
use sallyport_client::profile::Stored;
use sallyport_client::trace::{Counted, PHASE, recorder};
use sallyport_client::transport::Ending;

/// Bytes to and from a node. What the helper says at the end becomes the stream's ending.
#[derive(Debug)]
pub struct HelperStream {
    bytes: Counted<UnixStream>,
    words: UnixStream,
    said: Vec<u8>,
    ended: bool,
    ending: Ending,
}

/// What a helper has to offer.
#[derive(Debug)]
pub enum Offered {
    /// The native listener of a node, which is proven.
    Native(HelperStream, Ending),
    /// Not that of this node, which has none.
    SshAlone,
    /// There is no helper to be had.
    Nothing,
}

/// A stream of the helper, where there is one to be had. `None`: connect without it, which a login over a key of the user's own always does:
/// the proxy may ask for a signature, which the agent of this program gives, and not that of the program that has started the helper.
pub fn open(stored: &Stored, node: &str, login: &str) -> Option<(HelperStream, Ending)> {
    if stored.profile.ssh_key.is_some() {
        return None;
    }
    ask(stored, &Request::Ssh { node: node.to_owned(), login: login.to_owned() })
}

/// The same to the native listener of a node, once the helper has proven it.
pub fn open_native<'a>(
    stored: &'a Stored,
    node: &'a str,
    login: &'a str,
) -> LocalBoxFuture<'a, Result<Offered>> {
    Box::pin(async move {
        let request = Request::Native { node: node.to_owned(), login: login.to_owned() };
        let Some((mut stream, ending)) = ask(stored, &request) else { return Ok(Offered::Nothing) };
        async {
            let mut first = [0];
            let heard = stream.words.read(&mut first).await;
            match heard.map(|count| first.get(..count).unwrap_or_default().first().copied()) {
                Ok(Some(answer::READY)) => Ok(Offered::Native(stream, ending)),
                Ok(Some(answer::SSH_ALONE)) => Ok(Offered::SshAlone),
                Ok(other) => {
                    stream.said.extend(other);
                    let _ = stream.words.read_to_end(&mut stream.said).await;
                    endpoint::understand(Some(&stream.said)).map(|()| Offered::Nothing)
                }
                Err(_) => endpoint::understand(None).map(|()| Offered::Nothing),
            }
        }
        .instrument(info_span!(target: PHASE, "native.handshake"))
        .await
    })
}

fn ask(stored: &Stored, request: &Request) -> Option<(HelperStream, Ending)> {
    // The helper has chosen its cryptography already.
    if std::env::var_os("SALLYPORT_CRYPTO").is_some_and(|value| !value.is_empty()) {
        return None;
    }
    let Setting::On { idle } = Setting::here() else { return None };
    let endpoint = Endpoint { directory: &stored.directory, proxy: &stored.profile.proxy, idle };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().ok()?;
    ours.set_nonblocking(true).ok()?;
    let bytes = Counted::new(UnixStream::from_std(ours).ok()?);
    // How the helper stands before is what the trace is told.
    let before = recorder::recorder().and_then(|_| control::standing(&stored.directory));
    let handing = info_span!(target: PHASE, "helper");
    let Taken(words) = handing.in_scope(|| endpoint.ask(request, false, [theirs.as_fd(), theirs.as_fd()]))?;
    recorder::helped(&stored.directory, before);
    let words = words
        .set_read_timeout(None)
        .and_then(|()| words.set_nonblocking(true))
        .and_then(|()| UnixStream::from_std(words))
        .ok()?;
    let ending = Ending::default();
    let stream = HelperStream { bytes, words, said: Vec::new(), ended: false, ending: ending.clone() };
    Some((stream, ending))
}

impl AsyncRead for HelperStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        match ready!(Pin::new(&mut this.bytes).poll_read(context, buffer)) {
            Ok(()) if buffer.filled().len() > before => return Poll::Ready(Ok(())),
            _ => {}
        }
        // The bytes are over; how that came is said on the other socket.
        loop {
            let mut space = [0; 1024];
            let mut words = ReadBuf::new(&mut space);
            let read = ready!(Pin::new(&mut this.words).poll_read(context, &mut words));
            if read.is_err() || words.filled().is_empty() {
                break;
            }
            this.said.extend_from_slice(words.filled());
        }
        this.ended = true;
        match endpoint::understand(Some(&this.said)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => {
                let words = error.told();
                this.ending.say(error.of_stream());
                Poll::Ready(Err(io::Error::other(words)))
            }
        }
    }
}

impl AsyncWrite for HelperStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(Pin::new(&mut self.bytes).poll_write(context, data)) {
            Ok(count) => Poll::Ready(Ok(count)),
            // Why the other end has gone is what the reading side hears.
            Err(_) => Poll::Ready(Ok(data.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}
