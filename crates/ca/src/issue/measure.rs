//! What it takes to issue: the four certificates of logins and joins, with each suite's keys.
//!
//! A [`Workbench`] does what the authority does when it has decided to certify a user or host, and knows how much of that was
//! the signature. Deciding, writing down and storing are not in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use sallyport_access::{
    ClusterName, HostId, HostRole, Identity, Login, NodeName, Principal, Traits, UserName,
};
use sallyport_sal::algorithm::SignatureScheme;
use sallyport_sal::custody::{Custody, StoredKey};
use sallyport_sal::formats::openssh;
use sallyport_sal::{KeyAlgorithm, KeyPurpose, MemoryKey, PublicKey, SalError, SignError, Signer, Suite};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::host::{HostRequest, host_ssh, host_tls};
use super::user::{SshOptions, user_ssh, user_tls};
use super::{Job, tls_key};
use crate::lifetimes::CertificateKind;
use crate::{Authority, CaError, CaKind, extension, ssh};

/// A certificate that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// The SSH certificate of a login.
    UserSsh,
    /// The X.509 certificate of a login.
    UserTls,
    /// The SSH certificate of a node.
    HostSsh,
    /// The X.509 certificate of a node.
    HostTls,
}

impl Measured {
    /// All of them.
    pub const ALL: &[Self] = &[Self::UserSsh, Self::UserTls, Self::HostSsh, Self::HostTls];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UserSsh => "user SSH",
            Self::UserTls => "user TLS",
            Self::HostSsh => "host SSH",
            Self::HostTls => "host TLS",
        }
    }

    fn authority(self) -> CaKind {
        match self {
            Self::UserSsh | Self::UserTls => CaKind::User,
            Self::HostSsh | Self::HostTls => CaKind::Host,
        }
    }

    fn purpose(self) -> KeyPurpose {
        match self {
            Self::UserSsh => KeyPurpose::UserSsh,
            Self::UserTls => KeyPurpose::UserTls,
            Self::HostSsh => KeyPurpose::HostSsh,
            Self::HostTls => KeyPurpose::HostTls,
        }
    }

    fn is_ssh(self) -> bool {
        matches!(self, Self::UserSsh | Self::HostSsh)
    }
}

/// An authority that issues one kind of certificate, over and over.
#[derive(Debug)]
pub struct Workbench {
    measured: Measured,
    authority: Authority,
    signing: Arc<AtomicU64>,
    signer: KeyAlgorithm,
    subject: KeyAlgorithm,
    ready: Subject,
    identity: Identity,
    node: (HostId, NodeName),
}

/// A subject's public key, as it is sent to be certified.
#[derive(Debug)]
enum Subject {
    Ssh(String),
    Tls(Vec<u8>),
}

impl Workbench {
    /// With fresh keys of the suite's types, in memory.
    ///
    /// # Errors
    /// [`CaError::Keys`] when no source makes such keys.
    pub fn new(suite: Suite, measured: Measured) -> Result<Self, CaError> {
        let bad = |error: sallyport_access::IdError| CaError::BadName {
            name: error.to_string(),
            reason: "it is a name of the measurement",
        };
        let cluster = ClusterName::new("example.com").map_err(bad)?;
        let custody = Drawer::default();
        let now = OffsetDateTime::now_utc();
        let authority = Authority::generate(measured.authority(), &cluster, &custody, suite, now)?;
        let signer =
            if measured.is_ssh() { authority.ssh()?.algorithm() } else { authority.tls()?.algorithm() };
        let subject = suite.algorithm(measured.purpose());
        let logins = ["root", "deploy"].into_iter().map(Login::new).collect::<Result<_, _>>().map_err(bad)?;
        let identity = Identity {
            principal: Principal::User {
                name: UserName::new("alice").map_err(bad)?,
                roles: Vec::new(),
                logins,
                traits: Traits::new(),
            },
            login_id: Uuid::new_v4(),
            device: None,
            pinned_to: None,
            valid_after: now,
            valid_before: now,
        };
        Ok(Self {
            measured,
            signing: Arc::clone(&custody.signing),
            signer,
            subject,
            ready: subject_key(measured, subject)?,
            identity,
            node: (HostId::new(), NodeName::new("web-1").map_err(bad)?),
            authority,
        })
    }

    /// The type of the authority's key.
    #[must_use]
    pub fn signer(&self) -> KeyAlgorithm {
        self.signer
    }

    /// The type of the certified key.
    #[must_use]
    pub fn subject(&self) -> KeyAlgorithm {
        self.subject
    }

    /// Issues a certificate for a key that is there, and says how long the signature took.
    ///
    /// # Errors
    /// As [`issue_user`](super::issue_user) and [`issue_host`](super::issue_host).
    pub fn issue(&self) -> Result<std::time::Duration, CaError> {
        self.certify(&self.ready)
    }

    /// Makes a key first.
    ///
    /// # Errors
    /// As [`Workbench::issue`].
    pub fn issue_for_a_new_key(&self) -> Result<std::time::Duration, CaError> {
        self.certify(&subject_key(self.measured, self.subject)?)
    }

    fn certify(&self, subject: &Subject) -> Result<std::time::Duration, CaError> {
        let before = self.signing.load(Ordering::Relaxed);
        let (now, ttl) = (OffsetDateTime::now_utc(), Duration::hours(12));
        let kind = match self.measured.authority() {
            CaKind::User => CertificateKind::User,
            _ => CertificateKind::Host,
        };
        let job = Job::new(&self.authority, kind, now, ttl)?.of_login(self.identity.login_id);
        match (subject, kind) {
            (Subject::Ssh(line), CertificateKind::User) => {
                user_ssh(&job, &self.identity, &ssh::subject_key(line)?, &SshOptions::default(), None)
                    .map(drop)
            }
            (Subject::Tls(spki), CertificateKind::User) => {
                user_tls(&job, &self.identity, &tls_key(spki)?, extension::Mark::default()).map(drop)
            }
            (Subject::Ssh(line), _) => {
                let host = self.host();
                host_ssh(&job, &host, &ssh::subject_key(line)?, host.role).map(drop)
            }
            (Subject::Tls(spki), _) => host_tls(&job, &self.host(), &tls_key(spki)?).map(drop),
        }?;
        let signing = self.signing.load(Ordering::Relaxed).saturating_sub(before);
        Ok(std::time::Duration::from_nanos(signing))
    }

    fn host(&self) -> HostRequest<'_> {
        HostRequest {
            id: self.node.0,
            name: &self.node.1,
            role: HostRole::Node,
            join_id: self.identity.login_id,
            public_names: &[],
            ssh_public_key: "",
            tls_spki: &[],
        }
    }
}

fn subject_key(measured: Measured, algorithm: KeyAlgorithm) -> Result<Subject, CaError> {
    let public = MemoryKey::generate_for(measured.purpose(), algorithm)?.public_key();
    if !measured.is_ssh() {
        return Ok(Subject::Tls(public.spki_der()));
    }
    openssh::encode_line(&public, "alice")
        .map(Subject::Ssh)
        .map_err(|error| CaError::Encode { what: "an SSH public key", reason: error.to_string() })
}

/// Custody for as long as the measurement takes: in memory, by position.
#[derive(Debug, Default)]
struct Drawer {
    keys: Mutex<Vec<Arc<Timed>>>,
    signing: Arc<AtomicU64>,
}

impl Drawer {
    const NAME: &'static str = "measurement";
}

impl Custody for Drawer {
    fn generate_for(
        &self,
        purpose: Option<KeyPurpose>,
        label: &str,
        algorithm: KeyAlgorithm,
    ) -> Result<StoredKey, SalError> {
        let key = match purpose {
            Some(purpose) => MemoryKey::generate_for(purpose, algorithm)?,
            None => MemoryKey::generate(algorithm)?,
        };
        let public_key = data_encoding::BASE64.encode(&key.public_key().spki_der());
        let mut keys = self.keys.lock();
        keys.push(Arc::new(Timed { key, signing: Arc::clone(&self.signing) }));
        Ok(StoredKey {
            custody: Self::NAME.to_owned(),
            label: label.to_owned(),
            algorithm,
            public_key,
            handle: String::new(),
        })
    }

    fn load(&self, stored: &StoredKey) -> Result<Arc<dyn Signer>, SalError> {
        let public = stored.public_key()?;
        let keys = self.keys.lock();
        match keys.iter().find(|timed| timed.public_key() == public) {
            Some(timed) => Ok(Arc::clone(timed) as Arc<dyn Signer>),
            None => Err(SalError::WrongCustody {
                label: stored.label.clone(),
                got: stored.custody.clone(),
                expected: Self::NAME,
            }),
        }
    }
}

/// A key that adds up, in nanoseconds, how long it signs.
#[derive(Debug)]
struct Timed {
    key: MemoryKey,
    signing: Arc<AtomicU64>,
}

impl Signer for Timed {
    fn algorithm(&self) -> KeyAlgorithm {
        self.key.algorithm()
    }

    fn public_key(&self) -> PublicKey {
        self.key.public_key()
    }

    fn sign_with(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let started = Instant::now();
        let signature = self.key.sign_with(scheme, message);
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.signing.fetch_add(took, Ordering::Relaxed);
        signature
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_suite_issues_every_certificate_with_its_own_keys() {
        std::thread::scope(|scope| {
            for suite in Suite::ALL {
                scope.spawn(|| Measured::ALL.iter().for_each(|measured| issues(*suite, *measured)));
            }
        });
        let legacy = Workbench::new(Suite::Legacy, Measured::HostSsh).unwrap();
        assert_eq!((legacy.signer(), legacy.subject()), (KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa2048));
    }

    fn issues(suite: Suite, measured: Measured) {
        let bench = Workbench::new(suite, measured).unwrap();
        assert_eq!(bench.subject(), suite.algorithm(measured.purpose()));
        let started = Instant::now();
        let signing = bench.issue().unwrap() + bench.issue_for_a_new_key().unwrap();
        assert!(signing > std::time::Duration::ZERO && signing < started.elapsed(), "{suite} {measured:?}");
    }
}
