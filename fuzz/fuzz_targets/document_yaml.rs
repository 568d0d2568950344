//! Documents other than roles that a caller sends; one that is accepted reads back to itself.

use sallyport_access::{Database, LoginRule, SessionPolicy};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(database) = Database::parse(&text) {
        assert_eq!(Database::parse(&database.to_yaml()).as_ref(), Ok(&database));
    }
    if let Ok(rule) = LoginRule::parse(&text) {
        assert_eq!(LoginRule::parse(&rule.to_yaml()).as_ref(), Ok(&rule));
    }
    if let Ok(policy) = SessionPolicy::parse(&text) {
        assert_eq!(SessionPolicy::parse(&policy.to_yaml()).as_ref(), Ok(&policy));
    }
});
