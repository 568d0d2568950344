//! Databases as administrators write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sallyport_access::Database;
use sallyport_audit::Code;
use sallyport_store::typed;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use super::{DatabaseRecord, Known};
use crate::authority::Inner;
use crate::authority::admin::{Write, op};
use crate::authority::caller::Caller;
use crate::authority::hosts::{shown, storage};
use crate::authority::resources;

fn agents(known: &Known) -> String {
    known.reporters.values().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Inner {
    /// Writes a database that an administrator describes.
    pub(in crate::authority) async fn write_database(
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
        let _changing = self.databases.changing.lock().await;
        let existing = self.databases.find(name.as_str());
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
        self.databases.put(Arc::new(database), BTreeMap::new());
        let code = if existing.is_some() { Code::DatabaseUpdated } else { Code::DatabaseCreated };
        let event = self
            .event(code, caller)
            .message(format!("db/{name}"))
            .field("name", name.to_string())
            .field("yaml", yaml.clone());
        self.record(vec![event]).await?;
        Ok(resources::of("db", name.as_str(), revisions.first().copied().unwrap_or_default(), None, yaml))
    }

    /// Removes a database.
    pub(in crate::authority) async fn delete_database(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let _changing = self.databases.changing.lock().await;
        let there = self.databases.find(name);
        let there = there.ok_or_else(|| Status::not_found(format!("there is no db {}", shown(name))))?;
        if there.is_static() && there.health(&self.presence, now).0 != "offline" {
            return Err(Status::failed_precondition(format!(
                "the database {name} stands in the configuration of {}: take it out there, and it goes by itself",
                agents(&there)
            )));
        }
        let step = typed::delete::<DatabaseRecord>(name, None);
        self.store.backend().transact_urgent(vec![step], now).await.map_err(|error| storage(&error))?;
        self.databases.remove(&there.database.name);
        let event = self
            .event(Code::DatabaseDeleted, caller)
            .message(format!("db/{name}"))
            .field("name", there.database.name.to_string());
        self.record_urgent(vec![event]).await
    }
}
