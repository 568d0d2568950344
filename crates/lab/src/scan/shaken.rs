//! What a handshake showed.

/// What a handshake showed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shaken {
    /// The certificates, the server's own first; none in a session that was resumed.
    pub(crate) chain: Vec<Vec<u8>>,
    /// How the server signed.
    pub(crate) scheme: Option<u16>,
    /// Whether it stapled an answer of OCSP.
    pub(crate) stapled: bool,
    /// Whether it asked for a certificate.
    pub(crate) asked: bool,
    /// Whether it went away without one.
    pub(crate) refused: bool,
    /// The protocol above.
    pub(crate) alpn: Option<String>,
    /// Whether an earlier session went on.
    pub(crate) resumed: bool,
    /// Tickets of TLS 1.3 that came.
    pub(crate) tickets: u32,
    /// Bytes of the handshake from the client, and from the server.
    pub(crate) bytes: (usize, usize),
    /// Whether the server asked for another hello.
    pub(crate) retried: bool,
    /// The number of the group.
    pub(crate) group: Option<u16>,
    /// The number of the cipher suite.
    pub(crate) suite: Option<u16>,
    /// What the web server calls itself.
    pub(crate) software: Option<String>,
}
