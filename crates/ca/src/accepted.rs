//! Which keys of subjects a suite lets the authorities certify.

use sallyport_sal::{KeyAlgorithm, PublicKey, Suite, selection};
use ssh_key::Algorithm;
use ssh_key::public::KeyData;

use crate::{CaError, ssh};

/// Longest OpenSSH public key line and SubjectPublicKeyInfo that are read, in bytes: what is kept of a login that is begun has them both. An
/// RSA key of 16,384 bits takes 2.8 KiB as a line, and an ML-DSA-87 key 2.6 KiB.
const LONGEST_LINE: usize = 4096;
const LONGEST_SPKI: usize = 3072;
/// Longest application of a security key's SSH key, in bytes; `ssh-keygen` writes "ssh:" and what a person names it.
const LONGEST_APPLICATION: usize = 128;

/// Whether a suite lets keys be certified that a user or host brings: an OpenSSH public key line and a SubjectPublicKeyInfo
/// (DER). What [`Suite::accepts`] says, with words for the person who brought them.
///
/// # Errors
/// [`CaError::BadPublicKey`] when one of them cannot be read or the suite does not accept it.
pub fn check_accepted(suite: Suite, ssh_public_key: &str, tls_spki: &[u8]) -> Result<(), CaError> {
    check(suite, ssh_public_key, tls_spki, selection::global().is_fips())
}

/// Whether a suite lets a key of a type be certified: under `legacy`, FIPS mode does not take what `fips-v1` would not.
fn accepts_in(suite: Suite, algorithm: KeyAlgorithm, fips: bool) -> bool {
    suite.accepts(algorithm) && (!fips || Suite::FipsV1.accepts(algorithm))
}

fn check(suite: Suite, ssh_public_key: &str, tls_spki: &[u8], fips: bool) -> Result<(), CaError> {
    check_ssh(suite, ssh_public_key, fips)?;
    check_tls(suite, tls_spki, fips)
}

/// [`check_accepted`] for a subject that has a key of TLS alone.
///
/// # Errors
/// As there.
pub fn check_tls_accepted(suite: Suite, tls_spki: &[u8]) -> Result<(), CaError> {
    check_tls(suite, tls_spki, selection::global().is_fips())
}

fn check_length(which: &'static str, length: usize, most: usize) -> Result<(), CaError> {
    if length <= most {
        return Ok(());
    }
    Err(CaError::BadPublicKey { which, reason: format!("it has {length} bytes; {most} are the most") })
}

fn check_tls(suite: Suite, tls_spki: &[u8], fips: bool) -> Result<(), CaError> {
    check_length("TLS", tls_spki.len(), LONGEST_SPKI)?;
    let algorithm = PublicKey::from_spki_der(tls_spki)
        .map_err(|error| CaError::BadPublicKey { which: "TLS", reason: error.to_string() })?
        .algorithm();
    match accepts_in(suite, algorithm, fips) {
        true => Ok(()),
        false => Err(refuse(suite, "TLS", algorithm.name())),
    }
}

fn refuse(suite: Suite, which: &'static str, what: &str) -> CaError {
    if suite != Suite::FipsV1 {
        return CaError::BadPublicKey {
            which,
            reason: format!(
                "the authority runs in FIPS mode, which does not accept {what}; bring a key on P-256 or P-384, or of RSA with 2048 \
                 bits or more: ssh-keygen -t ecdsa"
            ),
        };
    }
    CaError::BadPublicKey {
        which,
        reason: format!(
            "the cluster's suite {suite} does not accept {what}; log in again with a program that asks for the suite, or see `sallyport admin suite show {suite}`"
        ),
    }
}

/// [`check_accepted`] for a subject that has an SSH key alone.
///
/// # Errors
/// As there.
pub fn check_ssh_accepted(suite: Suite, ssh_public_key: &str) -> Result<(), CaError> {
    check_ssh(suite, ssh_public_key, selection::global().is_fips())
}

fn check_ssh(suite: Suite, ssh_public_key: &str, fips: bool) -> Result<(), CaError> {
    check_length("SSH", ssh_public_key.len(), LONGEST_LINE)?;
    let key = ssh_key::PublicKey::from_openssh(ssh_public_key.trim()).map_err(|error| {
        CaError::BadPublicKey { which: "SSH", reason: format!("not an OpenSSH public key line: {error}") }
    })?;
    let application = match key.key_data() {
        KeyData::SkEd25519(key) => key.application(),
        KeyData::SkEcdsaSha2NistP256(key) => key.application(),
        _ => "",
    };
    if application.len() > LONGEST_APPLICATION {
        let reason =
            format!("its application has {} bytes; {LONGEST_APPLICATION} are the most", application.len());
        return Err(CaError::BadPublicKey { which: "SSH", reason });
    }
    match key.algorithm() {
        Algorithm::SkEd25519 if !accepts_in(suite, KeyAlgorithm::Ed25519, fips) => {
            return Err(refuse(suite, "SSH", "sk-ssh-ed25519@openssh.com"));
        }
        // A security key signs on the curve that the suite accepts.
        Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256 => {}
        _ => {
            let algorithm = ssh::public_key(key.key_data())?.algorithm();
            if !accepts_in(suite, algorithm, fips) {
                return Err(refuse(suite, "SSH", algorithm.name()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sallyport_sal::{KeyPurpose, MemoryKey, Signer};

    use super::*;
    use crate::keys::{SshKeyPair, TlsKey};

    #[test]
    fn fips_accepts_no_ed25519_and_nobody_accepts_weak_keys() {
        let ed25519 = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        let p256 = SshKeyPair::generate_for(Suite::FipsV1, KeyPurpose::UserSsh, "x").unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let weak = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap().public_key().spki_der();
        for suite in Suite::ALL {
            check_accepted(*suite, p256.public_line(), tls.spki_der()).unwrap();
            let checked = check_accepted(*suite, ed25519.public_line(), tls.spki_der());
            assert_eq!(checked.is_err(), *suite == Suite::FipsV1, "{suite}");
            assert_eq!(check_accepted(*suite, p256.public_line(), &weak).is_err(), *suite == Suite::FipsV1);
            assert!(check_accepted(*suite, "ssh-dss AAAA x", tls.spki_der()).is_err());
            assert!(check_accepted(*suite, p256.public_line(), b"nothing").is_err());
        }
        let error = check_accepted(Suite::FipsV1, ed25519.public_line(), tls.spki_der()).unwrap_err();
        assert!(error.to_string().contains("fips-v1 does not accept ed25519"), "{error}");
    }

    #[test]
    fn a_key_whose_comment_is_long_is_refused_before_it_is_read() {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let commented = |bytes: usize| format!("{} {}", ssh.public_line().trim(), "\u{1}".repeat(bytes));
        check_accepted(Suite::BalancedV1, &commented(200), tls.spki_der()).unwrap();
        let refused =
            check_accepted(Suite::BalancedV1, &commented(LONGEST_LINE), tls.spki_der()).unwrap_err();
        assert!(refused.to_string().contains("4096 are the most"), "{refused}");
        let refused = check_accepted(Suite::BalancedV1, ssh.public_line(), &vec![0; LONGEST_SPKI + 1]);
        assert!(refused.unwrap_err().to_string().contains("3072 are the most"));
        let KeyData::Ed25519(point) = *ssh.private_key().public_key().key_data() else {
            panic!("no Ed25519")
        };
        for (length, is_good) in [(LONGEST_APPLICATION, true), (LONGEST_APPLICATION + 1, false)] {
            let key = ssh_key::public::SkEd25519::new(point, "a".repeat(length));
            let line = ssh_key::PublicKey::from(KeyData::SkEd25519(key)).to_openssh().unwrap();
            assert_eq!(check_accepted(Suite::BalancedV1, &line, tls.spki_der()).is_ok(), is_good, "{length}");
        }
    }

    #[test]
    fn fips_mode_accepts_nothing_more_under_legacy() {
        let p256 = SshKeyPair::generate_for(Suite::FipsV1, KeyPurpose::UserSsh, "x").unwrap();
        let ed25519 = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        let tls = TlsKey::generate(Suite::FipsV1).unwrap();
        check(Suite::Legacy, p256.public_line(), tls.spki_der(), true).unwrap();
        let security_key = format!(
            "sk-ssh-ed25519@openssh.com {} x",
            data_encoding::BASE64.encode(
                &[
                    b"\0\0\0\x1ask-ssh-ed25519@openssh.com\0\0\0\x20".as_slice(),
                    ed25519.private_key().public_key().key_data().ed25519().unwrap().as_ref(),
                    b"\0\0\0\x04ssh:",
                ]
                .concat()
            )
        );
        for line in [ed25519.public_line(), security_key.as_str()] {
            check(Suite::Legacy, line, tls.spki_der(), false).unwrap();
            let refused = check(Suite::Legacy, line, tls.spki_der(), true).unwrap_err().to_string();
            assert!(refused.contains("FIPS mode") && refused.contains("ssh-keygen -t ecdsa"), "{refused}");
        }
        let weak = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap().public_key().spki_der();
        assert!(check(Suite::Legacy, p256.public_line(), &weak, true).is_err());
    }
}
