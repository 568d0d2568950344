//! What agents say with their heartbeats of what stands in their configuration.

use std::collections::BTreeMap;

use sallyport_access::yaml::Errors;
use sallyport_access::{Bounds, HostId, Kind, Labels, NodeName};

use crate::authority::caller::shown;
use crate::authority::catalogue::kept::Kept;
use crate::authority::catalogue::table::{Known, MOST};
use crate::authority::resources::documents::{Text, TooLong};

/// Databases of one agent's configuration, and its other resources.
const MOST_REPORTED: usize = 1000;

/// One document of a report.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Said {
    /// As its own `kind`.
    pub(crate) document: String,
    pub(crate) yaml: String,
}

/// One change of which resources there are.
#[derive(Debug, PartialEq)]
pub(crate) enum Step<R> {
    Put { resource: R, reporters: BTreeMap<HostId, NodeName>, new: bool },
    Remove(R),
}

/// Why a document of a report is not taken.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("nothing of the kind {0:?} is reported so")]
    Kind(String),
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error(transparent)]
    Document(#[from] Errors),
}

/// One agent with what it reports.
pub(crate) struct Report<R: Kept> {
    pub(crate) id: HostId,
    name: NodeName,
    bounds: Bounds,
    /// Labels of its join token.
    fixed: BTreeMap<String, String>,
    wanted: BTreeMap<R::Id, R>,
    pub(crate) problems: Vec<String>,
}

impl<R: Kept> Report<R> {
    /// `fixed` are the labels of the agent's join token: they win over what the agent says, as with nodes. `bounds` are what
    /// that token lets it serve.
    pub(crate) fn read(
        id: HostId,
        name: &NodeName,
        reports: Vec<Said>,
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
                "{} resources are reported, and only the first {MOST_REPORTED} are taken",
                reports.len()
            ));
        }
        for (index, one) in reports.into_iter().take(MOST_REPORTED).enumerate() {
            let of = Kind::of_document(&one.document).filter(|kind| R::takes(*kind));
            let word = of.map_or("resource", |kind| kind.row().word);
            let parsed = match of {
                None => Err(Unread::Kind(shown(&one.document))),
                Some(kind) => Text::new(one.yaml)
                    .map_err(Unread::from)
                    .and_then(|text| R::read(kind, text.as_str()).map_err(Unread::from)),
            };
            match parsed {
                Ok(mut resource) => {
                    resource.agents_mut().clear();
                    let title = resource.title();
                    for (key, value) in fixed {
                        resource.labels_mut().insert(key.as_str(), value.as_str());
                    }
                    if let Some(reserved) = resource.reserved() {
                        report.problems.push(format!(
                            "{title}: {reserved} is not an agent's to say; an administrator writes the {word} down with \
                             it: sallyport admin create, with via: {}",
                            report.name
                        ));
                    }
                    if report.wanted.insert(resource.id(), resource).is_some() {
                        report.problems.push(format!("{title} is reported twice"));
                    }
                }
                Err(unread) => {
                    let all = unread.to_string();
                    let first = all.lines().next().unwrap_or_default();
                    report.problems.push(format!("{word} {} of the report: {}", index + 1, shown(first)));
                }
            }
        }
        report
    }

    /// Leaves out what the agent's join token does not let it serve, and labels that it does not let it choose. What an
    /// agent was serving already, it goes on serving as it is.
    fn keep_within_bounds(&mut self, known: &BTreeMap<R::Id, Known<R>>) {
        let Self { id, name: agent, bounds, fixed, wanted, problems } = self;
        wanted.retain(|key, resource| {
            let before = known.get(key).filter(|there| there.reporters.contains_key(id));
            let title = resource.title();
            if before.is_none() && !bounds.allow_resource(resource.kind(), resource.name()) {
                problems.push(format!(
                    "{title}: the join token of {agent} does not let it serve this one; let an administrator write it down: \
                     sallyport admin create, with via: {agent}, or join with a token for it: sallyport admin tokens add {} \
                     --replace {agent}",
                    resource.token_switch()
                ));
                return false;
            }
            let mut kept = Labels::default();
            for (key, value) in resource.labels().iter() {
                let stays = before.is_some_and(|there| there.resource.labels().value(key) == Some(value));
                if stays || fixed.get(key).is_some_and(|fixed| fixed == value) || bounds.allow_database_label(key, value) {
                    kept.insert(key, value);
                } else {
                    problems.push(format!(
                        "{title}: the label {key}={value} is not one that the join token of {agent} lets it \
                         set; an administrator can: sallyport admin tokens add --label {key}={value}"
                    ));
                }
            }
            *resource.labels_mut() = kept;
            true
        });
    }

    /// What is to change so that this agent serves what it reports, and nothing else of its configuration.
    pub(crate) fn plan(&mut self, known: &BTreeMap<R::Id, Known<R>>) -> Vec<Step<R>> {
        self.keep_within_bounds(known);
        let mut steps = Vec::new();
        let mut count = known.len();
        let own = || BTreeMap::from([(self.id, self.name.clone())]);
        for (key, resource) in &self.wanted {
            let title = resource.title();
            let Some(there) = known.get(key) else {
                if count >= MOST {
                    self.problems.push(format!("{title}: a cluster has at most {MOST}"));
                    continue;
                }
                count += 1;
                steps.push(step(resource, own(), true));
                continue;
            };
            if !there.is_static() {
                self.problems.push(format!(
                    "{title}: an administrator has made one of this name; give this one another, or remove that: \
                     sallyport admin rm {}",
                    resource.path()
                ));
                continue;
            }
            let Some(called) = there.reporters.get(&self.id) else {
                let others: Vec<&str> = there.reporters.values().map(NodeName::as_str).collect();
                self.problems.push(format!(
                    "{title}: {} has one of this name; give this one another name, or let an \
                     administrator write down one that several agents serve: sallyport admin create, with via: [{}, \
                     {}] (if that agent is gone for good: sallyport admin rm node/ID)",
                    others.join(", "),
                    others.join(", "),
                    self.name
                ));
                continue;
            };
            // A host may have been given another name.
            if *called != self.name || settings(there.resource.as_ref()) != *resource {
                steps.push(step(resource, own(), false));
            }
        }
        let gone = known.values().filter(|there| {
            there.reporters.contains_key(&self.id) && !self.wanted.contains_key(&there.resource.id())
        });
        steps.extend(gone.map(|there| without(there, self.id)));
        steps
    }
}

fn settings<R: Kept>(resource: &R) -> R {
    let mut settings = resource.clone();
    settings.agents_mut().clear();
    settings
}

fn step<R: Kept>(resource: &R, reporters: BTreeMap<HostId, NodeName>, new: bool) -> Step<R> {
    let mut agents: Vec<NodeName> = reporters.values().cloned().collect();
    agents.sort_unstable();
    agents.dedup();
    let mut resource = resource.clone();
    *resource.agents_mut() = agents;
    Step::Put { resource, reporters, new }
}

/// Without this agent; without any, it is gone.
pub(crate) fn without<R: Kept>(there: &Known<R>, id: HostId) -> Step<R> {
    let mut reporters = there.reporters.clone();
    reporters.remove(&id);
    match reporters.is_empty() {
        true => Step::Remove(there.resource.as_ref().clone()),
        false => step(there.resource.as_ref(), reporters, false),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::Arc;

    use sallyport_access::{Database, DatabaseName};

    use super::*;

    type KnownDatabase = Known<Database>;

    fn yaml(name: &str, address: &str, more: &str) -> Said {
        let yaml = format!(
            "kind: db\nversion: v1\nmetadata: {{name: {name}{more}}}\nspec: {{address: '{address}'}}\n"
        );
        Said { document: "db".to_owned(), yaml }
    }

    struct World {
        known: BTreeMap<DatabaseName, KnownDatabase>,
    }

    impl World {
        fn report(&mut self, id: HostId, name: &str, reports: &[Said]) -> Vec<String> {
            let mut report = Report::read(
                id,
                &NodeName::new(name).unwrap(),
                reports.to_vec(),
                &BTreeMap::new(),
                Bounds::none(),
            );
            for step in report.plan(&self.known) {
                match step {
                    Step::Put { resource, reporters, .. } => {
                        let name = resource.name.clone();
                        let resource = Arc::new(resource);
                        self.known
                            .insert(name, KnownDatabase { resource, reporters, health: BTreeMap::new() });
                    }
                    Step::Remove(gone) => drop(self.known.remove(&gone.name)),
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
                .flat_map(|known| known.resource.agents.iter().map(ToString::to_string))
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
        let report: Report<Database> =
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
        let known = KnownDatabase {
            resource: Arc::new(database),
            reporters: BTreeMap::new(),
            health: BTreeMap::new(),
        };
        world.known.insert(DatabaseName::new("mine").unwrap(), known);
        let reports = [
            yaml("mine", "db:5432", ""),
            Said { document: "db".to_owned(), yaml: "kind: db\n".to_owned() },
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
