//! Asking a TLS server what it can do, without being a TLS client.
//!
//! A server's first flight says in the clear which version, cipher suite and group it chose, and up to TLS 1.2 its
//! certificates and the parameters of its key exchange. So it is enough to send a ClientHello ([`Hello`]) and to read
//! what comes back ([`Reader`]); nothing is agreed on and nothing is verified. Both are pure: bytes in, values out.

mod answer;
mod hello;
mod suites;

pub use answer::{Alert, Answer, KeyExchange, Reader, ServerHello, Unreadable};
pub use hello::{Hello, SSL_REQUEST};
pub use suites::{Agreement, Proof, SUITES, Suite, suite};

/// TLS 1.0 (RFC 2246).
pub const TLS_1_0: u16 = 0x0301;
/// TLS 1.1 (RFC 4346).
pub const TLS_1_1: u16 = 0x0302;
/// TLS 1.2 (RFC 5246).
pub const TLS_1_2: u16 = 0x0303;
/// TLS 1.3 (RFC 8446).
pub const TLS_1_3: u16 = 0x0304;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_STATUS: u16 = 5;
const EXTENSION_GROUPS: u16 = 10;
const EXTENSION_POINT_FORMATS: u16 = 11;
const EXTENSION_SIGNATURES: u16 = 13;
const EXTENSION_ALPN: u16 = 16;
const EXTENSION_EXTENDED_MASTER_SECRET: u16 = 23;
const EXTENSION_TICKET: u16 = 35;
const EXTENSION_VERSIONS: u16 = 43;
const EXTENSION_PSK_MODES: u16 = 45;
const EXTENSION_SHARES: u16 = 51;
const EXTENSION_RENEGOTIATION: u16 = 0xff01;

#[cfg(test)]
mod tests;
