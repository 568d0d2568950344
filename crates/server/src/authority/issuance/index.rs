//! The list of what was issued: found again by serial number, fingerprint, holder or signer.
//!
//! The audit log is the truth: an event with every certificate in it is on disk before the certificate is given out. The list is
//! made from the log, behind the calls and many entries at a time, so that issuing waits for no second write. It
//! remembers how far it has read, together with what it wrote; after a crash it goes on from there, and meets nothing
//! twice that matters, because each entry stands under its fingerprint.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sallyport_audit::log::{AuditLog, Filter, Record};
use sallyport_ca::Issued;
use sallyport_store::{Kind, Op, Store, StoreError, typed};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{error, warn};

use crate::authority::issuance::issued::CertificateRecord;
use crate::authority::issuance::issued::FIELD;

/// What is over is listed for so long, to be found when an administrator asks how it came about.
const KEPT: time::Duration = time::Duration::days(30);
/// Entries written together.
const BATCH: usize = 512;
/// How long entries wait for others to be written with them: the disk is asked four times a second at most.
const GATHER: Duration = Duration::from_millis(250);
/// How long a reader of the list waits for it to catch up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Records of the log without any certificate after which the position is written down.
const POSITION_EVERY: u64 = 100_000;
const POSITION: &str = "position";

/// The number of the first record of the log that the list has not seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PositionRecord {
    next: u64,
}

impl Kind for PositionRecord {
    const KIND: &'static str = "certificate_index";
}

/// How far the list is.
#[derive(Debug)]
pub(crate) struct Index {
    next: watch::Sender<u64>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { next: watch::channel(0).0 }
    }

    /// Waits until the list has everything that is in the log now.
    pub(crate) async fn caught_up(&self, log: &AuditLog) -> Result<(), Status> {
        let last = log.head().0;
        let mut next = self.next.subscribe();
        let waited = tokio::time::timeout(PATIENCE, next.wait_for(|next| *next > last)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Status::unavailable(
                "the list of certificates has not caught up with the audit log yet; try again in a minute",
            )),
        }
    }

    /// Keeps the list true until the authority stops.
    pub(crate) async fn follow(&self, store: &Store, log: &AuditLog, stop: &CancellationToken) {
        let mut next = loop {
            match position(store).await {
                Ok(next) => break next,
                Err(StoreError::Closed) => return,
                Err(problem) => error!(%problem, "the list of certificates cannot be read; trying again"),
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(5)) => {}
                () = stop.cancelled() => return,
            }
        };
        while !stop.is_cancelled() {
            match self.read_on(store, log, stop, &mut next).await {
                Ok(()) | Err(StoreError::Closed) => {}
                Err(problem) => {
                    error!(%problem, "the list of certificates cannot be written; it goes on from where it stood");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        let _ = write(store, Vec::new(), next).await;
    }

    /// Reads the files from where the list stands, then what comes, until something is missed.
    async fn read_on(
        &self,
        store: &Store,
        log: &AuditLog,
        stop: &CancellationToken,
        next: &mut u64,
    ) -> Result<(), StoreError> {
        // Subscribed before the files are read, so that nothing falls between.
        let mut live = log.subscribe();
        loop {
            let (from, scanned) = (*next, log.clone());
            let read = tokio::task::spawn_blocking(move || scan(&scanned, from)).await;
            let (found, after) = match read {
                Ok(Ok(read)) => read,
                Ok(Err(problem)) => {
                    warn!(%problem, "the audit log cannot be read for the list of certificates");
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    return Ok(());
                }
                Err(_) => return Ok(()),
            };
            let all = found.len() < BATCH;
            if !found.is_empty() || after.saturating_sub(from) > POSITION_EVERY {
                write(store, found, after).await?;
            }
            self.reached(next, after);
            if all {
                break;
            }
        }
        loop {
            let mut found = Vec::new();
            let mut after = *next;
            let mut missed = false;
            let first = tokio::select! {
                record = live.recv() => record,
                () = stop.cancelled() => return Ok(()),
            };
            missed |= take(first, &mut found, &mut after);
            if !found.is_empty() {
                // What comes within this time is written with the first.
                let until = tokio::time::sleep(GATHER);
                tokio::pin!(until);
                while found.len() < BATCH && !missed {
                    tokio::select! {
                        record = live.recv() => missed |= take(record, &mut found, &mut after),
                        () = &mut until => break,
                        () = stop.cancelled() => break,
                    }
                }
                write(store, found, after).await?;
            }
            self.reached(next, after);
            if missed {
                return Ok(());
            }
        }
    }

    fn reached(&self, next: &mut u64, after: u64) {
        *next = after;
        self.next.send_if_modified(|seen| std::mem::replace(seen, after) != after);
    }
}

type Received = Result<Arc<Record>, broadcast::error::RecvError>;

/// Takes one record; says whether some were missed.
fn take(record: Received, found: &mut Vec<CertificateRecord>, after: &mut u64) -> bool {
    match record {
        // What the files had is here once more.
        Ok(record) if record.sequence < *after => false,
        Ok(record) => {
            *after = record.sequence + 1;
            found.extend(certificates(&record));
            false
        }
        Err(_) => true,
    }
}

/// At most about a batch from the files, and the number to go on from.
fn scan(log: &AuditLog, from: u64) -> std::io::Result<(Vec<CertificateRecord>, u64)> {
    let last = log.head().0;
    let (mut found, mut after) = (Vec::new(), from);
    log.scan(from, &Filter::default(), |record| {
        if record.sequence > last {
            return ControlFlow::Break(());
        }
        after = record.sequence + 1;
        found.extend(certificates(&record));
        if found.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    // Numbers that the log left out are no records.
    let after = if found.len() < BATCH { after.max(last + 1) } else { after };
    Ok((found, after))
}

/// What a record of the log says was issued.
fn certificates(record: &Record) -> Vec<CertificateRecord> {
    // Most records have none, and need no parsing to see it.
    if !record.json.contains("\"certificates\":") {
        return Vec::new();
    }
    let Ok(mut event) = record.event() else { return Vec::new() };
    // Hosts report events of their own; only the authority's say what it issued.
    if event.origin != "auth" {
        return Vec::new();
    }
    let Some(field) = event.fields.remove(FIELD) else { return Vec::new() };
    match serde_json::from_value::<Vec<Issued>>(field) {
        Ok(issued) => issued
            .into_iter()
            .map(|issued| CertificateRecord {
                issued,
                at: event.time,
                by: event.user.clone(),
                source: event.source.clone(),
            })
            .collect(),
        Err(problem) => {
            warn!(%problem, record = record.sequence, "what was issued cannot be read from the audit log");
            Vec::new()
        }
    }
}

async fn position(store: &Store) -> Result<u64, StoreError> {
    let stored = store.get::<PositionRecord>(POSITION, OffsetDateTime::now_utc()).await?;
    Ok(stored.map_or(0, |stored| stored.value.next))
}

async fn write(store: &Store, found: Vec<CertificateRecord>, next: u64) -> Result<(), StoreError> {
    let now = OffsetDateTime::now_utc();
    let mut steps: Vec<Op> = Vec::with_capacity(found.len() + 1);
    for record in found {
        let end = record.issued.valid_before + KEPT;
        if end > now {
            steps.push(typed::put(&record.issued.fingerprint, &record, Some(end))?);
        }
    }
    steps.push(typed::put(POSITION, &PositionRecord { next }, None)?);
    store.backend().transact(steps, now).await.map(|_| ())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use sallyport_audit::{Code, Event};
    use sallyport_ca::{CaKind, CertificateKind, Form};
    use sallyport_sal::{KeyAlgorithm, MemoryKey};
    use sallyport_store::MemoryBackend;

    use super::*;
    use crate::authority::issuance::issued::{is_called, with_certificates};

    fn issued(number: u32, valid_before: OffsetDateTime) -> Issued {
        Issued {
            kind: CertificateKind::User,
            form: Form::X509,
            signed_by: CaKind::User,
            signing_key: "sha256:00".to_owned(),
            serial: format!("{number:032x}"),
            fingerprint: format!("{number:064x}"),
            key: format!("{:064x}", u64::from(number) + (1 << 40)),
            subject: "alice".to_owned(),
            names: vec!["root".to_owned()],
            valid_after: valid_before - time::Duration::hours(1),
            valid_before,
            login_id: None,
        }
    }

    fn event(issued: &[Issued]) -> Event {
        let event = Event::new(Code::CertIssued, OffsetDateTime::now_utc()).user("alice").origin("auth");
        with_certificates(event, issued)
    }

    struct World {
        _dir: tempfile::TempDir,
        log: AuditLog,
        store: Store,
    }

    fn world() -> World {
        let dir = tempfile::tempdir().unwrap();
        let signer = Arc::new(MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap());
        let (log, _) = AuditLog::open(dir.path(), signer).unwrap();
        World { _dir: dir, log, store: Store::new(Arc::new(MemoryBackend::new())) }
    }

    impl World {
        fn start(&self) -> (Arc<Index>, CancellationToken, tokio::task::JoinHandle<()>) {
            let (index, stop) = (Arc::new(Index::new()), CancellationToken::new());
            let (store, log) = (self.store.clone(), self.log.clone());
            let (running, stopping) = (Arc::clone(&index), stop.clone());
            let task = tokio::spawn(async move { running.follow(&store, &log, &stopping).await });
            (index, stop, task)
        }

        async fn listed(&self) -> usize {
            let now = OffsetDateTime::now_utc();
            self.store.list::<CertificateRecord>(None, 100_000, now).await.unwrap().len()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_list_follows_the_log_and_goes_on_after_a_stop() {
        let world = world();
        let later = OffsetDateTime::now_utc() + time::Duration::hours(1);
        // Before the first start: more than one batch, and some that say nothing.
        for number in 0..600 {
            let mut events = vec![event(&[issued(2 * number, later), issued(2 * number + 1, later)])];
            events.push(Event::new(Code::Pinged, OffsetDateTime::now_utc()));
            world.log.append(events).await.unwrap();
        }
        let (index, stop, task) = world.start();
        index.caught_up(&world.log).await.unwrap();
        assert_eq!(world.listed().await, 1200);
        world.log.append(vec![event(&[issued(5000, later)])]).await.unwrap();
        index.caught_up(&world.log).await.unwrap();
        assert_eq!(world.listed().await, 1201, "who waits sees what was issued just now");
        stop.cancel();
        task.await.unwrap();
        world.log.append(vec![event(&[issued(5001, later)])]).await.unwrap();
        let (index, stop, task) = world.start();
        index.caught_up(&world.log).await.unwrap();
        assert_eq!(world.listed().await, 1202);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_hosts_report_and_what_is_long_over_is_not_listed() {
        let world = world();
        let now = OffsetDateTime::now_utc();
        let mut forged = event(&[issued(1, now + time::Duration::hours(1))]);
        forged.origin = "node:web-1".to_owned();
        let old = event(&[issued(2, now - time::Duration::days(40))]);
        let mut broken = event(&[issued(3, now)]);
        broken.fields.insert("certificates".to_owned(), "nonsense".into());
        world.log.append(vec![forged, old, broken]).await.unwrap();
        let (index, stop, task) = world.start();
        index.caught_up(&world.log).await.unwrap();
        assert_eq!(world.listed().await, 0);
        stop.cancel();
        task.await.unwrap();
    }

    #[test]
    fn names_are_taken_as_tools_print_them() {
        let at = OffsetDateTime::now_utc();
        let mut record =
            CertificateRecord { issued: issued(0xabcdef, at), at, by: String::new(), source: String::new() };
        record.issued.key = "SHA256:AbC".to_owned();
        let fingerprint = record.issued.fingerprint.clone();
        let colons: Vec<String> =
            fingerprint.as_bytes().chunks(2).map(|pair| String::from_utf8(pair.to_vec()).unwrap()).collect();
        let serial = record.issued.serial.clone();
        for name in [
            fingerprint.clone(),
            fingerprint.to_ascii_uppercase(),
            colons.join(":").to_ascii_uppercase(),
            serial.clone(),
            format!("0x{serial}"),
            "SHA256:AbC".to_owned(),
        ] {
            assert!(is_called(&record, &name), "{name}");
        }
        for name in ["", "abcdef", "SHA256:abc", "alice"] {
            assert!(!is_called(&record, name), "{name}");
        }
    }
}
