//! TLS up to 1.2 as far as the certificates, which are in the clear there: for servers that rustls has nothing in common
//! with, such as those that take key exchange by RSA alone.

use std::io::{Read, Write};

use sallyport_sal::random;
use sallyport_wire::tls_probe::{Hello, Reader, SUITES, TLS_1_2};

use super::bounded::{Bounded, Server};

/// X25519, P-256, P-384 and P-521.
const GROUPS: &[u16] = &[0x001d, 0x0017, 0x0018, 0x0019];
/// Every kind of key with every hash, SHA-1 too: nothing is believed that is signed here.
const SCHEMES: &[u16] = &[
    0x0403, 0x0503, 0x0603, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601, 0x0203, 0x0201, 0x0402, 0x0202,
    0x0301, 0x0303,
];

/// Sends a ClientHello and reads up to the certificates.
///
/// # Errors
/// When the connection is lost, or what comes is something else.
pub(super) fn ask(server: &Server, mut stream: Bounded) -> std::io::Result<Vec<Vec<u8>>> {
    let hello = Hello {
        version: TLS_1_2,
        suites: SUITES.iter().map(|suite| suite.code).collect(),
        groups: GROUPS.to_vec(),
        schemes: SCHEMES.to_vec(),
        server_name: server.host.parse::<std::net::IpAddr>().is_err().then(|| server.host.clone()),
        ..Hello::default()
    };
    stream.write_all(&hello.encode(&random::bytes().map_err(std::io::Error::other)?))?;
    let (mut reader, mut buffer) = (Reader::default(), [0; 4096]);
    while reader.answer().certificates.is_empty() && !reader.is_over() {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        reader.read(buffer.get(..read).unwrap_or_default()).map_err(std::io::Error::other)?;
    }
    let chain = reader.into_answer().certificates;
    if chain.is_empty() { Err(std::io::Error::other("no certificates")) } else { Ok(chain) }
}
