//! What the cluster's certificates are checked against, as the authority sends it.

use sallyport_access::ClusterName;
use sallyport_ca::{CaKind, PublicKeys, RotationStatus, TrustBundle};
use sallyport_wire::v1;

/// The wire's bundle as the certificate layer's.
pub fn bundle(wire: v1::TrustBundle, cluster: &ClusterName) -> TrustBundle {
    TrustBundle {
        cluster: cluster.to_string(),
        user_ssh_keys: wire.user_ssh_keys,
        host_ssh_keys: wire.host_ssh_keys,
        user_tls_certificates: wire.user_tls_certificates,
        host_tls_certificates: wire.host_tls_certificates,
        recording_key: wire.recording_key.to_vec(),
        others: CaKind::keyed(wire.others, |keys| {
            Some(PublicKeys { ssh: keys.ssh, tls: keys.tls, jwt: keys.jwt })
        }),
        suite: wire.suite,
        rotations: CaKind::keyed(wire.rotations, |status| {
            Some(RotationStatus { generation: status.generation, phase: status.phase.parse().ok()? })
        }),
    }
}
