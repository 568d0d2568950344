//! One end of a channel, for its sender.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

use super::chan::{Chan, MAX_URGENT, Out, QUEUE_BYTES};
use super::ports::{NotOpened, Taker};
use super::table::Mux;
use crate::native::frame::{Frame, Open};
use crate::session::Gone;

/// One end of a channel. It is closed when this is dropped, behind all that was sent.
pub(crate) struct Channel {
    mux: Mux,
    id: u32,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.close();
    }
}

impl Channel {
    pub(super) fn new(mux: Mux, id: u32) -> Self {
        Self { mux, id }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn mux(&self) -> &Mux {
        &self.mux
    }

    /// Sends data; waits while much waits already.
    ///
    /// # Errors
    /// When the far end takes no more, or is gone.
    pub(crate) async fn data(&self, errors: bool, bytes: Bytes) -> Result<(), Gone> {
        let mut bytes = Some(bytes);
        poll_fn(|cx| self.poll_data(cx, errors, || bytes.take().unwrap_or_default())).await
    }

    /// Sends data, once there is room.
    pub(crate) fn poll_data(
        &self,
        cx: &mut Context<'_>,
        errors: bool,
        bytes: impl FnOnce() -> Bytes,
    ) -> Poll<Result<(), Gone>> {
        self.poll_put(
            cx,
            |chan| chan.queued < QUEUE_BYTES,
            |chan| {
                let bytes = bytes();
                if !bytes.is_empty() {
                    chan.queued += bytes.len();
                    chan.queue.push_back(Out::Data { errors, bytes });
                }
            },
        )
    }

    /// Sends a frame that passes the data by; waits while many do.
    ///
    /// # Errors
    /// When the far end is gone.
    pub(crate) async fn urgent(&self, frame: Frame) -> Result<(), Gone> {
        let frame = encoded(&frame)?;
        let fits = |chan: &Chan| chan.urgent.len() < MAX_URGENT;
        poll_fn(|cx| self.poll_put(cx, fits, |chan| chan.urgent.push_back(frame.clone()))).await
    }

    fn poll_put(
        &self,
        cx: &mut Context<'_>,
        fits: impl FnOnce(&Chan) -> bool,
        put: impl FnOnce(&mut Chan),
    ) -> Poll<Result<(), Gone>> {
        let mut state = self.mux.state();
        let Some(chan) = state.channels.get_mut(&self.id) else { return Poll::Ready(Err(Gone)) };
        if chan.closed_here || chan.closed_there {
            return Poll::Ready(Err(Gone));
        }
        if !fits(chan) {
            if !chan.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                chan.waiting.push(cx.waker().clone());
            }
            return Poll::Pending;
        }
        put(chan);
        state.list(self.id);
        drop(state);
        self.mux.0.work.notify_one();
        Poll::Ready(Ok(()))
    }

    /// Sends a frame behind the data. There are few of these on a channel, so that none waits.
    ///
    /// # Errors
    /// When the far end takes no more, or is gone.
    pub(crate) fn frame(&self, frame: &Frame) -> Result<(), Gone> {
        let frame = encoded(frame)?;
        let mut state = self.mux.state();
        let chan = state.channels.get_mut(&self.id).filter(|chan| !chan.closed_here && !chan.closed_there);
        chan.ok_or(Gone)?.queue.push_back(Out::Frame(frame));
        state.list(self.id);
        drop(state);
        self.mux.0.work.notify_one();
        Ok(())
    }

    /// Says that no more data comes.
    ///
    /// # Errors
    /// When the far end takes no more, or is gone.
    pub(crate) fn eof(&self) -> Result<(), Gone> {
        self.frame(&Frame::Eof(self.id))
    }

    /// Is done with the channel, behind all that was sent.
    pub(crate) fn close(&self) {
        self.end(false, &Frame::Close(self.id));
    }

    /// Is done with the channel now; what was not sent is not.
    pub(crate) fn abort(&self) {
        self.end(true, &Frame::Close(self.id));
    }

    /// Does not let the channel in that the far end has opened.
    pub(crate) fn refuse(&self, reason: &str) {
        let mut state = self.mux.state();
        // In the far end's eyes it is no more, so that nothing else may be said of it.
        if state.remove(self.id).is_some_and(|chan| !chan.closed_here) {
            let _ = Frame::Refused(self.id, reason.to_owned()).encode(&mut state.control);
            drop(state);
            self.mux.0.work.notify_one();
        }
    }

    fn end(&self, now: bool, frame: &Frame) {
        let Ok(frame) = encoded(frame) else { return };
        let mut state = self.mux.state();
        let Some(chan) = state.channels.get_mut(&self.id) else { return };
        if now {
            chan.forget_queue();
        }
        let woken = std::mem::take(&mut chan.waiting);
        if !chan.closed_here {
            chan.closed_here = true;
            chan.queue.push_back(Out::Close(frame));
        }
        state.list(self.id);
        drop(state);
        woken.into_iter().for_each(std::task::Waker::wake);
        self.mux.0.work.notify_one();
    }
}

impl Mux {
    /// Opens a channel. Nothing is waited for. `make` makes, for its number, who takes what comes, and what of it is
    /// given back.
    pub(crate) fn open_with<T>(
        &self,
        what: Open,
        make: impl FnOnce(u32) -> (Arc<dyn Taker>, T),
    ) -> Result<(Channel, T), NotOpened> {
        let mut state = self.state();
        if state.end.is_some() || state.goodbye.is_some() {
            return Err(NotOpened::Gone);
        }
        let id = state.next;
        let mut frame = BytesMut::new();
        Frame::Open(id, what).encode(&mut frame).map_err(NotOpened::TooLong)?;
        // After two thousand million channels the numbers of one connection are used up.
        state.next = id.checked_add(2).ok_or(NotOpened::Gone)?;
        let (taker, made) = make(id);
        let mut chan = Chan::new(taker, state.first_in, state.first_out);
        chan.urgent.push_back(frame.freeze());
        state.channels.insert(id, chan);
        state.corked = false;
        state.list(id);
        drop(state);
        self.0.work.notify_one();
        Ok((Channel::new(self.clone(), id), made))
    }

    /// Lets in a channel that the far end has just opened.
    pub(crate) fn admit(&self, id: u32, taker: Arc<dyn Taker>) -> Channel {
        let mut state = self.state();
        let chan = Chan::new(taker, state.first_in, state.first_out);
        state.channels.insert(id, chan);
        Channel::new(self.clone(), id)
    }
}

fn encoded(frame: &Frame) -> Result<Bytes, Gone> {
    let mut out = BytesMut::new();
    frame.encode(&mut out).map_err(|_| Gone)?;
    Ok(out.freeze())
}
