//! Hashes that tests make cheaply. (Here, because it is a setting of the whole process.)

use sallyport_sal::password::{danger, dummy_verify, evaluations, hash, needs_rehash, verify};

#[test]
fn cheap_hashes_are_passwords_none_the_less_and_are_told_from_proper_ones() {
    danger::hash_cheaply(true);
    let cheap = hash(b"correct horse").unwrap();
    assert!(cheap.starts_with("$argon2id$v=19$m=64,t=1,p=1$"), "{cheap}");
    assert!(!needs_rehash(&cheap), "while hashes are cheap, no login makes another");
    let before = evaluations();
    assert!(!dummy_verify(b"correct horse"));
    assert_eq!(evaluations() - before, 1, "an account that is not there costs what one costs that is");
    danger::hash_cheaply(false);
    assert!(needs_rehash(&cheap), "{cheap}");
    let proper = hash(b"correct horse").unwrap();
    assert!(proper.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && !needs_rehash(&proper), "{proper}");
    for stored in [cheap, proper] {
        assert!(verify(b"correct horse", &stored).unwrap() && !verify(b"correct horsE", &stored).unwrap());
    }
}
