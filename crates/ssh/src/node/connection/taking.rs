//! What comes on the channels of a native connection, and the channels that the node opens on it.

use std::sync::Arc;

use bytes::Bytes;

use super::shared::Shared;
use super::wishes::system_signal;
use crate::inbound::Inbox;
use crate::native::frame::{Frame, Open};
use crate::native::mux::{self, Mux, NotOpened, Taker};
use crate::session::Incoming;

/// Opens a channel towards the client.
///
/// # Errors
/// When the client is gone, or what is opened has a name that is too long.
pub(in crate::node) fn open(
    mux: &Mux,
    shared: &Arc<Shared>,
    what: Open,
) -> Result<(mux::Channel, Arc<Inbox>), NotOpened> {
    // The number is known when it is open; nothing can have come by then that was not counted.
    mux.open_with(what, |id| {
        let inbox = mux.inbox(&shared.pressure, id);
        let taker = Taking { inbox: inbox.clone(), shared: shared.clone(), carries: true };
        (Arc::new(taker) as Arc<dyn Taker>, inbox)
    })
}

/// Takes what comes on a channel into its inbox.
pub(super) struct Taking {
    pub(super) inbox: Arc<Inbox>,
    pub(super) shared: Arc<Shared>,
    /// It carries a connection, which gets all that the client has sent before it closed; the end of a session's
    /// channel is a hang-up.
    pub(super) carries: bool,
}

impl Taker for Taking {
    fn data(&self, errors: bool, bytes: Bytes) {
        self.shared.touch();
        // Nothing here reads what is no standard input; its window is not granted anew.
        if !errors {
            self.inbox.accept_whole(&bytes);
        }
    }

    fn eof(&self) {
        self.inbox.end();
    }

    fn closed(&self) {
        if self.carries {
            self.inbox.close();
        } else {
            self.inbox.hang_up();
        }
    }

    fn gone(&self, _: Option<String>) {
        self.inbox.leave();
    }

    fn frame(&self, frame: Frame) {
        self.shared.touch();
        let request = match frame {
            Frame::Resize(_, size) => Some(Incoming::Resize(size)),
            Frame::Signal(_, name) => system_signal(&name).map(Incoming::Signal),
            _ => None,
        };
        if let Some(Err(error)) = request.map(|request| self.inbox.request(request)) {
            self.inbox.cut(&error.to_string());
        }
    }
}
