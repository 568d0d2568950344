//! A TLS certificate that a client shows: nothing but what an authority of ours signed says who a client is.

use std::sync::{Arc, OnceLock};

use sallyport_ca::{Authority, CaKind, Trust};
use sallyport_sal::Suite;
use sallyport_sal::custody::{SealedCustody, SealingKey};
use time::OffsetDateTime;

fn trust() -> &'static Trust {
    static TRUST: OnceLock<Trust> = OnceLock::new();
    TRUST.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("fuzz-sealing-x509-{}", std::process::id()));
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
    assert!(trust().identify_tls(data, OffsetDateTime::UNIX_EPOCH).is_err());
    let _ = sallyport_ca::is_renewable(data);
});
