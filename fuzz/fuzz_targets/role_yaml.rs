//! A role or lock that a client sent; one that is accepted reads back to itself.

use sallyport_access::{Lock, Policies, Role};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(role) = Role::parse(&text) {
        assert_eq!(Role::parse(&role.to_yaml()).as_ref(), Ok(&role));
        assert!(Policies::compile(&[role]).is_ok());
    }
    let _ = Lock::parse(&text);
});
