//! A cluster for tests: both authorities, and certificates from them.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kept;
use crate::prepared::Prepared;
use sallyport_access::{
    ClusterName, HostId, HostRole, Identity, Login, NodeName, Principal, RoleName, UserName,
};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::{
    Authority, CaKind, HostCertificates, HostRequest, SshOptions, Trust, UserCertificates, issue_host,
    issue_user,
};
use sallyport_sal::custody::{Custody, SealedCustody, SealingKey};
use sallyport_sal::hpke::RecipientPublic;
use sallyport_sal::tls::rustls::pki_types::ServerName;
use sallyport_sal::tls::rustls::{self, ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use sallyport_sal::{KeyPurpose, Suite};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

pub const SUITE: Suite = Suite::BalancedV1;

pub struct Cluster {
    pub suite: Suite,
    pub custody: SealedCustody,
    pub users: Authority,
    pub hosts: Authority,
    pub trust: Trust,
    pub now: OffsetDateTime,
    pub dir: tempfile::TempDir,
}

pub struct User {
    pub ssh: SshKeyPair,
    pub tls: TlsKey,
    pub certificates: UserCertificates,
}

pub struct Host {
    pub id: HostId,
    pub ssh: SshKeyPair,
    pub tls: TlsKey,
    pub certificates: HostCertificates,
}

/// What recordings are sealed to.
pub(crate) fn recording_key() -> RecipientPublic {
    RecipientPublic::from_bytes(&[7; 32]).unwrap()
}

impl Cluster {
    pub fn new(name: &str) -> Self {
        Self::with_suite(name, SUITE)
    }

    pub fn with_suite(name: &str, suite: Suite) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let custody = SealedCustody::new(Arc::new(SealingKey::create(&dir.path().join("seal.key")).unwrap()));
        // Whole seconds, as certificates count.
        let now = OffsetDateTime::from_unix_timestamp(OffsetDateTime::now_utc().unix_timestamp()).unwrap();
        let name = ClusterName::new(name).unwrap();
        let prepared = Prepared::default();
        let keeps: &dyn Custody = if suite == SUITE { &custody } else { &prepared };
        let make = |kind| Authority::generate(kind, &name, keeps, suite, now).unwrap();
        let (users, hosts) = (make(CaKind::User), make(CaKind::Host));
        let trust = Trust::from_authorities(&[&users, &hosts], Some(recording_key())).unwrap();
        Self { suite, custody, users, hosts, trust, now, dir }
    }

    /// Keys of the types that the suite names.
    fn keys(&self, [ssh, tls]: [KeyPurpose; 2], comment: &str) -> (SshKeyPair, TlsKey) {
        if self.suite == SUITE {
            return (
                SshKeyPair::generate_for(self.suite, ssh, comment).unwrap(),
                TlsKey::generate_for(self.suite, tls).unwrap(),
            );
        }
        let [ssh, tls] = [ssh, tls].map(|purpose| kept::key(self.suite.algorithm(purpose)));
        (SshKeyPair::from_key(ssh, comment).unwrap(), TlsKey::from_key(&tls).unwrap())
    }

    pub fn user(&self, identity: &Identity) -> User {
        self.user_at(identity, self.now, Duration::hours(1))
    }

    pub fn user_at(&self, identity: &Identity, now: OffsetDateTime, ttl: Duration) -> User {
        let (ssh, tls) = self.keys([KeyPurpose::UserSsh, KeyPurpose::UserTls], "alice");
        self.certify_user(identity, ssh, tls, now, ttl)
    }

    pub fn certify_user(
        &self,
        identity: &Identity,
        ssh: SshKeyPair,
        tls: TlsKey,
        now: OffsetDateTime,
        ttl: Duration,
    ) -> User {
        let certificates = issue_user(
            &self.users,
            identity,
            ssh.public_line(),
            tls.spki_der(),
            now,
            ttl,
            &SshOptions::default(),
        )
        .unwrap();
        User { ssh, tls, certificates }
    }

    pub fn host(&self, name: &str, role: HostRole, public_names: &[&str]) -> Host {
        let (ssh, tls) = self.keys([KeyPurpose::HostSsh, KeyPurpose::HostTls], name);
        self.certify_host(name, role, public_names, ssh, tls)
    }

    pub fn certify_host(
        &self,
        name: &str,
        role: HostRole,
        public_names: &[&str],
        ssh: SshKeyPair,
        tls: TlsKey,
    ) -> Host {
        let id = HostId::new();
        let public_names: Vec<String> = public_names.iter().map(ToString::to_string).collect();
        let request = HostRequest {
            id,
            name: &NodeName::new(name).unwrap(),
            role,
            join_id: Uuid::from_u128(9),
            public_names: &public_names,
            ssh_public_key: ssh.public_line(),
            tls_spki: tls.spki_der(),
        };
        let certificates = issue_host(&self.hosts, &request, self.now, Duration::days(1)).unwrap();
        Host { id, ssh, tls, certificates }
    }
}

pub fn alice() -> Identity {
    user("alice", &["root", "deploy"])
}

pub fn user(name: &str, logins: &[&str]) -> Identity {
    Identity {
        principal: Principal::User {
            name: UserName::new(name).unwrap(),
            roles: vec![RoleName::new("dev").unwrap(), RoleName::new("audit").unwrap()],
            logins: logins.iter().map(|login| Login::new(*login).unwrap()).collect(),
            traits: BTreeMap::from([("team".to_owned(), vec!["db".to_owned(), "größe".to_owned()])]),
        },
        login_id: Uuid::from_u128(42),
        device: None,
        pinned_to: None,
        valid_after: OffsetDateTime::UNIX_EPOCH,
        valid_before: OffsetDateTime::UNIX_EPOCH,
    }
}

/// The DER of the first certificate in a PEM chain.
pub fn leaf(pem: &str) -> Vec<u8> {
    use sallyport_sal::tls::rustls::pki_types::CertificateDer;
    use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

pub fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", data_encoding::BASE64.encode(der))
}

/// Runs a handshake and a byte in each direction. The error is of the side that failed first.
pub fn connect(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut input = bytes.as_slice();
        while !input.is_empty() {
            server.read_tls(&mut input).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut input = bytes.as_slice();
        while !input.is_empty() {
            client.read_tls(&mut input).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}
