//! What the agent logs in to databases with: one key, and certificates that are kept for as long as they are good.
//!
//! A certificate is for one login of one user of the cluster, one database and one database user. Repeat connections find
//! it with its TLS settings, without a call; those that come at the same time for the first time wait for one answer.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use parking_lot::Mutex;
use prost::Message;
use sallyport_access::{Database, DatabaseLogin, DatabaseTlsMode};
use sallyport_ca::keys::TlsKey;
use sallyport_ca::tls::danger::unverified_database_config;
use sallyport_ca::tls::database::{ServerCheck, database_client_config};
use sallyport_ca::{CaError, CaKind, Trust};
use sallyport_databases::service::{Credentials, CredentialsError, Wanted};
use sallyport_sal::{KeyPurpose, Suite};
use sallyport_wire::convert::time_from_proto;
use sallyport_wire::v1::{CertifyDatabaseUserRequest, DatabaseOpening, PermitDatabaseSessionRequest};
use time::OffsetDateTime;
use tokio::sync::OnceCell;
use tokio_rustls::rustls::ClientConfig;
use tonic::Code;
use tracing::{debug, warn};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::passwords::PasswordFile;
use crate::config::danger::Danger;
use crate::member::authority_client::AuthorityClient;
use crate::member::cluster_cache::ClusterCache;

/// How long the authority may take for a certificate.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A certificate that ends sooner is not used for another connection: the database's clock may be off, too.
const MARGIN: time::Duration = time::Duration::seconds(30);
/// A session's certificate that ends sooner is renewed. Sessions ask more often.
const AHEAD: time::Duration = time::Duration::minutes(9);
/// Certificates that are kept; past it those that were used least recently go.
const KEPT: usize = 10_000;

/// For whom, where and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    /// None where no certificate is shown, which is the same for all users.
    login: Option<(Uuid, String)>,
    /// As its document was when the session began: sessions from before and after a change of it each have their own.
    database: Arc<Database>,
    provisioning: bool,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.login, &self.database.name, self.provisioning).hash(state);
    }
}

impl Key {
    fn of(wanted: &Wanted) -> Self {
        let login = match wanted.database.login {
            DatabaseLogin::Certificate => Some((wanted.login_id, wanted.permit.db_user().to_owned())),
            DatabaseLogin::Password => None,
        };
        Self { login, database: Arc::clone(&wanted.database), provisioning: wanted.provisioning }
    }
}

/// What was made for a key.
struct Held {
    config: Arc<ClientConfig>,
    valid_until: Option<OffsetDateTime>,
}

struct Slot {
    made: OnceCell<Held>,
    /// What it was made from: another suite or other CAs mean another one.
    trust: Arc<Trust>,
    used: Mutex<OffsetDateTime>,
}

impl Slot {
    fn new(made: OnceCell<Held>, trust: Arc<Trust>, now: OffsetDateTime) -> Arc<Self> {
        Arc::new(Self { made, trust, used: Mutex::new(now) })
    }

    /// Whether what was made is good for so long; what is being made is.
    fn fits(&self, trust: &Arc<Trust>, at: OffsetDateTime) -> bool {
        Arc::ptr_eq(&self.trust, trust)
            && self.made.get().is_none_or(|held| held.valid_until.is_none_or(|end| at < end))
    }

    /// What was made, where a server takes it still.
    fn good(&self, now: OffsetDateTime) -> Option<Arc<ClientConfig>> {
        let held = self.made.get()?;
        held.valid_until.is_none_or(|end| now < end).then(|| Arc::clone(&held.config))
    }
}

/// A key whose certificate is being renewed, until this value goes.
struct Renewing<'a> {
    all: &'a Mutex<HashSet<Key>>,
    key: Key,
}

impl<'a> Renewing<'a> {
    /// None where it is being renewed already.
    fn begin(all: &'a Mutex<HashSet<Key>>, key: Key) -> Option<Self> {
        let is_first = all.lock().insert(key.clone());
        is_first.then_some(Self { all, key })
    }
}

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}

/// The agent's credentials.
pub(crate) struct AgentCredentials {
    view: Arc<ClusterCache>,
    client: AuthorityClient,
    passwords: Option<PasswordFile>,
    danger: Danger,
    key: Mutex<Option<(Suite, Arc<TlsKey>)>>,
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    /// What is being renewed.
    renewing: Mutex<HashSet<Key>>,
}

impl AgentCredentials {
    pub(crate) fn new(
        view: Arc<ClusterCache>,
        client: AuthorityClient,
        passwords: Option<PasswordFile>,
        danger: Danger,
    ) -> Self {
        Self {
            view,
            client,
            passwords,
            danger,
            key: Mutex::default(),
            slots: Mutex::default(),
            renewing: Mutex::default(),
        }
    }

    /// Makes the key that the suite in force asks for, unless it is there. With RSA it takes a while: call it early, where
    /// no connection waits.
    pub(crate) fn prepare(&self) {
        if let Err(error) = self.key(self.view.trust().suite()) {
            warn!(%error, "cannot make the key for databases yet");
        }
    }

    fn key(&self, suite: Suite) -> Result<Arc<TlsKey>, CaError> {
        let held = self.key.lock().clone();
        if let Some((of, key)) = held
            && of == suite
        {
            return Ok(key);
        }
        let key = TlsKey::generate_for(suite, KeyPurpose::AgentToDatabase)?;
        counter!("sallyport_database_keys_total").increment(1);
        let mut slot = self.key.lock();
        // Another connection may have been as quick; one key is enough.
        match slot.as_ref() {
            Some((of, key)) if *of == suite => Ok(Arc::clone(key)),
            _ => {
                let key = Arc::new(key);
                *slot = Some((suite, Arc::clone(&key)));
                Ok(key)
            }
        }
    }

    /// The slot of a key, and the one that was in its place and fits no longer.
    fn slot(&self, key: &Key, now: OffsetDateTime) -> (Arc<Slot>, Option<Arc<Slot>>) {
        let trust = self.view.trust();
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(key)
            && slot.fits(&trust, now + MARGIN)
        {
            *slot.used.lock() = now;
            return (Arc::clone(slot), None);
        }
        let slot = Slot::new(OnceCell::new(), trust, now);
        let before = put(&mut slots, key, Arc::clone(&slot), now);
        (slot, before)
    }

    /// Puts back what was in the place of a slot for which nothing was to be had.
    fn put_back(&self, key: &Key, slot: &Arc<Slot>, before: Arc<Slot>) {
        let mut slots = self.slots.lock();
        if let Some(there) = slots.get_mut(key)
            && Arc::ptr_eq(there, slot)
        {
            *there = before;
        }
    }

    /// Whether a certificate is held that is good for a while, or for as long as there is one to be had.
    fn is_held(&self, key: &Key, wanted: &Wanted, now: OffsetDateTime) -> bool {
        let trust = self.view.trust();
        let slots = self.slots.lock();
        let Some(slot) = slots.get(key) else { return false };
        let until = slot.made.get().and_then(|held| held.valid_until);
        let lasts =
            slot.fits(&trust, now + AHEAD) || until.is_some_and(|until| until > wanted.permit.valid_until());
        lasts && Arc::ptr_eq(&slot.trust, &trust)
    }

    /// A certificate in place of the one that is held, which stays where there is none to be had.
    async fn make_anew(&self, key: &Key, wanted: &Wanted) -> Result<(), CredentialsError> {
        let trust = self.view.trust();
        let held = self.make(wanted, &trust, true).await?;
        let now = OffsetDateTime::now_utc();
        let slot = Slot::new(OnceCell::new_with(Some(held)), trust, now);
        put(&mut self.slots.lock(), key, slot, now);
        Ok(())
    }

    async fn make(&self, wanted: &Wanted, trust: &Trust, renews: bool) -> Result<Held, CredentialsError> {
        let database = &wanted.database;
        if database.login == DatabaseLogin::Password {
            return settings(database, trust, None).map(|config| Held { config, valid_until: None });
        }
        let suite = trust.suite();
        let key = match self.danger.fresh_database_keys {
            true => fresh_key(suite).await,
            false => self.key(suite).map_err(NoKey::from),
        };
        let key = key.map_err(|error| CredentialsError::Unavailable(error.to_string()))?;
        let asked = CertifyDatabaseUserRequest {
            database: database.name.to_string(),
            db_user: wanted.permit.db_user().to_owned(),
            db_name: wanted.permit.db_name().to_owned(),
            user_certificate: wanted.proof.clone(),
            tls_public_key: key.spki_der().to_vec().into(),
            provisioning: wanted.provisioning,
            opened: word(wanted).filter(|_| !renews),
            renews,
        };
        let mut authority = self.client.databases();
        let answer = tokio::time::timeout(CALL_TIMEOUT, authority.certify_database_user(asked)).await;
        let answer = answered("CertifyDatabaseUser", answer)?;
        let valid_until = answer.valid_until.as_ref().and_then(time_from_proto);
        let pair = (answer.tls_certificate_pem.as_str(), key.pkcs8_pem());
        let config = settings(database, trust, Some((pair.0, pair.1.as_str())))?;
        debug!(database = %database.name, user = wanted.permit.db_user(), "a certificate for a database");
        Ok(Held { config, valid_until: Some(valid_until.unwrap_or_else(OffsetDateTime::now_utc)) })
    }
}

/// Why there is no key towards a database.
#[derive(Debug, thiserror::Error)]
enum NoKey {
    /// It could not be made.
    #[error(transparent)]
    Made(#[from] CaError),
    /// The thread that made it ended.
    #[error(transparent)]
    Ended(#[from] tokio::task::JoinError),
}

/// One that nothing else will use.
async fn fresh_key(suite: Suite) -> Result<Arc<TlsKey>, NoKey> {
    let making =
        tokio::task::spawn_blocking(move || TlsKey::generate_for(suite, KeyPurpose::AgentToDatabase));
    Ok(Arc::new(making.await??))
}

/// Puts a slot in its place, and gives what was there.
fn put(
    slots: &mut HashMap<Key, Arc<Slot>>,
    key: &Key,
    slot: Arc<Slot>,
    now: OffsetDateTime,
) -> Option<Arc<Slot>> {
    if slots.len() >= KEPT && !slots.contains_key(key) {
        make_room(slots, &slot.trust, now);
    }
    slots.insert(key.clone(), slot)
}

/// Forgets what is over, or else the half that was used least recently.
fn make_room(slots: &mut HashMap<Key, Arc<Slot>>, trust: &Arc<Trust>, now: OffsetDateTime) {
    slots.retain(|_, slot| slot.fits(trust, now + MARGIN));
    if slots.len() < KEPT {
        return;
    }
    let used = |slot: &Slot| *slot.used.lock();
    let mut times: Vec<OffsetDateTime> = slots.values().map(|slot| used(slot)).collect();
    let middle = times.len() / 2;
    let median = *times.select_nth_unstable(middle).1;
    slots.retain(|_, slot| used(slot) > median);
}

/// The TLS settings towards a database.
pub(super) fn settings(
    database: &Database,
    trust: &Trust,
    identity_pem: Option<(&str, &str)>,
) -> Result<Arc<ClientConfig>, CredentialsError> {
    let own = || trust.public_keys(CaKind::Db).tls.concat();
    let check = match database.tls.mode {
        DatabaseTlsMode::VerifyFull => ServerCheck::Full,
        DatabaseTlsMode::VerifyCa => ServerCheck::SignedBy,
        DatabaseTlsMode::Insecure | DatabaseTlsMode::Disabled => {
            return unverified_database_config(identity_pem)
                .map(Arc::new)
                .map_err(|error| CredentialsError::Unavailable(error.to_string()));
        }
    };
    let roots = database.tls.ca_pem.clone().unwrap_or_else(own);
    database_client_config(check, &roots, identity_pem)
        .map(Arc::new)
        .map_err(|error| CredentialsError::Unavailable(error.to_string()))
}

/// The word that a session was opened, as it came. A proxy of an earlier release gives none, and the authority says so.
fn word(wanted: &Wanted) -> Option<DatabaseOpening> {
    DatabaseOpening::decode(wanted.opened.clone()).ok().filter(|_| !wanted.opened.is_empty())
}

/// The authority's answer to a question about a session.
fn answered<T>(
    method: &'static str,
    answer: Result<Result<tonic::Response<T>, tonic::Status>, tokio::time::error::Elapsed>,
) -> Result<T, CredentialsError> {
    let outcome = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
    counter!("sallyport_authority_calls_total", "method" => method, "result" => outcome).increment(1);
    let answer = answer
        .map_err(|_| {
            CredentialsError::Unavailable(format!(
                "the authority has not answered within {} s",
                CALL_TIMEOUT.as_secs()
            ))
        })?
        .map_err(|status| match status.code() {
            Code::PermissionDenied | Code::Unauthenticated | Code::NotFound | Code::InvalidArgument => {
                CredentialsError::Refused(status.message().to_owned())
            }
            Code::Unimplemented => CredentialsError::Unavailable(
                "the authority is of an earlier release than this agent and permits no sessions; update it first".to_owned(),
            ),
            _ => CredentialsError::Unavailable(status.message().to_owned()),
        })?;
    Ok(answer.into_inner())
}

#[tonic::async_trait]
impl Credentials for AgentCredentials {
    async fn permit(&self, wanted: &Wanted) -> Result<(), CredentialsError> {
        let asked = PermitDatabaseSessionRequest {
            database: wanted.database.name.to_string(),
            db_user: wanted.permit.db_user().to_owned(),
            db_name: wanted.permit.db_name().to_owned(),
            user_certificate: wanted.proof.clone(),
            opened: word(wanted),
        };
        let mut authority = self.client.databases();
        let answer = tokio::time::timeout(CALL_TIMEOUT, authority.permit_database_session(asked)).await;
        answered("PermitDatabaseSession", answer).map(drop)
    }

    async fn tls(&self, wanted: &Wanted) -> Result<Arc<ClientConfig>, CredentialsError> {
        if self.danger.fresh_database_keys {
            return self.make(wanted, &self.view.trust(), false).await.map(|held| held.config);
        }
        let (key, now) = (Key::of(wanted), OffsetDateTime::now_utc());
        let (slot, before) = self.slot(&key, now);
        let trust = Arc::clone(&slot.trust);
        match (slot.made.get_or_try_init(|| self.make(wanted, &trust, false)).await, before) {
            (Ok(held), _) => Ok(Arc::clone(&held.config)),
            (Err(error), before) => {
                // It is near its end or of another trust by now, and ends what sessions have left all the same.
                if let Some(before) = before.filter(|before| before.good(now).is_some()) {
                    self.put_back(&key, &slot, before);
                }
                Err(error)
            }
        }
    }

    fn held(&self, wanted: &Wanted) -> Option<Arc<ClientConfig>> {
        let slots = self.slots.lock();
        slots.get(&Key::of(wanted))?.good(OffsetDateTime::now_utc())
    }

    async fn renew(&self, wanted: &Wanted) -> Result<(), CredentialsError> {
        let key = Key::of(wanted);
        if key.login.is_none() || self.is_held(&key, wanted, OffsetDateTime::now_utc()) {
            return Ok(());
        }
        // Of many sessions of one login, one asks.
        let Some(renewing) = Renewing::begin(&self.renewing, key) else { return Ok(()) };
        self.make_anew(&renewing.key, wanted).await
    }

    fn password(&self, wanted: &Wanted) -> Option<Zeroizing<String>> {
        let file = self.passwords.as_ref()?;
        match file.find(&wanted.database.address, wanted.db_name(), wanted.user()) {
            Ok(found) => found,
            Err(error) => {
                warn!(error = %crate::ServerError::chain(&error), "the password file cannot be read");
                None
            }
        }
    }
}
