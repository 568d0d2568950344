//! Hosts that join by the API alone, with whatever they like to ask for.

use sallyport_ca::Opening;
use sallyport_ca::keys::{self, SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::{fips, v1};
use time::OffsetDateTime;
use tonic::Status;
use tonic::transport::Channel;

use super::{Cluster, authority_as, pin, pinned};

/// What a host joins with.
pub(crate) struct Joining {
    pub(crate) token: v1::CreateTokenRequest,
    pub(crate) request: v1::JoinRequest,
    /// Whether it says that it is in FIPS mode.
    fips: bool,
}

impl Joining {
    pub(crate) fn new(role: &str, name: &str) -> Self {
        let token = v1::CreateTokenRequest { role: role.to_owned(), ..Default::default() };
        let request = v1::JoinRequest { name: name.to_owned(), role: role.to_owned(), ..Default::default() };
        Self { token, request, fips: false }
    }

    pub(crate) fn reached_by(mut self, names: &[&str]) -> Self {
        self.request.public_names = names.iter().map(ToString::to_string).collect();
        self
    }

    pub(crate) fn in_fips_mode(mut self) -> Self {
        self.fips = true;
        self
    }

    pub(crate) fn at(mut self, address: &str) -> Self {
        self.request.address = address.to_owned();
        self
    }

    /// A token that lets its holder serve every database, under any label.
    pub(crate) fn for_databases(mut self) -> Self {
        self.token.databases = vec!["*".to_owned()];
        self.token.own_labels = [("*".to_owned(), "*".to_owned())].into();
        self
    }

    pub(crate) fn replacing(mut self, host: &str) -> Self {
        self.token.replace = host.to_owned();
        self
    }

    /// The token, as the administrator makes it.
    pub(crate) async fn token(&self, cluster: &Cluster) -> Result<String, Status> {
        let mut admin = cluster.admin().await;
        Ok(admin.create_token(self.token.clone()).await?.into_inner().token)
    }

    pub(crate) async fn join(self, cluster: &Cluster) -> Result<Member, Status> {
        let token = self.token(cluster).await?;
        self.join_with(cluster, &token).await
    }

    pub(crate) async fn join_with(mut self, cluster: &Cluster, token: &str) -> Result<Member, Status> {
        let pin = pin(&mut cluster.admin().await).await;
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "host").unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        self.request.token = token.to_owned();
        self.request.ssh_public_key = ssh.public_line().to_owned();
        self.request.tls_public_key = tls.spki_der().to_vec().into();
        let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
        let issued = login.join(fips::saying(self.request, self.fips)).await?.into_inner();
        let trust = cluster.running.authority().unwrap().trust();
        let key = tls.pkcs8_pem().to_string();
        let channel = authority_as(&cluster.proxy(), &trust, &issued.tls_certificate_pem, &key).await;
        Ok(Member { id: issued.host_id.clone(), channel, ssh, tls, key, issued })
    }
}

/// A host that has joined.
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) channel: Channel,
    pub(crate) ssh: SshKeyPair,
    pub(crate) tls: TlsKey,
    pub(crate) key: String,
    pub(crate) issued: v1::HostCertificates,
}

impl Member {
    pub(crate) fn fleet(&self) -> FleetClient<Channel> {
        FleetClient::new(self.channel.clone())
    }

    pub(crate) async fn renew(&self, names: &[&str]) -> Result<v1::HostCertificates, Status> {
        let request = v1::RenewHostRequest {
            ssh_public_key: self.ssh.public_line().to_owned(),
            tls_public_key: self.tls.spki_der().to_vec().into(),
            public_names: names.iter().map(ToString::to_string).collect(),
        };
        Ok(self.fleet().renew_host(request).await?.into_inner())
    }

    pub(crate) async fn beat(&self, request: v1::HeartbeatRequest) -> Result<Vec<String>, Status> {
        Ok(self.fleet().heartbeat(request).await?.into_inner().problems)
    }
}

/// A proxy's word that it has opened a session to this agent.
pub(crate) fn word(proxy: &Member, opening: &Opening<'_>) -> v1::DatabaseOpening {
    let certificate = &proxy.issued.ssh_certificate;
    let word = opening.sign(&*proxy.ssh.signer(), certificate, OffsetDateTime::now_utc()).unwrap();
    v1::DatabaseOpening {
        certificate: word.certificate,
        at: word.at,
        nonce: word.nonce.into(),
        signature: word.signature.into(),
    }
}

/// A request for a database certificate with the word of a proxy that has opened the session to this agent.
pub(crate) fn opened(
    proxy: &Member,
    agent: &str,
    request: v1::CertifyDatabaseUserRequest,
) -> v1::CertifyDatabaseUserRequest {
    let opening = Opening {
        agent: agent.parse().unwrap(),
        database: &request.database,
        db_user: &request.db_user,
        db_name: &request.db_name,
        user_certificate: &request.user_certificate,
    };
    let word = word(proxy, &opening);
    v1::CertifyDatabaseUserRequest { opened: Some(word), ..request }
}

/// The names in the SSH certificate of an answer.
pub(crate) fn principals(issued: &v1::HostCertificates) -> Vec<String> {
    keys::certificate(&issued.ssh_certificate).unwrap().valid_principals().to_vec()
}
