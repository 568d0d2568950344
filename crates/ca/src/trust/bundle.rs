//! A cluster's public keys as they are written down.

use std::collections::BTreeMap;

use sallyport_sal::hpke::RecipientPublic;
use serde::{Deserialize, Serialize};

use crate::phase::RotationStatus;
use crate::public_keys::PublicKeys;
use crate::{Authority, CaError, CaKind};

/// A cluster's public keys as plain text, for files and the API. [`super::Trust::from_bundle`] checks it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrustBundle {
    /// The cluster's name.
    pub cluster: String,
    /// User CA: OpenSSH public key lines, the one in use first.
    pub user_ssh_keys: Vec<String>,
    /// Host CA: OpenSSH public key lines, the one in use first.
    pub host_ssh_keys: Vec<String>,
    /// User CA: PEM certificates, the one in use first.
    pub user_tls_certificates: Vec<String>,
    /// Host CA: PEM certificates, the one in use first.
    pub host_tls_certificates: Vec<String>,
    /// X25519 public key that recordings are sealed to: 32 bytes, or none where nothing is recorded.
    pub recording_key: Vec<u8>,
    /// The other CAs, as far as there are any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<CaKind, PublicKeys>,
    /// Name of the cluster's suite; empty means the default, from authorities that do not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub suite: String,
    /// Where the rotation of each CA stands; one that is not named stands by and was never rotated.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rotations: BTreeMap<CaKind, RotationStatus>,
}

impl TrustBundle {
    /// The public halves of authorities at hand, for each kind the one in use first. The suite and the rotations are
    /// for the caller to add.
    ///
    /// # Errors
    /// [`CaError::BadTrust`] when they are not of one cluster.
    pub fn from_authorities(
        authorities: &[&Authority],
        recording_key: Option<RecipientPublic>,
    ) -> Result<Self, CaError> {
        let cluster = match authorities {
            [first, rest @ ..] if rest.iter().all(|other| other.cluster() == first.cluster()) => {
                first.cluster()
            }
            _ => {
                return Err(CaError::BadTrust {
                    field: "cluster",
                    reason: "expected authorities of one cluster".to_owned(),
                });
            }
        };
        let mut keys: BTreeMap<CaKind, PublicKeys> = BTreeMap::new();
        for authority in authorities {
            keys.entry(authority.kind()).or_default().extend(authority.public_keys());
        }
        let users = keys.remove(&CaKind::User).unwrap_or_default();
        let hosts = keys.remove(&CaKind::Host).unwrap_or_default();
        Ok(Self {
            cluster: cluster.to_string(),
            user_ssh_keys: users.ssh,
            host_ssh_keys: hosts.ssh,
            user_tls_certificates: users.tls,
            host_tls_certificates: hosts.tls,
            recording_key: recording_key.map(|key| key.as_bytes().to_vec()).unwrap_or_default(),
            others: keys,
            suite: String::new(),
            rotations: BTreeMap::new(),
        })
    }
}
