//! A file of keys, a host key or a certificate from another party: whatever it is, it is read within bounds, and what is
//! said about it can be written on a terminal.

use sallyport_lab::inspect;

fuzz_target!(|data: &[u8]| {
    let Ok(contents) = inspect::read(data) else { return };
    assert!(!contents.found.is_empty());
    for found in contents.found {
        assert!(!found.what.chars().any(char::is_control), "{found:?}");
        assert!(found.place.len() < 64 && found.what.len() < 1024, "{found:?}");
        if let inspect::Key::Known(problem) = found.key {
            let strength = problem.assess();
            assert!(strength.classical.bits.is_finite() && strength.classical.bits >= 0.0);
        }
    }
});
