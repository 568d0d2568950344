//! Keys that are slow to make, made once for all tests and kept beside what is built. Those of a process differ from each
//! other. Whether keys are made well is for other tests.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};

/// More of one type than any test has at once.
const MOST: usize = 32;

/// A key: one that is kept where it is slow to make, and otherwise a new one.
pub(crate) fn key(algorithm: KeyAlgorithm) -> MemoryKey {
    static GIVEN: LazyLock<Mutex<HashMap<KeyAlgorithm, usize>>> = LazyLock::new(Mutex::default);
    if algorithm.modulus_bits().is_none() {
        return MemoryKey::generate(algorithm).unwrap();
    }
    let number = {
        let mut given = GIVEN.lock().unwrap();
        let count = given.entry(algorithm).or_default();
        *count += 1;
        *count % MOST
    };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keys");
    let path = directory.join(format!("{algorithm}-{number}.der"));
    let kept = fs::read(&path).ok().and_then(|bytes| MemoryKey::from_pkcs8(&bytes).ok());
    if let Some(key) = kept.filter(|key| key.algorithm() == algorithm) {
        return key;
    }
    let key = MemoryKey::generate(algorithm).unwrap();
    fs::create_dir_all(&directory).unwrap();
    // It gets its name when it is whole: others may read it at any time.
    let file = tempfile::NamedTempFile::new_in(&directory).unwrap();
    fs::write(file.path(), key.to_pkcs8().unwrap()).unwrap();
    file.persist(&path).unwrap();
    key
}
