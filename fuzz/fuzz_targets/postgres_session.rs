//! Both directions of a database session: what goes on does not depend on how the bytes are split, nothing malformed does, and
//! what is held back is bounded.

use sallyport_databases::postgres::boundary::Boundary;
use sallyport_databases::postgres::exchange::{Exchange, FromClient, FromServer, Number, Said};
use sallyport_databases::postgres::frame::{Flow, HEADER_BYTES, Limits, Reader};
use sallyport_databases::postgres::message::Frontend;

const HELD: usize = 64;

struct Discard;

impl Said for Discard {
    fn said(&mut self, _: Number, _: &Frontend<'_>) {}
    fn long(&mut self, _: Number, _: u8, length: u32, at: u32, part: &[u8]) {
        assert!(u64::from(at) + part.len() as u64 <= u64::from(length));
    }
}

/// What goes on of bytes that come so many at a time.
fn walk(bytes: &[u8], step: usize, reader: &mut impl Reader) -> (Vec<u8>, bool) {
    let mut flow = Flow::new(Limits { held_bytes: HELD });
    let (mut waiting, mut gone) = (Vec::new(), Vec::new());
    for part in bytes.chunks(step) {
        waiting.extend_from_slice(part);
        let walked = flow.walk(&waiting, reader);
        gone.extend(waiting.drain(..walked.may_go));
        if walked.failed.is_some() {
            return (gone, true);
        }
        assert!(waiting.len() < HELD + HEADER_BYTES);
    }
    (gone, false)
}

fuzz_target!(|data: (u8, &[u8])| {
    let (step, bytes) = data;
    let step = usize::from(step).max(1);
    let client = |step| {
        let (mut exchange, mut said) = (Exchange::default(), Discard);
        walk(bytes, step, &mut FromClient { exchange: &mut exchange, said: &mut said })
    };
    let (gone, failed) = client(step);
    let (whole, whole_failed) = client(bytes.len().max(1));
    assert!(bytes.starts_with(&gone) && failed == whole_failed);
    // Of a long message that turns out malformed, more or less has gone on by then.
    assert!(failed || gone == whole);

    // Answers to whatever the client has asked.
    let mut exchange = Exchange::default();
    let asks =
        b"Q\0\0\0\x06a\0P\0\0\0\x08\0\0\0\0B\0\0\0\x0c\0\0\0\0\0\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
    let reader = &mut FromClient { exchange: &mut exchange, said: &mut Discard };
    assert_eq!(walk(asks, asks.len(), reader), (asks.to_vec(), false));
    let (gone, _) = walk(bytes, step, &mut FromServer { exchange: &mut exchange });
    assert!(bytes.starts_with(&gone));
    let _ = exchange.happened();

    // Where a server's message ends does not depend on the split either.
    let ends = |step| {
        let mut boundary = Boundary::default();
        bytes.chunks(step).for_each(|part| boundary.pass(part));
        boundary.is_here()
    };
    assert_eq!(ends(step), ends(bytes.len().max(1)));
});
