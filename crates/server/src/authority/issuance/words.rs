//! Authorities and their trust in the words of the API.

use sallyport_ca::{
    Authority as CertAuthority, JwtSide, PublicKeys, RotationStatus, SshSide, TlsSide, Trust,
};
use sallyport_sal::KeyAlgorithm;
use sallyport_wire::{convert, v1};

use crate::authority::fips;
use crate::authority::issuance::custodies::Custodies;

/// A trust in the words of the API.
pub(crate) fn wire_bundle(trust: &Trust) -> v1::TrustBundle {
    let bundle = trust.to_bundle();
    let keys = |keys: PublicKeys| v1::CaPublicKeys { ssh: keys.ssh, tls: keys.tls, jwt: keys.jwt };
    v1::TrustBundle {
        user_ssh_keys: bundle.user_ssh_keys,
        host_ssh_keys: bundle.host_ssh_keys,
        user_tls_certificates: bundle.user_tls_certificates,
        host_tls_certificates: bundle.host_tls_certificates,
        recording_key: bundle.recording_key.into(),
        others: bundle.others.into_iter().map(|(kind, of)| (kind.name().to_owned(), keys(of))).collect(),
        suite: bundle.suite,
        fips: fips::in_fips_mode(),
        rotations: bundle
            .rotations
            .into_iter()
            .map(|(kind, status)| (kind.name().to_owned(), rotation(status)))
            .collect(),
    }
}

/// The words of the API for where a rotation stands.
pub(crate) fn rotation(status: RotationStatus) -> v1::CaRotation {
    v1::CaRotation { generation: status.generation, phase: status.phase.name().to_owned() }
}

pub(crate) fn ca_status(custodies: &Custodies, ca: &CertAuthority, trust: &Trust) -> v1::CaStatus {
    let kind = ca.kind();
    let (ssh, tls, jwt) = (ca.ssh().ok(), ca.tls().ok(), ca.jwt().ok());
    let algorithm =
        |algorithm: Option<KeyAlgorithm>| algorithm.map(KeyAlgorithm::name).unwrap_or_default().to_owned();
    let mut places: Vec<String> = ca.record().keys().map(|key| custodies.whereabouts(key)).collect();
    places.dedup();
    v1::CaStatus {
        kind: kind.name().to_owned(),
        ssh_fingerprint: ssh.map(SshSide::fingerprint).unwrap_or_default().to_owned(),
        tls_pin: tls.map(TlsSide::pin).unwrap_or_default(),
        ssh_algorithm: algorithm(ssh.map(SshSide::algorithm)),
        tls_algorithm: algorithm(tls.map(TlsSide::algorithm)),
        jwt_algorithm: algorithm(jwt.map(JwtSide::algorithm)),
        valid_until: tls.map(|tls| convert::time_to_proto(tls.valid_until())),
        custodies: places,
        suite: ca.record().suite.name().to_owned(),
        rotation: Some(rotation(trust.rotation(kind))),
        configured_custody: custodies.place(kind).to_owned(),
    }
}
