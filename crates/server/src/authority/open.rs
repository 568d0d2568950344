//! Opening a data directory, and making it the first time.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use crate::tasks::Tasks;
use sallyport_access::{HostId, HostRole, NodeName, Role, role};
use sallyport_audit::log::{AuditLog, Opened};
use sallyport_audit::recording::RecordingStore;
use sallyport_audit::{Code, Event};
use sallyport_ca::keys::TlsKey;
use sallyport_ca::rotation::CaState;
use sallyport_ca::{CaKind, CertificateKind, HostRequest, Issued, issue_host_tls, tls};
use sallyport_sal::custody::{Custody, SealedCustody, SealingKey};
use sallyport_sal::hpke::RecipientKeys;
use sallyport_sal::{KeyPurpose, Suite};
use sallyport_store::{Backend, Kind, SqliteBackend, Store, typed};
use sallyport_wire::alpn;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use super::authorities::{self, Authorities};
use super::custodies::Custodies;
use super::databases::Databases;
use super::fips::{check_fips, in_fips_mode};
use super::issued::with_certificates;
use super::people::People;
use super::rotation::Confirmations;
use super::state::{CaRecord, ClusterRecord, KeyRecord, NodeRecord, RoleRecord};
use super::view::{self, PAGE, Presence};
use super::{
    AuthConfig, Authority, Inner, budgets, guesses, heads, passwords, recording_keys, refusals, seen,
};
use crate::ServerError;
use crate::seen::Seen;
use crate::workers::Workers;

/// Threads that read recordings, the log and documents, a piece at a time, and pieces that may wait for them.
pub(super) const READERS: usize = 4;
const READS_WAITING: usize = 256;
pub(super) const SELF: &str = "self";
const CHECKPOINT_KEY: &str = "audit-checkpoint";
/// Lifetime of the authority's own certificate, within the bounds of every host's; renewed at every start and every day.
const OWN_TTL: time::Duration = time::Duration::days(30);

pub(super) async fn open(config: AuthConfig, now: OffsetDateTime) -> Result<Authority, ServerError> {
    open_with(config, |backend| backend, now).await
}

/// [`open`] with something between the authority and its state.
pub(super) async fn open_with(
    config: AuthConfig,
    wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
    now: OffsetDateTime,
) -> Result<Authority, ServerError> {
    let directory = config.data_dir.join("auth");
    private_directory(&config.data_dir)?;
    private_directory(&directory)?;
    let seal = Arc::new(seal_key(&directory)?);
    let state_path = directory.join("state.db");
    let backend = SqliteBackend::open(&state_path).map_err(authority("open its state"))?;
    let store = Store::new(wrap(Arc::new(backend)));
    let custodies = Arc::new(Custodies::open(Arc::clone(&seal), config.ca_keys.clone())?);
    let first = store.get::<ClusterRecord>(SELF, now).await.map_err(authority("read its state"))?.is_none();
    if first {
        create(&store, &config, &custodies, &seal, now).await?;
        info!(cluster = %config.cluster, "a new cluster was made");
    }
    let loaded = load(&store, &config, &custodies, &seal, &directory, now).await?;
    let recording_key = loaded.recording_keys.public();
    let kept = heads::kept(&store, &seal, &directory, now).await?;
    let Opened { log, repair, broken } =
        AuditLog::open_against(&directory.join("audit"), loaded.checkpoint_signer, kept, now)
            .map_err(authority("open its audit log"))?;
    let recordings = RecordingStore::open(&directory.join("recordings"), Arc::new(loaded.recording_keys))
        .map_err(|source| ServerError::File { action: "open", path: directory.join("recordings"), source })?;
    let view = view::load(&store).await?;
    let presence = Presence::default();
    fill(&store, &presence, now).await?;
    let people = People::load(&store, now).await.map_err(authority("read the users and hosts"))?;
    let names = super::names::Names::load(&store, &config.cluster, now)
        .await
        .map_err(authority("read the names of the hosts"))?;
    let databases = Databases::load(&store, now).await.map_err(authority("read the databases"))?;
    let clients =
        seen::Clients::load(&store, now).await.map_err(authority("read the clients that were seen"))?;
    let confirmations = Confirmations::load(&store, now).await?;
    let own_ttl = own_ttl(&config);
    let (tls, own) = server_config(&loaded.authorities, loaded.auth_id, own_ttl, now)?;
    let room = super::room::Room::of(&config.data_dir);
    let budgets = budgets::Budgets::of(config.audit.host_events_per_minute);
    let elsewhere = heads::Place::all(&config.audit);
    let inner = Arc::new(Inner {
        config,
        store,
        seal,
        custodies,
        authorities: watch::Sender::new(Arc::new(loaded.authorities)),
        changing_authorities: tokio::sync::Mutex::new(()),
        recording_key,
        log,
        elsewhere,
        index: super::issued::Index::new(),
        recordings: Arc::new(recordings),
        room,
        view: RwLock::new(Arc::new(view)),
        refreshing: tokio::sync::Mutex::new(()),
        presence,
        names,
        heard: super::heard::Heard::default(),
        bindings: super::told::Bindings::default(),
        databases,
        login_words: super::login_words::LoginWords::default(),
        live: super::live::Live::default(),
        clients,
        sightings: Seen::default(),
        people,
        guesses: guesses::Guesses::default(),
        refusals: refusals::Refusals::default(),
        budgets,
        passwords: passwords::Pool::new().map_err(authority("start threads for passwords"))?,
        reading: Workers::new("reading", READERS, READS_WAITING)
            .map_err(authority("start threads for reading"))?,
        places: super::streams::Places::default(),
        unread: super::answers::Waiting::default(),
        changed: watch::Sender::new(0),
        confirmations,
        tls: RwLock::new(Arc::new(tls)),
        auth_id: loaded.auth_id,
        stop: CancellationToken::new(),
        tasks: Tasks::new(),
    });
    let mut events = vec![
        Event::new(Code::AuthStarted, now)
            .user("auth")
            .field("version", env!("CARGO_PKG_VERSION"))
            .field("first", first),
        own_certificate(&own, now),
    ];
    if let Some(repair) = repair {
        warn!(bytes = repair.bytes, "an unfinished record at the end of the audit log was cut off");
        events.push(Event::new(Code::AuditRepaired, now).user("auth").field("bytes", repair.bytes));
    }
    events.extend(inner.names.tell_shared(now));
    if let Some(broken) = &broken {
        events.insert(0, heads::begun_anew(broken, now));
    }
    inner.record_start(events).await.map_err(authority("write its audit log"))?;
    if broken.is_some() {
        // From now on this log is the one that the state knows.
        inner.log.checkpoint().await.map_err(authority("write its audit log"))?;
        inner.keep_last_head().await;
    }
    inner.tasks.spawn(Arc::clone(&inner).carry_heads());
    for place in &inner.elsewhere {
        inner.tasks.spawn(Arc::clone(&inner).carry_elsewhere(Arc::clone(place)));
    }
    inner.tasks.spawn(Arc::clone(&inner).follow());
    inner.tasks.spawn(Arc::clone(&inner).follow_people());
    inner.tasks.spawn(Arc::clone(&inner).sweep());
    inner.tasks.spawn(Arc::clone(&inner).forget_sessions());
    inner.finish_removals().await;
    inner.tasks.spawn(Arc::clone(&inner).retain_recordings());
    inner.tasks.spawn(Arc::clone(&inner).watch_room());
    let indexing = Arc::clone(&inner);
    inner
        .tasks
        .spawn(async move { indexing.index.follow(&indexing.store, &indexing.log, &indexing.stop).await });
    inner.tasks.spawn(Arc::clone(&inner).learn_logins());
    inner.tasks.spawn(Arc::clone(&inner).remember_sightings());
    inner.tasks.spawn(renew_daily(Arc::clone(&inner)));
    inner.tasks.spawn(Arc::clone(&inner).make_the_others());
    inner.resume_rotations().await;
    inner.tasks.spawn(Arc::clone(&inner).rotate_automatically());
    Ok(Authority { inner })
}

pub(super) fn authority<E: std::error::Error + Send + Sync + 'static>(
    action: &str,
) -> impl FnOnce(E) -> ServerError + '_ {
    move |error| ServerError::Authority { action: action.to_owned(), source: error.into() }
}

fn private_directory(path: &Path) -> Result<(), ServerError> {
    let failed = |action| move |source| ServerError::File { action, path: path.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create"))?;
    let mode = fs::metadata(path).map_err(failed("look at"))?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(failed("make private"))?;
    }
    Ok(())
}

/// The seal key and the state belong together: one without the other is not a place to begin anew.
fn seal_key(directory: &Path) -> Result<SealingKey, ServerError> {
    let (key, state) = (directory.join("seal.key"), directory.join("state.db"));
    let bad = |path: PathBuf, problem: &str, fix: &str| ServerError::BadState {
        path,
        problem: problem.to_owned(),
        fix: fix.to_owned(),
    };
    if !key.exists() && state.exists() {
        return Err(bad(
            key,
            "is missing, while the state that is sealed under it is there",
            "restore the key from its backup; without it the CA keys are lost",
        ));
    }
    SealingKey::open_or_create(&key).map_err(authority("use its seal key"))
}

/// Everything that a cluster is born with, in one transaction.
async fn create(
    store: &Store,
    config: &AuthConfig,
    custodies: &Arc<Custodies>,
    seal: &Arc<SealingKey>,
    now: OffsetDateTime,
) -> Result<(), ServerError> {
    let suite = suite_of_new_cluster(config, custodies)?;
    let custody = SealedCustody::new(Arc::clone(seal));
    let mut steps = Vec::new();
    let encode = authority::<sallyport_store::StoreError>;
    for kind in authorities::FROM_BIRTH {
        let made = authorities::make(kind, &config.cluster, custodies.of(kind), suite).await?;
        steps.push(
            typed::create(kind.name(), &CaRecord(CaState::new(made.record().clone())), None)
                .map_err(encode("store a certificate authority"))?,
        );
    }
    let purpose = KeyPurpose::AuditCheckpoint;
    let checkpoint = custody
        .generate_for(Some(purpose), CHECKPOINT_KEY, suite.algorithm(purpose))
        .map_err(authority("make the audit key"))?;
    steps.push(
        typed::create(CHECKPOINT_KEY, &KeyRecord(checkpoint), None).map_err(encode("store the audit key"))?,
    );
    steps.push(recording_keys::create(seal)?);
    for preset in [role::PRESET_ACCESS, role::PRESET_AUDITOR, role::PRESET_EDITOR] {
        let role = Role::parse(preset).map_err(authority("read a preset role"))?;
        let record = RoleRecord { yaml: role.to_yaml() };
        steps.push(typed::create(role.name.as_str(), &record, None).map_err(encode("store a preset role"))?);
    }
    let cluster =
        ClusterRecord { name: config.cluster.to_string(), created: now, suite, auth_id: HostId::new() };
    steps.push(typed::create(SELF, &cluster, None).map_err(encode("store the cluster"))?);
    store.backend().transact(steps, now).await.map_err(authority("write its first state"))?;
    Ok(())
}

/// The suite that a new cluster is made with.
fn suite_of_new_cluster(config: &AuthConfig, custodies: &Custodies) -> Result<Suite, ServerError> {
    let fips = in_fips_mode();
    let suite = config.suite.unwrap_or_else(|| Suite::of_new_cluster(fips, custodies.uses_tokens()));
    check_fips(fips, suite)?;
    Ok(suite)
}

struct Loaded {
    authorities: Authorities,
    recording_keys: RecipientKeys,
    checkpoint_signer: Arc<dyn sallyport_sal::Signer>,
    auth_id: HostId,
}

async fn load(
    store: &Store,
    config: &AuthConfig,
    custodies: &Arc<Custodies>,
    seal: &Arc<SealingKey>,
    directory: &Path,
    now: OffsetDateTime,
) -> Result<Loaded, ServerError> {
    let cluster: ClusterRecord = need(store, SELF, directory, now).await?;
    if cluster.name != config.cluster.as_str() {
        return Err(ServerError::BadState {
            path: directory.to_owned(),
            problem: format!(
                "holds the cluster {:?}, the configuration names {:?}",
                cluster.name,
                config.cluster.as_str()
            ),
            fix: "write the right cluster, or another data_dir: a cluster cannot be renamed".to_owned(),
        });
    }
    check_fips(in_fips_mode(), cluster.suite)?;
    for kind in authorities::FROM_BIRTH {
        need::<CaRecord>(store, kind.name(), directory, now).await?;
    }
    let recording_keys = recording_keys::load(store, seal, directory, now).await?;
    let key: KeyRecord = need(store, CHECKPOINT_KEY, directory, now).await?;
    let custody = SealedCustody::new(Arc::clone(seal));
    let checkpoint_signer = custody.load(&key.0).map_err(|error| wrong_seal(directory, &error))?;
    let authorities = authorities::load(store, custodies, recording_keys.public(), None, now).await?;
    Ok(Loaded { authorities, recording_keys, checkpoint_signer, auth_id: cluster.auth_id })
}

/// The seal key does not open what is in the state of this directory.
pub(super) fn wrong_seal(directory: &Path, source: &dyn std::error::Error) -> ServerError {
    ServerError::BadState {
        path: directory.join("seal.key"),
        problem: format!("does not open what is sealed in state.db ({source})"),
        fix: "restore the seal key that belongs to this state".to_owned(),
    }
}

async fn need<T: Kind>(
    store: &Store,
    name: &str,
    directory: &Path,
    now: OffsetDateTime,
) -> Result<T, ServerError> {
    let found = store.get::<T>(name, now).await.map_err(authority("read its state"))?;
    found.map(|stored| stored.value).ok_or_else(|| ServerError::BadState {
        path: directory.join("state.db"),
        problem: format!("lacks {}/{name}", T::KIND),
        fix: "restore it from a backup".to_owned(),
    })
}

async fn fill(store: &Store, presence: &Presence, now: OffsetDateTime) -> Result<(), ServerError> {
    let mut after: Option<String> = None;
    loop {
        let page = store
            .list::<NodeRecord>(after.as_deref(), PAGE, now)
            .await
            .map_err(authority("read the nodes"))?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.name.clone());
        presence.fill(page.into_iter().map(|stored| stored.value));
    }
}

/// The authority's own TLS: a fresh key and a certificate from its host CA.
pub(super) fn server_config(
    authorities: &Authorities,
    id: HostId,
    ttl: time::Duration,
    now: OffsetDateTime,
) -> Result<(ServerConfig, Vec<Issued>), ServerError> {
    let (suite, trust) = (authorities.suite(), authorities.trust());
    let host_ca = authorities.signer(CaKind::Host).map_err(authority("certify itself"))?;
    let key = TlsKey::generate_for(suite, KeyPurpose::HostTls).map_err(authority("make its key"))?;
    let name = NodeName::new("auth").map_err(authority("name itself"))?;
    let request = HostRequest {
        id,
        name: &name,
        role: HostRole::Auth,
        join_id: Uuid::nil(),
        public_names: &[],
        ssh_public_key: "",
        tls_spki: key.spki_der(),
    };
    let issued = issue_host_tls(host_ca, &request, now, ttl).map_err(authority("certify itself"))?;
    let chain = issued.pem + &issued.ca_pem;
    let auth = tls::ClientAuth::Optional;
    let config = tls::server_config(trust, &chain, &key.pkcs8_pem(), &[alpn::AUTH], auth);
    Ok((config.map_err(authority("set up TLS"))?, vec![issued.issued]))
}

/// How long the authority's own certificate lives.
pub(super) fn own_ttl(config: &AuthConfig) -> time::Duration {
    config.lifetimes.bounded(CertificateKind::Host, OWN_TTL)
}

/// The event of the authority's own certificate.
pub(super) fn own_certificate(issued: &[Issued], now: OffsetDateTime) -> Event {
    let event = Event::new(Code::HostCertIssued, now).user("auth:auth").node("auth").origin("auth");
    with_certificates(event, issued)
}

async fn renew_daily(inner: Arc<Inner>) {
    let mut days = tokio::time::interval(std::time::Duration::from_secs(86_400));
    days.tick().await;
    loop {
        tokio::select! {
            _ = days.tick() => {}
            () = inner.stop.cancelled() => return,
        }
        inner.present(&inner.authorities()).await;
    }
}
