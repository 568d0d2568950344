//! What keys cost, as custodies and whole processes count it.

use std::process::{Command, Stdio};
use std::sync::Arc;

use sallyport_sal::custody::{Custody, SealedCustody, SealingKey};
use sallyport_sal::economy::{self, LEDGER_VARIABLE};
use sallyport_sal::{KeyAlgorithm, KeyPurpose, MemoryKey};

fn made(purpose: Option<KeyPurpose>, algorithm: KeyAlgorithm) -> u64 {
    economy::snapshot()
        .iter()
        .find(|count| (count.purpose, count.algorithm) == (purpose, algorithm))
        .map_or(0, |count| count.generated)
}

#[test]
fn a_custody_counts_each_key_once_under_its_purpose() {
    let dir = tempfile::tempdir().unwrap();
    let custody = SealedCustody::new(Arc::new(SealingKey::create(&dir.path().join("seal.key")).unwrap()));
    let (purpose, algorithm) = (Some(KeyPurpose::HostCaSsh), KeyAlgorithm::EcdsaP384);
    let (before, other) = (made(purpose, algorithm), made(None, algorithm));
    custody.load(&custody.generate_for(purpose, "host ca", algorithm).unwrap()).unwrap();
    assert_eq!((made(purpose, algorithm), made(None, algorithm)), (before + 1, other));
    custody.generate("something", algorithm).unwrap();
    assert_eq!((made(purpose, algorithm), made(None, algorithm)), (before + 1, other + 1));
}

const KEYS: usize = 200;

/// Does nothing unless [`processes_share_one_ledger`] runs it with the variable set.
#[test]
fn a_process_that_makes_keys() {
    if std::env::var_os(LEDGER_VARIABLE).is_some() {
        for _ in 0..KEYS {
            MemoryKey::generate_for(KeyPurpose::UserSsh, KeyAlgorithm::Ed25519).unwrap();
        }
    }
}

#[test]
fn processes_share_one_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger");
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "economy::a_process_that_makes_keys"])
            .env(LEDGER_VARIABLE, &ledger)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    for mut process in [start(), start(), start()] {
        assert!(process.wait().unwrap().success());
    }
    let text = std::fs::read_to_string(&ledger).unwrap();
    assert_eq!(text.lines().count(), 3 * KEYS);
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        assert_eq!(fields[..2], ["user-ssh", "ed25519"], "{line}");
        fields[2].parse::<u64>().unwrap();
    }
}
