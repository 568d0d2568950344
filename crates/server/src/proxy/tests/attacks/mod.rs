//! Attacks on the one port, by those who were never let in and by those who may not stay.

mod routes;
mod staying;
mod strangers;
mod tunnels;
