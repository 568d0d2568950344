//! Whom to believe: the public keys of a cluster's authorities, and the way from a certificate to an identity.

mod anchors;
mod bundle;
mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sallyport_access::{ClusterName, HostId, HostRole, Identity, Principal, SessionProof};
use sallyport_sal::hpke::RecipientPublic;
use sallyport_sal::tls::rustls::client::danger::ServerCertVerifier;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName};
use sallyport_sal::tls::rustls::server::danger::ClientCertVerifier;
use sallyport_sal::tls::rustls::{self, CertificateError};
use sallyport_sal::{Suite, hash, tls};
use ssh_key::Certificate;
use ssh_key::certificate::CertType;
use time::OffsetDateTime;

use crate::chains::{ChainCounts, Chains, Purpose, Remember, Verified};
use crate::error::Expected;
use crate::extension::{self, Claims, Mark, Via};
use crate::x509::{self, CaCertificate, Leaf};
use crate::{Authority, CaError, CaKind, ssh};

pub use crate::phase::RotationStatus;
pub use crate::public_keys::PublicKeys;
use crate::validity::effective_time;
use anchors::{SshCa, check_others, client_verifier, parse_certificates, parse_ssh, roots, server_verifier};
pub use bundle::TrustBundle;
pub(crate) use target::same_name;

/// A cluster's public keys, checked. Cheap to clone; clones share the [memory](Remember) of verified chains.
#[derive(Clone)]
pub struct Trust {
    anchors: Arc<Anchors>,
    chains: Arc<Chains>,
}

struct Anchors {
    cluster: ClusterName,
    user_ssh: Vec<SshCa>,
    host_ssh: Vec<SshCa>,
    user_tls: Vec<CaCertificate>,
    host_tls: Vec<CaCertificate>,
    recording_key: Option<RecipientPublic>,
    others: BTreeMap<CaKind, PublicKeys>,
    suite: Suite,
    rotations: BTreeMap<CaKind, RotationStatus>,
    version: OnceLock<String>,
    users: Arc<dyn ClientCertVerifier>,
    hosts: Arc<dyn ClientCertVerifier>,
    servers: Arc<dyn ServerCertVerifier>,
}

impl Trust {
    /// Checks a bundle. All four lists need at least one entry; several are the old and the new keys of a rotation.
    ///
    /// # Errors
    /// [`CaError::BadTrust`] naming the field that cannot be used.
    pub fn from_bundle(bundle: &TrustBundle) -> Result<Self, CaError> {
        let cluster = ClusterName::new(bundle.cluster.as_str())
            .map_err(|error| CaError::BadTrust { field: "cluster", reason: error.to_string() })?;
        let recording_key =
            if bundle.recording_key.is_empty() {
                None
            } else {
                let read = RecipientPublic::from_bytes(&bundle.recording_key);
                Some(read.map_err(|error| CaError::BadTrust {
                    field: "recording_key",
                    reason: error.to_string(),
                })?)
            };
        let user_tls = parse_certificates("user_tls_certificates", &bundle.user_tls_certificates)?;
        let host_tls = parse_certificates("host_tls_certificates", &bundle.host_tls_certificates)?;
        let user_roots = roots("user_tls_certificates", &user_tls)?;
        let host_roots = roots("host_tls_certificates", &host_tls)?;
        let anchors = Anchors {
            cluster,
            user_ssh: parse_ssh("user_ssh_keys", &bundle.user_ssh_keys)?,
            host_ssh: parse_ssh("host_ssh_keys", &bundle.host_ssh_keys)?,
            users: client_verifier("user_tls_certificates", user_roots)?,
            hosts: client_verifier("host_tls_certificates", Arc::clone(&host_roots))?,
            servers: server_verifier(host_roots)?,
            user_tls,
            host_tls,
            recording_key,
            others: check_others(&bundle.others)?,
            // A suite that only a newer release knows must not make an older host distrust all others.
            suite: bundle.suite.parse().unwrap_or_default(),
            rotations: bundle.rotations.clone(),
            version: OnceLock::new(),
        };
        Ok(Self { anchors: Arc::new(anchors), chains: Arc::new(Chains::new(Remember::default())) })
    }

    /// The same trust with a memory of its own, which is empty.
    #[must_use]
    pub fn remembering(&self, remember: Remember) -> Self {
        Self { anchors: Arc::clone(&self.anchors), chains: Arc::new(Chains::new(remember)) }
    }

    /// How often chains were verified, and how often that was not necessary.
    #[must_use]
    pub fn chain_counts(&self) -> ChainCounts {
        self.chains.counts()
    }

    /// The trust that follows from authorities at hand, for each kind the one in use first.
    ///
    /// # Errors
    /// [`CaError::BadTrust`] when there is no user or no host CA, or they belong to another cluster.
    pub fn from_authorities(
        authorities: &[&Authority],
        recording_key: Option<RecipientPublic>,
    ) -> Result<Self, CaError> {
        Self::from_bundle(&TrustBundle::from_authorities(authorities, recording_key)?)
    }

    /// The same as plain text.
    #[must_use]
    pub fn to_bundle(&self) -> TrustBundle {
        let lines = |cas: &[SshCa]| cas.iter().map(|ca| ca.line.clone()).collect();
        let pems = |cas: &[CaCertificate]| cas.iter().map(|ca| x509::to_pem(&ca.der)).collect();
        TrustBundle {
            cluster: self.anchors.cluster.to_string(),
            user_ssh_keys: lines(&self.anchors.user_ssh),
            host_ssh_keys: lines(&self.anchors.host_ssh),
            user_tls_certificates: pems(&self.anchors.user_tls),
            host_tls_certificates: pems(&self.anchors.host_tls),
            recording_key: self.anchors.recording_key.map(|key| key.as_bytes().to_vec()).unwrap_or_default(),
            others: self.anchors.others.clone(),
            suite: self.anchors.suite.name().to_owned(),
            rotations: self.anchors.rotations.clone(),
        }
    }

    /// Changes with everything that the bundle says: who has this version has this bundle. Sixteen hexadecimal digits.
    #[must_use]
    pub fn version(&self) -> String {
        let version = self.anchors.version.get_or_init(|| {
            // Maps are sorted and strings always encode.
            let json = serde_json::to_vec(&self.to_bundle()).unwrap_or_default();
            data_encoding::HEXLOWER.encode(&hash::sha256(&json)).chars().take(16).collect()
        });
        version.clone()
    }

    /// The cluster's suite: what keys are made for it, and whether key exchange must be hybrid.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.anchors.suite
    }

    /// Where the rotation of a CA stands.
    #[must_use]
    pub fn rotation(&self, kind: CaKind) -> RotationStatus {
        self.anchors.rotations.get(&kind).copied().unwrap_or_default()
    }

    /// The public keys of a CA, the one in use first; empty where the cluster has not made it yet.
    #[must_use]
    pub fn public_keys(&self, kind: CaKind) -> PublicKeys {
        match kind {
            CaKind::User | CaKind::Host => PublicKeys {
                ssh: self.ssh_cas(kind).iter().map(|ca| ca.line.clone()).collect(),
                tls: self.tls_cas(kind).iter().map(|ca| x509::to_pem(&ca.der)).collect(),
                jwt: Vec::new(),
            },
            other => self.anchors.others.get(&other).cloned().unwrap_or_default(),
        }
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.anchors.cluster
    }

    /// The public key that recordings are sealed to.
    #[must_use]
    pub fn recording_key(&self) -> Option<RecipientPublic> {
        self.anchors.recording_key
    }

    /// The pin of the host CA in use: what a newcomer needs to know that it talks to this cluster.
    #[must_use]
    pub fn pin(&self) -> String {
        self.anchors.host_tls.first().map(CaCertificate::pin).unwrap_or_default()
    }

    /// The pins of all host CAs, the one in use first.
    #[must_use]
    pub fn pins(&self) -> Vec<String> {
        self.anchors.host_tls.iter().map(CaCertificate::pin).collect()
    }

    /// The user CA's SSH keys as OpenSSH lines.
    pub fn user_ssh_lines(&self) -> impl Iterator<Item = &str> {
        self.anchors.user_ssh.iter().map(|ca| ca.line.as_str())
    }

    /// The host CA's SSH keys as OpenSSH lines.
    pub fn host_ssh_lines(&self) -> impl Iterator<Item = &str> {
        self.anchors.host_ssh.iter().map(|ca| ca.line.as_str())
    }

    /// Certificates of the CAs of a kind, PEM, one after the other.
    #[must_use]
    pub fn tls_certificates_pem(&self, kind: CaKind) -> String {
        self.public_keys(kind).tls.concat()
    }

    /// Who holds an X.509 certificate (DER): checks the path, the time, the cluster, and that a user's was signed by
    /// the user CA and a host's by the host CA. The caller that uses the result has seen the holder prove the key in TLS; call
    /// this for every connection, also for resumed ones, where TLS itself checks nothing again.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn identify_tls(&self, leaf_der: &[u8], now: OffsetDateTime) -> Result<Identity, CaError> {
        self.identify_tls_with(leaf_der, &[], now).map(|chain| chain.identity.clone())
    }

    /// [`Trust::identify_tls`] for the certificates of a connection as the peer sent them, the leaf first: where the
    /// handshake has verified the chain, it is remembered.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal; [`CaError::Malformed`] when there is no certificate.
    pub fn identify_peer(
        &self,
        chain: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        let (leaf, intermediates) = chain
            .split_first()
            .ok_or_else(|| CaError::Malformed { reason: "there is no certificate".to_owned() })?;
        self.identify_tls_with(leaf, intermediates, now).map(|chain| chain.identity.clone())
    }

    /// Who holds an SSH user certificate: checks the signature by the user CA, the time, the cluster, the type, and
    /// that there are no critical options. Whether the login asked for is among the principals is for the caller.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn verify_user_ssh(
        &self,
        certificate: &Certificate,
        now: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        self.verify_ssh(certificate, CaKind::User, now)
    }

    /// What a user's SSH certificate says of a second factor that was proven for sessions, after all that [`Trust::verify_user_ssh`]
    /// checks.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn session_proof_ssh(
        &self,
        certificate: &Certificate,
        now: OffsetDateTime,
    ) -> Result<Option<SessionProof>, CaError> {
        self.verify_user_ssh(certificate, now)?;
        ssh::session_proof(certificate)
    }

    /// The same of an X.509 certificate (DER), after all that [`Trust::identify_tls`] checks.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn session_proof_tls(
        &self,
        leaf_der: &[u8],
        now: OffsetDateTime,
    ) -> Result<Option<SessionProof>, CaError> {
        self.identify_tls(leaf_der, now)?;
        Ok(Leaf::parse(leaf_der)?.claims.mark.session)
    }

    /// Which host holds an SSH host certificate, after checking that it is for the name asked, as well as all that
    /// [`Trust::verify_user_ssh`] checks. What dials a node or a server asks [`Trust::verify_target_ssh`], which looks at
    /// the role, too.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn verify_host_ssh(
        &self,
        certificate: &Certificate,
        hostname: &str,
        now: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        let identity = self.verify_ssh(certificate, CaKind::Host, now)?;
        let asked = hostname.trim_end_matches('.');
        if certificate.valid_principals().iter().any(|name| name.eq_ignore_ascii_case(asked)) {
            Ok(identity)
        } else {
            Err(CaError::WrongHost {
                asked: hostname.to_owned(),
                names: certificate.valid_principals().to_vec(),
            })
        }
    }

    /// For which user a proxy speaks to an agent, and which proxy that is: checks the certificates of a connection, the
    /// leaf first, as [`Trust::identify_peer`] does, and that they were made for this agent.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal; [`CaError::OnBehalf`] when they were made for another agent.
    pub fn identify_proxied(
        &self,
        chain: &[CertificateDer<'_>],
        agent: HostId,
        now: OffsetDateTime,
    ) -> Result<(Identity, HostId), CaError> {
        let (leaf_der, intermediates) = chain
            .split_first()
            .ok_or_else(|| CaError::Malformed { reason: "there is no certificate".to_owned() })?;
        let leaf = Leaf::parse(leaf_der)?;
        let via = leaf.claims.mark.via.ok_or_else(|| CaError::Malformed {
            reason: "it does not say which proxy speaks for the user".to_owned(),
        })?;
        if via.agent != agent {
            return Err(CaError::OnBehalf { proxy: via.proxy, agent: via.agent });
        }
        let at = effective_time(leaf.not_before, leaf.not_after, now)?;
        self.anchors
            .users
            .verify_client_cert(leaf_der, intermediates, at)
            .map_err(|error| self.tls_refusal(&error, Expected::Only(CaKind::User)))?;
        let mark = Mark {
            device: leaf.claims.mark.device,
            pinned_to: leaf.claims.mark.pinned_to,
            ..Mark::default()
        };
        let claims = Claims { mark, ..leaf.claims };
        let identity = self.finish(claims, CaKind::User, leaf.not_before, leaf.not_after)?;
        Ok((identity, via.proxy))
    }

    pub(crate) fn identify_tls_with(
        &self,
        leaf_der: &[u8],
        intermediates: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<Arc<Verified>, CaError> {
        self.chains.judge(Purpose::Client, leaf_der, intermediates, now, || {
            let leaf = Leaf::parse(leaf_der)?;
            let signed_by = [CaKind::User, CaKind::Host]
                .into_iter()
                .find(|kind| self.tls_cas(*kind).iter().any(|ca| ca.subject == leaf.issuer))
                .ok_or_else(|| self.unknown_issuer(Expected::Either))?;
            let verifier = if signed_by == CaKind::User { &self.anchors.users } else { &self.anchors.hosts };
            let at = effective_time(leaf.not_before, leaf.not_after, now)?;
            verifier
                .verify_client_cert(&CertificateDer::from(leaf_der), intermediates, at)
                .map_err(|error| self.tls_refusal(&error, Expected::Only(signed_by)))?;
            let validity = (leaf.not_before, leaf.not_after);
            Ok((self.finish(leaf.claims, signed_by, leaf.not_before, leaf.not_after)?, validity))
        })
    }

    /// Whether a server is the host it should be.
    pub(crate) fn identify_server(
        &self,
        leaf_der: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: OffsetDateTime,
    ) -> Result<Arc<Verified>, CaError> {
        self.chains.judge(Purpose::Server(server_name), leaf_der, intermediates, now, || {
            let leaf = Leaf::parse(leaf_der)?;
            let at = effective_time(leaf.not_before, leaf.not_after, now)?;
            let verified =
                self.anchors.servers.verify_server_cert(leaf_der, intermediates, server_name, &[], at);
            verified.map_err(|error| match name_mismatch(&error) {
                Some(names) => CaError::WrongHost { asked: server_name.to_str().into_owned(), names },
                None => self.tls_refusal(&error, Expected::Only(CaKind::Host)),
            })?;
            let validity = (leaf.not_before, leaf.not_after);
            let identity = self.finish(leaf.claims, CaKind::Host, leaf.not_before, leaf.not_after)?;
            self.require_dialled(&identity, server_name)?;
            Ok((identity, validity))
        })
    }

    fn verify_ssh(
        &self,
        certificate: &Certificate,
        expected: CaKind,
        now: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        let got = match certificate.cert_type() {
            CertType::User => CaKind::User,
            CertType::Host => CaKind::Host,
        };
        if got != expected {
            return Err(CaError::WrongKind { got, expected });
        }
        let ca = self
            .ssh_cas(expected)
            .iter()
            .find(|ca| ca.data == *certificate.signature_key())
            .ok_or_else(|| self.unknown_issuer(Expected::Only(expected)))?;
        ssh::verify_signature(certificate, &ca.key)?;
        let claims = ssh::claims(certificate)?;
        let time = |seconds: u64| {
            i64::try_from(seconds)
                .ok()
                .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
                .ok_or_else(|| CaError::Malformed { reason: "its validity is out of range".to_owned() })
        };
        let (after, before) = (time(certificate.valid_after())?, time(certificate.valid_before())?);
        effective_time(after, before, now)?;
        self.finish(claims, expected, after, before)
    }

    /// The last checks, the same for both kinds of certificate.
    fn finish(
        &self,
        claims: Claims,
        signed_by: CaKind,
        after: OffsetDateTime,
        before: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        if let Some(Via { proxy, agent }) = claims.mark.via {
            return Err(CaError::OnBehalf { proxy, agent });
        }
        if claims.kind() != signed_by {
            return Err(CaError::WrongKind { got: claims.kind(), expected: signed_by });
        }
        if claims.cluster != self.anchors.cluster.as_str() {
            return Err(CaError::WrongCluster {
                got: claims.cluster,
                expected: self.anchors.cluster.to_string(),
            });
        }
        Ok(claims.into_identity(after, before))
    }

    fn tls_cas(&self, kind: CaKind) -> &[CaCertificate] {
        match kind {
            CaKind::User => &self.anchors.user_tls,
            CaKind::Host => &self.anchors.host_tls,
            _ => &[],
        }
    }

    fn ssh_cas(&self, kind: CaKind) -> &[SshCa] {
        match kind {
            CaKind::User => &self.anchors.user_ssh,
            CaKind::Host => &self.anchors.host_ssh,
            _ => &[],
        }
    }

    fn unknown_issuer(&self, expected: Expected) -> CaError {
        CaError::UnknownIssuer { expected, cluster: self.anchors.cluster.to_string() }
    }

    fn tls_refusal(&self, error: &rustls::Error, expected: Expected) -> CaError {
        match error {
            // The issuer's name is right and its key, or the kind of it, is not: a cluster of the same name, the same one made anew, or one
            // of its authorities beside another.
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer
                | CertificateError::BadSignature
                | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
                | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
            ) => self.unknown_issuer(expected),
            other => CaError::Refused { reason: other.to_string() },
        }
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("cluster", &self.anchors.cluster)
            .field("pins", &self.pins())
            .finish_non_exhaustive()
    }
}

/// Whether a certificate (DER) of a user is a machine user's, with which the next one may be asked for. Who holds it is
/// for [`Trust::identify_tls`] to say.
///
/// # Errors
/// [`CaError::Malformed`].
pub fn is_renewable(leaf_der: &[u8]) -> Result<bool, CaError> {
    Leaf::parse(leaf_der).map(|leaf| leaf.claims.mark.renewable)
}

/// Refuses an identity that is not a host with this role.
pub(crate) fn require_role(identity: &Identity, expected: HostRole) -> Result<(), CaError> {
    match &identity.principal {
        Principal::Host { role, .. } if *role == expected => Ok(()),
        Principal::Host { role, .. } => {
            Err(CaError::WrongRole { got: role.name().to_owned(), expected: expected.name().to_owned() })
        }
        Principal::User { .. } => {
            Err(CaError::WrongKind { got: extension::kind_of(&identity.principal), expected: CaKind::Host })
        }
    }
}

/// The chain that a server showed, checked against one CA certificate of that chain, and then the identity.
pub(crate) fn identify_pinned_server(
    ca: &CaCertificate,
    leaf_der: &CertificateDer<'_>,
    now: OffsetDateTime,
) -> Result<Identity, CaError> {
    let leaf = Leaf::parse(leaf_der)?;
    let at = effective_time(leaf.not_before, leaf.not_after, now)?;
    let refused = |error: &rustls::Error| match error {
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => CaError::BadSignature,
        other => CaError::Refused { reason: other.to_string() },
    };
    let certificate =
        rustls::server::ParsedCertificate::try_from(leaf_der).map_err(|error| refused(&error))?;
    rustls::client::verify_server_cert_signed_by_trust_anchor(
        &certificate,
        roots("the presented chain", std::slice::from_ref(ca))?.as_ref(),
        &[],
        at,
        tls::provider().signature_verification_algorithms.all,
    )
    .map_err(|error| refused(&error))?;
    if leaf.claims.kind() != CaKind::Host {
        return Err(CaError::WrongKind { got: leaf.claims.kind(), expected: CaKind::Host });
    }
    Ok(leaf.claims.into_identity(leaf.not_before, leaf.not_after))
}

fn name_mismatch(error: &rustls::Error) -> Option<Vec<String>> {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            Some(presented.clone())
        }
        rustls::Error::InvalidCertificate(CertificateError::NotValidForName) => Some(Vec::new()),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
