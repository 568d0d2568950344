//! Frames that a node recorded, a line of JSON each, sealed as nodes seal them: the player reads back what was written, and
//! makes text of it, in which no frame breaks out of its statement of a script.

use std::io::Cursor;

use bytes::BytesMut;
use sallyport_access::SessionId;
use sallyport_audit::recording::sql::{Kind, Tokens};
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::recording::{Encoder, Frame, Reader};
use sallyport_sal::hpke::{Kem, RecipientKeys};

fuzz_target!(|data: &[u8]| {
    let Ok(key) = RecipientKeys::generate(Kem::X25519) else { return };
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
    let mut looks = [Look::Plain, Look::Terminal].map(Transcript::new);
    let (mut script, mut text) = (Transcript::new(Look::Sql), String::new());
    for frame in frames {
        let read = reader.next_frame().unwrap();
        assert_eq!(read.as_ref(), Some(&frame));
        for look in &mut looks {
            let _ = look.frame(&frame);
        }
        text += &script.frame(&frame);
    }
    for look in &mut looks {
        let _ = look.finish();
    }
    text += &script.finish();
    // Nothing in it is open at its end, or is read otherwise by a setting, and what is live is ASCII.
    for token in Tokens::new(&text) {
        let token = token.unwrap_or_else(|why| panic!("{why}: {text}"));
        let plain = !matches!(token.kind, Kind::Plain | Kind::National) || !token.content.contains('\\');
        assert!(token.kind == Kind::Comment || token.raw.is_ascii() && plain, "{token:?}: {text}");
    }
});
