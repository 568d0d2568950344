//! Any bytes decode to frames, an error or a wait; what decodes encodes to what decodes the same.

use bytes::BytesMut;
use sallyport_wire::tunnel::frame::Frame;

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    while let Ok(Some(frame)) = Frame::decode(&mut buffer) {
        let mut wire = BytesMut::new();
        frame.encode(&mut wire);
        assert_eq!(Frame::decode(&mut wire), Ok(Some(frame)));
    }
});
