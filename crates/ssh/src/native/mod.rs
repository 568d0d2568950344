//! The native protocol between our own client and our own node, in place of SSH.
//!
//! It runs on a byte stream that the layer below has proven in both directions: an end-to-end TLS 1.3 stream through the
//! proxy. So there is nothing to negotiate, and neither side waits for the other: the client's first flight says who logs in and
//! carries whole sessions (terminal, environment, program, input), and the node answers with output and the exit status.
//!
//! - [`frame`]: the bytes. Pure.
//! - `mux`: channels on one stream, with a window each, one task that writes and one that reads.
//!
//! The node's side is `node::connection::native`, the client's `client::native`; what sessions do is the same core for this
//! and for SSH.
//!
//! # Rules
//!
//! - The client's first frame is a hello, the node's a welcome or a goodbye. Everything else may follow the hello at once.
//! - A channel is opened by either side, the client with odd numbers, the node with even ones, each in rising order. Data
//!   may follow the opening frame at once: every channel begins with a window of [`frame::FIRST_WINDOW`] bytes, and towards
//!   the client with what its hello says. A client that is not let in has a `Refused` in place of an answer, and what is already
//!   under way is dropped.
//! - Data counts against the window of its channel; `Window` frames grant more. A side that sends past its window loses the
//!   connection. All else is bounded by numbers: channels, listeners, requests that wait.
//! - A channel is over when both sides have sent `Close` (or one of them `Refused`). No frame follows a side's `Close`.
//! - Frame types below [`frame::SKIPPED_FROM`] that are not known end the connection; those from it on are passed over.
//!   Bytes behind the known fields of a frame are passed over. So later versions can add to this one without asking
//!   first.

pub(crate) mod fields;
pub mod frame;
pub(crate) mod mux;
mod open;
