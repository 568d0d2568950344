//! An invite link as a person pasted it: what is read says the same when it is written.

use sallyport_wire::InviteLink;

fuzz_target!(|data: &[u8]| {
    if let Ok(link) = InviteLink::parse(&String::from_utf8_lossy(data)) {
        assert_eq!(InviteLink::parse(&link.to_string()), Ok(link));
    }
});
