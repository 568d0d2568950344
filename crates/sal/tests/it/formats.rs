//! Keys go out in every format and come back, and nothing that is damaged does.

use std::sync::OnceLock;

use sallyport_sal::formats::danger::{self, Cost};
use sallyport_sal::formats::{self, Format, FormatError, PublicFormat};
use sallyport_sal::{KeyAlgorithm, PrivateKeyMaterial, PublicKey};

use crate::kept;

const PASSPHRASE: &[u8] = "corréct horse".as_bytes();

/// Deriving keys is slow on purpose: what does not depend on how slow is tested with this.
const QUICK: Cost = Cost { pbkdf2_iterations: 10, bcrypt_rounds: 1 };

/// One key of each type that may be used, made once for all tests.
fn keys() -> &'static [PrivateKeyMaterial] {
    static KEYS: OnceLock<Vec<PrivateKeyMaterial>> = OnceLock::new();
    KEYS.get_or_init(|| {
        use KeyAlgorithm::{
            EcdsaP256, EcdsaP384, EcdsaP521, Ed25519, MlDsa44, MlDsa65, MlDsa87, Rsa2048, Rsa3072, Rsa4096,
        };
        [Ed25519, EcdsaP256, EcdsaP384, EcdsaP521, Rsa2048, Rsa3072, Rsa4096, MlDsa44, MlDsa65, MlDsa87]
            .into_iter()
            .map(|algorithm| kept::key(algorithm).material().clone())
            .collect()
    })
}

fn key(algorithm: KeyAlgorithm) -> &'static PrivateKeyMaterial {
    keys().iter().find(|key| key.algorithm() == algorithm).unwrap()
}

fn public(key: &PrivateKeyMaterial) -> PublicKey {
    PublicKey::from_raw(key.algorithm(), key.public()).unwrap()
}

fn assert_same(left: &PrivateKeyMaterial, right: &PrivateKeyMaterial) {
    assert_eq!(left.algorithm(), right.algorithm());
    assert_eq!(left.secret(), right.secret(), "{}", left.algorithm());
    assert_eq!(left.public(), right.public(), "{}", left.algorithm());
}

#[test]
fn every_key_survives_every_format() {
    for key in keys() {
        for format in Format::ALL {
            for passphrase in [None, Some(PASSPHRASE)] {
                // One key at the cost of the product.
                let written = match key.algorithm() {
                    KeyAlgorithm::Ed25519 => formats::write_private(key, *format, passphrase),
                    _ => danger::write_private_at_cost(key, *format, passphrase, QUICK),
                };
                let name = format!("{} as {format}, encrypted {}", key.algorithm(), passphrase.is_some());
                if passphrase.is_some() && !format.encrypts() {
                    assert!(matches!(written, Err(FormatError::CannotEncrypt { .. })), "{name}");
                    continue;
                }
                if !format.holds(key.algorithm()) {
                    assert!(matches!(written, Err(FormatError::CannotHold { .. })), "{name}");
                    continue;
                }
                let written = written.unwrap();
                assert_same(&formats::read_private(&written, passphrase).unwrap(), key);
                if passphrase.is_some() {
                    assert!(
                        matches!(
                            formats::read_private(&written, None),
                            Err(FormatError::PassphraseNeeded { .. })
                        ),
                        "{name}"
                    );
                } else {
                    // A passphrase that is not needed is no reason to fail.
                    assert_same(&formats::read_private(&written, Some(PASSPHRASE)).unwrap(), key);
                }
                assert!(
                    matches!(formats::read_public(&written), Err(FormatError::WrongKind { .. })),
                    "{name}: a private key read as a public one"
                );
            }
        }
    }
}

#[test]
fn a_wrong_passphrase_is_told_from_a_missing_one() {
    let key = key(KeyAlgorithm::EcdsaP256);
    for format in Format::ALL.iter().filter(|format| format.encrypts()) {
        let written = danger::write_private_at_cost(key, *format, Some(PASSPHRASE), QUICK).unwrap();
        let read = |passphrase| formats::read_private(&written, passphrase).unwrap_err();
        assert!(matches!(read(None), FormatError::PassphraseNeeded { .. }), "{format}");
        for wrong in [&b"wrong"[..], b""] {
            assert!(matches!(read(Some(wrong)), FormatError::WrongPassphrase { .. }), "{format}");
        }
        let refused = formats::write_private(key, *format, Some(b"")).unwrap_err();
        assert_eq!(refused, FormatError::EmptyPassphrase);
    }
}

#[test]
fn every_public_key_survives_every_format() {
    for key in keys() {
        let public = public(key);
        for format in PublicFormat::ALL {
            let written = match formats::write_public(&public, *format) {
                Err(FormatError::CannotHold { .. }) => {
                    assert_eq!((key.algorithm().ssh_key_type(), *format), (None, PublicFormat::OpenSsh));
                    continue;
                }
                written => written.unwrap(),
            };
            assert_eq!(formats::read_public(&written).unwrap(), public, "{} as {format}", key.algorithm());
            let refused = formats::read_private(&written, None).unwrap_err();
            assert!(matches!(refused, FormatError::WrongKind { .. }), "{refused}");
        }
    }
}

#[test]
fn what_is_cut_short_is_refused() {
    std::thread::scope(|scope| {
        for key in keys() {
            scope.spawn(|| no_part_is_a_key(key));
        }
    });
}

fn no_part_is_a_key(key: &PrivateKeyMaterial) {
    let name = key.algorithm();
    for format in Format::ALL.iter().filter(|format| format.holds(name)) {
        let written = formats::write_private(key, *format, None).unwrap();
        for cut in 0..written.trim_ascii_end().len() {
            assert!(formats::read_private(&written[..cut], None).is_err(), "{name} as {format} cut at {cut}");
        }
    }
    for format in PublicFormat::ALL {
        let Ok(written) = formats::write_public(&public(key), *format) else { continue };
        for cut in 0..written.trim_ascii_end().len() {
            assert!(formats::read_public(&written[..cut]).is_err(), "{name} as {format} cut at {cut}");
        }
    }
}

#[test]
fn what_is_encrypted_and_cut_short_is_refused() {
    let key = key(KeyAlgorithm::Ed25519);
    for format in Format::ALL.iter().filter(|format| format.encrypts()) {
        let written = danger::write_private_at_cost(key, *format, Some(PASSPHRASE), QUICK).unwrap();
        for cut in 0..written.trim_ascii_end().len() {
            // Without a passphrase nothing is derived, so that every cut can be tried.
            let refused = formats::read_private(&written[..cut], None).unwrap_err();
            assert!(
                !matches!(refused, FormatError::PassphraseNeeded { .. }),
                "{format} cut at {cut}: {refused}"
            );
        }
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    for key in keys() {
        let mut der = formats::write_private(key, Format::Pkcs8Der, None).unwrap();
        der.push(0);
        assert!(formats::read_private(&der, None).is_err());
        let mut der = formats::write_public(&public(key), PublicFormat::SpkiDer).unwrap();
        der.push(0);
        assert!(formats::read_public(&der).is_err());
    }
}
