//! What bytes are that hold no key.

use sallyport_sal::formats::FormatError;

/// What bytes are that hold no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoKey {
    /// There are none.
    #[error("it is empty")]
    Empty,
    /// Text of another kind.
    #[error("not a key: neither PEM (`-----BEGIN `) nor a line as in authorized_keys or known_hosts")]
    Text,
    /// Bytes of another kind.
    #[error("not a key: binary, and not DER")]
    Binary,
    /// A file of PuTTY's or RFC 4716's that is malformed.
    #[error("it begins as a key of PuTTY's or RFC 4716's and does not go on as one")]
    Foreign,
    /// PEM without an end.
    #[error("a PEM block begins and does not end: the file is cut short")]
    CutPem,
    /// PEM of parameters or revocations alone.
    #[error("PEM without a key")]
    Parameters,
    /// PEM with blocks none of which holds a key.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Blocks(Vec<RefusedBlock>),
    /// A block whose content is not base64.
    #[error("{0}")]
    Base64(FormatError),
    /// A block of another kind.
    #[error("nothing that holds a key here")]
    OtherBlock,
    /// A block that is not what it says.
    #[error("it does not go on as its first line says")]
    Mislabelled,
    /// A private key of which nothing is in the clear.
    #[error(
        "an encrypted private key, of which nothing is in the clear: give its certificate or its public key (`openssl pkey \
         -in FILE -pubout`)"
    )]
    Encrypted,
    /// PKCS#7 in PEM.
    #[error("PKCS#7: `openssl pkcs7 -in FILE -print_certs -out CERTIFICATES` takes the certificates out")]
    Pkcs7,
    /// PKCS#7 in DER.
    #[error(
        "a PKCS#7 file: `openssl pkcs7 -inform DER -in FILE -print_certs -out CERTIFICATES` takes the certificates out"
    )]
    Pkcs7Der,
    /// PKCS#12.
    #[error(
        "a PKCS#12 file, which is encrypted: `openssl pkcs12 -in FILE -nokeys -out CERTIFICATES` takes the certificates out"
    )]
    Pkcs12,
    /// DER that ends too early, or begins with another element.
    #[error("DER that is cut short or no SEQUENCE")]
    CutDer,
    /// DER of another kind.
    #[error("DER that is not a key, a certificate or a request")]
    OtherDer,
    /// JSON that is malformed.
    #[error("it begins as JSON and is none: {0}")]
    Malformed(serde_json::Error),
    /// JSON of another kind.
    #[error("JSON that is not a JSON Web Key")]
    OtherJson,
}

/// A block of PEM that holds no key.
#[derive(Debug, thiserror::Error)]
#[error("block {number} ({label}): {why}")]
pub struct RefusedBlock {
    /// Which one, from 1.
    pub number: usize,
    /// What its first line says it is, fit for a terminal.
    pub label: String,
    /// What it is.
    pub why: NoKey,
}
