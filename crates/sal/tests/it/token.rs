//! Custody in a token, against a real SoftHSM2.

mod signatures;
mod speed;

use crate::contract;
use std::fs::{self, Permissions};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::softhsm::{LABEL, PIN, SO_PIN, SoftHsm, alone, module, openssl_agrees, soon, words};
use cryptoki::context::Pkcs11;
use cryptoki::error::{Error as Pkcs11Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeInfo, AttributeType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use sallyport_sal::algorithm::{HashAlgorithm, KeyKind, SignatureScheme};
use sallyport_sal::custody::token::{
    PinSource, PinTries, TokenChoice, TokenConfig, TokenCustody, TokenError, discover,
};
use sallyport_sal::custody::{Custody, StoredKey};
use sallyport_sal::{KeyAlgorithm, MemoryKey, SalError, Signer};

const ALGORITHMS: [KeyAlgorithm; 7] = [
    KeyAlgorithm::Ed25519,
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::EcdsaP521,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::Rsa3072,
    KeyAlgorithm::Rsa4096,
];

/// What a token gives us beside our own code: the module, in this process, where the token is logged in already.
fn beside(custody: &TokenCustody) -> (Pkcs11, Slot) {
    let _ = custody;
    let context = Pkcs11::new(module()).unwrap();
    let slot = context.get_slots_with_initialized_token().unwrap()[0];
    (context, slot)
}

/// The private key of a record.
fn private(session: &Session, stored: &StoredKey) -> ObjectHandle {
    let id = data_encoding::HEXLOWER.decode(handle(stored)["id"].as_str().unwrap().as_bytes()).unwrap();
    assert_eq!(id.len(), 16);
    let found =
        session.find_objects(&[Attribute::Id(id), Attribute::Class(ObjectClass::PRIVATE_KEY)]).unwrap();
    assert_eq!(found.len(), 1);
    found[0]
}

fn handle(stored: &StoredKey) -> serde_json::Value {
    serde_json::from_slice(&data_encoding::BASE64.decode(stored.handle.as_bytes()).unwrap()).unwrap()
}

fn with_handle(stored: &StoredKey, handle: &serde_json::Value) -> StoredKey {
    StoredKey { handle: data_encoding::BASE64.encode(handle.to_string().as_bytes()), ..stored.clone() }
}

fn token_error(error: SalError) -> TokenError {
    match error {
        SalError::Token(error) => error,
        other => panic!("not an error of the token: {other}"),
    }
}

#[test]
fn token_custody_holds_the_contract() {
    alone("token::token_custody_holds_the_contract", "", |hsm| contract::holds(&hsm.custody(), &ALGORITHMS));
}

#[test]
fn keys_do_not_leave_the_token() {
    alone("token::keys_do_not_leave_the_token", "", |hsm| {
        let custody = hsm.custody();
        let (context, slot) = beside(&custody);
        let session = context.open_rw_session(slot).unwrap();
        let wrapping = session
            .generate_key(&Mechanism::AesKeyGen, &[Attribute::ValueLen(32.into()), Attribute::Wrap(true)])
            .unwrap();
        for (algorithm, secrets) in [
            (KeyAlgorithm::Ed25519, &[AttributeType::Value][..]),
            (KeyAlgorithm::EcdsaP256, &[AttributeType::Value]),
            (KeyAlgorithm::EcdsaP521, &[AttributeType::Value]),
            (
                KeyAlgorithm::Rsa2048,
                &[AttributeType::PrivateExponent, AttributeType::Prime1, AttributeType::Coefficient],
            ),
        ] {
            let stored = custody.generate("a key", algorithm).unwrap();
            let key = private(&session, &stored);
            for info in session.get_attribute_info(key, secrets).unwrap() {
                assert!(matches!(info, AttributeInfo::Sensitive), "{algorithm} {info:?}");
            }
            assert_eq!(session.get_attributes(key, secrets).unwrap(), [], "{algorithm}");
            let wrapped = session.wrap_key(&Mechanism::AesKeyWrapPad, wrapping, key);
            assert!(
                matches!(wrapped, Err(Pkcs11Error::Pkcs11(RvError::KeyUnextractable, _))),
                "{algorithm} {wrapped:?}"
            );
            let whole = [
                Attribute::Token(true),
                Attribute::Private(true),
                Attribute::Sensitive(true),
                Attribute::AlwaysSensitive(true),
                Attribute::Extractable(false),
                Attribute::NeverExtractable(true),
                Attribute::Local(true),
                Attribute::Sign(true),
            ];
            let types: Vec<AttributeType> = whole.iter().map(Attribute::attribute_type).collect();
            assert_eq!(session.get_attributes(key, &types).unwrap(), whole, "{algorithm}");
            // A key that signs certificates does nothing else.
            let uses = session
                .get_attributes(key, &[AttributeType::Decrypt, AttributeType::Unwrap, AttributeType::Derive])
                .unwrap();
            match algorithm.kind() {
                KeyKind::Rsa => {
                    assert!(
                        uses.contains(&Attribute::Decrypt(false)) && uses.contains(&Attribute::Unwrap(false))
                    );
                }
                _ => assert!(uses.contains(&Attribute::Derive(false))),
            }
            // And no caller loosens it afterwards.
            assert!(session.update_attributes(key, &[Attribute::Extractable(true)]).is_err());
            assert!(session.update_attributes(key, &[Attribute::Sensitive(false)]).is_err());

            let record = serde_json::to_string(&stored).unwrap();
            assert!(record.len() < 1800, "{record}");
            let handle = handle(&stored);
            let mut fields: Vec<_> = handle.as_object().unwrap().keys().collect();
            fields.sort();
            assert_eq!(fields, ["id", "serial"]);
        }
    });
}

#[test]
fn a_key_that_could_leave_is_not_used() {
    alone("token::a_key_that_could_leave_is_not_used", "", |hsm| {
        let custody = hsm.custody();
        let stored = custody.generate("a key", KeyAlgorithm::EcdsaP256).unwrap();
        let (context, slot) = beside(&custody);
        let session = context.open_rw_session(slot).unwrap();
        let loose = |id: u8, sensitive: bool, extractable: bool| {
            let named =
                [Attribute::Token(true), Attribute::Id(vec![id; 16]), Attribute::Label(b"a key".to_vec())];
            let mut public = named.to_vec();
            public.push(Attribute::EcParams(vec![0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7]));
            let mut private = named.to_vec();
            private.extend([
                Attribute::Sign(true),
                Attribute::Sensitive(sensitive),
                Attribute::Extractable(extractable),
            ]);
            session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private).unwrap();
            let mut handle = handle(&stored);
            handle["id"] = data_encoding::HEXLOWER.encode(&[id; 16]).into();
            with_handle(&stored, &handle)
        };
        let error = words(custody.load(&loose(1, true, true)));
        assert!(error.contains("could leave it (CKA_EXTRACTABLE is not false)"), "{error}");
        let error = words(custody.load(&loose(2, false, false)));
        assert!(error.contains("could leave it (CKA_SENSITIVE is not true)"), "{error}");
        // Strict as ours, and another key: the public key tells.
        let error = words(custody.load(&loose(3, true, false)));
        assert!(error.contains("its public key there is another"), "{error}");
    });
}

#[test]
fn tokens_are_discovered_without_a_pin() {
    alone("token::tokens_are_discovered_without_a_pin", "", |hsm| {
        hsm.add_token("another");
        let tokens = discover(&module()).unwrap();
        let labels: Vec<(&str, bool)> = tokens.iter().map(|one| (one.label.as_str(), one.ready)).collect();
        assert!(labels.contains(&(LABEL, true)) && labels.contains(&("another", true)), "{labels:?}");
        assert!(labels.contains(&("", false)), "{labels:?}");
        let token = tokens.iter().find(|one| one.label == LABEL).unwrap();
        assert_eq!((token.model.as_str(), token.manufacturer.as_str()), ("SoftHSM v2", "SoftHSM project"));
        assert_eq!(token.serial.len(), 16);
        assert!(token.firmware.starts_with("2."), "{}", token.firmware);
        let able: Vec<KeyAlgorithm> = token
            .abilities
            .iter()
            .filter(|one| one.generates && one.signs)
            .map(|one| one.algorithm)
            .collect();
        assert_eq!(able, ALGORITHMS);

        // By serial number and by slot it is the same token, shared.
        for choice in [TokenChoice::Serial(token.serial.clone()), TokenChoice::Slot(token.slot)] {
            let custody = TokenCustody::open(&TokenConfig { token: choice, ..hsm.config() }).unwrap();
            assert!(format!("{custody:?}").contains(&token.serial));
        }
        let error = words(TokenCustody::open(&TokenConfig {
            token: TokenChoice::Label("mislaid".to_owned()),
            ..hsm.config()
        }));
        assert!(error.starts_with("no token with the label \"mislaid\" in /usr/"), "{error}");
        assert!(
            error.contains(&format!("\"{LABEL}\" (serial {}, slot {})", token.serial, token.slot)),
            "{error}"
        );
        assert!(
            error.contains("\"another\" (serial ") && error.contains("one that is not initialised (slot ")
        );

        let empty = tokens.iter().find(|one| !one.ready).unwrap();
        let config = TokenConfig { token: TokenChoice::Slot(empty.slot), ..hsm.config() };
        let error = words(TokenCustody::open(&config));
        assert!(
            error.contains("is not initialised") && error.contains("softhsm2-util --init-token"),
            "{error}"
        );
    });
}

#[test]
fn two_tokens_of_one_label_are_told_apart_by_serial() {
    alone("token::two_tokens_of_one_label_are_told_apart_by_serial", "", |hsm| {
        hsm.add_token(LABEL);
        let serials: Vec<String> = discover(&module())
            .unwrap()
            .into_iter()
            .filter(|one| one.label == LABEL)
            .map(|one| one.serial)
            .collect();
        assert_eq!(serials.len(), 2);
        let error = words(TokenCustody::open(&hsm.config()));
        assert!(error.contains("several tokens have the label") && error.contains("choose one by `serial`"));
        assert!(serials.iter().all(|serial| error.contains(serial)), "{error}");
        let custodies: Vec<TokenCustody> = serials
            .iter()
            .map(|serial| {
                let token = TokenChoice::Serial(serial.clone());
                TokenCustody::open(&TokenConfig { token, ..hsm.config() }).unwrap()
            })
            .collect();
        let stored = custodies[0].generate("a key", KeyAlgorithm::Ed25519).unwrap();
        custodies[0].load(&stored).unwrap();
        let error = words(custodies[1].load(&stored));
        assert!(error.contains("has no key \"a key\"") && error.contains(&serials[1]), "{error}");
    });
}

#[test]
fn a_module_that_is_missing_or_none_or_open_to_all_is_refused() {
    alone("token::a_module_that_is_missing_or_none_or_open_to_all_is_refused", "", |hsm| {
        let open = |path| TokenCustody::open(&TokenConfig { module: path, ..hsm.config() });
        let error = words(open(hsm.path("nothing.so")));
        assert!(
            error.contains("there is no PKCS#11 module at") && error.contains("install softhsm2"),
            "{error}"
        );

        let text = hsm.path("text.so");
        fs::write(&text, "not a library").unwrap();
        fs::set_permissions(&text, Permissions::from_mode(0o644)).unwrap();
        let error = words(open(text.clone()));
        assert!(error.contains("is not a PKCS#11 module that can be loaded here: "), "{error}");
        assert!(error.contains("text.so: "), "{error}");

        let error = words(open(hsm.path("tokens")));
        assert!(error.contains("expected a regular file"), "{error}");

        // A library like any other: the one that this program is linked with.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .find(|path| path.contains("libc.so"));
        if let Some(libc) = libc {
            let error = words(open(libc.into()));
            assert!(error.contains("it does not have the function C_GetFunctionList"), "{error}");
        }

        let copy = hsm.path("copy.so");
        fs::copy(module(), &copy).unwrap();
        for mode in [0o777, 0o775, 0o666] {
            fs::set_permissions(&copy, Permissions::from_mode(mode)).unwrap();
            let error = words(open(copy.clone()));
            assert!(
                error.contains("can be changed by others") && error.contains(&format!("{mode:04o}")),
                "{error}"
            );
        }
    });
}

#[test]
fn a_module_that_does_not_start_says_where_to_look() {
    alone("token::a_module_that_does_not_start_says_where_to_look", "", |hsm| {
        fs::rename(hsm.tokens(), hsm.path("elsewhere")).unwrap();
        let error = words(TokenCustody::open(&hsm.config()));
        assert!(error.contains("does not start: CKR_GENERAL_ERROR from C_Initialize"), "{error}");
        assert!(error.contains("SOFTHSM2_CONF"), "{error}");
        // Not remembered: the operator repairs it, and it starts.
        fs::rename(hsm.path("elsewhere"), hsm.tokens()).unwrap();
        hsm.custody();
    });
}

#[test]
fn a_wrong_pin_is_said_and_not_tried_twice() {
    alone("token::a_wrong_pin_is_said_and_not_tried_twice", "", |hsm| {
        let error = TokenCustody::open(&hsm.config_with("000000")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("refused the PIN in the configuration: more than one try is left"), "{text}");
        assert!(!text.contains("000000") && !format!("{error:?}").contains("000000"), "{error:?}");
        assert!(matches!(token_error(error), TokenError::WrongPin { tries: PinTries::Low, .. }));

        // From a file, as a service has it.
        let file = hsm.path("pin");
        let pin = |pin: &str| {
            fs::write(&file, format!("{pin}\n")).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        };
        pin(PIN);
        let config = TokenConfig { pin: PinSource::File(file.clone()), ..hsm.config() };
        let custody = TokenCustody::open(&config).unwrap();
        let signer = custody.load(&custody.generate("a key", KeyAlgorithm::EcdsaP256).unwrap()).unwrap();

        // A login holds for the process, so that a second opening must not get by with a wrong PIN.
        let error = words(TokenCustody::open(&hsm.config_with("000000")));
        assert!(error.contains("open in this process with another PIN"), "{error}");
        hsm.custody();

        // The PIN was changed while the token was away: one try, not one for each signature.
        pin("000000");
        let pulled = hsm.pull_out();
        assert!(signer.sign(b"m").is_err());
        pulled.put_back();
        let refused = soon(|| {
            let error = signer.sign(b"m").unwrap_err().to_string();
            if error.contains("refused the PIN file") { Ok(error) } else { Err(error) }
        });
        assert!(refused.contains("/pin: more than one try is left"), "{refused}");
        let error = signer.sign(b"m").unwrap_err().to_string();
        assert!(error.contains("it was not tried again, so as not to lock the token"), "{error}");
        // The right PIN in the file, and it goes on.
        pin(PIN);
        soon(|| signer.sign(b"m"));

        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let error = words(TokenCustody::open(&config));
        assert!(error.contains("chmod 600"), "{error}");
        let config =
            TokenConfig { pin: PinSource::Env("SALLYPORT_TEST_NO_SUCH_PIN".to_owned()), ..hsm.config() };
        let error = words(TokenCustody::open(&config));
        assert!(error.contains("the environment variable SALLYPORT_TEST_NO_SUCH_PIN is not set"), "{error}");
    });
}

fn assert_gone(error: &str) {
    assert!(error.contains(&format!("the token \"{LABEL}\" (serial ")), "{error}");
    assert!(error.contains("is gone (") && error.contains("without a restart"), "{error}");
}

#[test]
fn a_token_pulled_out_is_missed_and_found_again() {
    alone("token::a_token_pulled_out_is_missed_and_found_again", "", |hsm| {
        let custody = hsm.custody();
        let stored = custody.generate("a key", KeyAlgorithm::EcdsaP256).unwrap();
        let signer = custody.load(&stored).unwrap();
        signer.sign(b"before").unwrap();

        for _ in 0..2 {
            let pulled = hsm.pull_out();
            let error = signer.sign(b"away").unwrap_err();
            assert_gone(&error.to_string());
            assert_gone(&words(custody.load(&stored)));
            assert_gone(&words(custody.generate("another", KeyAlgorithm::Ed25519)));
            // Also after it was looked for anew.
            std::thread::sleep(Duration::from_millis(600));
            assert_gone(&signer.sign(b"away").unwrap_err().to_string());
            pulled.put_back();
            let signature = soon(|| signer.sign(b"back"));
            signer.public_key().verify(b"back", &signature).unwrap();
            custody.load(&stored).unwrap();
        }

        // With the whole store away the module does not even start; that is "gone" as well.
        fs::rename(hsm.tokens(), hsm.path("store")).unwrap();
        for _ in 0..2 {
            assert_gone(&signer.sign(b"away").unwrap_err().to_string());
            std::thread::sleep(Duration::from_millis(600));
        }
        fs::rename(hsm.path("store"), hsm.tokens()).unwrap();
        soon(|| signer.sign(b"back"));

        // Pulled out and put back between two signatures: the signer goes on.
        hsm.pull_out().put_back();
        signer.sign(b"as if nothing had been").unwrap();
    });
}

#[test]
fn a_token_pulled_out_under_load_gives_errors_and_no_wrong_signatures() {
    alone("token::a_token_pulled_out_under_load_gives_errors_and_no_wrong_signatures", "", |hsm| {
        let custody = hsm.custody();
        let signer = custody.load(&custody.generate("a key", KeyAlgorithm::EcdsaP256).unwrap()).unwrap();
        let (stop, signed, missed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let public = signer.public_key();
                    while !stop.load(Ordering::Relaxed) {
                        match signer.sign(b"m") {
                            Ok(signature) => {
                                public.verify(b"m", &signature).unwrap();
                                signed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                assert_gone(&error.to_string());
                                missed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
            let more_than = |counter: &AtomicUsize, than: usize| {
                soon(|| if counter.load(Ordering::Relaxed) > than { Ok(()) } else { Err("no progress") });
            };
            for _ in 0..3 {
                more_than(&signed, signed.load(Ordering::Relaxed) + 20);
                let pulled = hsm.pull_out();
                more_than(&missed, missed.load(Ordering::Relaxed) + 20);
                pulled.put_back();
            }
            more_than(&signed, signed.load(Ordering::Relaxed) + 20);
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_deleted_key_is_named_while_the_token_stays() {
    alone("token::a_deleted_key_is_named_while_the_token_stays", "", |hsm| {
        let custody = hsm.custody();
        let stored = custody.generate("user ca", KeyAlgorithm::EcdsaP256).unwrap();
        let kept = custody.load(&custody.generate("host ca", KeyAlgorithm::EcdsaP256).unwrap()).unwrap();
        let signer = custody.load(&stored).unwrap();
        signer.sign(b"m").unwrap();
        let (context, slot) = beside(&custody);
        let session = context.open_rw_session(slot).unwrap();
        session.destroy_object(private(&session, &stored)).unwrap();
        for error in [signer.sign(b"m").unwrap_err().to_string(), words(custody.load(&stored))] {
            assert!(
                error.contains("has no key \"user ca\" with the id ") && error.contains("it was deleted"),
                "{error}"
            );
        }
        kept.sign(b"m").unwrap();
    });
}

#[test]
fn keys_that_no_record_names_are_removed_by_their_label() {
    alone("token::keys_that_no_record_names_are_removed_by_their_label", "", |hsm| {
        let custody = hsm.custody();
        let kept = custody.generate("prod user ca ssh", KeyAlgorithm::EcdsaP256).unwrap();
        let attempt = ["prod user ca ssh #1", "prod user ca tls #1"].map(str::to_owned);
        for label in &attempt {
            custody.generate(label, KeyAlgorithm::EcdsaP256).unwrap();
        }
        assert_eq!(custody.discard(&attempt).unwrap(), 2);
        assert_eq!(custody.discard(&attempt).unwrap(), 0);
        custody.load(&kept).unwrap().sign(b"still there").unwrap();
    });
}

#[test]
fn a_damaged_record_is_refused() {
    alone("token::a_damaged_record_is_refused", "", |hsm| {
        let custody = hsm.custody();
        let stored = custody.generate("a key", KeyAlgorithm::EcdsaP256).unwrap();
        let whole = handle(&stored);
        let refused = |stored: &StoredKey, why: &str| {
            let error = words(custody.load(stored));
            assert!(error.contains(why), "{error}");
        };
        let damaged = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut handle = whole.clone();
            change(&mut handle);
            with_handle(&stored, &handle)
        };
        refused(&damaged(&|handle| handle["id"] = "00".into()), "not 16 bytes");
        refused(&damaged(&|handle| handle["id"] = "zz".repeat(16).into()), "not 16 bytes");
        refused(&damaged(&|handle| handle["id"] = "00".repeat(16).into()), "has no key \"a key\"");
        refused(&damaged(&|handle| handle["pin"] = "1".into()), "does not name a token and a key");
        refused(&damaged(&|handle| drop(handle.as_object_mut().unwrap().remove("id"))), "does not name");
        refused(&StoredKey { handle: "%".to_owned(), ..stored.clone() }, "not base64");
        refused(
            &StoredKey { label: "an other".to_owned(), ..stored.clone() },
            "its label there is \"a key\"",
        );
        refused(&StoredKey { algorithm: KeyAlgorithm::EcdsaP384, ..stored.clone() }, "of another type");
        refused(
            &StoredKey { custody: "sealed".to_owned(), ..stored.clone() },
            "belongs to custody \"sealed\"",
        );
        let stranger = MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap().public_key();
        let public_key = data_encoding::BASE64.encode(&stranger.spki_der());
        refused(&StoredKey { public_key, ..stored.clone() }, "its public key there is another");
        let other_type = custody.generate("a key", KeyAlgorithm::Ed25519).unwrap();
        refused(
            &StoredKey { handle: other_type.handle.clone(), ..stored.clone() },
            "is not of type ecdsa-p256",
        );

        // A token restored from a backup has another serial number, and the same keys.
        custody.load(&damaged(&|handle| handle["serial"] = "0000".into())).unwrap();

        // Without its public half in the token, the key shows by a signature which it is.
        let (context, slot) = beside(&custody);
        let session = context.open_rw_session(slot).unwrap();
        let id = data_encoding::HEXLOWER.decode(whole["id"].as_str().unwrap().as_bytes()).unwrap();
        let public =
            session.find_objects(&[Attribute::Id(id), Attribute::Class(ObjectClass::PUBLIC_KEY)]).unwrap();
        session.destroy_object(public[0]).unwrap();
        custody.load(&stored).unwrap().sign(b"m").unwrap();
        let public_key = data_encoding::BASE64.encode(&stranger.spki_der());
        refused(&StoredKey { public_key, ..stored.clone() }, "that does not verify");
    });
}

#[test]
fn threads_share_few_sessions() {
    alone("token::threads_share_few_sessions", "", |hsm| {
        let custody =
            TokenCustody::open(&TokenConfig { sessions: NonZeroUsize::new(2).unwrap(), ..hsm.config() })
                .unwrap();
        let (context, slot) = beside(&custody);
        let signers: Vec<_> = [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Ed25519, KeyAlgorithm::Rsa2048]
            .into_iter()
            .map(|algorithm| custody.load(&custody.generate("a key", algorithm).unwrap()).unwrap())
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                let signers = &signers;
                scope.spawn(move || {
                    for round in 0..50_usize {
                        let signer = &signers[(thread + round) % signers.len()];
                        let message = format!("{thread} {round}");
                        let signature = signer.sign(message.as_bytes()).unwrap();
                        signer.public_key().verify(message.as_bytes(), &signature).unwrap();
                    }
                });
            }
        });
        // A token is not initialised anew while it has sessions: this tells that ours are open, and that all are closed
        // at the end.
        let erase = || context.init_token(slot, &AuthPin::new(SO_PIN.into()), LABEL);
        assert!(matches!(erase(), Err(Pkcs11Error::Pkcs11(RvError::SessionExists, _))));
        drop(signers);
        drop(custody);
        erase().unwrap();
    });
}
