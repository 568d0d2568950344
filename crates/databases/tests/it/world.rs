//! A cluster without its services: authorities, roles, locks, and a service for databases.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use sallyport_access::{
    ClusterName, Database, DatabaseAccount, DatabaseLogin, DatabaseName, DatabasePermit, DatabaseProtocol,
    DatabaseTls, DatabaseTlsMode, Identity, Lock, LockTarget, NodeName, Policies, Principal, Refusal, Role,
    RoleName, SessionId, UserName,
};
use sallyport_audit::event::MemorySink;
use sallyport_audit::recording::{Body, Frame, Reader, Recorders};
use sallyport_audit::{Code, Event};
use sallyport_ca::{Authority, CaKind, DatabaseServerRequest, issue_database_client, issue_database_server};
use sallyport_databases::postgres::startup::CancelKey;
use sallyport_databases::service::danger::{self, Pace};
use sallyport_databases::service::{
    Asked, Came, Credentials, CredentialsError, Directory, Service, Settings, Wanted,
};
use sallyport_sal::algorithm::KeyAlgorithm;
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::hpke::{Kem, RecipientKeys};
use sallyport_sal::suite::Suite;
use sallyport_sal::{MemoryKey, Signer};
use sallyport_session::LiveSessions;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, version};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::postgres::Postgres;

/// How long a test waits for anything; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(10);

/// The two authorities for databases.
pub(crate) struct Pki {
    servers: Authority,
    clients: Authority,
    pub(crate) server_ca: String,
    pub(crate) client_ca: String,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = SealingKey::open_or_create(&directory.path().join("key")).unwrap();
        let custody = SealedCustody::new(Arc::new(key));
        let cluster = ClusterName::new("example.com").unwrap();
        let make = |kind| {
            Authority::generate(kind, &cluster, &custody, Suite::BalancedV1, OffsetDateTime::now_utc())
                .unwrap()
        };
        let (servers, clients) = (make(CaKind::Db), make(CaKind::DbClient));
        let pem = |authority: &Authority| authority.record().tls_certificate_pem.clone();
        Self { server_ca: pem(&servers), client_ca: pem(&clients), servers, clients }
    }

    /// A certificate and its key.
    pub(crate) fn server(&self, names: &[String]) -> (String, String) {
        let key = MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let request = DatabaseServerRequest { names, tls_spki: &key.public_key().spki_der() };
        let (now, day) = (OffsetDateTime::now_utc(), time::Duration::days(1));
        let issued = issue_database_server(&self.servers, &request, now, day).unwrap();
        (issued.pem, key.to_pkcs8_pem().unwrap().to_string())
    }

    fn client(&self, user: &str) -> (String, String) {
        let key = MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let (now, hour) = (OffsetDateTime::now_utc(), time::Duration::minutes(30));
        let issued =
            issue_database_client(&self.clients, user, &key.public_key().spki_der(), now, hour).unwrap();
        (issued.pem, key.to_pkcs8_pem().unwrap().to_string())
    }
}

/// What the tests change of a cluster.
pub(crate) struct Cluster {
    pub(crate) pki: Pki,
    policies: Mutex<Policies>,
    locks: Mutex<Vec<Lock>>,
    databases: Mutex<HashMap<DatabaseName, Arc<Database>>>,
    changes: watch::Sender<u64>,
    configs: Mutex<HashMap<(String, String), Arc<ClientConfig>>>,
    pub(crate) passwords: Mutex<HashMap<String, String>>,
    /// How those came for whom a permit was asked.
    pub(crate) permitted: Mutex<Vec<Came>>,
    /// For whom it was asked what is held.
    pub(crate) held: Mutex<Vec<String>>,
    /// Whose credentials were looked after.
    pub(crate) renewed: Mutex<Vec<String>>,
    /// Whose password was asked for, in which database.
    pub(crate) asked: Mutex<Vec<(String, String)>>,
}

impl Directory for Cluster {
    fn database(&self, name: &DatabaseName) -> Option<Arc<Database>> {
        self.databases.lock().unwrap().get(name).cloned()
    }

    fn decide(
        &self,
        identity: &Identity,
        database: &Database,
        account: &DatabaseAccount,
        now: OffsetDateTime,
    ) -> Result<DatabasePermit, Refusal> {
        let locks = self.locks.lock().unwrap();
        self.policies.lock().unwrap().decide(identity, database, account, &locks, now)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[async_trait]
impl Credentials for Cluster {
    async fn permit(&self, wanted: &Wanted) -> Result<(), CredentialsError> {
        self.permitted.lock().unwrap().push(wanted.came);
        match wanted.user() {
            "unpermitted" => {
                Err(CredentialsError::Refused("the authority permits no such session".to_owned()))
            }
            _ => Ok(()),
        }
    }

    async fn tls(&self, wanted: &Wanted) -> Result<Arc<ClientConfig>, CredentialsError> {
        if wanted.user() == "denied" {
            return Err(CredentialsError::Refused("the authority denies it".to_owned()));
        }
        let ca = wanted.database.tls.ca_pem.clone().unwrap_or_else(|| self.pki.server_ca.clone());
        let key = (wanted.user().to_owned(), ca.clone());
        if let Some(config) = self.configs.lock().unwrap().get(&key) {
            return Ok(Arc::clone(config));
        }
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let (chain, private) = self.pki.client(wanted.user());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
        let private = PrivateKeyDer::from_pem_slice(private.as_bytes()).unwrap();
        let config = ClientConfig::builder_with_provider(sallyport_sal::tls::provider())
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, private)
            .unwrap();
        let config = Arc::new(config);
        self.configs.lock().unwrap().insert(key, Arc::clone(&config));
        Ok(config)
    }

    fn held(&self, wanted: &Wanted) -> Option<Arc<ClientConfig>> {
        self.held.lock().unwrap().push(wanted.user().to_owned());
        None
    }

    async fn renew(&self, wanted: &Wanted) -> Result<(), CredentialsError> {
        self.renewed.lock().unwrap().push(wanted.user().to_owned());
        Ok(())
    }

    fn password(&self, wanted: &Wanted) -> Option<Zeroizing<String>> {
        let whose = (wanted.user().to_owned(), wanted.db_name().to_owned());
        self.asked.lock().unwrap().push(whose);
        self.passwords.lock().unwrap().get(wanted.user()).cloned().map(Zeroizing::new)
    }
}

/// A cluster with an agent that serves one database, `prod`.
pub(crate) struct World {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) postgres: Postgres,
    pub(crate) service: Service,
    pub(crate) live: LiveSessions,
    pub(crate) sink: Arc<MemorySink>,
    recordings: tempfile::TempDir,
    key: RecipientKeys,
}

impl World {
    /// With these options in alice's role.
    pub(crate) fn new(options: &str) -> Self {
        Self::paced(options, |_| {})
    }

    /// With a service at another pace.
    pub(crate) fn paced(options: &str, change: impl FnOnce(&mut Pace)) -> Self {
        Self::with(options, Duration::from_secs(10), change)
    }

    /// With a service of less patience.
    pub(crate) fn hasty(options: &str, patience: Duration) -> Self {
        Self::with(options, patience, |_| {})
    }

    fn with(options: &str, patience: Duration, change: impl FnOnce(&mut Pace)) -> Self {
        // It looks more often than the product does, and no less long.
        let mut pace = Pace {
            look: Duration::from_millis(20),
            looks: 500,
            gone: Duration::from_millis(200),
            ..Pace::of(patience)
        };
        change(&mut pace);
        let pki = Pki::new();
        let postgres = Postgres::start(&pki);
        let cluster = Arc::new(Cluster {
            pki,
            policies: Mutex::new(policies(options, "reader")),
            locks: Mutex::default(),
            databases: Mutex::default(),
            changes: watch::channel(0).0,
            configs: Mutex::default(),
            passwords: Mutex::default(),
            held: Mutex::default(),
            renewed: Mutex::default(),
            permitted: Mutex::default(),
            asked: Mutex::default(),
        });
        let (recordings, key) = (tempfile::tempdir().unwrap(), RecipientKeys::generate(Kem::X25519).unwrap());
        let (sink, live) = (Arc::new(MemorySink::default()), LiveSessions::default());
        let settings = Settings {
            directory: cluster.clone(),
            credentials: cluster.clone(),
            live: live.clone(),
            sink: sink.clone(),
            recorders: Recorders::open(recordings.path(), key.public()).unwrap(),
            cluster: "example.com".to_owned(),
            agent: NodeName::new("agent-1").unwrap(),
            agent_id: "id".to_owned(),
            patience,
        };
        let service = danger::paced(settings, pace);
        let world = Self { cluster, postgres, service, live, sink, recordings, key };
        world.serve(|_| {});
        world
    }

    /// Serves `prod` with something else about it.
    pub(crate) fn serve(&self, change: impl FnOnce(&mut Database)) {
        let mut database = Database {
            name: DatabaseName::new("prod").unwrap(),
            labels: [("env", "prod")].into_iter().collect(),
            protocol: DatabaseProtocol::Postgres,
            address: format!("127.0.0.1:{}", self.postgres.port),
            agents: vec![NodeName::new("agent-1").unwrap()],
            tls: DatabaseTls { mode: DatabaseTlsMode::VerifyFull, ..DatabaseTls::default() },
            login: DatabaseLogin::Certificate,
            admin_user: Some("keeper".to_owned()),
        };
        change(&mut database);
        self.cluster.databases.lock().unwrap().insert(database.name.clone(), Arc::new(database));
        self.changed();
    }

    fn changed(&self) {
        self.cluster.changes.send_modify(|changes| *changes += 1);
    }

    /// Gives alice's role other options.
    pub(crate) fn set(&self, options: &str) {
        self.give(options, "reader");
    }

    /// Gives alice's role other options, and other roles of databases.
    pub(crate) fn give(&self, options: &str, roles: &str) {
        *self.cluster.policies.lock().unwrap() = policies(options, roles);
        self.changed();
    }

    /// Locks alice out.
    pub(crate) fn lock(&self) {
        self.cluster.locks.lock().unwrap().push(Lock {
            name: "out".to_owned(),
            target: LockTarget::User(UserName::new("alice").unwrap()),
            message: "call security".to_owned(),
            expires: None,
        });
        self.changed();
    }

    /// What the proxy asks for alice, whose certificate is good for so long.
    pub(crate) fn asked(&self, valid: Duration) -> Asked {
        let now = OffsetDateTime::now_utc();
        let secret = sallyport_sal::random::bytes::<4>().unwrap().to_vec();
        Asked {
            database: DatabaseName::new("prod").unwrap(),
            identity: Identity {
                principal: Principal::User {
                    name: UserName::new("alice").unwrap(),
                    roles: vec![RoleName::new("dev").unwrap()],
                    logins: Vec::new(),
                    traits: BTreeMap::new(),
                },
                login_id: Uuid::nil(),
                device: None,
                pinned_to: None,
                valid_after: now - Duration::from_secs(60),
                valid_before: now + valid,
            },
            proof: Bytes::from_static(b"certificate"),
            opened: Bytes::new(),
            came: Came::EndToEnd,
            client: "192.0.2.7:40000".to_owned(),
            cancel: CancelKey { process: u32::from_be_bytes(*secret.first_chunk().unwrap()), secret },
            session: SessionId::new(),
            opening: tracing::Span::none(),
        }
    }

    pub(crate) fn of(&self, code: &Code) -> Vec<Event> {
        self.sink.events().into_iter().filter(|event| event.code == *code).collect()
    }

    /// Waits for an event.
    pub(crate) async fn event(&self, code: Code) -> Event {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.of(&code).pop() {
                return event;
            }
            let events = || self.sink.events();
            assert!(Instant::now() < deadline, "no {} among {:#?}", code.kind(), events());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until no client is connected.
    pub(crate) async fn quiet(&self) {
        self.until_sessions(0).await;
    }

    /// Waits until so many are connected. A session is one to the very end of its clearing up.
    pub(crate) async fn until_sessions(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.service.sessions() != count {
            assert!(Instant::now() < deadline, "{} sessions, and not {count}", self.service.sessions());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until credentials were looked after so often.
    pub(crate) async fn renewals(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.cluster.renewed.lock().unwrap().len() < count {
            assert!(Instant::now() < deadline, "credentials are not looked after");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// From now on no recording can be made.
    pub(crate) fn lose_recordings(&self) {
        fs::remove_dir_all(self.recordings.path()).unwrap();
    }

    /// What a session's recording holds.
    pub(crate) fn recording(&self, session: &SessionId) -> Vec<Frame> {
        let path = self.recordings.path().join(format!("{session}.rec"));
        let mut reader = Reader::open(fs::File::open(path).unwrap(), &self.key).unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            frames.push(frame);
        }
        assert!(reader.damage().is_empty() && reader.is_complete());
        frames
    }

    /// The same as words, without times.
    pub(crate) fn recorded(&self, session: &SessionId) -> Vec<String> {
        let frames = self.recording(session);
        let words = frames.iter().filter_map(|frame| match &frame.body {
            Body::Database(frame) => {
                let text = format!("{frame:?}");
                Some(text.split(", took_us").next().unwrap_or_default().to_owned())
            }
            _ => None,
        });
        words.collect()
    }
}

fn policies(options: &str, roles: &str) -> Policies {
    let role = format!(
        "kind: role\nversion: v1\nmetadata: {{name: dev}}\nspec: {{allow: {{db_labels: {{'*': '*'}}, db_names: ['*'], \
         db_users: ['*'], db_roles: [{roles}]}}, deny: {{db_users: [forbidden]}}, options: {{{options}}}}}\n"
    );
    Policies::compile(&[Role::parse(&role).unwrap_or_else(|errors| panic!("{errors}"))]).unwrap()
}
