//! A real proxy on a real port, with certificates of a test's own authorities and agents that echo.

mod attacks;
mod crowds;
mod early;
mod herd;
mod listening;
mod postgres;
mod quic;
mod resources;
mod rig;
mod sessions;
