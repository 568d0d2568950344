//! What the authorities issued, and denying it again.

use std::sync::Arc;

use sallyport_access::{Lock, LockTarget};
use sallyport_audit::Code;
use sallyport_ca::{CertificateKind, SKEW_ALLOWANCE};
use sallyport_store::{Store, StoreError, typed};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown};
use crate::authority::config::AuthConfig;
use crate::authority::gate::delegation::Delegation;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::identities::known::Identities;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::issuance::issued::{CertificateRecord, DenialRecord, denial_end, is_called};
use crate::authority::issuance::list::IssuedList;
use crate::authority::policy::Policy;
use crate::authority::records::LockRecord;
use crate::authority::storage::storage;

/// Entries in one answer.
const ENTRIES: usize = 1000;
/// Longest reason of a denial, in characters.
const REASON: usize = 500;

/// What was issued: found, denied, signed by hand and exported.
#[derive(Debug)]
pub(crate) struct CertificateRegister {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) delegation: Arc<Delegation>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) issuance: Arc<Issuance>,
    pub(super) issued: Arc<IssuedList>,
    pub(super) registry: Arc<HostRegistry>,
}

impl CertificateRegister {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        delegation: &Arc<Delegation>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        issuance: &Arc<Issuance>,
        issued: &Arc<IssuedList>,
        registry: &Arc<HostRegistry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            delegation: Arc::clone(delegation),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            issuance: Arc::clone(issuance),
            issued: Arc::clone(issued),
            registry: Arc::clone(registry),
        })
    }

    pub(crate) async fn list_certificates(
        &self,
        asked: &v1::ListCertificatesRequest,
    ) -> Result<v1::ListCertificatesResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let kind = match asked.kind.as_str() {
            "" => None,
            text => Some(
                text.parse::<CertificateKind>()
                    .map_err(|error| Status::invalid_argument(error.to_string()))?,
            ),
        };
        let limit = match asked.limit {
            0 => ENTRIES,
            limit => (limit as usize).min(ENTRIES),
        };
        let denials = self.issued.denials().await?;
        let signed_by = asked.signed_by.replace('-', "_");
        let wanted = |record: &CertificateRecord| {
            let issued = &record.issued;
            let denied = denials.contains_key(&issued.fingerprint);
            (asked.subject.is_empty() || issued.subject == asked.subject)
                && kind.is_none_or(|kind| issued.kind == kind)
                && (asked.signed_by.is_empty()
                    || issued.signed_by.name() == signed_by
                    || issued.signing_key.starts_with(&asked.signed_by))
                && (!asked.valid || (issued.valid_before > now && !denied))
                && (!asked.denied || denied)
        };
        let mut found: Vec<CertificateRecord> = Vec::new();
        let mut more = false;
        self.issued
            .each_certificate(|record| {
                if wanted(&record) {
                    found.push(record);
                }
                // The newest are what is asked for; older ones go as soon as there are many.
                if found.len() > 4 * limit {
                    more |= keep_newest(&mut found, limit);
                }
            })
            .await?;
        more |= keep_newest(&mut found, limit);
        let certificates =
            found.iter().map(|record| info(record, denials.get(&record.issued.fingerprint))).collect();
        Ok(v1::ListCertificatesResponse { certificates, more })
    }

    /// The one certificate that a serial number or fingerprint means; of several with one key, the newest.
    pub(crate) async fn one_certificate(&self, id: &str) -> Result<CertificateRecord, Status> {
        let id = id.trim();
        let mut found = None::<CertificateRecord>;
        self.issued
            .each_certificate(|record| {
                if is_called(&record, id) && found.as_ref().is_none_or(|other| other.at < record.at) {
                    found = Some(record);
                }
            })
            .await?;
        found.ok_or_else(|| {
            Status::not_found(format!(
                "no certificate has the serial number or fingerprint {}; see: sallyport admin certs ls",
                shown(id)
            ))
        })
    }

    pub(crate) async fn deny_certificate(
        &self,
        caller: &Caller,
        asked: v1::DenyCertificateRequest,
    ) -> Result<v1::DenyCertificateResponse, Status> {
        let reason = asked.reason.trim();
        if reason.is_empty() || reason.chars().count() > REASON || reason.chars().any(char::is_control) {
            return Err(Status::invalid_argument(format!(
                "a reason of 1 to {REASON} characters on one line is needed: the holder who is kept out reads it"
            )));
        }
        let record = self.one_certificate(&asked.id).await?;
        let now = OffsetDateTime::now_utc();
        if record.issued.valid_before + SKEW_ALLOWANCE <= now {
            return Err(Status::failed_precondition(format!(
                "the certificate is over since {}: no host accepts it any more",
                record.issued.valid_before
            )));
        }
        // The key was in the same hands as those of its login, and a renewal would go on with it.
        let mut together = Vec::new();
        match record.issued.login_id {
            None => together.push(record.clone()),
            Some(login_id) => {
                self.issued
                    .each_certificate(|other| {
                        if other.issued.login_id == Some(login_id)
                            && other.issued.valid_before + SKEW_ALLOWANCE > now
                        {
                            together.push(other);
                        }
                    })
                    .await?;
            }
        }
        let mut steps = Vec::new();
        let mut events = Vec::new();
        let lock = record.issued.login_id.map(|login_id| Lock {
            name: format!("login-{login_id}"),
            target: LockTarget::LoginId(login_id),
            message: reason.to_owned(),
            // A certificate that was on its way to its holder at this moment ends before.
            expires: Some(now + record.issued.kind.row().limit + 2 * SKEW_ALLOWANCE),
        });
        if let Some(lock) = &lock {
            let yaml = lock.to_yaml();
            steps.push(
                typed::put(&lock.name, &LockRecord { yaml: yaml.clone() }, lock.expires)
                    .map_err(|error| storage(&error))?,
            );
            events.push(
                caller
                    .event(Code::LockCreated)
                    .message(format!("lock/{}", lock.name))
                    .field("name", lock.name.clone())
                    .field("yaml", yaml),
            );
        }
        let lock_name = lock.map(|lock| lock.name).unwrap_or_default();
        let mut answer = Vec::new();
        for other in &together {
            let issued = &other.issued;
            let denial = DenialRecord {
                signed_by: issued.signed_by,
                signing_key: issued.signing_key.clone(),
                serial: issued.serial.clone(),
                at: now,
                by: caller.name(),
                reason: reason.to_owned(),
                lock: lock_name.clone(),
            };
            steps.push(
                typed::put(&issued.fingerprint, &denial, Some(denial_end(issued)))
                    .map_err(|error| storage(&error))?,
            );
            events.push(
                caller
                    .event(Code::CertDenied)
                    .message(reason)
                    .field("subject", issued.subject.clone())
                    .field("kind", issued.kind.name())
                    .field("serial", issued.serial.clone())
                    .field("fingerprint", issued.fingerprint.clone())
                    .field("lock", lock_name.clone()),
            );
            answer.push(info(other, Some(&denial)));
        }
        let backend = self.store.backend();
        backend.transact_urgent(steps, now).await.map_err(|error: StoreError| storage(&error))?;
        if !lock_name.is_empty() {
            self.policy.refresh_after("lock").await?;
        }
        self.journal.record_urgent(events).await?;
        Ok(v1::DenyCertificateResponse { certificates: answer, lock: lock_name })
    }

    pub(crate) fn bounds(&self) -> v1::GetIssuanceResponse {
        let suite = self.issuance.authorities().suite();
        let span = |span: time::Duration| {
            Some(convert::duration_to_proto(std::time::Duration::try_from(span).unwrap_or_default()))
        };
        let algorithm = |purpose: Option<sallyport_sal::KeyPurpose>| {
            purpose.map(|purpose| suite.algorithm(purpose).name().to_owned()).unwrap_or_default()
        };
        let kinds = CertificateKind::all().map(|kind| {
            let bounds = self.config.lifetimes.bounds(kind);
            v1::IssuancePolicy {
                kind: kind.name().to_owned(),
                signed_by: kind.authority().name().to_owned(),
                min: span(bounds.min),
                default: span(bounds.default),
                max: span(bounds.max),
                limit: span(kind.row().limit),
                ssh_algorithm: algorithm(kind.ssh_purpose()),
                tls_algorithm: algorithm(kind.tls_purpose()),
            }
        });
        v1::GetIssuanceResponse { suite: suite.name().to_owned(), kinds: kinds.collect() }
    }
}

/// Drops all but the newest; says whether there were more.
fn keep_newest(found: &mut Vec<CertificateRecord>, limit: usize) -> bool {
    found.sort_by(|left, right| {
        right.at.cmp(&left.at).then_with(|| left.issued.fingerprint.cmp(&right.issued.fingerprint))
    });
    let more = found.len() > limit;
    found.truncate(limit);
    more
}

pub(crate) fn info(record: &CertificateRecord, denial: Option<&DenialRecord>) -> v1::CertificateInfo {
    let issued = &record.issued;
    let form = match issued.form {
        sallyport_ca::Form::Ssh => "ssh",
        sallyport_ca::Form::X509 => "x509",
        sallyport_ca::Form::Jwt => "jwt",
    };
    v1::CertificateInfo {
        kind: issued.kind.name().to_owned(),
        form: form.to_owned(),
        signed_by: issued.signed_by.name().to_owned(),
        signing_key: issued.signing_key.clone(),
        serial: issued.serial.clone(),
        fingerprint: issued.fingerprint.clone(),
        key: issued.key.clone(),
        subject: issued.subject.clone(),
        names: issued.names.clone(),
        valid_after: Some(convert::time_to_proto(issued.valid_after)),
        valid_before: Some(convert::time_to_proto(issued.valid_before)),
        login_id: issued.login_id.map(|id| id.to_string()).unwrap_or_default(),
        issued: Some(convert::time_to_proto(record.at)),
        issued_to: record.by.clone(),
        source: record.source.clone(),
        denied: denial.map(|denial| v1::Denial {
            at: Some(convert::time_to_proto(denial.at)),
            by: denial.by.clone(),
            reason: denial.reason.clone(),
            lock: denial.lock.clone(),
        }),
    }
}
