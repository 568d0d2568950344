//! Names of workloads, and the keys that prove them, as SPIFFE has them.

use std::fmt;
use std::str::FromStr;

use sallyport_access::ClusterName;
use sallyport_sal::formats::jwk;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value, json};

use crate::jwt::KeySet;
use crate::rotation::Phase;
use crate::x509::CaCertificate;
use crate::{CaError, CaKind, Trust};

/// Longest SPIFFE ID, in bytes (SPIFFE-ID §2.3).
const MAX_ID_BYTES: usize = 2048;

/// How often readers of the bundle should come again, in seconds: often enough that they learn of a new CA key in the
/// first phase of its rotation.
pub const REFRESH_SECONDS: u64 = 300;

/// The name of a workload: `spiffe://CLUSTER/PATH`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId {
    domain: ClusterName,
    /// With the slash at its start.
    path: String,
}

impl SpiffeId {
    /// A workload of a cluster, by its path: `/web`, `/ns/prod/sa/web`.
    ///
    /// # Errors
    /// [`CaError::BadName`] for a path that SPIFFE does not allow.
    pub fn new(cluster: &ClusterName, path: &str) -> Result<Self, CaError> {
        let bad = |reason| CaError::BadName { name: path.chars().take(128).collect(), reason };
        let segments =
            path.strip_prefix('/').ok_or_else(|| bad("the path of a workload begins with a slash"))?;
        if "spiffe://".len() + cluster.as_str().len() + path.len() > MAX_ID_BYTES {
            return Err(bad("a SPIFFE ID has at most 2048 bytes"));
        }
        // SPIFFE-ID §2.2. A trust domain without a path is the name of a CA, not of a workload (X.509-SVID §5.2).
        for segment in segments.split('/') {
            if matches!(segment, "" | "." | "..") {
                return Err(bad("no part of a path is empty, `.` or `..`"));
            }
            if !segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
            {
                return Err(bad(
                    "a path has letters, digits, '.', '-' and '_', and slashes between its parts",
                ));
            }
        }
        Ok(Self { domain: cluster.clone(), path: path.to_owned() })
    }

    /// Its trust domain, which is a cluster.
    #[must_use]
    pub fn domain(&self) -> &ClusterName {
        &self.domain
    }

    /// Its path, with the slash at the start.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn require_domain(&self, cluster: &ClusterName) -> Result<(), CaError> {
        if self.domain == *cluster {
            return Ok(());
        }
        Err(CaError::BadName {
            name: self.to_string(),
            reason: "it is of another trust domain than this cluster's, which alone it certifies",
        })
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}{}", self.domain, self.path)
    }
}

impl FromStr for SpiffeId {
    type Err = CaError;
    fn from_str(text: &str) -> Result<Self, CaError> {
        let bad = |reason| CaError::BadName { name: text.chars().take(128).collect(), reason };
        let rest = text.strip_prefix("spiffe://").ok_or_else(|| bad("a SPIFFE ID begins with spiffe://"))?;
        let slash = rest.find('/').ok_or_else(|| bad("a SPIFFE ID has a path: spiffe://CLUSTER/PATH"))?;
        let (domain, path) = rest.split_at(slash);
        let domain =
            ClusterName::new(domain).map_err(|_| bad("its trust domain is not the name of a cluster"))?;
        Self::new(&domain, path)
    }
}

/// The trust bundle of the cluster's workloads (SPIFFE Trust Domain and Bundle §4): a key set with the spiffe CA's
/// certificates for X.509-SVIDs and its public keys for JWT-SVIDs.
///
/// # Errors
/// [`CaError::BadTrust`] when the keys cannot be read, which the trust has checked.
pub fn bundle(trust: &Trust) -> Result<String, CaError> {
    let bad = |reason: String| CaError::BadTrust { field: "others", reason };
    let keys = trust.public_keys(CaKind::Spiffe);
    let mut members = Vec::new();
    for pem in &keys.tls {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| bad(error.to_string()))?;
        let ca = CaCertificate::parse(&der)?;
        let json = jwk::encode_public(&ca.public_key).map_err(|error| bad(error.to_string()))?;
        let mut member: Map<String, Value> =
            serde_json::from_str(&json).map_err(|error| bad(error.to_string()))?;
        member.insert("use".to_owned(), "x509-svid".into());
        // The certificate alone, and no kid (§4.2.2).
        member.insert("x5c".to_owned(), json!([data_encoding::BASE64.encode(&ca.der)]));
        members.push(member);
    }
    members.extend(KeySet::of(trust, CaKind::Spiffe)?.members("jwt-svid")?);
    // A change of keys is a change of phase, and grows the number.
    let status = trust.rotation(CaKind::Spiffe);
    let step = match status.phase {
        Phase::Init => 1,
        Phase::UpdateClients => 2,
        Phase::UpdateServers => 3,
        Phase::Rollback => 4,
        Phase::Standby => 5,
    };
    let sequence = status.generation * 8 + step;
    let document =
        json!({ "keys": members, "spiffe_sequence": sequence, "spiffe_refresh_hint": REFRESH_SECONDS });
    serde_json::to_string(&document).map_err(|error| bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ids_are_what_spiffe_allows() {
        let cluster = ClusterName::new("prod.example").unwrap();
        for path in ["/web", "/ns/prod/sa/Web_1.x-y", "/a/..."] {
            let id = SpiffeId::new(&cluster, path).unwrap();
            assert_eq!(id.to_string(), format!("spiffe://prod.example{path}"));
            assert_eq!(id.to_string().parse::<SpiffeId>().unwrap(), id);
            assert_eq!((id.domain(), id.path()), (&cluster, path));
        }
        let long = format!("/{}", "x".repeat(2048));
        for path in [
            "", "/", "web", "/web/", "//web", "/a//b", "/./a", "/a/..", "/a b", "/a%20", "/ä", "/a?b",
            "/a#b", "/a:b", &long,
        ] {
            assert!(matches!(SpiffeId::new(&cluster, path), Err(CaError::BadName { .. })), "{path}");
        }
        for text in [
            "",
            "prod/web",
            "https://prod/web",
            "spiffe://prod",
            "spiffe:///web",
            "spiffe://PROD/web",
            "spiffe://u@prod/web",
            "spiffe://prod:1/web",
        ] {
            assert!(matches!(text.parse::<SpiffeId>(), Err(CaError::BadName { .. })), "{text}");
        }
    }
}
