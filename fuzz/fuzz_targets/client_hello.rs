//! A TLS client's first message: more bytes never change an answer that is there.

use sallyport_wire::client_hello::read;

fuzz_target!(|data: &[u8]| {
    if let Some(offer) = read(data) {
        let mut more = data.to_vec();
        more.extend_from_slice(b"more");
        assert_eq!(read(&more), Some(offer));
    }
});
