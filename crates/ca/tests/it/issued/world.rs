//! A cluster with all of its authorities, and one of each certificate.

use sallyport_access::{ClusterName, HostId, HostRole, NodeName};
use sallyport_ca::keys::SshKeyPair;
use sallyport_ca::{
    Authority, CaKind, DatabaseServerRequest, HostRequest, OpensshHostRequest, SpiffeId, SshCertificate,
    SshOptions, Trust, UserKind, issue_database_client, issue_database_server, issue_host,
    issue_openssh_host, issue_openssh_user, issue_proxied, issue_svid, issue_user_as,
};
use sallyport_sal::{KeyAlgorithm, Signer, Suite};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::cluster::{alice, leaf, pem};
use crate::kept;
use crate::prepared::Prepared;

pub(crate) struct World {
    pub(crate) authorities: Vec<Authority>,
    pub(crate) trust: Trust,
    pub(crate) now: OffsetDateTime,
}

/// An X.509 certificate with what it is for.
pub(crate) struct Leaf {
    pub(crate) name: &'static str,
    pub(crate) pem: String,
    pub(crate) authority: CaKind,
    pub(crate) client: bool,
    pub(crate) server: bool,
}

impl World {
    pub(crate) fn new(suite: Suite) -> Self {
        Self::named(suite, "prod")
    }

    pub(crate) fn named(suite: Suite, name: &str) -> Self {
        let custody = Prepared::default();
        let cluster = ClusterName::new(name).unwrap();
        let now = OffsetDateTime::from_unix_timestamp(OffsetDateTime::now_utc().unix_timestamp()).unwrap();
        let authorities: Vec<Authority> = CaKind::ALL
            .iter()
            .map(|kind| Authority::generate(*kind, &cluster, &custody, suite, now).unwrap())
            .collect();
        let trust = Trust::from_authorities(&authorities.iter().collect::<Vec<_>>(), None).unwrap();
        Self { authorities, trust, now }
    }

    pub(crate) fn authority(&self, kind: CaKind) -> &Authority {
        self.authorities.iter().find(|authority| authority.kind() == kind).unwrap()
    }

    pub(crate) fn openssh_user(&self) -> SshCertificate {
        let key = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        self.openssh_user_of(key.public_line())
    }

    pub(crate) fn openssh_user_of(&self, line: &str) -> SshCertificate {
        let options = SshOptions::default();
        let openssh = self.authority(CaKind::Openssh);
        issue_openssh_user(openssh, &alice(), line, self.now, Duration::hours(1), &options, None).unwrap()
    }

    pub(crate) fn openssh_host(&self, names: &[&str]) -> SshCertificate {
        let key = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        self.openssh_host_of(key.public_line(), names)
    }

    pub(crate) fn openssh_host_of(&self, line: &str, names: &[&str]) -> SshCertificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let request = OpensshHostRequest { names: &names, ssh_public_key: line };
        issue_openssh_host(self.authority(CaKind::Host), &request, self.now, Duration::days(1)).unwrap()
    }

    /// One X.509 certificate of every profile, for keys of one type.
    pub(crate) fn leaves(&self, algorithm: KeyAlgorithm) -> Vec<Leaf> {
        let spki = kept::key(algorithm).public_key().spki_der();
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        let (line, hour, now) = (ssh.public_line(), Duration::hours(1), self.now);
        let user = |kind| {
            let users = self.authority(CaKind::User);
            let options = SshOptions::default();
            issue_user_as(kind, users, &alice(), line, &spki, now, hour, &options).unwrap().tls_pem
        };
        let host = |role, public_names: &[String]| {
            let request = HostRequest {
                id: HostId::new(),
                name: &NodeName::new("web-1").unwrap(),
                role,
                join_id: Uuid::nil(),
                public_names,
                ssh_public_key: line,
                tls_spki: &spki,
            };
            let chain = issue_host(self.authority(CaKind::Host), &request, now, hour).unwrap().tls_pem;
            pem(&leaf(&chain))
        };
        let names = ["db.example.com".to_owned(), "*.pool.example.com".to_owned(), "192.0.2.1".to_owned()];
        let database = DatabaseServerRequest { names: &names, tls_spki: &spki };
        let svid = SpiffeId::new(self.trust.cluster(), "/ns/prod/sa/web").unwrap();
        let row = |name, authority, client, server, pem| Leaf { name, pem, authority, client, server };
        let of = |kind| self.authority(kind);
        let id = HostId::new();
        vec![
            row("user", CaKind::User, true, false, user(UserKind::Person)),
            row("web_session", CaKind::User, true, false, user(UserKind::WebSession)),
            row("bot", CaKind::User, true, false, user(UserKind::Bot)),
            row("host", CaKind::Host, true, true, host(HostRole::Node, &[])),
            row("proxy", CaKind::Host, true, true, host(HostRole::Proxy, &["ssh.example.com".to_owned()])),
            row(
                "proxy_to_agent",
                CaKind::User,
                true,
                false,
                issue_proxied(of(CaKind::User), &alice(), id, id, &spki, now, hour).unwrap().pem,
            ),
            row(
                "agent_to_database",
                CaKind::DbClient,
                true,
                false,
                issue_database_client(of(CaKind::DbClient), "größe", &spki, now, hour).unwrap().pem,
            ),
            row(
                "database_server",
                CaKind::Db,
                false,
                true,
                issue_database_server(of(CaKind::Db), &database, now, hour).unwrap().pem,
            ),
            row(
                "svid",
                CaKind::Spiffe,
                true,
                true,
                issue_svid(of(CaKind::Spiffe), &svid, &spki, now, hour).unwrap().pem,
            ),
        ]
    }
}
