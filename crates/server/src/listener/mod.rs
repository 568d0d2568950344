//! One TCP port for everything: accepting, limits and telling protocols apart.

mod accept;
mod first;
mod limits;
mod rewind;

pub(crate) use accept::{Acceptance, accept_loop, bind};
pub(crate) use first::{Dropped, First, Wants, classify};
pub(crate) use limits::{Limiter, Slot};
pub(crate) use rewind::Rewind;
