//! What a proxy says at the head of a stream: read or refused, and what is read is written back.

use sallyport_wire::stream_header::{StreamHeader, VERSION};

fuzz_target!(|data: &[u8]| {
    let header = match StreamHeader::parse(data) {
        Ok(header) => header,
        // It goes back to the proxy as the reason of the stream's end.
        Err(error) => return assert!(error.to_string().len() < 400, "{error}"),
    };
    assert!(header.version <= VERSION);
    assert!(!header.client_addr.ip().is_unspecified() && !header.client_addr.ip().is_multicast());
    assert_eq!(StreamHeader::parse(&header.encode()).unwrap(), header);
});
