//! Logins by keys that say what they did (OpenSSH's PROTOCOL.u2f).

use sallyport_sal::hash;

use super::*;

const ALGORITHM: &str = "sk-ssh-ed25519@openssh.com";
const TOUCHED: u8 = 1;

/// A login by a security key in software. It is `by` that signs.
fn log_in(both: &Both, shown: &MemoryKey, by: &MemoryKey, flags: u8) -> Draft {
    let mut key = Vec::new();
    for field in [ALGORITHM.as_bytes(), shown.public_key().raw(), b"ssh:"] {
        put_string(&mut key, field);
    }
    let login = Login { name: "root", algorithm: ALGORITHM, key: &key };
    let message = login.to_sign(both.client.session()).unwrap();
    let said = [flags, 0, 0, 0, 9];
    let signed = [&hash::sha256(b"ssh:")[..], &said[..], &hash::sha256(&message)[..]].concat();
    let mut signature = Vec::new();
    put_string(&mut signature, ALGORITHM.as_bytes());
    put_string(&mut signature, &by.sign(&signed).unwrap());
    signature.extend_from_slice(&said);
    login.draft().string(&signature)
}

#[test]
fn a_key_that_was_not_touched_is_told_once_and_let_in_when_it_is() {
    let mut both = Both::keyed();
    let user = key(KeyAlgorithm::Ed25519);
    let untouched = log_in(&both, &user, &user, 0);
    both.say(&untouched);
    both.talk().unwrap();
    assert_eq!(both.numbers().last(), Some(&USERAUTH_FAILURE));
    assert!(!both.asked.iter().any(|asked| asked.starts_with("proven")), "{:?}", both.asked);
    let (offer, reason) = both.server.take_unfit().unwrap();
    assert_eq!((offer.user.as_str(), offer.algorithm.as_str()), ("root", ALGORITHM));
    assert!(reason.contains("without being touched"), "{reason}");
    assert!(both.server.take_unfit().is_none());

    let touched = log_in(&both, &user, &user, TOUCHED);
    both.say(&touched);
    both.talk().unwrap();
    assert_eq!(both.server.user(), Some("root"));
    assert!(both.server.take_unfit().is_none());
}

/// Nothing is told of a key that has signed nothing.
#[test]
fn a_signature_that_is_not_the_keys_is_refused_without_a_reason() {
    let mut both = Both::keyed();
    let (user, other) = (key(KeyAlgorithm::Ed25519), key(KeyAlgorithm::Ed25519));
    for flags in [0, TOUCHED] {
        let forged = log_in(&both, &user, &other, flags);
        both.say(&forged);
        both.talk().unwrap();
        assert_eq!(both.numbers().last(), Some(&USERAUTH_FAILURE), "{flags}");
        assert!(both.server.take_unfit().is_none(), "{flags}");
    }
}
