//! Authorities of every kind, under every suite.

use std::sync::Arc;

use crate::prepared::Prepared;
use sallyport_access::ClusterName;
use sallyport_ca::rotation::Phase;
use sallyport_ca::{Authority, CaError, CaKind, RotationStatus, Trust, TrustBundle};
use sallyport_sal::Suite;
use sallyport_sal::custody::{SealedCustody, SealingKey};
use time::OffsetDateTime;

fn custody(directory: &std::path::Path) -> SealedCustody {
    SealedCustody::new(Arc::new(SealingKey::open_or_create(&directory.join("seal.key")).unwrap()))
}

#[test]
fn every_kind_has_the_keys_that_its_suite_names() {
    let custody = Prepared::default();
    let cluster = ClusterName::new("example.com").unwrap();
    for suite in Suite::ALL {
        for kind in CaKind::ALL {
            let authority =
                Authority::generate(*kind, &cluster, &custody, *suite, OffsetDateTime::now_utc()).unwrap();
            let expected: Vec<_> = kind.purposes().map(|purpose| suite.algorithm(purpose)).collect();
            let made: Vec<_> = authority.record().keys().map(|key| key.algorithm).collect();
            assert_eq!(made, expected, "{kind} {suite}");
            let missing = [authority.ssh().is_err(), authority.tls().is_err(), authority.jwt().is_err()];
            assert_eq!(missing.iter().filter(|missing| !**missing).count(), expected.len());
            let json = serde_json::to_string(authority.record()).unwrap();
            let again = Authority::load(&serde_json::from_str(&json).unwrap(), &custody).unwrap();
            assert_eq!(again.public_keys(), authority.public_keys());
        }
    }
}

#[test]
fn a_record_without_a_key_of_its_kind_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let custody = custody(directory.path());
    let cluster = ClusterName::new("example.com").unwrap();
    let now = OffsetDateTime::now_utc();
    let authority = Authority::generate(CaKind::User, &cluster, &custody, Suite::BalancedV1, now).unwrap();
    let mut record = authority.record().clone();
    record.tls_key = None;
    assert!(matches!(
        Authority::load(&record, &custody),
        Err(CaError::NoKey { kind: CaKind::User, what: "TLS" })
    ));
}

#[test]
fn a_bundle_carries_every_authority_the_suite_and_the_phases() {
    let directory = tempfile::tempdir().unwrap();
    let custody = custody(directory.path());
    let cluster = ClusterName::new("example.com").unwrap();
    let make =
        |kind| Authority::generate(kind, &cluster, &custody, Suite::PqV1, OffsetDateTime::now_utc()).unwrap();
    let mut all: Vec<Authority> = CaKind::ALL.iter().copied().map(make).collect();
    all.push(make(CaKind::Openssh));
    let all: Vec<&Authority> = all.iter().collect();
    let mut bundle = TrustBundle::from_authorities(&all, None).unwrap();
    bundle.suite = "pq-v1".to_owned();
    let status = RotationStatus { generation: 3, phase: Phase::Init };
    bundle.rotations.insert(CaKind::Openssh, status);
    let again: TrustBundle = serde_json::from_str(&serde_json::to_string(&bundle).unwrap()).unwrap();
    let trust = Trust::from_bundle(&again).unwrap();
    assert_eq!(trust.to_bundle(), bundle);
    assert_eq!(trust.suite(), Suite::PqV1);
    assert_eq!(trust.rotation(CaKind::Openssh), status);
    assert_eq!(trust.rotation(CaKind::User), RotationStatus::default());
    assert_eq!(trust.public_keys(CaKind::Openssh).ssh.len(), 2);
    assert_eq!(trust.public_keys(CaKind::Spiffe).jwt.len(), 1);

    // A suite of a newer release, and a damaged key.
    bundle.suite = "pq-v9".to_owned();
    assert_eq!(Trust::from_bundle(&bundle).unwrap().suite(), Suite::default());
    bundle.others.get_mut(&CaKind::Jwt).unwrap().jwt.push("{}".to_owned());
    assert!(matches!(Trust::from_bundle(&bundle), Err(CaError::BadTrust { field: "others", .. })));
}
