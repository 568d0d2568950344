//! Channels on one stream.
//!
//! Each channel has a window each way and a short queue outward, from which the one task that writes takes in turn; so a
//! channel that the far end does not read holds up no other, and an echo does not wait behind more than one piece of
//! each of the others. What comes is handed to the channel's [`Taker`], which never waits; it counts
//! against the window that the far end was granted, and is granted anew when it was read. The lock is held for moments,
//! and never across an await.

mod batch;
mod chan;
mod channel;
mod driver;
mod ports;
mod table;
mod window;

pub(crate) use channel::Channel;
pub(crate) use driver::{Keepalive, NoFirstFrame, first_frame, run};
pub(crate) use ports::{Breach, NotOpened, Role, Side, Taker};
pub(crate) use table::{Mux, WeakMux};

#[cfg(test)]
mod tests;
