//! JSON Web Keys (RFC 7517), with the members of RFC 7518 §6, RFC 8037 §2 and, for ML-DSA, RFC 9964.

use std::borrow::Cow;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::Deserialize;
use serde::de::IgnoredAny;
use zeroize::Zeroizing;

use super::error::FormatError;
use super::format::Accept;
use super::rsa::{Private, Public, number};
use super::{pkcs1, proof, spki};
use crate::algorithm::KeyKind;
use crate::{KeyAlgorithm, PrivateKeyMaterial, PublicKey, hash};

pub(super) const NAME: &str = "JSON Web Key";

/// Reads a private key.
///
/// Members that are not known are ignored (RFC 7517 §4); those that contradict the key, such as `"use": "enc"` or the
/// `alg` of another type of key, are refused, and so are RSA keys without their primes.
///
/// # Errors
/// [`FormatError`] says what was found, and what was expected.
pub fn decode_private(json: &[u8]) -> Result<PrivateKeyMaterial, FormatError> {
    decode_private_as(json, Accept::Production)
}

/// Reads a public key, and gives its type and its bytes as they stand in a SubjectPublicKeyInfo.
///
/// # Errors
/// As [`decode_private`]; a private key is refused, so that none is published by mistake.
pub fn decode_public(json: &[u8]) -> Result<(KeyAlgorithm, Vec<u8>), FormatError> {
    decode_public_as(json, Accept::Production)
}

/// Writes a private key, with everything that RFC 7518 §6.3.2 wants of RSA. JSON has no encryption: guard it.
///
/// # Errors
/// [`FormatError::Malformed`] when the material is not what its type says.
pub fn encode_private(key: &PrivateKeyMaterial) -> Result<Zeroizing<String>, FormatError> {
    let mut members = public_members(key.algorithm(), key.public())?;
    match key.algorithm().kind() {
        KeyKind::Rsa => {
            let Private { d, p, q, dp, dq, qi, .. } = Private::of(key)?;
            for (name, number) in [("d", d), ("p", p), ("q", q), ("dp", dp), ("dq", dq), ("qi", qi)] {
                members.push((name, base64(number.as_bytes())));
            }
        }
        KeyKind::MlDsa => members.push(("priv", base64(key.secret()))),
        KeyKind::Ed25519 | KeyKind::Ecdsa => members.push(("d", base64(key.secret()))),
    }
    Ok(object(&members))
}

/// Writes a public key, as its thumbprint is made: the members in alphabetical order, without spaces.
///
/// # Errors
/// [`FormatError::Malformed`] when the key is not what its type says.
pub fn encode_public(key: &PublicKey) -> Result<String, FormatError> {
    public_members(key.algorithm(), key.raw()).map(|members| object(&members).to_string())
}

/// The thumbprint of a public key (RFC 7638): SHA-256, in base64url.
///
/// # Errors
/// As [`encode_public`].
pub fn thumbprint(key: &PublicKey) -> Result<String, FormatError> {
    encode_public(key).map(|json| Base64UrlUnpadded::encode_string(&hash::sha256(json.as_bytes())))
}

pub(super) fn decode_private_as(json: &[u8], accept: Accept) -> Result<PrivateKeyMaterial, FormatError> {
    let members = Members::read(json)?;
    if !members.is_private() {
        return Err(FormatError::WrongKind {
            found: "a public JSON Web Key".to_owned(),
            expected: "a private one",
        });
    }
    let key = members.private(accept)?;
    members.check_intent(key.algorithm(), "sign")?;
    Ok(key)
}

pub(super) fn decode_public_as(json: &[u8], accept: Accept) -> Result<(KeyAlgorithm, Vec<u8>), FormatError> {
    let members = Members::read(json)?;
    if members.is_private() {
        return Err(FormatError::WrongKind {
            found: "a private JSON Web Key".to_owned(),
            expected: "a public one",
        });
    }
    let (algorithm, raw) = members.public(accept)?;
    members.check_intent(algorithm, "verify")?;
    Ok((algorithm, raw))
}

/// The members that are looked at. Those with key material borrow from the input, so that there is nothing to wipe; a
/// writer that escapes characters of base64 in JSON is not worth a copy.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    kty: Option<Cow<'a, str>>,
    #[serde(borrow)]
    crv: Option<Cow<'a, str>>,
    #[serde(borrow)]
    alg: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "use")]
    usage: Option<Cow<'a, str>>,
    #[serde(borrow)]
    key_ops: Option<Vec<Cow<'a, str>>>,
    x: Option<&'a str>,
    y: Option<&'a str>,
    n: Option<&'a str>,
    e: Option<&'a str>,
    d: Option<&'a str>,
    p: Option<&'a str>,
    q: Option<&'a str>,
    dp: Option<&'a str>,
    dq: Option<&'a str>,
    qi: Option<&'a str>,
    #[serde(rename = "pub")]
    public: Option<&'a str>,
    #[serde(rename = "priv")]
    private: Option<&'a str>,
    oth: Option<IgnoredAny>,
    keys: Option<IgnoredAny>,
}

impl<'a> Members<'a> {
    fn read(json: &'a [u8]) -> Result<Self, FormatError> {
        let members: Self = serde_json::from_slice(json).map_err(|error| {
            // Its own words would quote the member, which may be the secret.
            let what = match error.classify() {
                serde_json::error::Category::Eof => "it ends too early",
                serde_json::error::Category::Data => {
                    "a member has another type, is escaped, or stands there twice"
                }
                _ => "it is not JSON",
            };
            malformed(format!("{what}, at line {} column {}", error.line(), error.column()))
        })?;
        if members.kty.is_none() && members.keys.is_some() {
            return Err(FormatError::WrongKind {
                found: "a set of JSON Web Keys".to_owned(),
                expected: "one of them: take it out of \"keys\"",
            });
        }
        Ok(members)
    }

    fn is_private(&self) -> bool {
        let secrets = [self.d, self.p, self.q, self.dp, self.dq, self.qi, self.private];
        secrets.iter().any(Option::is_some) || self.oth.is_some()
    }

    /// The type of key; for RSA some type of that kind.
    fn algorithm(&self) -> Result<KeyAlgorithm, FormatError> {
        let kty = self.kty.as_deref().ok_or_else(|| malformed("there is no member \"kty\""))?;
        let unsupported = |found: String, expected: &str| FormatError::UnsupportedKey {
            format: NAME,
            found,
            expected: expected.to_owned(),
        };
        let (member, value) = match kty {
            "RSA" => return Ok(KeyAlgorithm::Rsa2048),
            "EC" | "OKP" => ("crv", self.crv.as_deref()),
            "AKP" => ("alg", self.alg.as_deref()),
            "oct" => {
                return Err(unsupported(
                    "a symmetric key (kty \"oct\")".to_owned(),
                    "a key pair: kty OKP, EC, RSA or AKP",
                ));
            }
            other => {
                return Err(unsupported(format!("a key of kty {}", quoted(other)), "OKP, EC, RSA or AKP"));
            }
        };
        let value = value.ok_or_else(|| malformed(format!("there is no member {member:?} for kty {kty}")))?;
        let (expected, found) = match kty {
            "EC" => ("P-256, P-384 or P-521", KeyKind::Ecdsa),
            "OKP" => ("Ed25519", KeyKind::Ed25519),
            _ => ("ML-DSA-44, ML-DSA-65 or ML-DSA-87", KeyKind::MlDsa),
        };
        KeyAlgorithm::ALL
            .iter()
            .copied()
            .filter(|algorithm| algorithm.kind() == found)
            .find(|algorithm| algorithm.jwk_type().1.unwrap_or(algorithm.jose_name()) == value)
            .ok_or_else(|| {
                unsupported(format!("a key of kty {kty} with {member} {}", quoted(value)), expected)
            })
    }

    fn public(&self, accept: Accept) -> Result<(KeyAlgorithm, Vec<u8>), FormatError> {
        let algorithm = self.algorithm()?;
        let raw = match algorithm.kind() {
            KeyKind::Rsa => {
                let (n, e) = (integer("n", self.n)?, integer("e", self.e)?);
                return Public::new(NAME, &n, &e)?.finish(NAME, accept);
            }
            KeyKind::Ed25519 => bytes("x", self.x)?.to_vec(),
            KeyKind::Ecdsa => {
                let (x, y) = (bytes("x", self.x)?, bytes("y", self.y)?);
                // A short x and a long y must not make up for each other.
                if x.len() != y.len() {
                    return Err(malformed("the coordinates have different lengths (RFC 7518 §6.2.1.2)"));
                }
                [&[0x04], x.as_slice(), y.as_slice()].concat()
            }
            KeyKind::MlDsa => bytes("pub", self.public)?.to_vec(),
        };
        spki::check_raw(NAME, algorithm, &raw)?;
        Ok((algorithm, raw))
    }

    fn private(&self, accept: Accept) -> Result<PrivateKeyMaterial, FormatError> {
        if self.oth.is_some() {
            return Err(FormatError::UnsupportedKey {
                format: NAME,
                found: "an RSA key of more than two primes".to_owned(),
                expected: "two".to_owned(),
            });
        }
        let algorithm = self.algorithm()?;
        let (name, secret) = match algorithm.kind() {
            KeyKind::Rsa => return self.private_rsa(accept),
            KeyKind::Ed25519 | KeyKind::Ecdsa => ("d", self.d),
            KeyKind::MlDsa => ("priv", self.private),
        };
        let secret = bytes(name, secret)?;
        let expected = algorithm.secret_bytes().unwrap_or_default();
        if secret.len() != expected {
            return Err(malformed(format!("{name:?} has {} bytes, expected {expected}", secret.len())));
        }
        // RFC 7518 §6.2.2 and RFC 8037 §2 require the public half beside the private one.
        let (_, public) = self.public(accept)?;
        proof::assemble(NAME, algorithm, secret, &[Some(&public)])
    }

    fn private_rsa(&self, accept: Accept) -> Result<PrivateKeyMaterial, FormatError> {
        if self.d.is_some() && [self.p, self.q, self.dp, self.dq, self.qi].iter().all(Option::is_none) {
            return Err(FormatError::UnsupportedKey {
                format: NAME,
                found: "an RSA key without its primes".to_owned(),
                expected: "p, q, dp, dq and qi beside d (RFC 7518 §6.3.2)".to_owned(),
            });
        }
        let (n, e) = (integer("n", self.n)?, integer("e", self.e)?);
        let (d, p, q) = (integer("d", self.d)?, integer("p", self.p)?, integer("q", self.q)?);
        let (dp, dq, qi) = (integer("dp", self.dp)?, integer("dq", self.dq)?, integer("qi", self.qi)?);
        let private = Private {
            public: Public::new(NAME, &n, &e)?,
            d: number(NAME, &d)?,
            p: number(NAME, &p)?,
            q: number(NAME, &q)?,
            dp: number(NAME, &dp)?,
            dq: number(NAME, &dq)?,
            qi: number(NAME, &qi)?,
        };
        pkcs1::assemble(&private, NAME, &[], accept)
    }

    /// Checks what the key says that it is for (RFC 7517 §4.2 to §4.4).
    fn check_intent(&self, algorithm: KeyAlgorithm, operation: &str) -> Result<(), FormatError> {
        let contradicts =
            |what: String| malformed(format!("{what} contradicts a key that is to {operation}"));
        if let Some(usage) = self.usage.as_deref()
            && usage != "sig"
        {
            return Err(contradicts(format!("\"use\" {}", quoted(usage))));
        }
        if let Some(operations) = &self.key_ops
            && !operations.iter().any(|one| one == operation)
        {
            return Err(contradicts("\"key_ops\" without that".to_owned()));
        }
        if let Some(name) = self.alg.as_deref() {
            let fits = algorithm.schemes().iter().any(|scheme| scheme.jose_name() == name)
                // The name of RFC 9864, which will take the place of EdDSA.
                || (algorithm == KeyAlgorithm::Ed25519 && name == "Ed25519");
            if !fits {
                return Err(malformed(format!(
                    "\"alg\" {} does not belong to an {algorithm} key",
                    quoted(name)
                )));
            }
        }
        Ok(())
    }
}

type Member = (&'static str, Zeroizing<String>);

/// The members of a public key that its thumbprint is made of, in alphabetical order (RFC 7638 §3.2, RFC 8037 §2, RFC
/// 9964).
fn public_members(algorithm: KeyAlgorithm, raw: &[u8]) -> Result<Vec<Member>, FormatError> {
    let word = |word: &str| Zeroizing::new(word.to_owned());
    let (kty, crv) = algorithm.jwk_type();
    if algorithm.kind() != KeyKind::Rsa {
        spki::check_raw(NAME, algorithm, raw)?;
    }
    Ok(match algorithm.kind() {
        KeyKind::Ed25519 => {
            vec![("crv", word(crv.unwrap_or_default())), ("kty", word(kty)), ("x", base64(raw))]
        }
        KeyKind::Ecdsa => {
            let point = raw.get(1..).unwrap_or_default();
            let (x, y) = point.split_at(point.len() / 2);
            vec![
                ("crv", word(crv.unwrap_or_default())),
                ("kty", word(kty)),
                ("x", base64(x)),
                ("y", base64(y)),
            ]
        }
        KeyKind::Rsa => {
            let Public { n, e } = Public::of(NAME, raw)?;
            vec![("e", base64(e.as_bytes())), ("kty", word(kty)), ("n", base64(n.as_bytes()))]
        }
        KeyKind::MlDsa => {
            vec![("alg", word(algorithm.jose_name())), ("kty", word(kty)), ("pub", base64(raw))]
        }
    })
}

/// The JSON of the members. No value has a character that JSON escapes: they are base64url and names of algorithms.
fn object(members: &[Member]) -> Zeroizing<String> {
    let length = members.iter().map(|(name, value)| name.len() + value.len() + 6).sum::<usize>() + 2;
    let mut json = Zeroizing::new(String::with_capacity(length));
    for (at, (name, value)) in members.iter().enumerate() {
        let parts = [if at == 0 { "{\"" } else { ",\"" }, *name, "\":\"", value.as_str(), "\""];
        parts.iter().for_each(|part| json.push_str(part));
    }
    json.push('}');
    json
}

fn base64(bytes: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(Base64UrlUnpadded::encode_string(bytes))
}

fn bytes(name: &str, value: Option<&str>) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    let value = value.ok_or_else(|| malformed(format!("there is no member {name:?}")))?;
    Base64UrlUnpadded::decode_vec(value)
        .map(Zeroizing::new)
        .map_err(|_| malformed(format!("{name:?} is not base64url without padding (RFC 7515 §2)")))
}

/// `Base64urlUInt`: big-endian, in as few bytes as possible (RFC 7518 §2).
fn integer(name: &str, value: Option<&str>) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    let bytes = bytes(name, value)?;
    match bytes.first() {
        None => Err(malformed(format!("{name:?} is empty"))),
        Some(0) if bytes.len() > 1 => {
            Err(malformed(format!("{name:?} starts with a zero byte (RFC 7518 §2)")))
        }
        Some(_) => Ok(bytes),
    }
}

/// A word of the file in an error: not more of it than a person wants to read.
fn quoted(word: &str) -> String {
    format!("{:?}", word.chars().take(40).collect::<String>())
}

fn malformed(reason: impl Into<String>) -> FormatError {
    FormatError::malformed(NAME, reason)
}
