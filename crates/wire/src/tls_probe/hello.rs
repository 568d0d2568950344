//! The question: a ClientHello.

use super::{
    EXTENSION_ALPN, EXTENSION_EXTENDED_MASTER_SECRET, EXTENSION_GROUPS, EXTENSION_POINT_FORMATS,
    EXTENSION_PSK_MODES, EXTENSION_RENEGOTIATION, EXTENSION_SERVER_NAME, EXTENSION_SHARES,
    EXTENSION_SIGNATURES, EXTENSION_STATUS, EXTENSION_TICKET, EXTENSION_VERSIONS, HANDSHAKE, TLS_1_0,
    TLS_1_2, TLS_1_3,
};

/// What a client of PostgreSQL sends to ask for TLS (PostgreSQL, "Message Formats", SSLRequest). The answer is one byte,
/// `S` or `N`.
pub const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

const CLIENT_HELLO: u8 = 1;
/// Longest fragment of a record (RFC 8446 §5.1).
const FRAGMENT_BYTES: usize = 1 << 14;

/// A ClientHello. Its numbers are those of the IANA registries; whatever is in the lists is sent as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// The one version that is offered. Up to TLS 1.2 a server may answer with an older one (RFC 5246 appendix E.1).
    pub version: u16,
    /// Cipher suites, the favourite first.
    pub suites: Vec<u16>,
    /// Named groups, the favourite first; nothing is said of groups when there are none.
    pub groups: Vec<u16>,
    /// Key shares for TLS 1.3. With none a server asks for the group that it likes best (RFC 8446 §4.2.8).
    pub shares: Vec<(u16, Vec<u8>)>,
    /// Signature schemes, the favourite first; nothing is said of them when there are none.
    pub schemes: Vec<u16>,
    /// The name of the server that is asked for (RFC 6066 §3), which is no IP address.
    pub server_name: Option<String>,
    /// Protocols above TLS, the favourite first.
    pub alpn: Vec<String>,
    /// Whether compression is offered, which only an unsafe server takes up (RFC 3749; CVE-2012-4929).
    pub compression: bool,
}

impl Hello {
    /// The records that carry it. `random` is its random value and, behind it, its session id.
    #[must_use]
    pub fn encode(&self, random: &[u8; 64]) -> Vec<u8> {
        let (random, session) = random.split_at(32);
        let mut body = self.version.min(TLS_1_2).to_be_bytes().to_vec();
        body.extend_from_slice(random);
        body.extend(short(session));
        body.extend(long(&numbers(&self.suites)));
        // RFC 8446 §4.1.2: a client of TLS 1.3 offers no compression.
        let compressions: &[u8] = if self.compression && self.version < TLS_1_3 { &[1, 0] } else { &[0] };
        body.extend(short(compressions));
        body.extend(long(&self.extensions()));
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
        let mut message = vec![CLIENT_HELLO];
        message.extend_from_slice(length.get(1..).unwrap_or_default());
        message.extend(body);
        let record = |fragment: &[u8]| {
            let [major, minor] = TLS_1_0.to_be_bytes();
            [&[HANDSHAKE, major, minor][..], &long(fragment)].concat()
        };
        message.chunks(FRAGMENT_BYTES).flat_map(record).collect()
    }

    fn extensions(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut add = |kind: u16, content: &[u8]| {
            all.extend_from_slice(&kind.to_be_bytes());
            all.extend(long(content));
        };
        if let Some(name) = &self.server_name {
            add(EXTENSION_SERVER_NAME, &long(&[&[0][..], &long(name.as_bytes())].concat()));
        }
        if !self.groups.is_empty() {
            add(EXTENSION_GROUPS, &long(&numbers(&self.groups)));
            // Uncompressed points alone (RFC 8422 §5.1.2).
            add(EXTENSION_POINT_FORMATS, &short(&[0]));
        }
        if !self.schemes.is_empty() && self.version >= TLS_1_2 {
            add(EXTENSION_SIGNATURES, &long(&numbers(&self.schemes)));
        }
        if !self.alpn.is_empty() {
            let list: Vec<u8> = self.alpn.iter().flat_map(|name| short(name.as_bytes())).collect();
            add(EXTENSION_ALPN, &long(&list));
        }
        // A stapled answer of OCSP is asked for, from no responder in particular (RFC 6066 §8).
        add(EXTENSION_STATUS, &[1, 0, 0, 0, 0]);
        if self.version >= TLS_1_3 {
            add(EXTENSION_VERSIONS, &short(&numbers(&[self.version])));
            add(EXTENSION_PSK_MODES, &short(&[1]));
            let shares: Vec<u8> = self
                .shares
                .iter()
                .flat_map(|(group, share)| [&group.to_be_bytes()[..], &long(share)].concat())
                .collect();
            add(EXTENSION_SHARES, &long(&shares));
        } else {
            add(EXTENSION_EXTENDED_MASTER_SECRET, &[]);
            add(EXTENSION_TICKET, &[]);
            add(EXTENSION_RENEGOTIATION, &short(&[]));
        }
        all
    }
}

fn numbers(list: &[u16]) -> Vec<u8> {
    list.iter().flat_map(|value| value.to_be_bytes()).collect()
}

/// Behind one byte of length. What does not fit is cut off; nothing of ours is as long.
fn short(content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
    let mut out = vec![length];
    out.extend(content.iter().take(usize::from(length)));
    out
}

/// Behind two bytes of length, in the same way.
fn long(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    let mut out = length.to_be_bytes().to_vec();
    out.extend(content.iter().take(usize::from(length)));
    out
}
