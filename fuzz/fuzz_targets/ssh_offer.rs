//! The cleartext beginning of an SSH connection: the answer does not depend on how the bytes are split.

use sallyport_ssh::capabilities::Reader;

fuzz_target!(|data: (u8, &[u8])| {
    let (step, bytes) = data;
    let whole = Reader::default().read(bytes);
    let mut reader = Reader::default();
    let split = bytes.chunks(usize::from(step).max(1)).find_map(|part| reader.read(part));
    assert_eq!(whole, split);
});
