//! Database protocols: messages, handshakes, and what is put on record of them.
//!
//! All of it is pure: bytes in, bytes and events out. What opens connections is in `server`.

pub mod postgres;
