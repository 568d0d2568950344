//! Opening a data directory, and making it the first time.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sallyport_access::{HostId, Role};
use sallyport_audit::log::{AuditLog, Opened};
use sallyport_audit::recording::RecordingStore;
use sallyport_audit::{Code, Event};
use sallyport_ca::rotation::CaState;
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::hpke::RecipientKeys;
use sallyport_sal::{KeyPurpose, Suite};
use sallyport_store::{Backend, Kind, SqliteBackend, Store, typed};
use time::OffsetDateTime;
use tracing::{info, warn};

use crate::ServerError;
use crate::authority::audit::checkpoints;
use crate::authority::challenges::records::ChallengeRecord;
use crate::authority::config::AuthConfig;
use crate::authority::devices::records::SpentChallengeRecord;
use crate::authority::errors::{doing, wrong_seal};
use crate::authority::fips::{check_fips, in_fips_mode};
use crate::authority::issuance::authorities;
use crate::authority::issuance::authorities::Authorities;
use crate::authority::issuance::custodies::Custodies;
use crate::authority::issuance::presented::{own_certificate, own_ttl, server_config};
use crate::authority::recordings::keys;
use crate::authority::records::{CaRecord, ClusterRecord, KeyRecord, RoleRecord};
use crate::authority::services::{Parts, Services};
use crate::authority::sso::records::AttemptRecord;
use crate::authority::storage::SELF;
use crate::authority::workers::Workers;
use sallyport_sal::custody::Custody as _;

/// Threads that read recordings, the log and documents, a piece at a time, and pieces that may wait for them.
pub(crate) const READERS: usize = 4;
const READS_WAITING: usize = 256;
const CHECKPOINT_KEY: &str = "audit-checkpoint";
/// What is proven and used within minutes, or begun again: nothing of it outlives the authority's process. What is gone opens nothing, so
/// that it is good once, and ends after so many wrong answers, all the same. Of what devices have signed, a new process takes nothing that
/// was made for another.
const IN_MEMORY: [&str; 3] = [ChallengeRecord::KIND, AttemptRecord::KIND, SpentChallengeRecord::KIND];

/// Opens a data directory, with something between the authority and its state in tests.
pub(crate) async fn open(
    config: AuthConfig,
    wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
    now: OffsetDateTime,
) -> Result<Services, ServerError> {
    let directory = config.data_dir.join("auth");
    private_directory(&config.data_dir)?;
    private_directory(&directory)?;
    let seal = Arc::new(seal_key(&directory)?);
    let state_path = directory.join("state.db");
    let in_memory = IN_MEMORY.map(|kind| format!("{kind}/"));
    let in_memory: Vec<&str> = in_memory.iter().map(String::as_str).collect();
    let backend = SqliteBackend::open_with(&state_path, &in_memory).map_err(doing("open its state"))?;
    let store = Store::new(wrap(Arc::new(backend)));
    let custodies = Arc::new(Custodies::open(Arc::clone(&seal), config.ca_keys.clone())?);
    let first = store.get::<ClusterRecord>(SELF, now).await.map_err(doing("read its state"))?.is_none();
    if first {
        create(&store, &config, &custodies, &seal, now).await?;
        info!(cluster = %config.cluster, "a new cluster was made");
    }
    let loaded = load(&store, &config, &custodies, &seal, &directory, now).await?;
    let recording_key = loaded.recording_keys.public();
    let kept = checkpoints::kept(&store, &seal, &directory, now).await?;
    let Opened { log, repair, broken } =
        AuditLog::open_against(&directory.join("audit"), loaded.checkpoint_signer, kept, now)
            .map_err(doing("open its audit log"))?;
    let recordings = RecordingStore::open(&directory.join("recordings"), Arc::new(loaded.recording_keys))
        .map_err(|source| ServerError::File { action: "open", path: directory.join("recordings"), source })?;
    let own_ttl = own_ttl(&config);
    let (tls, own) = server_config(&loaded.authorities, loaded.auth_id, own_ttl, now)?;
    let parts = Parts {
        config: Arc::new(config),
        store,
        seal,
        custodies,
        authorities: loaded.authorities,
        recording_key,
        own: (loaded.auth_id, tls),
        log,
        recordings: Arc::new(recordings),
        reading: Workers::new("reading", READERS, READS_WAITING)
            .map_err(doing("start threads for reading"))?,
    };
    let services = Services::compose(parts, now).await?;
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
    events.extend(services.registry.names.tell_shared(now));
    if let Some(broken) = &broken {
        events.insert(0, checkpoints::begun_anew(broken, now));
    }
    services.journal.record_start(events).await.map_err(doing("write its audit log"))?;
    if broken.is_some() {
        // From now on this log is the one that the state knows.
        services.journal.log().checkpoint().await.map_err(doing("write its audit log"))?;
        services.checkpoints.keep_last_head().await;
    }
    services.start().await;
    Ok(services)
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
    SealingKey::open_or_create(&key).map_err(doing("use its seal key"))
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
    let encode = doing::<sallyport_store::StoreError>;
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
        .map_err(doing("make the audit key"))?;
    steps.push(
        typed::create(CHECKPOINT_KEY, &KeyRecord(checkpoint), None).map_err(encode("store the audit key"))?,
    );
    steps.push(keys::create(seal)?);
    for role in Role::presets().map_err(doing("read a preset role"))? {
        let record = RoleRecord { yaml: role.to_yaml() };
        steps.push(typed::create(role.name.as_str(), &record, None).map_err(encode("store a preset role"))?);
    }
    let cluster =
        ClusterRecord { name: config.cluster.to_string(), created: now, suite, auth_id: HostId::new() };
    steps.push(typed::create(SELF, &cluster, None).map_err(encode("store the cluster"))?);
    store.backend().transact(steps, now).await.map_err(doing("write its first state"))?;
    Ok(())
}

/// The suite that a new cluster is made with.
fn suite_of_new_cluster(config: &AuthConfig, custodies: &Custodies) -> Result<Suite, ServerError> {
    let fips = in_fips_mode();
    let suite = config.suite.unwrap_or_else(|| Suite::of_new_cluster(fips, custodies.uses_tokens()));
    check_fips(fips, suite)?;
    Ok(suite)
}

async fn need<T: Kind>(
    store: &Store,
    name: &str,
    directory: &Path,
    now: OffsetDateTime,
) -> Result<T, ServerError> {
    let found = store.get::<T>(name, now).await.map_err(doing("read its state"))?;
    found.map(|stored| stored.value).ok_or_else(|| ServerError::BadState {
        path: directory.join("state.db"),
        problem: format!("lacks {}/{name}", T::KIND),
        fix: "restore it from a backup".to_owned(),
    })
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
    let recording_keys = keys::load(store, seal, directory, now).await?;
    let key: KeyRecord = need(store, CHECKPOINT_KEY, directory, now).await?;
    let custody = SealedCustody::new(Arc::clone(seal));
    let checkpoint_signer = custody.load(&key.0).map_err(|error| wrong_seal(directory, &error))?;
    let authorities = authorities::load(store, custodies, recording_keys.public(), None, now).await?;
    Ok(Loaded { authorities, recording_keys, checkpoint_signer, auth_id: cluster.auth_id })
}
