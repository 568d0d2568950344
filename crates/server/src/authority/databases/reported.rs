//! What agents say of databases with their heartbeats.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use sallyport_access::{Bounds, Database, DatabaseName, HostId, Identity, Labels, NodeName};
use sallyport_audit::{Code, Event};
use sallyport_store::typed;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use super::{Answered, DatabaseRecord, Databases, Health, Known};
use crate::authority::Inner;
use crate::authority::hosts::{shown, storage};
use crate::authority::resources::Text;

/// Databases of one agent's configuration.
const MOST_REPORTED: usize = 1000;
/// Databases of a cluster.
const MOST_DATABASES: usize = 20_000;
/// Longest text of a problem that is kept.
const LONGEST_PROBLEM: usize = 256;

/// One change of which databases there are.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Put { database: Database, reporters: BTreeMap<HostId, NodeName>, new: bool },
    Remove(DatabaseName),
}

/// One agent with what it reports.
struct Report {
    id: HostId,
    name: NodeName,
    bounds: Bounds,
    /// Labels of its join token.
    fixed: BTreeMap<String, String>,
    wanted: BTreeMap<DatabaseName, Database>,
    problems: Vec<String>,
}

impl Report {
    /// `fixed` are the labels of the agent's join token: they win over what the agent says, as with nodes. `bounds` are what
    /// that token lets it serve.
    fn read(
        id: HostId,
        name: &NodeName,
        reports: Vec<v1::DatabaseReport>,
        fixed: &BTreeMap<String, String>,
        bounds: Bounds,
    ) -> Self {
        let mut report = Self {
            id,
            name: name.clone(),
            bounds,
            fixed: fixed.clone(),
            wanted: BTreeMap::new(),
            problems: Vec::new(),
        };
        if reports.len() > MOST_REPORTED {
            report.problems.push(format!(
                "{} databases are reported, and only the first {MOST_REPORTED} are taken",
                reports.len()
            ));
        }
        for (index, one) in reports.into_iter().take(MOST_REPORTED).enumerate() {
            let parsed = Text::new(one.yaml)
                .map_err(|error| error.to_string())
                .and_then(|text| Database::parse(text.as_str()).map_err(|errors| errors.to_string()));
            match parsed {
                Ok(mut database) => {
                    database.agents.clear();
                    let name = database.name.clone();
                    for (key, value) in fixed {
                        database.labels.insert(key.as_str(), value.as_str());
                    }
                    // With it an agent gets certificates for an account that makes users.
                    if database.admin_user.take().is_some() {
                        report.problems.push(format!(
                            "the database {name}: admin_user is not an agent's to say; an administrator writes the \
                             database down with it: sallyport admin create, with via: {}",
                            report.name
                        ));
                    }
                    if report.wanted.insert(name.clone(), database).is_some() {
                        report.problems.push(format!("the database {name} is reported twice"));
                    }
                }
                Err(errors) => {
                    let first = errors.lines().next().unwrap_or_default();
                    report.problems.push(format!("database {} of the report: {}", index + 1, shown(first)));
                }
            }
        }
        report
    }

    /// Leaves out what the agent's join token does not let it serve, and labels that it does not let it choose. What an
    /// agent was serving already, it goes on serving as it is.
    fn keep_within_bounds(&mut self, known: &BTreeMap<DatabaseName, Known>) {
        let Self { id, name: agent, bounds, fixed, wanted, problems } = self;
        wanted.retain(|name, database| {
            let before = known.get(name).filter(|there| there.reporters.contains_key(id));
            if before.is_none() && !bounds.allow_database(name.as_str()) {
                problems.push(format!(
                    "the database {name}: the join token of {agent} does not let it serve this one; let an administrator \
                     write it down: sallyport admin create, with via: {agent}, or join with a token for it: sallyport \
                     admin tokens add --databases {name} --replace {agent}"
                ));
                return false;
            }
            let mut kept = Labels::default();
            for (key, value) in database.labels.iter() {
                let stays = before.is_some_and(|there| there.database.labels.value(key) == Some(value));
                if stays || fixed.get(key).is_some_and(|fixed| fixed == value) || bounds.allow_database_label(key, value) {
                    kept.insert(key, value);
                } else {
                    problems.push(format!(
                        "the database {name}: the label {key}={value} is not one that the join token of {agent} lets it \
                         set; an administrator can: sallyport admin tokens add --label {key}={value}"
                    ));
                }
            }
            database.labels = kept;
            true
        });
    }

    /// What is to change so that this agent serves what it reports, and nothing else of its configuration.
    fn plan(&mut self, known: &BTreeMap<DatabaseName, Known>) -> Vec<Step> {
        self.keep_within_bounds(known);
        let mut steps = Vec::new();
        let mut count = known.len();
        let own = || BTreeMap::from([(self.id, self.name.clone())]);
        for (name, database) in &self.wanted {
            let Some(there) = known.get(name) else {
                if count >= MOST_DATABASES {
                    self.problems
                        .push(format!("the database {name}: a cluster has at most {MOST_DATABASES}"));
                    continue;
                }
                count += 1;
                steps.push(step(database, own(), true));
                continue;
            };
            if !there.is_static() {
                self.problems.push(format!(
                    "the database {name}: an administrator has made one of this name; give this one another, or \
                     remove that: sallyport admin rm db/{name}"
                ));
                continue;
            }
            let Some(called) = there.reporters.get(&self.id) else {
                let others: Vec<&str> = there.reporters.values().map(NodeName::as_str).collect();
                self.problems.push(format!(
                    "the database {name}: {} has one of this name; give this one another name, or let an \
                     administrator write down one that several agents serve: sallyport admin create, with via: [{}, \
                     {}] (if that agent is gone for good: sallyport admin rm node/ID)",
                    others.join(", "),
                    others.join(", "),
                    self.name
                ));
                continue;
            };
            // A host may have been given another name.
            if *called != self.name || settings(&there.database) != *database {
                steps.push(step(database, own(), false));
            }
        }
        let gone = known.values().filter(|there| {
            there.reporters.contains_key(&self.id) && !self.wanted.contains_key(&there.database.name)
        });
        steps.extend(gone.map(|there| without(there, self.id)));
        steps
    }
}

fn settings(database: &Database) -> Database {
    Database { agents: Vec::new(), ..database.clone() }
}

fn step(database: &Database, reporters: BTreeMap<HostId, NodeName>, new: bool) -> Step {
    let mut agents: Vec<NodeName> = reporters.values().cloned().collect();
    agents.sort_unstable();
    agents.dedup();
    Step::Put { database: Database { agents, ..database.clone() }, reporters, new }
}

/// Without this agent; without any, it is gone.
fn without(there: &Known, id: HostId) -> Step {
    let mut reporters = there.reporters.clone();
    reporters.remove(&id);
    match reporters.is_empty() {
        true => Step::Remove(there.database.name.clone()),
        false => step(&there.database, reporters, false),
    }
}

impl Databases {
    /// The answer to a report that says what the last one said.
    fn answered(&self, id: HostId, report: u64) -> Option<Vec<String>> {
        let table = self.read();
        let last = table.answered.get(&id)?;
        (last.report == report && last.version == table.version).then(|| last.problems.clone())
    }

    /// Notes an answer; says whether its problems are news.
    fn answer(&self, id: HostId, report: u64, problems: &[String]) -> bool {
        let mut table = self.write();
        let version = table.version;
        let last = table.answered.insert(id, Answered { report, version, problems: problems.to_vec() });
        !problems.is_empty() && last.is_none_or(|last| last.problems != problems)
    }

    /// Takes what an agent says of the health of what it serves.
    fn take_health(&self, id: HostId, name: &NodeName, said: Vec<v1::DatabaseHealth>, now: OffsetDateTime) {
        if said.is_empty() {
            return;
        }
        let mut table = self.write();
        for one in said.into_iter().take(MOST_DATABASES) {
            let Ok(database) = DatabaseName::new(one.name) else { continue };
            let Some(known) = table.known.get_mut(&database).filter(|known| known.serves(id, name)) else {
                continue;
            };
            let text = one.problem.chars().map(|c| if c.is_control() { ' ' } else { c });
            let problem = if one.healthy { String::new() } else { text.take(LONGEST_PROBLEM).collect() };
            known.health.insert(id, Health { healthy: one.healthy, problem, at: now });
            if known.health.len() > known.database.agents.len() {
                let Known { database, reporters, health } = known;
                // Of agents that no longer serve it; those of a written one are known by name alone, so the oldest goes.
                health.retain(|id, _| reporters.is_empty() || reporters.contains_key(id));
                if health.len() > database.agents.len()
                    && let Some(oldest) = health.iter().min_by_key(|(_, said)| said.at).map(|(id, _)| *id)
                {
                    health.remove(&oldest);
                }
            }
        }
    }
}

impl Inner {
    /// Takes what a heartbeat says of databases; gives what of it cannot be. The state is written only when something
    /// changed.
    pub(in crate::authority) async fn report_databases(
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
        let problems = match self.databases.answered(id, hash) {
            Some(problems) => problems,
            None => {
                let fixed = self.presence.get(id).map(|known| known.fixed).unwrap_or_default();
                let (name, bounds) = (name.clone(), self.names.bounds(id));
                let read = self.reading.run(move || Report::read(id, &name, reports, &fixed, bounds)).await;
                let report = read.map_err(|_| Status::internal("the databases could not be read"))?;
                self.take_report(&identity.display_name(), report, hash, now).await?
            }
        };
        self.databases.take_health(id, name, health, now);
        Ok(problems)
    }

    async fn take_report(
        &self,
        by: &str,
        mut report: Report,
        hash: u64,
        now: OffsetDateTime,
    ) -> Result<Vec<String>, Status> {
        let _changing = self.databases.changing.lock().await;
        let steps = report.plan(&self.databases.read().known);
        let mut events = self.apply(by, steps, now).await?;
        let news = self.databases.answer(report.id, hash, &report.problems);
        if news {
            let told = Event::new(Code::DatabaseReportRefused, now)
                .user(by)
                .origin("auth")
                .message(report.problems.first().cloned().unwrap_or_default())
                .field("problems", report.problems.clone());
            events.push(told);
        }
        if !events.is_empty() {
            self.record(events).await?;
        }
        Ok(report.problems)
    }

    /// Takes a host that was removed off the databases that it has reported.
    pub(in crate::authority) async fn forget_reporter(
        &self,
        by: &str,
        id: HostId,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let _changing = self.databases.changing.lock().await;
        let steps: Vec<Step> = {
            let table = self.databases.read();
            let of = table.known.values().filter(|known| known.reporters.contains_key(&id));
            of.map(|known| without(known, id)).collect()
        };
        self.databases.write().answered.remove(&id);
        let events = self.apply(by, steps, now).await?;
        if events.is_empty() { Ok(()) } else { self.record(events).await }
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
                Step::Put { database, reporters, .. } => self.databases.put(Arc::new(database), reporters),
                Step::Remove(name) => self.databases.remove(&name),
            }
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn yaml(name: &str, address: &str, more: &str) -> v1::DatabaseReport {
        let yaml = format!(
            "kind: db\nversion: v1\nmetadata: {{name: {name}{more}}}\nspec: {{address: '{address}'}}\n"
        );
        v1::DatabaseReport { yaml }
    }

    struct World {
        known: BTreeMap<DatabaseName, Known>,
    }

    impl World {
        fn report(&mut self, id: HostId, name: &str, reports: &[v1::DatabaseReport]) -> Vec<String> {
            let mut report = Report::read(
                id,
                &NodeName::new(name).unwrap(),
                reports.to_vec(),
                &BTreeMap::new(),
                Bounds::none(),
            );
            for step in report.plan(&self.known) {
                match step {
                    Step::Put { database, reporters, .. } => {
                        let name = database.name.clone();
                        let database = Arc::new(database);
                        self.known.insert(name, Known { database, reporters, health: BTreeMap::new() });
                    }
                    Step::Remove(name) => drop(self.known.remove(&name)),
                }
            }
            assert_eq!(report.plan(&self.known), [], "a plan that was followed is done");
            report.problems.dedup();
            report.problems
        }

        fn agents(&self, name: &str) -> Vec<String> {
            let known = self.known.get(&DatabaseName::new(name).unwrap());
            known
                .into_iter()
                .flat_map(|known| known.database.agents.iter().map(ToString::to_string))
                .collect()
        }
    }

    #[test]
    fn a_database_is_its_agents_own() {
        let mut world = World { known: BTreeMap::new() };
        let (one, two) = (HostId::new(), HostId::new());
        assert!(
            world.report(one, "a", &[yaml("prod", "db:5432", ""), yaml("test", "t:5432", "")]).is_empty()
        );
        // Who repeats the settings of another would get that one's sessions.
        for address in ["db:5432", "other:5432"] {
            let told = world.report(two, "b", &[yaml("prod", address, "")]);
            assert!(
                told[0].contains("a has one of this name") && told[0].contains("via: [a, b]"),
                "{told:?}"
            );
            assert_eq!(world.agents("prod"), ["a"]);
        }
        assert!(world.report(one, "a", &[yaml("prod", "moved:5432", "")]).is_empty(), "it may change it");
        assert_eq!(world.agents("test"), Vec::<String>::new());
        assert!(world.report(one, "renamed", &[yaml("prod", "moved:5432", "")]).is_empty());
        assert_eq!(world.agents("prod"), ["renamed"]);
        assert!(world.report(one, "renamed", &[]).is_empty());
        assert!(world.known.is_empty());
    }

    #[test]
    fn labels_of_the_token_win_and_no_agent_names_an_account_that_makes_users() {
        let more = ", labels: {env: prod, team: db}";
        let mut said = yaml("prod", "db:5432", more);
        said.yaml = said.yaml.replace("spec: {", "spec: {admin_user: postgres, ");
        let fixed = BTreeMap::from([("env".to_owned(), "dev".to_owned())]);
        let report =
            Report::read(HostId::new(), &NodeName::new("a").unwrap(), vec![said], &fixed, Bounds::none());
        let database = report.wanted.values().next().unwrap();
        assert_eq!((database.labels.value("env"), database.labels.value("team")), (Some("dev"), Some("db")));
        assert_eq!(database.admin_user, None);
        assert!(report.problems[0].contains("admin_user is not an agent's to say"), "{:?}", report.problems);
    }

    #[test]
    fn what_cannot_be_taken_is_told_and_the_rest_is_taken() {
        let mut world = World { known: BTreeMap::new() };
        let database = Database::parse(&yaml("mine", "db:5432", "").yaml).unwrap();
        let known =
            Known { database: Arc::new(database), reporters: BTreeMap::new(), health: BTreeMap::new() };
        world.known.insert(DatabaseName::new("mine").unwrap(), known);
        let reports = [
            yaml("mine", "db:5432", ""),
            v1::DatabaseReport { yaml: "kind: db\n".to_owned() },
            yaml("ok", "db:1", ""),
            yaml("ok", "db:1", ""),
        ];
        let told = world.report(HostId::new(), "a", &reports).join("\n");
        for part in ["an administrator has made one", "database 2 of the report", "ok is reported twice"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(world.agents("ok"), ["a"]);
    }
}
