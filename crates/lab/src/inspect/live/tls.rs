//! The certificates of a TLS server, with any signer and valid at any time: they are looked at and nothing is
//! sent after them.
//!
//! First a handshake by rustls, which ends where the certificates come. Servers that rustls has nothing in common with
//! (TLS 1.0 and 1.1, key exchange by RSA or finite fields) are asked again by a ClientHello of old, whose answer is in
//! the clear.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, SignatureScheme};
use sallyport_sal::tls::rustls;

use super::bounded::{ANSWER, Bounded, Server, is_late};
use super::danger::{Capture, Chain};
use crate::LabError;
use crate::inspect::found::{Contents, Found};

/// Why there are no certificates.
pub(super) enum Refused {
    /// The server answers in SSH.
    Ssh,
    /// It took all the time that an answer may have.
    Late(LabError),
    Other(LabError),
}

/// Kinds of certificate, by the schemes that their keys sign by. A server shows one for each that it has.
const KINDS: &[&[SignatureScheme]] = &[
    &[
        SignatureScheme::ECDSA_NISTP256_SHA256,
        SignatureScheme::ECDSA_NISTP384_SHA384,
        SignatureScheme::ECDSA_NISTP521_SHA512,
    ],
    &[
        SignatureScheme::RSA_PSS_SHA256,
        SignatureScheme::RSA_PSS_SHA384,
        SignatureScheme::RSA_PSS_SHA512,
        SignatureScheme::RSA_PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512,
        SignatureScheme::RSA_PKCS1_SHA1,
    ],
    &[SignatureScheme::ED25519, SignatureScheme::ED448],
    &[SignatureScheme::ML_DSA_44, SignatureScheme::ML_DSA_65, SignatureScheme::ML_DSA_87],
];

/// All chains that it has, the one that it prefers first.
pub(super) fn chains(server: &Server, first: Bounded) -> Result<Contents, Refused> {
    let all: Vec<SignatureScheme> = KINDS.concat();
    let mut chains: Vec<Chain> = Vec::new();
    match ask(server, first, all) {
        Ok(chain) => chains.push(chain),
        // One that says nothing stays silent, and would cost the same again.
        Err(refused @ (Refused::Ssh | Refused::Late(_))) => return Err(refused),
        Err(Refused::Other(error)) => {
            // One that refuses may know something older.
            let old = server.connect().ok().and_then(|stream| super::old_tls::ask(server, stream).ok());
            chains.push(old.ok_or(Refused::Other(error))?);
        }
    }
    for kind in KINDS {
        let Ok(stream) = server.connect() else { break };
        if let Ok(chain) = ask(server, stream, kind.to_vec())
            && !chains.iter().any(|known| known.first() == chain.first())
        {
            chains.push(chain);
        }
    }
    let mut contents = Contents::default();
    for (number, chain) in chains.iter().enumerate() {
        for (at, der) in chain.iter().enumerate() {
            let which = if number == 0 { String::new() } else { format!(", chain {}", number + 1) };
            let place = if at == 0 { format!("leaf{which}") } else { format!("issuer {at}{which}") };
            match super::super::certificate(der) {
                Some(found) => contents.found.push(Found { place, ..found }),
                None => contents.notes.push(format!("{place} is not a certificate that can be read")),
            }
        }
    }
    if contents.found.is_empty() {
        return Err(Refused::Other(server.says("it speaks TLS and shows no certificate that can be read")));
    }
    Ok(contents)
}

fn ask(server: &Server, mut stream: Bounded, schemes: Vec<SignatureScheme>) -> Result<Chain, Refused> {
    let other = |what: String| Refused::Other(server.says(&what));
    let lost = |error: std::io::Error| {
        let said = server.lost(&error);
        if is_late(&error) { Refused::Late(said) } else { Refused::Other(said) }
    };
    let capture = Arc::new(Capture::new(schemes));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| other(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&capture) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    let name = ServerName::try_from(server.host.clone())
        .or_else(|_| ServerName::try_from("localhost"))
        .map_err(|error| other(error.to_string()))?;
    let mut connection =
        ClientConnection::new(Arc::new(config), name.to_owned()).map_err(|error| other(error.to_string()))?;
    let mut buffer = [0; 4096];
    let mut before = Vec::new();
    loop {
        while connection.wants_write() {
            let mut flight = Vec::new();
            connection.write_tls(&mut flight).map_err(|error| other(error.to_string()))?;
            stream.write_all(&flight).map_err(lost)?;
        }
        let read = match stream.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if is_late(&error) && !before.is_empty() => {
                return Err(Refused::Late(
                    server
                        .says(&format!("it began to answer and was not done within {} s", ANSWER.as_secs())),
                ));
            }
            Err(error) => return Err(lost(error)),
        };
        let mut bytes = buffer.get(..read).unwrap_or_default();
        if read == 0 {
            return Err(other("it ended the connection when it was asked in TLS".to_owned()));
        }
        if before.len() < 8 {
            before.extend_from_slice(bytes.get(..8.min(read)).unwrap_or_default());
            if before.starts_with(b"SSH-") {
                return Err(Refused::Ssh);
            }
        }
        while !bytes.is_empty() {
            connection.read_tls(&mut bytes).map_err(|error| other(error.to_string()))?;
            let Err(error) = connection.process_new_packets() else { continue };
            if let Some(chain) = capture.chain() {
                return Ok(chain);
            }
            return Err(other(match error {
                rustls::Error::AlertReceived(alert) => format!("it refused the TLS handshake ({alert:?})"),
                // 20 to 24 are the types of a record (RFC 8446 §5.1).
                _ if !matches!(before.first(), Some(20..=24)) => {
                    "it answers, and not in TLS or SSH".to_owned()
                }
                error => format!("the TLS handshake failed: {error}"),
            }));
        }
        if !connection.is_handshaking() {
            return Err(other("it shows no certificate".to_owned()));
        }
    }
}
