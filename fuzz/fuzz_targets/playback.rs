//! Frames that a node recorded, a line of JSON each, sealed as nodes seal them: the player reads back what was written, and
//! makes text of it.

use std::io::Cursor;

use bytes::BytesMut;
use sallyport_access::SessionId;
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::recording::{Encoder, Frame, Reader};
use sallyport_sal::hpke::RecipientKey;

fuzz_target!(|data: &[u8]| {
    let Ok(key) = RecipientKey::generate() else { return };
    let mut file = BytesMut::new();
    let Ok(mut encoder) = Encoder::new(SessionId::new(), &key.public(), &mut file) else { return };
    let lines = data.split(|byte| *byte == b'\n');
    let frames: Vec<Frame> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    for frame in &frames {
        encoder.push(frame);
    }
    if encoder.finish(&mut file).is_err() {
        return;
    }
    let mut reader = Reader::open(Cursor::new(file.to_vec()), &key).unwrap();
    let mut looks = [Look::Plain, Look::Terminal, Look::Sql].map(Transcript::new);
    for frame in frames {
        let read = reader.next_frame().unwrap();
        assert_eq!(read.as_ref(), Some(&frame));
        for look in &mut looks {
            let _ = look.frame(&frame);
        }
    }
    for look in &mut looks {
        let _ = look.finish();
    }
});
