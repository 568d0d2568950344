//! Attacks on the one port, by those who were never let in and by those who may not stay.

mod staying;
mod strangers;
