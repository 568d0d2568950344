//! The first bytes of a connection: an answer never changes with more bytes.

use sallyport_wire::detect::{Verdict, detect};

fuzz_target!(|data: &[u8]| {
    let mut answer = Verdict::NeedMore;
    for length in 0..=data.len().min(64) {
        let next = detect(&data[..length]);
        assert!(answer == Verdict::NeedMore || next == answer);
        answer = next;
    }
});
