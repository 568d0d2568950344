//! Suites, and the clients that a change of suite would concern.

use std::sync::Arc;

use sallyport_audit::Code;
use sallyport_ca::{Authority as CertAuthority, CaKind, JwtSide, SshSide, TlsSide};
use sallyport_sal::compatibility::{Effect, Verdict, judge, notes};
use sallyport_sal::suite::TABLE;
use sallyport_sal::{HybridKeyExchange, KeyAlgorithm, KeyPurpose, Suite, UnknownSuite};
use sallyport_store::{Store, StoreError};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::ServerError;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::Caller;
use crate::authority::fips::in_fips_mode;
use crate::authority::inventory::clients::ClientRecord;
use crate::authority::inventory::reports::ClientInventory;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::records::ClusterRecord;
use crate::authority::storage::{SELF, storage};
use crate::member::client_sightings::to_proto;

pub(crate) fn suite(name: &str) -> Result<Suite, Status> {
    name.parse().map_err(|error: UnknownSuite| Status::invalid_argument(error.to_string()))
}

pub(crate) fn client_to_proto(record: &ClientRecord) -> v1::SeenClient {
    v1::SeenClient { seen_by: record.seen_by.clone(), ..to_proto(&record.report()) }
}

/// The word for what a suite demands of key exchange.
fn hybrid(suite: Suite) -> &'static str {
    match suite.key_exchange() {
        HybridKeyExchange::Preferred => "preferred",
        HybridKeyExchange::Required => "required",
    }
}

/// The CA that has the keys of a purpose.
fn ca_of(purpose: KeyPurpose) -> Option<CaKind> {
    let name = purpose.name();
    CaKind::ALL.iter().copied().find(|kind| {
        let prefix = kind.name().replace('_', "-");
        purpose.is_ca()
            && (name == format!("{prefix}-ca")
                || ["ssh", "tls", "jwt"].iter().any(|side| name == format!("{prefix}-ca-{side}")))
    })
}

/// The algorithm that a CA has for a purpose today, which may be of an earlier suite.
fn algorithm_of(ca: &CertAuthority, purpose: KeyPurpose) -> Option<KeyAlgorithm> {
    let name = purpose.name();
    if name.ends_with("-ssh") {
        ca.ssh().ok().map(SshSide::algorithm)
    } else if name.ends_with("-tls") {
        ca.tls().ok().map(TlsSide::algorithm)
    } else {
        ca.jwt().ok().map(JwtSide::algorithm)
    }
}

/// When an effect is felt, in words.
fn felt(effect: Effect) -> String {
    match effect {
        Effect::AtOnce => "at once".to_owned(),
        Effect::NextLogin => "at the next login".to_owned(),
        Effect::Rotation(purpose) => match ca_of(purpose) {
            Some(kind) => format!("after the rotation of the {kind} CA"),
            None => "after a rotation".to_owned(),
        },
    }
}

/// What a change of suite would bring, and the change.
#[derive(Debug)]
pub(crate) struct SuiteChanges {
    store: Store,
    journal: Arc<Journal>,
    issuance: Arc<Issuance>,
    inventory: Arc<ClientInventory>,
}

impl SuiteChanges {
    pub(crate) fn new(
        store: &Store,
        journal: &Arc<Journal>,
        issuance: &Arc<Issuance>,
        inventory: &Arc<ClientInventory>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            journal: Arc::clone(journal),
            issuance: Arc::clone(issuance),
            inventory: Arc::clone(inventory),
        })
    }

    pub(crate) fn suite_info(&self, suite: Suite) -> v1::SuiteInfo {
        let keys = TABLE.iter().map(|row| {
            let cell = row.cell(suite);
            v1::SuiteKey {
                purpose: row.purpose.name().to_owned(),
                what: row.what.to_owned(),
                algorithm: cell.algorithm.name().to_owned(),
                why: cell.reason.why.to_owned(),
                dictated_by: cell.reason.dictated_by.to_owned(),
            }
        });
        v1::SuiteInfo {
            name: suite.name().to_owned(),
            summary: suite.summary().to_owned(),
            hybrid_key_exchange: hybrid(suite).to_owned(),
            keys: keys.collect(),
            unavailable: self.unavailable(suite).unwrap_or_default(),
        }
    }

    /// Why a suite cannot be in force on this cluster.
    pub(crate) fn unavailable(&self, suite: Suite) -> Option<String> {
        if in_fips_mode() && !suite.is_for_fips() {
            return Some("in FIPS mode only fips-v1 and legacy are allowed".to_owned());
        }
        if self.issuance.custodies().uses_tokens() && !suite.is_for_tokens() {
            return Some(
                "auth.ca_keys puts CA keys into a token, and tokens make ECDSA and RSA keys only".to_owned(),
            );
        }
        None
    }

    /// What would change, and for whom it would not work.
    pub(crate) fn preflight(&self, from: Suite, to: Suite) -> v1::PreflightSuiteResponse {
        let (clients, _) = self.inventory.list(OffsetDateTime::now_utc());
        let (mut breaks, mut unsure, mut strangers) = (Vec::new(), Vec::new(), Vec::new());
        for client in &clients {
            for finding in judge(&client.offer, from, to) {
                let obstacle = v1::SuiteObstacle {
                    client: Some(client_to_proto(client)),
                    reason: finding.reason,
                    felt: felt(finding.effect),
                };
                // A scanner from the Internet has never been able to log in, and loses nothing.
                if client.users.is_empty() {
                    strangers.push(obstacle);
                } else if finding.verdict == Verdict::Breaks {
                    breaks.push(obstacle);
                } else {
                    unsure.push(obstacle);
                }
            }
        }
        let mut notes = notes(from, to);
        if from.algorithm(KeyPurpose::AuditCheckpoint) != to.algorithm(KeyPurpose::AuditCheckpoint) {
            notes.push("the key that signs checkpoints of the audit log stays what it is".to_owned());
        }
        v1::PreflightSuiteResponse {
            from: from.name().to_owned(),
            to: to.name().to_owned(),
            changes: self.suite_changes(from, to),
            breaks,
            unsure,
            strangers,
            notes,
            seen: clients.len() as u64,
            unavailable: self.unavailable(to).unwrap_or_default(),
        }
    }

    fn suite_changes(&self, from: Suite, to: Suite) -> Vec<v1::SuiteChange> {
        let mut changes = Vec::new();
        if from.key_exchange() != to.key_exchange() {
            changes.push(v1::SuiteChange {
                purpose: "key-exchange".to_owned(),
                what: "hybrid ML-KEM key exchange within the cluster".to_owned(),
                from: hybrid(from).to_owned(),
                to: hybrid(to).to_owned(),
                takes_effect: "now".to_owned(),
                command: String::new(),
                why: to.summary().to_owned(),
            });
        }
        let authorities = self.issuance.authorities();
        for purpose in KeyPurpose::ALL {
            let cell = to.cell(*purpose);
            let mut before = from.algorithm(*purpose);
            let (takes_effect, command) = match purpose {
                KeyPurpose::AuditCheckpoint => continue,
                KeyPurpose::HostSsh | KeyPurpose::HostTls | KeyPurpose::ProxyToAgent => {
                    ("now", String::new())
                }
                KeyPurpose::Svid | KeyPurpose::DatabaseServer | KeyPurpose::AgentToDatabase => {
                    ("renewal", String::new())
                }
                purpose if purpose.is_ca() => {
                    let Some(kind) = ca_of(*purpose) else { continue };
                    match authorities.entry(kind).and_then(|entry| algorithm_of(&entry.signer, *purpose)) {
                        Some(has) => {
                            before = has;
                            ("rotation", format!("sallyport admin ca rotate --type {kind}"))
                        }
                        // It was not made yet, and is made by the suite of the day.
                        None => ("now", String::new()),
                    }
                }
                _ => ("next login", String::new()),
            };
            if before != cell.algorithm {
                changes.push(v1::SuiteChange {
                    purpose: purpose.name().to_owned(),
                    what: purpose.what().to_owned(),
                    from: before.name().to_owned(),
                    to: cell.algorithm.name().to_owned(),
                    takes_effect: takes_effect.to_owned(),
                    command,
                    why: cell.reason.why.to_owned(),
                });
            }
        }
        changes
    }

    pub(crate) async fn set_suite(
        &self,
        caller: &Caller,
        asked: &v1::SetSuiteRequest,
    ) -> Result<v1::SetSuiteResponse, Status> {
        let (from, to) = (suite(&asked.from)?, suite(&asked.to)?);
        if let Some(reason) = self.unavailable(to) {
            return Err(Status::failed_precondition(format!("the suite {to} cannot be set: {reason}")));
        }
        let preflight = self.preflight(from, to);
        if !preflight.breaks.is_empty() && !asked.accept_breaks {
            let names: Vec<String> = preflight.breaks.iter().take(3).map(obstacle_text).collect();
            return Err(Status::failed_precondition(format!(
                "{} of the clients that were seen cannot follow to {to}: {}; see sallyport admin suite preflight --to {to}",
                preflight.breaks.len(),
                names.join("; ")
            )));
        }
        let now = OffsetDateTime::now_utc();
        let failed = |error: StoreError| storage(&error);
        let stored = self.store.get::<ClusterRecord>(SELF, now).await.map_err(failed)?;
        let stored = stored.ok_or_else(|| Status::internal("the cluster has no record of itself"))?;
        let moved = |is: Suite| {
            Status::aborted(format!(
                "the suite is {is} by now, not {from}; look again: sallyport admin suite ls"
            ))
        };
        if stored.value.suite != from {
            return Err(moved(stored.value.suite));
        }
        let record = ClusterRecord { suite: to, ..stored.value };
        match self.store.update(SELF, stored.revision, &record, None, now).await {
            Ok(_) => {}
            Err(StoreError::Conflict { .. }) => {
                let stored = self.store.get::<ClusterRecord>(SELF, now).await.map_err(failed)?;
                return Err(moved(stored.map_or(from, |stored| stored.value.suite)));
            }
            Err(error) => return Err(storage(&error)),
        }
        let event = caller
            .event(Code::SuiteChanged)
            .message(format!("{from} to {to}"))
            .field("from", from.name())
            .field("to", to.name())
            .field("breaks", preflight.breaks.len() as u64)
            .field("unsure", preflight.unsure.len() as u64);
        self.journal.record(vec![event]).await?;
        // From here on hosts hear of it by their watch, and logins by the first answer that they get.
        self.issuance.reload().await.map_err(|error| {
            tracing::error!(problem = ServerError::chain(&error), "the new suite is stored and not in force");
            Status::unavailable(
                "the suite is stored, but the authority cannot put it in force; its log says why",
            )
        })?;
        Ok(v1::SetSuiteResponse { from: from.name().to_owned(), to: to.name().to_owned() })
    }
}

/// One line about a client that cannot follow.
fn obstacle_text(obstacle: &v1::SuiteObstacle) -> String {
    let client = obstacle.client.as_ref();
    let name = client.map(|client| client.software.as_str()).filter(|name| !name.is_empty());
    format!("{} {}", name.unwrap_or("a client without a name"), obstacle.reason)
}
