//! PostgreSQL's protocol, version 3 (PostgreSQL 17 documentation, chapter 53).
//!
//! What passes between a client and its database is not decoded and encoded again. A [`Flow`](frame::Flow) walks over the
//! headers of one direction, says how many bytes may go on, and hands the messages that are to be followed to a
//! [`Reader`](frame::Reader); the bytes go on as they came.

pub mod boundary;
pub mod encoding;
pub mod error;
pub mod exchange;
pub mod frame;
pub mod message;
pub mod options;
pub mod scram;
pub mod startup;
