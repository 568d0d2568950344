//! An SSH server's answer to a key exchange, as `lab scan` reads it: the answer does not depend on how the bytes are split.

use sallyport_lab::scan::host_key::Reader;

fuzz_target!(|data: (u8, &[u8])| {
    let (step, bytes) = data;
    let whole = Reader::default().read(bytes);
    let mut reader = Reader::default();
    let mut parts = bytes.chunks(usize::from(step).max(1)).map(|part| reader.read(part));
    let split = parts.find(|answer| !matches!(answer, Ok(None))).unwrap_or(Ok(None));
    assert_eq!(whole, split);
});
