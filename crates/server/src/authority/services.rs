//! The services of the authority, and which of them takes which.
//!
//! Each owns its state and is given the few others that it uses; an arrow points at what is taken. The lines stand in
//! the order in which the services are made, so that arrows point upwards only.
//!
//! ```text
//! Journal                 the audit log, within the disk's reserve
//! Policy                  roles, locks and the session policy, as they are now (the cluster cache)
//! Checkpoints         -> Journal
//! Identities          -> Policy                              users and hosts, as they are now
//! Logins              -> Journal Policy Identities           the logins that are open, and the locks that end them
//! Factors             what users prove themselves with besides passwords
//! Administering       -> Journal Policy Identities Factors   has this administrator proven a factor?
//! Gate                -> Journal Policy Identities Administering     may this caller?
//! Delegation          -> Gate Policy Identities              no caller gives more than it holds
//! Devices             -> Journal Policy Identities Logins    trusted devices
//! Streams             -> Policy                              answers that go on
//! Issuance            -> Journal                             the certificate authorities in force
//! IssuedList          -> Journal                             what was issued
//! Confirmations           what hosts have applied of rotations
//! Rotations           -> Journal Issuance Confirmations Devices Logins
//! ClientInventory         what clients can do
//! SuiteChanges        -> Journal Issuance ClientInventory
//! HostRegistry            names, nodes, connected hosts
//! DatabaseRegister    -> Journal HostRegistry
//! Catalogue           -> Journal HostRegistry               resources that labels alone grant
//! Servers             -> Journal Issuance HostRegistry       stock OpenSSH servers
//! Tokens              -> Journal Delegation Issuance HostRegistry
//! Membership          -> Journal Policy Identities Logins Issuance Confirmations HostRegistry DatabaseRegister Catalogue Servers
//! Heartbeats          -> HostRegistry DatabaseRegister Catalogue
//! TargetCertificates  -> Journal Gate Issuance HostRegistry Confirmations
//! DatabaseSessions    -> Journal Gate Issuance HostRegistry DatabaseRegister
//! Watches             -> Gate Issuance Streams               what hosts follow
//! LiveSessions        -> Journal Gate Policy HostRegistry Streams Logins
//! HostReports         -> Journal HostRegistry DatabaseRegister Catalogue LiveSessions
//! Recordings          -> Journal Gate Policy Streams LiveSessions HostReports
//! AuditReader         -> Journal Checkpoints Gate Streams
//! Provisioning        -> Journal Gate Delegation Policy Identities Logins        what SCIM clients say
//! Accounts            -> Journal Delegation Policy Identities Logins Provisioning Issuance IssuedList Factors Devices
//! Challenges          -> Journal Policy Identities Factors Accounts Administering   what is proven at pages
//! SessionFactors      -> Journal Gate Policy Identities Issuance HostRegistry DatabaseRegister Catalogue Factors Accounts Challenges
//! CertificateRegister -> Journal Delegation Policy Identities Issuance IssuedList HostRegistry
//! Connectors          -> Journal Delegation Policy Identities Logins Accounts Provisioning    single sign-on
//! SsoPages            -> Connectors Challenges               single sign-on at the login page
//! Resources           -> Journal Gate Delegation Policy Identities HostRegistry DatabaseRegister Catalogue Servers Membership Accounts Connectors
//! api::*              -> what each method uses
//! ```

use std::sync::Arc;

use sallyport_access::HostId;
use sallyport_audit::log::AuditLog;
use sallyport_audit::recording::RecordingStore;
use sallyport_sal::custody::SealingKey;
use sallyport_sal::hpke::RecipientPublic;
use sallyport_store::Store;
use time::OffsetDateTime;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use crate::ServerError;
use crate::authority::accounts::login::Accounts;
use crate::authority::accounts::passwords::Pool;
use crate::authority::api::answers::Waiting;
use crate::authority::api::serve::Api;
use crate::authority::api::{
    admin, catalogue, certificates, cluster, databases, devices as devices_api, factors as factors_api,
    hosts, login, logins as logins_api, provisioning as scim, rotation,
    session_factors as session_factors_api, sessions, sso as sso_api, suites, web,
};
use crate::authority::audit::checkpoints::Checkpoints;
use crate::authority::audit::disk_reserve::DiskReserve;
use crate::authority::audit::journal::Journal;
use crate::authority::audit::search::AuditReader;
use crate::authority::catalogue::register::{Catalogue, DatabaseRegister};
use crate::authority::catalogue::table::Table;
use crate::authority::certificates::register::CertificateRegister;
use crate::authority::challenges::kept::Challenges;
use crate::authority::config::AuthConfig;
use crate::authority::databases::opened::DatabaseSessions;
use crate::authority::devices::index;
use crate::authority::devices::kept::Devices;
use crate::authority::errors::doing;
use crate::authority::factors::kept::Factors;
use crate::authority::gate::administering::Administering;
use crate::authority::gate::calls::Gate;
use crate::authority::gate::delegation::Delegation;
use crate::authority::gate::guesses::Guesses;
use crate::authority::hosts::heartbeats::Heartbeats;
use crate::authority::hosts::membership::Membership;
use crate::authority::hosts::names::Names;
use crate::authority::hosts::presence::Presence;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::hosts::servers::Servers;
use crate::authority::hosts::targets::TargetCertificates;
use crate::authority::hosts::tokens::Tokens;
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::Logins;
use crate::authority::inventory::reports::ClientInventory;
use crate::authority::issuance::authorities::Authorities;
use crate::authority::issuance::custodies::Custodies;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::issuance::list::IssuedList;
use crate::authority::policy::Policy;
use crate::authority::recordings::kept::Recordings;
use crate::authority::reports::budgets::Budgets;
use crate::authority::reports::events::HostReports;
use crate::authority::resources::writing::Resources;
use crate::authority::rotation::confirmations::Confirmations;
use crate::authority::rotation::steps::Rotations;
use crate::authority::scim::provisioning::Provisioning;
use crate::authority::session_factors::asked::SessionFactors;
use crate::authority::session_factors::targets::Targets;
use crate::authority::sessions::running::LiveSessions;
use crate::authority::sso::connectors::Connectors;
use crate::authority::sso::pages::SsoPages;
use crate::authority::streams::Streams;
use crate::authority::suites::SuiteChanges;
use crate::authority::watches::Watches;
use crate::authority::workers::Workers;
use crate::tasks::Tasks;

/// What the services are composed of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) config: Arc<AuthConfig>,
    pub(crate) store: Store,
    pub(crate) seal: Arc<SealingKey>,
    pub(crate) custodies: Arc<Custodies>,
    pub(crate) authorities: Authorities,
    pub(crate) recording_key: RecipientPublic,
    /// The authority's own id as a host, and what it presents.
    pub(crate) own: (HostId, ServerConfig),
    pub(crate) log: AuditLog,
    pub(crate) recordings: Arc<RecordingStore>,
    /// Threads for reading recordings, the log and documents.
    pub(crate) reading: Workers,
}

/// The services that the authority itself calls. The others are known to those alone that use them.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) store: Store,
    pub(crate) journal: Arc<Journal>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) issuance: Arc<Issuance>,
    pub(crate) issued: Arc<IssuedList>,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) rotations: Arc<Rotations>,
    pub(crate) registry: Arc<HostRegistry>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) inventory: Arc<ClientInventory>,
    pub(crate) sessions: Arc<LiveSessions>,
    pub(crate) recordings: Arc<Recordings>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) connectors: Arc<Connectors>,
    pub(crate) reserve: Arc<DiskReserve>,
    pub(crate) api: Arc<Api>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

impl Services {
    /// Puts them together. Each arrow of the picture above is an argument here.
    pub(crate) async fn compose(parts: Parts, now: OffsetDateTime) -> Result<Self, ServerError> {
        let Parts {
            config,
            store,
            seal,
            custodies,
            authorities,
            recording_key,
            own,
            log,
            recordings,
            reading,
        } = parts;
        let (stop, tasks) = (CancellationToken::new(), Tasks::new());
        let reading = Arc::new(reading);
        let reserve = Arc::new(DiskReserve::of(&config.data_dir));
        let guesses = Arc::new(Guesses::default());
        let passwords = Pool::new().map_err(doing("start threads for passwords"))?;
        let names =
            Names::load(&store, &config.cluster, now).await.map_err(doing("read the names of the hosts"))?;
        let presence = Presence::load(&store, now).await.map_err(doing("read the nodes"))?;
        let table = Table::load(&store, now).await.map_err(doing("read the databases"))?;
        let listed = Table::load(&store, now).await.map_err(doing("read the catalogue"))?;

        // What everything else stands on.
        let journal = Journal::new(log, Arc::clone(&reserve), stop.clone(), tasks.clone());
        let checkpoints = Checkpoints::new(&config, &store, &seal, &journal, &stop);
        let policy = Policy::load(&store, &stop).await?;
        let identities =
            Identities::load(&store, &policy, &stop, now).await.map_err(doing("read the users and hosts"))?;
        let logins = Logins::new(&store, &policy, &identities, &journal, &stop);
        let factors = Factors::new(&config, &store, &seal)?;
        let administering = Administering::new(&config, &store, &journal, &policy, &identities, &factors);
        let gate = Gate::new(&config, &journal, &policy, &identities, &guesses, &administering);
        let delegation = Delegation::new(&gate, &policy, &identities);
        index::learn(&store, now).await.map_err(doing("read the devices"))?;
        let devices = Devices::new(&config, &store, &journal, &policy, &identities, &logins)?;
        let streams = Streams::new(&policy, &stop, &tasks);

        // Who signs, and what was signed.
        let issuance =
            Issuance::new(&config, &store, &journal, &custodies, authorities, recording_key, own, &stop);
        let issued = IssuedList::new(&store, &journal, &stop);
        let confirmations = Confirmations::load(&store, now).await?;
        let rotations =
            Rotations::new(&config, &store, &journal, &issuance, &confirmations, &devices, &logins, &stop);
        let inventory = ClientInventory::load(&store, &stop, now)
            .await
            .map_err(doing("read the clients that were seen"))?;
        let suites = SuiteChanges::new(&store, &journal, &issuance, &inventory);

        // Hosts, and what they serve.
        let registry = HostRegistry::new(names, presence);
        let databases = DatabaseRegister::new(&store, &journal, &registry, &reading, table);
        let catalogue = Catalogue::new(&store, &journal, &registry, &reading, listed);
        let servers = Servers::new(&config, &store, &journal, &issuance, &registry);
        let tokens = Tokens::new(&store, &journal, &delegation, &issuance, &registry);
        let membership = Membership::new(
            &config,
            &store,
            &journal,
            &guesses,
            &policy,
            &identities,
            &logins,
            &issuance,
            &confirmations,
            &registry,
            &databases,
            &catalogue,
            &servers,
        );
        let heartbeats = Heartbeats::new(&store, &registry, &databases, &catalogue);
        let targets = TargetCertificates::new(&config, &journal, &gate, &issuance, &registry, &confirmations);
        let database_sessions =
            DatabaseSessions::new(&config, &journal, &gate, &issuance, &registry, &databases);
        let watches = Watches::new(&store, &gate, &issuance, &streams);

        // Sessions, and what remains of them.
        let sessions = LiveSessions::new(&journal, &gate, &policy, &logins, &registry, &streams, &stop);
        let budgets = Budgets::of(config.audit.host_events_per_minute);
        let reports = HostReports::new(&journal, &registry, &databases, &catalogue, &sessions, budgets);
        let recordings = Recordings::new(
            &journal,
            &gate,
            &policy,
            &streams,
            &reading,
            &reserve,
            &sessions,
            &reports,
            &recordings,
            &stop,
        );
        let reader = AuditReader::new(&journal, &checkpoints, &gate, &streams, &reading);

        // What administrators and users change.
        let provisioning = Provisioning::new(
            &config,
            &store,
            &journal,
            &gate,
            &guesses,
            &delegation,
            &policy,
            &identities,
            &logins,
        );
        let accounts = Accounts::new(
            &config,
            &store,
            &journal,
            &delegation,
            &guesses,
            &policy,
            &identities,
            &logins,
            &provisioning,
            &issuance,
            &issued,
            &factors,
            &devices,
            passwords,
            &stop,
        );
        let challenges = Challenges::new(
            &config,
            &store,
            &journal,
            &guesses,
            &policy,
            &identities,
            &factors,
            &accounts,
            &administering,
            &stop,
        );
        let session_factors = SessionFactors::new(
            &store,
            &journal,
            &gate,
            &identities,
            &issuance,
            &factors,
            &accounts,
            &challenges,
            Targets::new(&gate, &policy, &registry, &databases, &catalogue),
        );
        let certificates = CertificateRegister::new(
            &config,
            &store,
            &journal,
            &delegation,
            &policy,
            &identities,
            &issuance,
            &issued,
            &registry,
        );
        let connectors = Connectors::new(
            &config,
            &store,
            &seal,
            &journal,
            &delegation,
            &policy,
            &identities,
            &logins,
            &accounts,
            &provisioning,
            &stop,
        );
        let sso_pages = SsoPages::new(&connectors, &challenges);
        let resources = Resources::new(
            &store,
            &journal,
            &gate,
            &delegation,
            &policy,
            &identities,
            &registry,
            &databases,
            &catalogue,
            &servers,
            &membership,
            &accounts,
            &connectors,
            &reading,
        );
        let api = Api {
            config: Arc::clone(&config),
            gate: Arc::clone(&gate),
            identities: Arc::clone(&identities),
            issuance: Arc::clone(&issuance),
            registry: Arc::clone(&registry),
            inventory: Arc::clone(&inventory),
            login: login::Service {
                config: Arc::clone(&config),
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                issuance: Arc::clone(&issuance),
                accounts: Arc::clone(&accounts),
                membership: Arc::clone(&membership),
                challenges: Arc::clone(&challenges),
                sso: Arc::clone(&sso_pages),
            },
            hosts: hosts::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                streams: Arc::clone(&streams),
                reading: Arc::clone(&reading),
                membership: Arc::clone(&membership),
                heartbeats: Arc::clone(&heartbeats),
                reports: Arc::clone(&reports),
                inventory: Arc::clone(&inventory),
                recordings: Arc::clone(&recordings),
                targets: Arc::clone(&targets),
                sessions: Arc::clone(&sessions),
                watches: Arc::clone(&watches),
            },
            cluster: cluster::Service {
                config: Arc::clone(&config),
                journal: Arc::clone(&journal),
                gate: Arc::clone(&gate),
                administering: Arc::clone(&administering),
                policy: Arc::clone(&policy),
                identities: Arc::clone(&identities),
                issuance: Arc::clone(&issuance),
                registry: Arc::clone(&registry),
                recordings: Arc::clone(&recordings),
                checkpoints: Arc::clone(&checkpoints),
            },
            admin: admin::Service {
                journal: Arc::clone(&journal),
                gate: Arc::clone(&gate),
                streams: Arc::clone(&streams),
                resources: Arc::clone(&resources),
                accounts: Arc::clone(&accounts),
                connectors: Arc::clone(&connectors),
                tokens: Arc::clone(&tokens),
                certificates: Arc::clone(&certificates),
                reader: Arc::clone(&reader),
            },
            certificates: certificates::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                issued: Arc::clone(&issued),
                certificates: Arc::clone(&certificates),
            },
            sessions: sessions::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                sessions: Arc::clone(&sessions),
                recordings: Arc::clone(&recordings),
            },
            databases: databases::Service {
                journal: Arc::clone(&journal),
                gate: Arc::clone(&gate),
                policy: Arc::clone(&policy),
                identities: Arc::clone(&identities),
                registry: Arc::clone(&registry),
                databases: Arc::clone(&databases),
                database_sessions: Arc::clone(&database_sessions),
            },
            catalogue: catalogue::Service {
                journal: Arc::clone(&journal),
                gate: Arc::clone(&gate),
                policy: Arc::clone(&policy),
                identities: Arc::clone(&identities),
                registry: Arc::clone(&registry),
                catalogue: Arc::clone(&catalogue),
            },
            devices: devices_api::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                devices: Arc::clone(&devices),
                delegation: Arc::clone(&delegation),
                identities: Arc::clone(&identities),
                challenges: Arc::clone(&challenges),
            },
            provisioning: scim::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                provisioning: Arc::clone(&provisioning),
            },
            suites: suites::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                issuance: Arc::clone(&issuance),
                inventory: Arc::clone(&inventory),
                suites: Arc::clone(&suites),
            },
            rotation: rotation::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                issuance: Arc::clone(&issuance),
                confirmations: Arc::clone(&confirmations),
                rotations: Arc::clone(&rotations),
            },
            logins: logins_api::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                logins: Arc::clone(&logins),
                devices: Arc::clone(&devices),
                connectors: Arc::clone(&connectors),
            },
            factors: factors_api::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                challenges: Arc::clone(&challenges),
            },
            session_factors: session_factors_api::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                factors: Arc::clone(&session_factors),
            },
            web: web::Service {
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                challenges: Arc::clone(&challenges),
                sso: Arc::clone(&sso_pages),
                connectors: Arc::clone(&connectors),
            },
            sso: sso_api::Service {
                config: Arc::clone(&config),
                gate: Arc::clone(&gate),
                journal: Arc::clone(&journal),
                delegation: Arc::clone(&delegation),
                connectors: Arc::clone(&connectors),
                pages: Arc::clone(&sso_pages),
            },
            unread: Waiting::default(),
            stop: stop.clone(),
            tasks: tasks.clone(),
        };
        Ok(Self {
            store,
            journal,
            checkpoints,
            policy,
            identities,
            issuance,
            issued,
            confirmations,
            rotations,
            registry,
            membership,
            inventory,
            sessions,
            recordings,
            accounts,
            logins,
            connectors,
            reserve,
            api: Arc::new(api),
            stop,
            tasks,
        })
    }

    /// Starts what goes on by itself until the authority stops.
    pub(crate) async fn start(&self) {
        let tasks = &self.tasks;
        self.checkpoints.carry(tasks);
        tasks.spawn(Arc::clone(&self.policy).follow());
        tasks.spawn(Arc::clone(&self.identities).follow());
        tasks.spawn(Arc::clone(&self.policy).sweep());
        tasks.spawn(Arc::clone(&self.sessions).forget());
        self.recordings.finish_removals().await;
        tasks.spawn(Arc::clone(&self.recordings).retain());
        tasks.spawn(Arc::clone(&self.journal).watch_reserve());
        tasks.spawn(Arc::clone(&self.issued).follow());
        tasks.spawn(Arc::clone(&self.accounts).learn_logins());
        tasks.spawn(Arc::clone(&self.logins).write_uses());
        tasks.spawn(Arc::clone(&self.inventory).remember_sightings());
        tasks.spawn(Arc::clone(&self.issuance).renew_daily());
        tasks.spawn(Arc::clone(&self.issuance).make_the_others());
        self.rotations.resume_rotations().await;
        tasks.spawn(Arc::clone(&self.rotations).rotate_automatically());
        tasks.spawn(Arc::clone(&self.connectors).ask_again());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    /// The services that a constructor's arguments name.
    fn taken(call: &str, known: &BTreeMap<String, String>) -> BTreeSet<String> {
        let words = call.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.filter_map(|word| known.get(word).cloned()).collect()
    }

    #[test]
    fn the_picture_shows_the_arrows_that_there_are() {
        let text = include_str!("services.rs");
        let mut drawn: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let picture = text.split("```").nth(1).unwrap();
        let lines = picture.lines().filter_map(|line| line.strip_prefix("//! "));
        for line in lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase())) {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            let arrows = rest.trim_start().strip_prefix("-> ").unwrap_or_default();
            // What a service is for stands behind several spaces.
            let arrows = arrows.split("  ").next().unwrap_or_default();
            drawn.insert(name.to_owned(), arrows.split_whitespace().map(str::to_owned).collect());
        }
        let body = text.split("async fn compose").nth(1).unwrap().split("let api = Api").next().unwrap();
        let (mut known, mut made) = (BTreeMap::new(), BTreeMap::new());
        for statement in body.split("let ").skip(1) {
            let Some((variable, call)) = statement.split_once('=') else { continue };
            let service = call.trim_start().split("::").next().unwrap().to_owned();
            if drawn.contains_key(&service) {
                made.insert(service.clone(), taken(call, &known));
                known.insert(variable.trim().to_owned(), service);
            }
        }
        assert_eq!(made, drawn, "left: as they are made; right: as they are drawn");
    }
}
