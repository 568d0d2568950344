//! Messages of database clients, by their kinds: what is read is all there.

use sallyport_databases::postgres::message::Frontend;

fuzz_target!(|data: (u8, &[u8])| {
    let (kind, content) = data;
    for kind in [kind].iter().chain(b"QPBEDCFfSHcX") {
        if Frontend::read(*kind, content).is_ok() {
            let more = [content, b"x"].concat();
            assert!(Frontend::read(*kind, &more).is_err(), "nothing may follow");
        }
    }
});
