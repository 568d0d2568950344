//! The databases: documents that administrators write, and those that agents report of their own configuration.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use sallyport_access::{Database, DatabaseName, HostId, Identity, NodeName, Principal};
use sallyport_audit::{Code, Event};
use sallyport_store::{Store, typed};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown};
use crate::authority::databases::reports::{Report, Step, without};
use crate::authority::databases::table::{DatabaseRecord, DatabaseTable, KnownDatabase};
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::resources::documents::resource;
use crate::authority::storage::{Write, op, storage};
use crate::authority::workers::Workers;

fn agents(known: &KnownDatabase) -> String {
    known.reporters.values().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The databases of the cluster.
#[derive(Debug)]
pub(crate) struct DatabaseRegister {
    store: Store,
    journal: Arc<Journal>,
    registry: Arc<HostRegistry>,
    reading: Arc<Workers>,
    table: DatabaseTable,
    changing: tokio::sync::Mutex<()>,
}

impl DatabaseRegister {
    pub(crate) fn new(
        store: &Store,
        journal: &Arc<Journal>,
        registry: &Arc<HostRegistry>,
        reading: &Arc<Workers>,
        table: DatabaseTable,
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

    /// One by its name.
    pub(crate) fn find(&self, name: &str) -> Option<KnownDatabase> {
        self.table.find(name)
    }

    /// Every one behind `after`, in the order of names.
    pub(crate) fn after(&self, after: Option<&DatabaseName>) -> Vec<KnownDatabase> {
        self.table.after(after)
    }

    /// Whether this host is an agent that serves a database of this name.
    pub(crate) fn serves_database(&self, agent: &Identity, database: &str) -> bool {
        let Principal::Host { id, name, .. } = &agent.principal else { return false };
        self.table.find(database).is_some_and(|known| known.serves(*id, name))
    }

    /// Writes a database that an administrator describes.
    pub(crate) async fn write_database(
        &self,
        caller: &Caller,
        database: Database,
        write: Write,
    ) -> Result<v1::Resource, Status> {
        let now = OffsetDateTime::now_utc();
        let name = database.name.clone();
        if database.agents.is_empty() {
            return Err(Status::invalid_argument(
                "db: spec.via: is missing; write via: with the name of a node whose agent reaches the database, or a \
                 list of them",
            ));
        }
        let _changing = self.changing.lock().await;
        let existing = self.table.find(name.as_str());
        if let Some(there) = existing.as_ref().filter(|there| there.is_static()) {
            return Err(Status::failed_precondition(format!(
                "the database {name} stands in the configuration of {}: change it there, or give this one another name",
                agents(there)
            )));
        }
        let yaml = database.to_yaml();
        let record = DatabaseRecord { yaml: yaml.clone(), reporters: BTreeMap::new() };
        let step = op(name.as_str(), &record, None, write).map_err(|error| storage(&error))?;
        let revisions =
            self.store.backend().transact(vec![step], now).await.map_err(|error| storage(&error))?;
        self.table.put(Arc::new(database), BTreeMap::new());
        let code = if existing.is_some() { Code::DatabaseUpdated } else { Code::DatabaseCreated };
        let event = caller
            .event(code)
            .message(format!("db/{name}"))
            .field("name", name.to_string())
            .field("yaml", yaml.clone());
        self.journal.record(vec![event]).await?;
        Ok(resource("db", name.as_str(), revisions.first().copied().unwrap_or_default(), None, yaml))
    }

    /// Removes a database.
    pub(crate) async fn delete_database(&self, caller: &Caller, name: &str) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let _changing = self.changing.lock().await;
        let there = self.table.find(name);
        let there = there.ok_or_else(|| Status::not_found(format!("there is no db {}", shown(name))))?;
        if there.is_static() && there.health(&self.registry.presence, now).0 != "offline" {
            return Err(Status::failed_precondition(format!(
                "the database {name} stands in the configuration of {}: take it out there, and it goes by itself",
                agents(&there)
            )));
        }
        let step = typed::delete::<DatabaseRecord>(name, None);
        self.store.backend().transact_urgent(vec![step], now).await.map_err(|error| storage(&error))?;
        self.table.remove(&there.database.name);
        let event = caller
            .event(Code::DatabaseDeleted)
            .message(format!("db/{name}"))
            .field("name", there.database.name.to_string());
        self.journal.record_urgent(vec![event]).await
    }

    /// Takes what a heartbeat says of databases; gives what of it cannot be. The state is written only when something
    /// changed.
    pub(crate) async fn report_databases(
        &self,
        identity: &Identity,
        (id, name): (HostId, &NodeName),
        reports: Vec<v1::DatabaseReport>,
        health: Vec<v1::DatabaseHealth>,
        now: OffsetDateTime,
    ) -> Result<Vec<String>, Status> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        reports.iter().for_each(|report| report.yaml.hash(&mut hasher));
        let hash = hasher.finish();
        let problems = match self.table.answered(id, hash) {
            Some(problems) => problems,
            None => {
                let fixed = self.registry.presence.get(id).map(|known| known.fixed).unwrap_or_default();
                let (name, bounds) = (name.clone(), self.registry.names.bounds(id));
                let read = self.reading.run(move || Report::read(id, &name, reports, &fixed, bounds)).await;
                let report = read.map_err(|_| Status::internal("the databases could not be read"))?;
                self.take_report(&identity.display_name(), report, hash, now).await?
            }
        };
        self.table.take_health(id, name, health, now);
        Ok(problems)
    }

    async fn take_report(
        &self,
        by: &str,
        mut report: Report,
        hash: u64,
        now: OffsetDateTime,
    ) -> Result<Vec<String>, Status> {
        let _changing = self.changing.lock().await;
        let steps = self.table.with(|known| report.plan(known));
        let mut events = self.apply(by, steps, now).await?;
        let news = self.table.answer(report.id, hash, &report.problems);
        if news {
            let told = Event::new(Code::DatabaseReportRefused, now)
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

    /// Takes a host that was removed off the databases that it has reported.
    pub(crate) async fn forget_reporter(
        &self,
        by: &str,
        id: HostId,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let _changing = self.changing.lock().await;
        let steps: Vec<Step> = self.table.with(|known| {
            let of = known.values().filter(|known| known.reporters.contains_key(&id));
            of.map(|known| without(known, id)).collect()
        });
        self.table.forget_answer(id);
        let events = self.apply(by, steps, now).await?;
        if events.is_empty() { Ok(()) } else { self.journal.record(events).await }
    }

    /// Writes steps to the state and to the memory; gives the events to be recorded.
    async fn apply(&self, by: &str, steps: Vec<Step>, now: OffsetDateTime) -> Result<Vec<Event>, Status> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let mut writes = Vec::with_capacity(steps.len());
        let mut events = Vec::with_capacity(steps.len());
        for step in &steps {
            let (code, name, yaml) = match step {
                Step::Put { database, reporters, new } => {
                    let yaml = database.to_yaml();
                    let record = DatabaseRecord { yaml: yaml.clone(), reporters: reporters.clone() };
                    writes.push(
                        typed::put(database.name.as_str(), &record, None).map_err(|error| storage(&error))?,
                    );
                    let code = if *new { Code::DatabaseCreated } else { Code::DatabaseUpdated };
                    (code, &database.name, yaml)
                }
                Step::Remove(name) => {
                    writes.push(typed::delete::<DatabaseRecord>(name.as_str(), None));
                    (Code::DatabaseDeleted, name, String::new())
                }
            };
            let mut event = Event::new(code, now)
                .user(by)
                .origin("auth")
                .message(format!("db/{name}"))
                .field("name", name.to_string());
            if !yaml.is_empty() {
                event = event.field("yaml", yaml);
            }
            events.push(event);
        }
        self.store.backend().transact(writes, now).await.map_err(|error| storage(&error))?;
        for step in steps {
            match step {
                Step::Put { database, reporters, .. } => self.table.put(Arc::new(database), reporters),
                Step::Remove(name) => self.table.remove(&name),
            }
        }
        Ok(events)
    }
}
