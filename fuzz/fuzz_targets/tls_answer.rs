//! A TLS server's first flight, as `lab scan` reads it: what is understood does not depend on how the bytes are split.

use sallyport_wire::tls_probe::Reader;

fuzz_target!(|data: (u8, &[u8])| {
    let (step, bytes) = data;
    let mut whole = Reader::default();
    let outcome = whole.read(bytes);
    let mut pieces = Reader::default();
    let split = bytes.chunks(usize::from(step).max(1)).try_for_each(|part| pieces.read(part));
    assert_eq!(outcome.is_ok(), split.is_ok());
    assert_eq!(whole.is_over(), pieces.is_over());
    assert_eq!(whole.answer().hello, pieces.answer().hello);
    assert_eq!(whole.answer().certificates, pieces.answer().certificates);
    assert!(whole.answer().bytes <= bytes.len());
});
