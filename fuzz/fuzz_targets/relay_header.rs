//! What precedes a client's bytes on the way to the authority: read or refused, and what is read is written back.

use sallyport_wire::relay::{HEADER_LIMIT_BYTES, RelayHeader};

fuzz_target!(|data: &[u8]| {
    let _ = RelayHeader::parse(data);
    let Some((first, rest)) = data.split_first_chunk::<2>() else { return };
    let Ok(length) = RelayHeader::body_length(*first) else {
        assert!(usize::from(u16::from_be_bytes(*first)) > HEADER_LIMIT_BYTES);
        return;
    };
    let Some(body) = rest.get(..length) else { return };
    if let Ok(header) = RelayHeader::parse(body) {
        let written = header.encode().unwrap();
        let length = RelayHeader::body_length([written[0], written[1]]).unwrap();
        assert_eq!(length, written.len() - 2);
        assert_eq!(RelayHeader::parse(&written[2..]).unwrap().client_addr.ip(), header.client_addr.ip());
    }
});
