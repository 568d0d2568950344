//! Any bytes decode to frames of the native protocol, an error or a wait; what decodes encodes to what decodes the same.

use bytes::BytesMut;
use sallyport_ssh::native::frame::Frame;

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    while let Ok(Some(frame)) = Frame::decode(&mut buffer) {
        let mut wire = BytesMut::new();
        frame.encode(&mut wire).unwrap();
        assert_eq!(Frame::decode(&mut wire), Ok(Some(frame)));
    }
});
