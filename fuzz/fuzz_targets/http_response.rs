//! Answers of HTTP servers: cut anywhere they end where they end whole, and nothing is counted that was not there.

use sallyport_lab::load::http::Reader;

fuzz_target!(|data: (u8, &[u8])| {
    let (piece, bytes) = data;
    let mut whole = Reader::new();
    let taken = whole.feed(bytes);
    let mut cut = Reader::new();
    let mut at = 0;
    let in_pieces = loop {
        if at == bytes.len() || cut.complete().is_some() {
            break Ok(at);
        }
        let end = (at + usize::from(piece).max(1)).min(bytes.len());
        match cut.feed(&bytes[at..end]) {
            Ok(more) => at += more,
            Err(error) => break Err(error),
        }
    };
    assert_eq!(taken, in_pieces);
    let (whole, cut) = (whole.end(), cut.end());
    assert_eq!(whole, cut);
    if let Ok(response) = whole {
        assert!(usize::try_from(response.body).is_ok_and(|body| body <= bytes.len()));
    }
});
