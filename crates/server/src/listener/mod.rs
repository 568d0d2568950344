//! One port for everything, by TCP and by UDP: accepting, limits and telling protocols apart.

mod accept;
mod first;
mod limits;
mod quic;
mod rewind;

pub(crate) use accept::{Acceptance, accept_loop, bind};
pub(crate) use first::{First, Wants, classify};
pub(crate) use limits::{Crowded, Faults, Limiter, Slot};
pub(crate) use quic::{Caller, HalfOpen, bind_udp, quic_loop};
pub(crate) use rewind::Rewind;
