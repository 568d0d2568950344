//! What the logins are of: people with passwords and passkeys, programs at many addresses, and proxies for whose pages the lab speaks.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sallyport_access::{ClusterName, HostRole};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::{Trust, TrustBundle};
use sallyport_sal::Suite;
use sallyport_testing::authenticator::Authenticator;
use sallyport_testing::{CLUSTER, NODE, Testbed};
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::session_factors_client::SessionFactorsClient;
use sallyport_wire::v1::web_client::WebClient;
use sallyport_wire::{alpn, v1};
use tokio::net::{TcpSocket, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::Mutex as TurnMutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::Channel;

use super::calls::{Keys, Program, by_passkey};
use super::line::{Line, channel_by};
use super::provider::Provider;
use crate::LabError;

/// Where the pages are that passkeys are for.
pub(super) const ORIGIN: &str = "https://lab.test";
/// Lines of the authority's section.
pub(super) const AUTH: &str =
    "  authentication:\n    webauthn:\n      rp_id: lab.test\n      origins: [https://lab.test]\n";
/// The connector of single sign-on.
pub(super) const CONNECTOR: &str = "lab";
/// The role of those who prove a factor for a session, and what that is with: everything that is served.
const PROVING: &str = "proving";
const PROVING_ROLE: &str = "kind: role\nversion: v1\nmetadata:\n  name: proving\nspec:\n  allow:\n    logins: [guest]\n    node_labels: {'*': '*'}\n  \
                            options: {require_session_mfa: yes, session_mfa_ttl: 30m}\n";
/// Of everyone who has one.
pub(super) const PASSWORD: &str = "correct horse battery staple";
/// The role of those who log in and do no more.
const ROLE_NAME: &str = "guests";
const ROLE: &str =
    "kind: role\nversion: v1\nmetadata:\n  name: guests\nspec:\n  allow:\n    logins: [guest]\n";

/// The first address of the attackers: they and people share none.
const ATTACKERS: usize = 8192;

/// How many there are of each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// People with a password, and as many with a passkey.
    pub(super) people: usize,
    /// Addresses at which programs are: each may call 600 times a minute.
    pub(super) addresses: usize,
    /// Proxies: the pages of each may call 6,000 times a minute.
    pub(super) proxies: usize,
}

/// A proxy that the lab stands for.
pub(super) struct Proxy {
    pub(super) line: Line,
    pub(super) ssh_public: String,
    pub(super) tls_public: Vec<u8>,
}

impl Proxy {
    pub(super) fn pages(&self) -> WebClient<Channel> {
        WebClient::new(self.line.channel())
    }
}

/// Someone who has proven a factor for a session.
pub(super) struct Proven {
    /// As the person's login.
    pub(super) line: Line,
    /// What the certificates for that session are asked for with.
    pub(super) request: v1::CertifySessionRequest,
}

/// Several, of which each is used in its turn.
pub(super) struct InTurn<T> {
    all: Vec<T>,
    turn: AtomicUsize,
}

impl<T> InTurn<T> {
    fn of(all: Vec<T>) -> Result<Self, LabError> {
        if all.is_empty() {
            return Err(LabError::Input("there are no people to log in".to_owned()));
        }
        Ok(Self { all, turn: AtomicUsize::new(0) })
    }

    pub(super) fn next(&self) -> &T {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.all.get(turn % self.all.len()).expect("there is at least one")
    }
}

/// Everything that logins need.
pub(super) struct Stage {
    /// The runtime that it was made on, and that makes its logins.
    pub(super) crowd: Handle,
    pub(super) programs: InTurn<Program>,
    /// Where wrong passwords come from.
    pub(super) attackers: InTurn<Program>,
    pub(super) proxies: InTurn<Proxy>,
    pub(super) keys: Keys,
    /// Users with a password, by name.
    pub(super) passwords: InTurn<String>,
    /// Passkeys, each in use by one login at a time.
    pub(super) passkeys: InTurn<TurnMutex<Authenticator>>,
    /// Who comes by single sign-on.
    pub(super) persons: InTurn<String>,
    /// People who have proven a factor for a session.
    pub(super) proven: InTurn<Proven>,
    pub(super) provider: Provider,
    nobodies: AtomicUsize,
}

fn answered(what: &'static str) -> impl Fn(tonic::Status) -> LabError {
    move |status| LabError::Failed { what: what.to_owned(), said: status.message().to_owned() }
}

/// The addresses of programs: each in a network of its own, since a network has a bound of its own, too.
fn address(number: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes();
    Ipv4Addr::new(127, 64 | (high & 0x3f), low, 1)
}

struct Authority {
    at: SocketAddr,
    pin: String,
}

impl Authority {
    fn line(&self, from: Ipv4Addr, config: ClientConfig, name: &str) -> Result<Line, LabError> {
        let name = ServerName::try_from(name.to_owned()).map_err(LabError::of_connection)?;
        let (at, connector) = (self.at, TlsConnector::from(Arc::new(config)));
        let dial = move || {
            let (name, connector) = (name.clone(), connector.clone());
            async move {
                let socket = TcpSocket::new_v4()?;
                socket.bind(SocketAddr::from((from, 0)))?;
                socket.set_nodelay(true)?;
                connector.connect(name, socket.connect(at).await?).await
            }
        };
        Ok(Line::by(move || channel_by(dial.clone())))
    }

    /// As a program that has no certificate yet.
    fn stranger(&self, from: Ipv4Addr) -> Result<Line, LabError> {
        let config = sallyport_ca::tls::pinned_client_config(&self.pin, &[alpn::AUTH])
            .map_err(LabError::of_connection)?;
        self.line(from, config, "auth.sallyport.internal")
    }

    fn programs(&self, first: usize, count: usize) -> Result<Vec<Program>, LabError> {
        (first..first + count)
            .map(address)
            .map(|from| Ok(Program { line: self.stranger(from)?, address: from.to_string() }))
            .collect()
    }

    /// As a member of the cluster, by its certificate.
    fn member(
        &self,
        from: Ipv4Addr,
        bundle: Option<v1::TrustBundle>,
        certificate: &str,
        key: &TlsKey,
    ) -> Result<Line, LabError> {
        let bundle = bundle.unwrap_or_default();
        let trust = Trust::from_bundle(&TrustBundle {
            cluster: CLUSTER.to_owned(),
            user_ssh_keys: bundle.user_ssh_keys,
            host_ssh_keys: bundle.host_ssh_keys,
            user_tls_certificates: bundle.user_tls_certificates,
            host_tls_certificates: bundle.host_tls_certificates,
            recording_key: bundle.recording_key.to_vec(),
            ..TrustBundle::default()
        })
        .map_err(LabError::of_connection)?;
        let identity = (certificate, key.pkcs8_pem());
        let config = sallyport_ca::tls::client_config(&trust, Some((identity.0, &identity.1)), &[alpn::AUTH]);
        let cluster = ClusterName::new(CLUSTER).map_err(LabError::of_connection)?;
        let server = sallyport_ca::server_name(HostRole::Auth, &cluster);
        self.line(from, config.map_err(LabError::of_connection)?, &server)
    }

    async fn join(&self, token: String, number: usize) -> Result<Proxy, LabError> {
        let name = format!("pages-{number}");
        let ssh = SshKeyPair::generate(Suite::BalancedV1, &name).map_err(LabError::of_connection)?;
        let tls = TlsKey::generate(Suite::BalancedV1).map_err(LabError::of_connection)?;
        let request = v1::JoinRequest {
            token,
            name,
            role: "proxy".to_owned(),
            ssh_public_key: ssh.public_line().to_owned(),
            tls_public_key: tls.spki_der().to_vec().into(),
            ..Default::default()
        };
        let mut login = LoginClient::new(self.stranger(address(number))?.channel());
        let issued = login.join(request).await.map_err(answered("joining as a proxy"))?.into_inner();
        let line = self.member(address(number), issued.trust, &issued.tls_certificate_pem, &tls)?;
        Ok(Proxy { line, ssh_public: ssh.public_line().to_owned(), tls_public: tls.spki_der().to_vec() })
    }
}

impl Stage {
    /// Makes everyone. None of it is measured.
    pub(super) async fn set(testbed: &Testbed, size: Size) -> Result<Self, LabError> {
        let cluster = &testbed.cluster;
        let authority = Authority {
            at: SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.authority_port)),
            pin: cluster.pin().to_owned(),
        };
        let socket = cluster.authority_directory().join("admin.sock");
        let mut admin = AdminClient::new(channel_by(move || UnixStream::connect(socket.clone())));
        let mut proxies = Vec::new();
        for number in 0..size.proxies {
            let asked = v1::CreateTokenRequest { role: "proxy".to_owned(), ..Default::default() };
            let token =
                admin.create_token(asked).await.map_err(answered("making a token"))?.into_inner().token;
            proxies.push(authority.join(token, number).await?);
        }
        let programs = authority.programs(0, size.addresses)?;
        let attackers = authority.programs(ATTACKERS, size.addresses)?;
        let provider = Provider::start(testbed.directory()).await?;
        for yaml in [ROLE.to_owned(), PROVING_ROLE.to_owned(), provider.document(CONNECTOR, ORIGIN)] {
            let create = v1::CreateResourceRequest { yaml, replace: true };
            admin.create_resource(create).await.map_err(answered("making a role or a connector"))?;
        }
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "lab").map_err(LabError::of_connection)?;
        let tls = TlsKey::generate(Suite::BalancedV1).map_err(LabError::of_connection)?;
        let (programs, proxies) = (InTurn::of(programs)?, InTurn::of(proxies)?);
        let (mut passwords, mut passkeys) = (Vec::new(), Vec::new());
        for number in 0..size.people {
            let name = format!("with-password-{number}");
            let token = invited(&mut admin, &name, ROLE_NAME).await?;
            let finish = v1::FinishInviteRequest { token, password: PASSWORD.to_owned(), otp: String::new() };
            programs.next().login().finish_invite(finish).await.map_err(answered("setting a password"))?;
            passwords.push(name);
            let token = invited(&mut admin, &format!("with-passkey-{number}"), ROLE_NAME).await?;
            passkeys.push(TurnMutex::new(passkey(proxies.next().pages(), token).await?));
        }
        let keys = Keys { ssh: ssh.public_line().to_owned(), tls: tls.spki_der().to_vec() };
        let mut proven = Vec::new();
        for number in 0..size.people.div_ceil(4) {
            let token = invited(&mut admin, &format!("with-proof-{number}"), PROVING).await?;
            let mut authenticator = passkey(proxies.next().pages(), token).await?;
            let pages = proxies.next().pages();
            let program = programs.next();
            let login = by_passkey(program, pages.clone(), &mut authenticator, &keys).await;
            let login = login.map_err(answered("logging in"))?;
            let line = authority.member(address(number), login.trust, &login.tls_certificate_pem, &tls)?;
            let challenge = prove(line.channel(), pages, &program.address, &mut authenticator).await?;
            let request = v1::CertifySessionRequest {
                challenge,
                ssh_certificate: login.ssh_certificate,
                tls_certificate_pem: login.tls_certificate_pem,
            };
            proven.push(Proven { line, request });
        }
        Ok(Self {
            crowd: Handle::current(),
            programs,
            proven: InTurn::of(proven)?,
            attackers: InTurn::of(attackers)?,
            proxies,
            keys,
            passwords: InTurn::of(passwords)?,
            passkeys: InTurn::of(passkeys)?,
            persons: InTurn::of((0..size.people).map(|number| format!("person-{number}")).collect())?,
            provider,
            nobodies: AtomicUsize::new(0),
        })
    }

    /// A name that no user has, and that was not tried before.
    pub(super) fn nobody(&self) -> String {
        format!("nobody-{}", self.nobodies.fetch_add(1, Ordering::Relaxed))
    }
}

async fn passkey(mut web: WebClient<Channel>, token: String) -> Result<Authenticator, LabError> {
    let link = v1::WebInviteRequest { token: token.clone(), address: "127.0.0.1".to_owned() };
    let options = web.begin_invite_passkey(link).await.map_err(answered("making a passkey"))?;
    let mut authenticator = Authenticator::at(ORIGIN);
    let request = v1::WebFinishInviteRequest {
        token,
        address: "127.0.0.1".to_owned(),
        name: "lab".to_owned(),
        response_json: authenticator.create(&options.into_inner().options_json),
    };
    web.finish_invite_passkey(request).await.map_err(answered("making a passkey"))?;
    Ok(authenticator)
}

/// Proves a passkey for a session with the node, and gives the challenge that it was proven by.
async fn prove(
    channel: Channel,
    mut pages: WebClient<Channel>,
    address: &str,
    authenticator: &mut Authenticator,
) -> Result<String, LabError> {
    let failed = || answered("proving a factor for a session");
    let target = v1::SessionTarget {
        kind: "node".to_owned(),
        resource: NODE.to_owned(),
        account: "guest".to_owned(),
        ..Default::default()
    };
    let wanted = v1::BeginSessionFactorRequest {
        targets: vec![target],
        host_name: "lab".to_owned(),
        ..Default::default()
    };
    let asked = SessionFactorsClient::new(channel).begin(wanted).await.map_err(failed())?.into_inner();
    let id = asked.page.unwrap_or_default().challenge;
    let begin = v1::WebBeginPasskeyRequest { id: id.clone(), address: address.to_owned(), code: asked.code };
    let options = pages.begin_approval_passkey(begin).await.map_err(failed())?.into_inner();
    let response_json = authenticator.get(&options.options_json);
    let finish = v1::WebFinishPasskeyRequest { id: id.clone(), address: address.to_owned(), response_json };
    pages.finish_approval_passkey(finish).await.map_err(failed())?;
    Ok(id)
}

async fn invited(admin: &mut AdminClient<Channel>, name: &str, role: &str) -> Result<String, LabError> {
    let create =
        v1::CreateUserRequest { name: name.to_owned(), roles: vec![role.to_owned()], ..Default::default() };
    Ok(admin.create_user(create).await.map_err(answered("making a user"))?.into_inner().token)
}
