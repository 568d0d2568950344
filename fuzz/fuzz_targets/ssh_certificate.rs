//! An SSH certificate that a client shows: nothing but what an authority of ours signed says who a client is.

use std::sync::{Arc, OnceLock};

use sallyport_ca::{Authority, CaKind, Trust};
use sallyport_sal::Suite;
use sallyport_sal::custody::{SealedCustody, SealingKey};
use ssh_key::Certificate;
use time::OffsetDateTime;

fn trust() -> &'static Trust {
    static TRUST: OnceLock<Trust> = OnceLock::new();
    TRUST.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("fuzz-sealing-{}", std::process::id()));
        let sealing = SealingKey::create(&directory).expect("a sealing key");
        let _ = std::fs::remove_file(&directory);
        let custody = SealedCustody::new(Arc::new(sealing));
        let name = "fuzz.test".parse().expect("a name");
        let now = OffsetDateTime::UNIX_EPOCH;
        let make =
            |kind| Authority::generate(kind, &name, &custody, Suite::BalancedV1, now).expect("an authority");
        Trust::from_authorities(&[&make(CaKind::User), &make(CaKind::Host)], None).expect("a trust")
    })
}

fuzz_target!(|data: &[u8]| {
    let Ok(certificate) = Certificate::from_bytes(data) else { return };
    let now = OffsetDateTime::UNIX_EPOCH;
    assert!(trust().verify_user_ssh(&certificate, now).is_err());
    assert!(trust().verify_host_ssh(&certificate, "web-1", now).is_err());
});
