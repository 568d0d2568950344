//! Signatures of users, which a security key may have made (OpenSSH's PROTOCOL.u2f).

use sallyport_sal::{KeyAlgorithm, PublicKey, hash};
use ssh_key::Certificate;
use ssh_key::public::KeyData;

use crate::CaError;
use crate::encoding::take_string;
use crate::ssh::{public_key, verify_message, verify_raw};

/// Flags and counter of a security key, behind its signature (OpenSSH's PROTOCOL.u2f), in bytes.
const SECURITY_KEY_TRAILER_BYTES: usize = 5;

/// Of the flags: the holder touched the security key.
const PRESENT: u8 = 0x01;
/// Of the flags: it verified the holder, by a PIN for one.
const VERIFIED: u8 = 0x04;

/// What a certificate says of how its security key signs (OpenSSH's PROTOCOL.certkeys): that a signature needs no touch, by an extension;
/// and that it needs verification, by a critical option. The second is heeded as an extension, too: it only demands more.
const NO_TOUCH_REQUIRED: &str = "no-touch-required";
const VERIFY_REQUIRED: &str = "verify-required";

/// Which flag a signature lacks of those that sshd demands (`user_pubkey` of OpenSSH's auth2-pubkey.c), in words for the log.
fn lacks(flags: u8, certificate: Option<&Certificate>) -> Option<&'static str> {
    let extension = |name: &str| certificate.is_some_and(|of| of.extensions().get(name).is_some());
    let option = |name: &str| certificate.is_some_and(|of| of.critical_options().get(name).is_some());
    if flags & PRESENT == 0 && !extension(NO_TOUCH_REQUIRED) {
        return Some("its security key signed without being touched, and it has no no-touch-required");
    }
    if flags & VERIFIED == 0 && (option(VERIFY_REQUIRED) || extension(VERIFY_REQUIRED)) {
        return Some(
            "its security key signed without verifying its holder (a PIN for one), and it has verify-required",
        );
    }
    None
}

/// Checks a user's signature, which a security key may have made, under the certificate that it logs in with.
///
/// # Errors
/// [`CaError::Refused`] where the security key made the signature, and it lacks a flag that is demanded; for the rest as
/// [`verify_message`].
pub(crate) fn verify_user(
    key: &KeyData,
    certificate: Option<&Certificate>,
    message: &[u8],
    blob: &[u8],
) -> Result<(), CaError> {
    let (held, application) = match key {
        KeyData::SkEcdsaSha2NistP256(key) => (
            PublicKey::from_raw(KeyAlgorithm::EcdsaP256, key.ec_point().as_bytes())?,
            key.application().as_bytes(),
        ),
        KeyData::SkEd25519(key) => (
            PublicKey::from_raw(KeyAlgorithm::Ed25519, key.public_key().as_ref())?,
            key.application().as_bytes(),
        ),
        other => return verify_message(&public_key(other)?, message, blob),
    };
    let (scheme, rest) = take_string(blob).ok_or(CaError::BadSignature)?;
    let (raw, trailer) = take_string(rest).ok_or(CaError::BadSignature)?;
    if scheme != key.algorithm().as_str().as_bytes() || trailer.len() != SECURITY_KEY_TRAILER_BYTES {
        return Err(CaError::BadSignature);
    }
    let flags = *trailer.first().ok_or(CaError::BadSignature)?;
    let signed = [&hash::sha256(application)[..], trailer, &hash::sha256(message)].concat();
    let scheme = held.algorithm().ssh_name().ok_or(CaError::BadSignature)?;
    verify_raw(&held, scheme, raw, &signed)?;
    // Afterwards: what is refused for its flags was signed by the key, so that the reason is worth a record.
    match lacks(flags, certificate) {
        Some(reason) => Err(CaError::Refused { reason: reason.to_owned() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::collections::BTreeMap;

    use sallyport_sal::{MemoryKey, Signer};
    use ssh_key::public::EcdsaPublicKey;

    use super::*;
    use crate::CaKind;
    use crate::encoding::put_string;
    use crate::ssh::{NONCE_BYTES, Template, key_data, signature};

    /// A signature as a security key makes it (OpenSSH's PROTOCOL.u2f).
    fn touched(key: &MemoryKey, name: &str, application: &str, message: &[u8]) -> Vec<u8> {
        flagged(PRESENT, key, name, application, message)
    }

    fn flagged(flags: u8, key: &MemoryKey, name: &str, application: &str, message: &[u8]) -> Vec<u8> {
        let trailer = [flags, 0, 0, 0, 9];
        let signed = [&hash::sha256(application.as_bytes())[..], &trailer, &hash::sha256(message)].concat();
        let own = signature(key, &signed).unwrap();
        let (_, raw) = take_string(&own).unwrap();
        let mut blob = Vec::new();
        put_string(&mut blob, name.as_bytes());
        blob.extend_from_slice(raw);
        blob.extend_from_slice(&trailer);
        blob
    }

    /// Of a security key, with one word among the extensions.
    fn certificate_with(subject: &KeyData, extension: &str) -> Certificate {
        let ca = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let template = Template {
            nonce: [5; NONCE_BYTES],
            subject_key: subject,
            serial: 1,
            kind: CaKind::User,
            key_id: "alice",
            principals: &["root".to_owned()],
            valid_after: 1,
            valid_before: 2,
            critical: &BTreeMap::new(),
            extensions: &BTreeMap::from([(extension.to_owned(), String::new())]),
        };
        template.sign(&ca).unwrap()
    }

    #[test]
    fn a_security_key_signs_with_the_touch_and_the_verification_that_are_demanded() {
        let edwards = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let KeyData::Ed25519(own) = key_data(&edwards.public_key()).unwrap() else { panic!("no Ed25519") };
        let data = KeyData::SkEd25519(ssh_key::public::SkEd25519::new(own, "ssh:"));
        let [usual, untouched, verified] =
            ["permit-pty", NO_TOUCH_REQUIRED, VERIFY_REQUIRED].map(|name| certificate_with(&data, name));
        for (flags, certificate, is_good) in [
            (0, None, false),
            (VERIFIED, None, false),
            (PRESENT, None, true),
            (0, Some(&usual), false),
            (PRESENT, Some(&usual), true),
            (0, Some(&untouched), true),
            (PRESENT, Some(&verified), false),
            (VERIFIED, Some(&verified), false),
            (PRESENT | VERIFIED, Some(&verified), true),
        ] {
            let blob = flagged(flags, &edwards, data.algorithm().as_str(), "ssh:", b"message");
            let checked = verify_user(&data, certificate, b"message", &blob);
            assert_eq!(checked.is_ok(), is_good, "{flags} {:?}", certificate.map(Certificate::extensions));
            assert!(matches!(checked, Ok(()) | Err(CaError::Refused { .. })), "{checked:?}");
        }
        let verify = certificate_critical(&data, VERIFY_REQUIRED);
        let reason = |flags, certificate: &Certificate| {
            let blob = flagged(flags, &edwards, data.algorithm().as_str(), "ssh:", b"message");
            verify_user(&data, Some(certificate), b"message", &blob).unwrap_err().to_string()
        };
        let unverified = reason(PRESENT, &verify);
        assert!(unverified.contains("verify-required"), "{unverified}");
        // OpenSSH knows it as an extension alone, and refuses critical options that it does not know.
        let untouched = reason(0, &certificate_critical(&data, NO_TOUCH_REQUIRED));
        assert!(untouched.contains("without being touched"), "{untouched}");
    }

    /// Flags of a signature that the key has not made are no reason to tell anything of.
    #[test]
    fn a_forged_signature_without_a_touch_is_a_bad_signature() {
        let [edwards, other] = [(); 2].map(|()| MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap());
        let KeyData::Ed25519(own) = key_data(&edwards.public_key()).unwrap() else { panic!("no Ed25519") };
        let data = KeyData::SkEd25519(ssh_key::public::SkEd25519::new(own, "ssh:"));
        for flags in [0, PRESENT] {
            let blob = flagged(flags, &other, data.algorithm().as_str(), "ssh:", b"message");
            let checked = verify_user(&data, None, b"message", &blob);
            assert!(matches!(checked, Err(CaError::BadSignature)), "{flags}: {checked:?}");
        }
    }

    /// The same with the word among the critical options, which no authority of ours writes.
    fn certificate_critical(subject: &KeyData, option: &str) -> Certificate {
        let bytes = certificate_with(subject, "permit-pty").to_bytes().unwrap();
        let end_of_validity = [1_u64.to_be_bytes(), 2_u64.to_be_bytes()].concat();
        let at = bytes.windows(16).position(|window| window == end_of_validity).unwrap() + 16;
        let mut options = Vec::new();
        put_string(&mut options, option.as_bytes());
        put_string(&mut options, b"");
        let mut changed = bytes[..at].to_vec();
        put_string(&mut changed, &options);
        changed.extend_from_slice(&bytes[at + 4..]);
        Certificate::from_bytes(&changed).unwrap()
    }

    #[test]
    fn security_keys_sign_logins() {
        let point = MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let edwards = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let KeyData::Ecdsa(EcdsaPublicKey::NistP256(own)) = key_data(&point.public_key()).unwrap() else {
            panic!("no point")
        };
        let KeyData::Ed25519(other) = key_data(&edwards.public_key()).unwrap() else { panic!("no Ed25519") };
        let keys = [
            (&point, KeyData::SkEcdsaSha2NistP256(ssh_key::public::SkEcdsaSha2NistP256::new(own, "ssh:"))),
            (&edwards, KeyData::SkEd25519(ssh_key::public::SkEd25519::new(other, "ssh:"))),
        ];
        for (key, data) in &keys {
            let algorithm = data.algorithm();
            let good = touched(key, algorithm.as_str(), "ssh:", b"message");
            verify_user(data, None, b"message", &good).unwrap();
            let mut counted = good.clone();
            *counted.last_mut().unwrap() += 1;
            let cut = &good[..good.len() - 1];
            for (message, blob) in [
                (&b"messagE"[..], &good[..]),
                (b"message", &counted),
                (b"message", cut),
                (b"message", &touched(key, algorithm.as_str(), "ssh:other", b"message")),
                (b"message", &touched(key, "ssh-ed25519", "ssh:", b"message")),
                // As a key that is no security key signs.
                (b"message", &signature(*key, b"message").unwrap()),
            ] {
                assert!(verify_user(data, None, message, blob).is_err(), "{algorithm}");
            }
        }
    }
}
