//! A recording of which everything behind the head came from somewhere else.

use std::io::Cursor;

use bytes::BytesMut;
use sallyport_access::SessionId;
use sallyport_audit::recording::{Encoder, Reader};
use sallyport_sal::hpke::{Kem, RecipientKeys};

fuzz_target!(|data: &[u8]| {
    let Ok(key) = RecipientKeys::generate(Kem::X25519) else { return };
    let mut file = BytesMut::new();
    if Encoder::new(SessionId::new(), &key.public(), &mut file).is_err() {
        return;
    }
    file.extend_from_slice(data);
    for bytes in [file.to_vec(), data.to_vec()] {
        if let Ok(mut reader) = Reader::open(Cursor::new(bytes), &key) {
            while let Ok(Some(_)) = reader.next_frame() {}
            let _ = reader.summary();
        }
    }
});
