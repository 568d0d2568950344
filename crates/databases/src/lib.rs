//! Database protocols: messages, handshakes, sessions, and what is put on record of them.
//!
//! [`postgres`] is pure: bytes in, bytes and events out. [`service`] connects clients to databases with it; who may use what,
//! and with which credentials, it asks through ports.

pub mod postgres;
pub mod service;
