//! SSH certificates (OpenSSH's PROTOCOL.certkeys), written, read and verified.

use std::collections::BTreeMap;
use std::net::IpAddr;

use data_encoding::BASE64_NOPAD;
use sallyport_access::{
    Device, DeviceCustody, HostId, HostRole, Login, NodeName, Principal, RoleName, SessionProof, Traits,
    UserName,
};
use sallyport_sal::algorithm::{KeyKind, Standing};
use sallyport_sal::{KeyAlgorithm, PublicKey, Signer, hash};
use ssh_key::certificate::CertType;
use ssh_key::public::{EcdsaPublicKey, Ed25519PublicKey, KeyData, RsaPublicKey};
use ssh_key::{Algorithm, Certificate, Mpint};
use uuid::Uuid;

use crate::encoding::{ecdsa_der_to_ssh, ecdsa_ssh_to_der, put_string, take_string};
use crate::extension::{Claims, Mark};
use crate::{CaError, CaKind};

/// The one principal of a user who may use no login anywhere. An empty list would mean "any login" to some servers,
/// and no operating system has an account of this name.
pub const NO_LOGIN: &str = "-sallyport-no-login";

const CLUSTER: &str = "cluster@sallyport";
const LOGIN_ID: &str = "login-id@sallyport";
const ROLES: &str = "roles@sallyport";
const TRAITS: &str = "traits@sallyport";
/// The trusted device that the login came from: its id, a space, and where its key is.
const DEVICE: &str = "device@sallyport";
/// The one address that the certificate counts from.
const PINNED_TO: &str = "pinned-to@sallyport";
/// The critical option by which stock servers hold a certificate to addresses (PROTOCOL.certkeys), and which our own hosts read beside
/// [`PINNED_TO`].
const SOURCE_ADDRESS: &str = "source-address";
const HOST_ID: &str = "host-id@sallyport";
const HOST_ROLE: &str = "host-role@sallyport";
/// In the certificate of a proxy that stands before a stock server: the server's id.
pub(crate) const STANDS_FOR: &str = "stands-for@sallyport";

/// In the certificate of a user: what was proven for sessions, as JSON.
pub(crate) const SESSION_FACTOR: &str = "session-factor@sallyport";

/// Length of the nonce that makes the signed bytes unpredictable, in bytes.
pub(crate) const NONCE_BYTES: usize = 32;

/// All that a certificate says.
#[derive(Debug)]
pub(crate) struct Template<'a> {
    pub(crate) nonce: [u8; NONCE_BYTES],
    pub(crate) subject_key: &'a KeyData,
    pub(crate) serial: u64,
    pub(crate) kind: CaKind,
    pub(crate) key_id: &'a str,
    pub(crate) principals: &'a [String],
    pub(crate) valid_after: u64,
    pub(crate) valid_before: u64,
    /// Name and value; the map keeps the order that the format demands.
    pub(crate) critical: &'a BTreeMap<String, String>,
    /// As those.
    pub(crate) extensions: &'a BTreeMap<String, String>,
}

impl Template<'_> {
    /// Signs it.
    pub(crate) fn sign(&self, issuer: &dyn Signer) -> Result<Certificate, CaError> {
        let failed = |reason: String| CaError::Encode { what: "the SSH certificate", reason };
        let subject = encode_key(self.subject_key)?;
        let (_, subject_fields) =
            take_string(&subject).ok_or_else(|| failed("no algorithm in the key".to_owned()))?;
        let issuer_data = key_data(&issuer.public_key())?;

        let mut bytes = Vec::with_capacity(1024);
        put_string(&mut bytes, self.subject_key.algorithm().to_certificate_type().as_bytes());
        put_string(&mut bytes, &self.nonce);
        bytes.extend_from_slice(subject_fields);
        bytes.extend_from_slice(&self.serial.to_be_bytes());
        let kind: u32 = match self.kind {
            CaKind::Host => 2,
            _ => 1,
        };
        bytes.extend_from_slice(&kind.to_be_bytes());
        put_string(&mut bytes, self.key_id.as_bytes());
        let mut principals = Vec::new();
        for principal in self.principals {
            put_string(&mut principals, principal.as_bytes());
        }
        put_string(&mut bytes, &principals);
        bytes.extend_from_slice(&self.valid_after.to_be_bytes());
        bytes.extend_from_slice(&self.valid_before.to_be_bytes());
        put_string(&mut bytes, &named_values(self.critical));
        put_string(&mut bytes, &named_values(self.extensions));
        put_string(&mut bytes, b""); // reserved
        put_string(&mut bytes, &encode_key(&issuer_data)?);

        let blob = signature(issuer, &bytes)?;
        put_string(&mut bytes, &blob);
        Certificate::from_bytes(&bytes).map_err(|error| failed(error.to_string()))
    }
}

/// Critical options or extensions as the format has them: a value is a string within one, and none where it is empty.
fn named_values(values: &BTreeMap<String, String>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in values {
        put_string(&mut bytes, name.as_bytes());
        let mut data = Vec::new();
        if !value.is_empty() {
            put_string(&mut data, value.as_bytes());
        }
        put_string(&mut bytes, &data);
    }
    bytes
}

/// The principal of a login at one server, by the server's id; sshd puts its own id behind `login`. No login has a colon.
#[must_use]
pub fn own_login(login: &str, server: &str) -> String {
    format!("{login}:{server}")
}

/// Signs as SSH does: two `string`, the name of the scheme and the signature in its SSH form (RFC 4253 §6.6).
pub(crate) fn signature(signer: &dyn Signer, message: &[u8]) -> Result<Vec<u8>, CaError> {
    let failed = |reason: String| CaError::Encode { what: "an SSH signature", reason };
    let no_form = || failed(format!("{} signs nothing in SSH", signer.algorithm()));
    let scheme = signer.algorithm().ssh_scheme().ok_or_else(no_form)?;
    let signature = signer.sign_with(scheme, message)?;
    let signature = match scheme.kind() {
        KeyKind::Ecdsa => ecdsa_der_to_ssh(&signature)
            .ok_or_else(|| failed("the signer's ECDSA signature is not DER".to_owned()))?,
        _ => signature,
    };
    let mut blob = Vec::with_capacity(128);
    put_string(&mut blob, scheme.ssh_name().ok_or_else(no_form)?.as_bytes());
    put_string(&mut blob, &signature);
    Ok(blob)
}

/// Checks the signature on a certificate against the CA key, which must be the one the certificate names.
pub(crate) fn verify_signature(certificate: &Certificate, ca: &PublicKey) -> Result<(), CaError> {
    let bytes = certificate.to_bytes().map_err(|error| CaError::Malformed { reason: error.to_string() })?;
    let signature = certificate.signature();
    // The last field is `string { string algorithm, string signature }`; everything before it is signed.
    let trailer = 4 + 4 + signature.algorithm().as_str().len() + 4 + signature.as_bytes().len();
    let signed =
        bytes.len().checked_sub(trailer).and_then(|end| bytes.get(..end)).ok_or(CaError::BadSignature)?;
    verify_raw(ca, signature.algorithm().as_str(), signature.as_bytes(), signed)
}

/// The most levels of certificates within certificates that are read. One of ours is signed by a plain key: it has one.
const MOST_NESTED: usize = 4;

/// Reads a certificate on the wire. What signed it is read as a key of any type, a certificate too, and that one's as well: a peer
/// that nests them deeply would have this read by as many calls within calls, and is refused.
pub(crate) fn read(blob: &[u8]) -> Result<Certificate, CaError> {
    const MARK: &[u8] = b"-cert-v01@";
    if blob.windows(MARK.len()).filter(|part| *part == MARK).count() > MOST_NESTED {
        return Err(CaError::Malformed { reason: "certificates within certificates".to_owned() });
    }
    Certificate::from_bytes(blob).map_err(|error| CaError::Malformed { reason: error.to_string() })
}

/// The fingerprint of a public key as `ssh-keygen -l` shows it.
pub(crate) fn fingerprint(key: &KeyData) -> String {
    // A key that was read can be written.
    let blob = encode_key(key).unwrap_or_default();
    format!("SHA256:{}", BASE64_NOPAD.encode(&hash::sha256(&blob)))
}

/// Checks a signature as [`signature`] makes it.
pub(crate) fn verify_message(key: &PublicKey, message: &[u8], blob: &[u8]) -> Result<(), CaError> {
    let (scheme, rest) = take_string(blob).ok_or(CaError::BadSignature)?;
    let (raw, rest) = take_string(rest).ok_or(CaError::BadSignature)?;
    let scheme = std::str::from_utf8(scheme).map_err(|_| CaError::BadSignature)?;
    if !rest.is_empty() {
        return Err(CaError::BadSignature);
    }
    verify_raw(key, scheme, raw, message)
}

pub(crate) fn verify_raw(
    key: &PublicKey,
    scheme: &str,
    signature: &[u8],
    signed: &[u8],
) -> Result<(), CaError> {
    let scheme = key
        .algorithm()
        .schemes()
        .iter()
        .copied()
        .find(|known| known.ssh_name() == Some(scheme))
        .ok_or(CaError::BadSignature)?;
    let raw = match scheme.kind() {
        KeyKind::Ecdsa => ecdsa_ssh_to_der(signature).ok_or(CaError::BadSignature)?,
        _ => signature.to_vec(),
    };
    key.verify_with(scheme, signed, &raw).map_err(|_| CaError::BadSignature)
}

/// The extensions that carry an identity.
pub(crate) fn identity_extensions(
    cluster: &str,
    login_id: Uuid,
    principal: &Principal,
) -> Result<BTreeMap<String, String>, CaError> {
    let json = |what, result: Result<String, serde_json::Error>| {
        result.map_err(|error| CaError::Encode { what, reason: error.to_string() })
    };
    let mut extensions = BTreeMap::from([
        (CLUSTER.to_owned(), cluster.to_owned()),
        (LOGIN_ID.to_owned(), login_id.hyphenated().to_string()),
    ]);
    match principal {
        Principal::User { roles, traits, .. } => {
            extensions.insert(ROLES.to_owned(), json("the roles", serde_json::to_string(roles))?);
            extensions.insert(TRAITS.to_owned(), json("the traits", serde_json::to_string(traits))?);
        }
        Principal::Host { id, role, .. } => {
            extensions.insert(HOST_ID.to_owned(), id.to_string());
            extensions.insert(HOST_ROLE.to_owned(), role.name().to_owned());
        }
    }
    Ok(extensions)
}

/// The extension that carries the device of a login.
pub(crate) fn device_extension(device: &Device) -> (String, String) {
    (DEVICE.to_owned(), format!("{} {}", device.id, device.custody.as_str()))
}

/// The trusted device that an OpenSSH certificate line says its login came from. Nothing is verified: it is for the holder, who has the
/// certificate from the authority.
#[must_use]
pub fn device_in(line: &str) -> Option<Device> {
    device(&Certificate::from_openssh(line.trim()).ok()?).ok().flatten()
}

/// The device that [`device_extension`] has written. A host refuses an extension that it does not understand: half a device is a wrong one.
fn device(certificate: &Certificate) -> Result<Option<Device>, CaError> {
    let Some(text) = certificate.extensions().get(DEVICE) else { return Ok(None) };
    let malformed = || CaError::Malformed { reason: format!("extension {DEVICE}: {text:?}") };
    let (id, custody) = text.split_once(' ').ok_or_else(malformed)?;
    let custody = DeviceCustody::ALL.into_iter().find(|known| known.as_str() == custody);
    match (certificate.cert_type(), id.parse(), custody) {
        (CertType::User, Ok(id), Some(custody)) => Ok(Some(Device { id, custody })),
        _ => Err(malformed()),
    }
}

/// The extension that says which address a login is pinned to.
pub(crate) fn pin_extension(address: IpAddr) -> (String, String) {
    (PINNED_TO.to_owned(), address.to_string())
}

/// The critical option with which stock servers refuse a pinned certificate from elsewhere: the one address as a network.
pub(crate) fn source_address(address: IpAddr) -> (String, String) {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    (SOURCE_ADDRESS.to_owned(), format!("{address}/{bits}"))
}

/// The address that [`pin_extension`] and [`source_address`] have written. Either without the other is nothing that we write, and is refused, as
/// every other critical option is.
fn pinned_to(certificate: &Certificate) -> Result<Option<IpAddr>, CaError> {
    let pinned = match certificate.extensions().get(PINNED_TO) {
        None => None,
        Some(text) => {
            let malformed = || CaError::Malformed { reason: format!("extension {PINNED_TO}: {text:?}") };
            let address = text.parse::<IpAddr>().map_err(|_| malformed())?;
            let source = certificate.critical_options().get(SOURCE_ADDRESS);
            let agrees = source.is_some_and(|source| *source == source_address(address).1);
            if !agrees || address != address.to_canonical() || certificate.cert_type() != CertType::User {
                return Err(malformed());
            }
            Some(address)
        }
    };
    match certificate.critical_options().iter().find(|(name, _)| pinned.is_none() || *name != SOURCE_ADDRESS)
    {
        Some((name, _)) => Err(CaError::CriticalOption { name: name.clone() }),
        None => Ok(pinned),
    }
}

/// The server that the authority lets the holder stand before.
pub(crate) fn stands_for(certificate: &Certificate) -> Option<HostId> {
    certificate.extensions().get(STANDS_FOR)?.parse().ok()
}

/// What was proven for sessions.
pub(crate) fn session_proof(certificate: &Certificate) -> Result<Option<SessionProof>, CaError> {
    certificate.extensions().get(SESSION_FACTOR).map(|text| parse_json(SESSION_FACTOR, text)).transpose()
}

/// What a certificate says, before anyone checked who signed it.
pub(crate) fn claims(certificate: &Certificate) -> Result<Claims, CaError> {
    let malformed = |reason: String| CaError::Malformed { reason };
    let pinned_to = pinned_to(certificate)?;
    // "As a special case, a zero-length 'valid principals' field means the certificate is valid for any principal":
    // never here.
    if certificate.valid_principals().is_empty() {
        return Err(malformed("it names no principal, which would mean any".to_owned()));
    }
    let text = |name: &str| {
        certificate
            .extensions()
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| malformed(format!("it has no extension {name}")))
    };
    let principal = match certificate.cert_type() {
        CertType::User => Principal::User {
            name: UserName::new(certificate.key_id()).map_err(|error| malformed(error.to_string()))?,
            roles: parse_json::<Vec<RoleName>>(ROLES, text(ROLES)?)?,
            logins: certificate
                .valid_principals()
                .iter()
                .filter(|principal| *principal != NO_LOGIN)
                .map(|principal| Login::new(principal.as_str()))
                .collect::<Result<_, _>>()
                .map_err(|error| malformed(error.to_string()))?,
            traits: parse_json::<Traits>(TRAITS, text(TRAITS)?)?,
        },
        CertType::Host => Principal::Host {
            id: text(HOST_ID)?.parse::<HostId>().map_err(|error| malformed(error.to_string()))?,
            name: NodeName::new(certificate.key_id()).map_err(|error| malformed(error.to_string()))?,
            role: host_role(text(HOST_ROLE)?)?,
        },
    };
    Ok(Claims {
        cluster: text(CLUSTER)?.to_owned(),
        login_id: Uuid::try_parse(text(LOGIN_ID)?)
            .map_err(|error| malformed(format!("{LOGIN_ID}: {error}")))?,
        principal,
        mark: Mark {
            session: session_proof(certificate)?,
            device: device(certificate)?,
            pinned_to,
            ..Mark::default()
        },
    })
}

fn parse_json<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> Result<T, CaError> {
    serde_json::from_str(text)
        .map_err(|error| CaError::Malformed { reason: format!("extension {name}: {error}") })
}

fn host_role(text: &str) -> Result<HostRole, CaError> {
    HostRole::ALL
        .into_iter()
        .find(|role| role.name() == text)
        .ok_or_else(|| CaError::Malformed { reason: format!("unknown host role {text:?}") })
}

/// A public key of ours as SSH has it.
pub(crate) fn key_data(key: &PublicKey) -> Result<KeyData, CaError> {
    let failed = || CaError::Encode {
        what: "an SSH public key",
        reason: format!("{} has no SSH form", key.algorithm()),
    };
    match key.algorithm().kind() {
        KeyKind::Ed25519 => Ed25519PublicKey::try_from(key.raw()).map(KeyData::Ed25519).map_err(|_| failed()),
        KeyKind::Ecdsa => {
            EcdsaPublicKey::from_sec1_bytes(key.raw()).map(KeyData::Ecdsa).map_err(|_| failed())
        }
        KeyKind::Rsa => {
            let (n, e) = key.rsa_numbers().ok_or_else(failed)?;
            let number = |digits| Mpint::from_positive_bytes(digits);
            Ok(KeyData::Rsa(RsaPublicKey::new(number(e), number(n)).map_err(|_| failed())?))
        }
        KeyKind::MlDsa => Err(failed()),
    }
}

/// An SSH public key as one of ours, when it is of an algorithm we use.
pub(crate) fn public_key(data: &KeyData) -> Result<PublicKey, CaError> {
    match data {
        KeyData::Ed25519(key) => Ok(PublicKey::from_raw(KeyAlgorithm::Ed25519, key.as_ref())?),
        KeyData::Ecdsa(key) => {
            let algorithm = match key {
                EcdsaPublicKey::NistP256(_) => KeyAlgorithm::EcdsaP256,
                EcdsaPublicKey::NistP384(_) => KeyAlgorithm::EcdsaP384,
                EcdsaPublicKey::NistP521(_) => KeyAlgorithm::EcdsaP521,
            };
            Ok(PublicKey::from_raw(algorithm, key.as_sec1_bytes())?)
        }
        KeyData::Rsa(key) => {
            let digits = |number: &Mpint| number.as_positive_bytes().map(<[u8]>::to_vec).unwrap_or_default();
            Ok(PublicKey::from_rsa_numbers(&digits(key.n()), &digits(key.e()))?)
        }
        other => Err(CaError::BadPublicKey {
            which: "SSH",
            reason: format!(
                "{} is not used for CAs; expected ssh-ed25519, ecdsa-sha2-nistp256, -nistp384 or -nistp521, or ssh-rsa",
                other.algorithm()
            ),
        }),
    }
}

const OTHERWISE: &str = "make an ed25519 key, or RSA with 2048, 3072, 4096 or 8192 bits";

/// Reads a subject's public key line and says no to what we do not certify.
pub(crate) fn subject_key(line: &str) -> Result<KeyData, CaError> {
    let bad = |reason: String| CaError::BadPublicKey { which: "SSH", reason };
    let key = ssh_key::PublicKey::from_openssh(line.trim())
        .map_err(|error| bad(format!("not an OpenSSH public key line: {error}")))?;
    match key.algorithm() {
        Algorithm::Ed25519
        | Algorithm::Ecdsa { .. }
        | Algorithm::SkEd25519
        | Algorithm::SkEcdsaSha2NistP256 => Ok(key.key_data().clone()),
        // Verifiers of its signatures are as strict about sizes and exponents.
        Algorithm::Rsa { .. } => match public_key(key.key_data()) {
            Ok(rsa) if rsa.algorithm().standing() != Standing::LabOnly => Ok(key.key_data().clone()),
            Ok(rsa) => Err(bad(format!("{} is too short; {OTHERWISE}", rsa.algorithm()))),
            Err(_) => Err(bad(format!(
                "it is an RSA key of another size or exponent than those that are certified; {OTHERWISE}"
            ))),
        },
        other => Err(bad(format!("{other} keys are not certified; make an ed25519, ECDSA or RSA key"))),
    }
}

/// The public key blob (RFC 4253 §6.6).
fn encode_key(key: &KeyData) -> Result<Vec<u8>, CaError> {
    ssh_key::PublicKey::from(key.clone())
        .to_bytes()
        .map_err(|error| CaError::Encode { what: "an SSH public key", reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use sallyport_sal::MemoryKey;

    use super::*;

    /// Suites use Ed25519 for SSH CAs today; the next one may not.
    #[test]
    fn every_algorithm_can_sign_and_be_signed() {
        let all = [
            KeyAlgorithm::Ed25519,
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::EcdsaP521,
            KeyAlgorithm::Rsa2048,
        ];
        let generate = || all.map(|algorithm| MemoryKey::generate(algorithm).unwrap());
        let (cas, others, subjects) = (generate(), generate(), generate());
        for (ca, other) in cas.iter().zip(&others) {
            for subject in &subjects {
                let subject = key_data(&subject.public_key()).unwrap();
                // The signature is of variable length, so once is not enough.
                for serial in 0..20 {
                    let certificate = Template {
                        nonce: [5; NONCE_BYTES],
                        subject_key: &subject,
                        serial,
                        kind: CaKind::User,
                        key_id: "alice",
                        principals: &["root".to_owned()],
                        valid_after: 1,
                        valid_before: 2,
                        critical: &BTreeMap::new(),
                        extensions: &BTreeMap::from([("permit-pty".to_owned(), String::new())]),
                    }
                    .sign(ca)
                    .unwrap();
                    let read = Certificate::from_openssh(&certificate.to_openssh().unwrap()).unwrap();
                    assert_eq!(read.public_key(), &subject);
                    verify_signature(&read, &ca.public_key()).unwrap();
                    assert!(verify_signature(&read, &other.public_key()).is_err());
                    assert_eq!(public_key(read.signature_key()).unwrap(), ca.public_key());
                }
            }
        }
    }

    #[test]
    fn a_signature_of_another_algorithm_is_refused() {
        let (ed25519, p256) = (
            MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap(),
            MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap(),
        );
        let certificate = Template {
            nonce: [5; NONCE_BYTES],
            subject_key: &key_data(&p256.public_key()).unwrap(),
            serial: 1,
            kind: CaKind::Host,
            key_id: "web-1",
            principals: &["web-1".to_owned()],
            valid_after: 1,
            valid_before: 2,
            critical: &BTreeMap::new(),
            extensions: &BTreeMap::new(),
        }
        .sign(&ed25519)
        .unwrap();
        assert!(matches!(verify_signature(&certificate, &p256.public_key()), Err(CaError::BadSignature)));
    }

    fn certificate(principals: &[&str], critical: &[(&str, &str)]) -> Certificate {
        let key = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let login = Uuid::nil().to_string();
        let extensions = [(CLUSTER, "prod"), (LOGIN_ID, &login), (ROLES, "[\"dev\"]"), (TRAITS, "{}")];
        let bytes = Template {
            nonce: [5; NONCE_BYTES],
            subject_key: &key_data(&key.public_key()).unwrap(),
            serial: 1,
            kind: CaKind::User,
            key_id: "alice",
            principals: &principals.iter().map(ToString::to_string).collect::<Vec<_>>(),
            valid_after: 0x0123_4567,
            valid_before: 0x0123_4568,
            critical: &BTreeMap::new(),
            extensions: &extensions.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
        .sign(&key)
        .unwrap()
        .to_bytes()
        .unwrap();
        // Critical options are what we never write: put them where the empty list is, behind the end of validity.
        // The signature breaks, but `claims` comes after it was checked.
        let mut options = Vec::new();
        for (name, value) in critical {
            let mut data = Vec::new();
            put_string(&mut data, value.as_bytes());
            put_string(&mut options, name.as_bytes());
            put_string(&mut options, &data);
        }
        let end_of_validity = 0x0123_4568_u64.to_be_bytes();
        let at = bytes.windows(8).position(|window| window == end_of_validity).unwrap() + 8;
        let mut changed = bytes[..at].to_vec();
        put_string(&mut changed, &options);
        changed.extend_from_slice(&bytes[at + 4..]);
        Certificate::from_bytes(&changed).unwrap()
    }

    #[test]
    fn certificates_that_would_allow_too_much_are_refused() {
        assert!(claims(&certificate(&["root"], &[])).is_ok());
        let error = claims(&certificate(&["root"], &[("force-command", "true")])).unwrap_err();
        assert!(matches!(&error, CaError::CriticalOption { name } if name == "force-command"), "{error}");
        let error = claims(&certificate(&[], &[])).unwrap_err();
        assert!(error.to_string().contains("no principal"), "{error}");
        let error = claims(&certificate(&["root;rm"], &[])).unwrap_err();
        assert!(matches!(error, CaError::Malformed { .. }), "{error}");
    }

    #[test]
    fn fingerprints_are_those_of_ssh_keygen() {
        for algorithm in [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP384, KeyAlgorithm::Rsa2048] {
            let key = key_data(&MemoryKey::generate(algorithm).unwrap().public_key()).unwrap();
            assert_eq!(fingerprint(&key), key.fingerprint(ssh_key::HashAlg::Sha256).to_string());
        }
    }

    /// Each level of what has signed what is a call within a call of the library's.
    #[test]
    fn certificates_within_certificates_are_not_read() {
        let mut nested = Vec::new();
        for _ in 0..2000 {
            let mut outer = Vec::new();
            put_string(&mut outer, b"ssh-ed25519-cert-v01@openssh.com");
            put_string(&mut outer, &[7; 32]);
            put_string(&mut outer, &[1; 32]);
            outer.extend_from_slice(&1_u64.to_be_bytes());
            outer.extend_from_slice(&1_u32.to_be_bytes());
            put_string(&mut outer, b"id");
            put_string(&mut outer, b"");
            outer.extend_from_slice(&[0; 16]);
            for _ in 0..3 {
                put_string(&mut outer, b"");
            }
            put_string(&mut outer, &nested);
            nested = outer;
        }
        assert!(matches!(read(&nested), Err(CaError::Malformed { .. })));
    }
}
