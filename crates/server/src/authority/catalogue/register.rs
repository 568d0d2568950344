//! What is kept of a kind: documents that administrators write, and those that agents report of their own configuration.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use sallyport_access::{Database, HostId, Identity, Kind, Listed, NodeName, Principal};
use sallyport_audit::Event;
use sallyport_store::{Store, typed};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown};
use crate::authority::catalogue::kept::{Kept, KeptRecord};
use crate::authority::catalogue::reports::{Report, Said, Step, without};
use crate::authority::catalogue::table::{Known, KnownDatabase, MOST, SaidHealth, Table};
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::resources::documents::resource as document;
use crate::authority::storage::{Write, op, storage};
use crate::authority::workers::Workers;

fn agents<R>(known: &Known<R>) -> String {
    known.reporters.values().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// An event with what it is about.
fn about<R: Kept>(event: Event, resource: &R) -> Event {
    let event = event.message(resource.path()).field("name", resource.name());
    match resource.kind() {
        // Its events name the kind.
        Kind::Database => event,
        kind => event.field("resource_kind", kind.row().document),
    }
}

/// What the cluster has of a kind, or of several.
#[derive(Debug)]
pub(crate) struct Register<R: Kept> {
    store: Store,
    journal: Arc<Journal>,
    registry: Arc<HostRegistry>,
    reading: Arc<Workers>,
    table: Table<R>,
    changing: tokio::sync::Mutex<()>,
}

/// The databases of the cluster.
pub(crate) type DatabaseRegister = Register<Database>;
/// What the cluster has of the kinds that need no code of their own.
pub(crate) type Catalogue = Register<Listed>;

impl Register<Database> {
    /// One by its name.
    pub(crate) fn find(&self, name: &str) -> Option<KnownDatabase> {
        self.table.find(Kind::Database, name)
    }
}

impl<R: Kept> Register<R> {
    pub(crate) fn new(
        store: &Store,
        journal: &Arc<Journal>,
        registry: &Arc<HostRegistry>,
        reading: &Arc<Workers>,
        table: Table<R>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            journal: Arc::clone(journal),
            registry: Arc::clone(registry),
            reading: Arc::clone(reading),
            table,
            changing: tokio::sync::Mutex::new(()),
        })
    }

    /// One by its name among its kind.
    pub(crate) fn one(&self, kind: Kind, name: &str) -> Option<Known<R>> {
        self.table.find(kind, name)
    }

    /// Every one behind `after`, in the order of kinds and names.
    pub(crate) fn after(&self, after: Option<&R::Id>) -> Vec<Known<R>> {
        self.table.after(after)
    }

    /// Whether this host is an agent that serves one of this kind and name.
    pub(crate) fn is_served_by(&self, agent: &Identity, kind: Kind, resource: &str) -> bool {
        let Principal::Host { id, name, .. } = &agent.principal else { return false };
        self.table.find(kind, resource).is_some_and(|known| known.serves(*id, name))
    }

    /// Writes what an administrator describes.
    pub(crate) async fn write(
        &self,
        caller: &Caller,
        resource: R,
        write: Write,
    ) -> Result<v1::Resource, Status> {
        let now = OffsetDateTime::now_utc();
        let (row, name) = (resource.kind().row(), resource.name().to_owned());
        if resource.agents().is_empty() {
            return Err(Status::invalid_argument(format!(
                "{}: spec.via: is missing; write via: with the name of a node whose agent reaches the {}, or a list of them",
                row.document, row.word
            )));
        }
        let _changing = self.changing.lock().await;
        let existing = self.table.find(resource.kind(), &name);
        if let Some(there) = existing.as_ref().filter(|there| there.is_static()) {
            return Err(Status::failed_precondition(format!(
                "{} stands in the configuration of {}: change it there, or give this one another name",
                resource.title(),
                agents(there)
            )));
        }
        if existing.is_none() && self.table.with(BTreeMap::len) >= MOST {
            return Err(Status::resource_exhausted(format!(
                "{}: a cluster has at most {MOST}",
                resource.title()
            )));
        }
        let yaml = resource.yaml();
        let record = KeptRecord::<R>::new(yaml.clone(), BTreeMap::new());
        let step = op(&resource.id().to_string(), &record, None, write).map_err(|error| storage(&error))?;
        let revisions =
            self.store.backend().transact(vec![step], now).await.map_err(|error| storage(&error))?;
        let codes = R::codes();
        let code = if existing.is_some() { codes.updated } else { codes.created };
        let event = about(caller.event(code), &resource).field("yaml", yaml.clone());
        self.table.put(Arc::new(resource), BTreeMap::new());
        self.journal.record(vec![event]).await?;
        Ok(document(row.document, &name, revisions.first().copied().unwrap_or_default(), None, yaml))
    }

    /// Removes one.
    pub(crate) async fn delete(&self, caller: &Caller, kind: Kind, name: &str) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let _changing = self.changing.lock().await;
        let there = self.table.find(kind, name);
        let there = there.ok_or_else(|| {
            Status::not_found(format!("there is no {} {}", kind.row().document, shown(name)))
        })?;
        if there.is_static() && there.health(&self.registry.presence, now).0 != "offline" {
            return Err(Status::failed_precondition(format!(
                "{} stands in the configuration of {}: take it out there, and it goes by itself",
                there.resource.title(),
                agents(&there)
            )));
        }
        let step = typed::delete::<KeptRecord<R>>(&there.resource.id().to_string(), None);
        self.store.backend().transact_urgent(vec![step], now).await.map_err(|error| storage(&error))?;
        self.table.remove(&there.resource.id());
        let event = about(caller.event(R::codes().deleted), &*there.resource);
        self.journal.record_urgent(vec![event]).await
    }

    /// Takes what a heartbeat says of what an agent serves; gives what of it cannot be. The state is written only when something
    /// changed.
    pub(crate) async fn report(
        &self,
        identity: &Identity,
        (id, name): (HostId, &NodeName),
        reports: Vec<Said>,
        health: Vec<SaidHealth<R>>,
        now: OffsetDateTime,
    ) -> Result<Vec<String>, Status> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        reports.iter().for_each(|report| report.hash(&mut hasher));
        let hash = hasher.finish();
        let problems = match self.table.answered(id, hash) {
            Some(problems) => problems,
            None => {
                let fixed = self.registry.presence.get(id).map(|known| known.fixed).unwrap_or_default();
                let (name, bounds) = (name.clone(), self.registry.names.bounds(id));
                let read = self.reading.run(move || Report::read(id, &name, reports, &fixed, bounds)).await;
                let report = read.map_err(|_| Status::internal("what the agent serves could not be read"))?;
                self.take_report(&identity.display_name(), report, hash, now).await?
            }
        };
        self.table.take_health(id, name, health, now);
        Ok(problems)
    }

    async fn take_report(
        &self,
        by: &str,
        mut report: Report<R>,
        hash: u64,
        now: OffsetDateTime,
    ) -> Result<Vec<String>, Status> {
        let _changing = self.changing.lock().await;
        let steps = self.table.with(|known| report.plan(known));
        let mut events = self.apply(by, steps, now).await?;
        let news = self.table.answer(report.id, hash, &report.problems);
        if news {
            let told = Event::new(R::codes().report_refused, now)
                .user(by)
                .origin("auth")
                .message(report.problems.first().cloned().unwrap_or_default())
                .field("problems", report.problems.clone());
            events.push(told);
        }
        if !events.is_empty() {
            self.journal.record(events).await?;
        }
        Ok(report.problems)
    }

    /// Removes a host that has left the cluster from the agents of the resources that it reported.
    pub(crate) async fn forget_reporter(
        &self,
        by: &str,
        id: HostId,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let _changing = self.changing.lock().await;
        let steps: Vec<Step<R>> = self.table.with(|known| {
            let of = known.values().filter(|known| known.reporters.contains_key(&id));
            of.map(|known| without(known, id)).collect()
        });
        self.table.forget_answer(id);
        let events = self.apply(by, steps, now).await?;
        if events.is_empty() { Ok(()) } else { self.journal.record(events).await }
    }

    /// Writes steps to the state and to the memory; gives the events to be recorded.
    async fn apply(&self, by: &str, steps: Vec<Step<R>>, now: OffsetDateTime) -> Result<Vec<Event>, Status> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let mut writes = Vec::with_capacity(steps.len());
        let mut events = Vec::with_capacity(steps.len());
        for step in &steps {
            let (code, resource, yaml) = match step {
                Step::Put { resource, reporters, new } => {
                    let yaml = resource.yaml();
                    let record = KeptRecord::<R>::new(yaml.clone(), reporters.clone());
                    let name = resource.id().to_string();
                    writes.push(typed::put(&name, &record, None).map_err(|error| storage(&error))?);
                    let codes = R::codes();
                    (if *new { codes.created } else { codes.updated }, resource, yaml)
                }
                Step::Remove(resource) => {
                    writes.push(typed::delete::<KeptRecord<R>>(&resource.id().to_string(), None));
                    (R::codes().deleted, resource, String::new())
                }
            };
            let mut event = about(Event::new(code, now).user(by).origin("auth"), resource);
            if !yaml.is_empty() {
                event = event.field("yaml", yaml);
            }
            events.push(event);
        }
        self.store.backend().transact(writes, now).await.map_err(|error| storage(&error))?;
        for step in steps {
            match step {
                Step::Put { resource, reporters, .. } => self.table.put(Arc::new(resource), reporters),
                Step::Remove(gone) => self.table.remove(&gone.id()),
            }
        }
        Ok(events)
    }
}
