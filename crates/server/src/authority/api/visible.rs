//! What of a kind that agents serve a caller may see: a page of a list, and why a user may use one. The same for every kind; what differs
//! is [`Visible`].

use std::sync::Arc;

use sallyport_access::{
    Database, DatabaseChoices, Decidable, Identity, Kind, Listed, Policies, UserName, Verb,
};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::{Caller, shown};
use crate::authority::catalogue::kept::Kept;
use crate::authority::catalogue::register::Register;
use crate::authority::catalogue::table::Known;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::hosts::selection::Selection;
use crate::authority::identities::known::{DECIDED_BY_STATE, Identities};
use crate::authority::policy::Policy;

/// Resources in one answer.
const MOST: usize = 20_000;

/// A kind of resource that is listed.
pub(super) trait Visible: Kept + Decidable {
    /// As what a user may use one: its accounts, where it has any.
    type As: Default;
    /// Whether that says something of one which the user may use.
    const HAS_ACCOUNTS: bool;

    /// Those that an identity may use at all, in the order in which they come.
    fn usable<'r>(
        policies: &Policies,
        identity: &Identity,
        of: impl Iterator<Item = &'r Self>,
    ) -> Vec<(&'r Self, Self::As)>;

    /// Whether a query selects it.
    fn fits(&self, selection: &Selection, usable: &Self::As, online: bool) -> bool;
}

impl Visible for Listed {
    type As = ();
    const HAS_ACCOUNTS: bool = false;

    fn usable<'r>(
        policies: &Policies,
        identity: &Identity,
        of: impl Iterator<Item = &'r Self>,
    ) -> Vec<(&'r Self, ())> {
        policies.visible_listed(identity, of).into_iter().map(|listed| (listed, ())).collect()
    }

    fn fits(&self, selection: &Selection, (): &(), online: bool) -> bool {
        selection.fits_listed(self, online)
    }
}

impl Visible for Database {
    type As = DatabaseChoices;
    const HAS_ACCOUNTS: bool = true;

    fn usable<'r>(
        policies: &Policies,
        identity: &Identity,
        of: impl Iterator<Item = &'r Self>,
    ) -> Vec<(&'r Self, DatabaseChoices)> {
        policies.visible_databases(identity, of)
    }

    fn fits(&self, selection: &Selection, usable: &DatabaseChoices, online: bool) -> bool {
        selection.fits_database(self, &usable.users, online)
    }
}

/// What a list is asked for.
pub(super) struct Page {
    pub(super) kind: Kind,
    /// The name before it, or nothing.
    pub(super) after: String,
    /// 0: as many as there may be.
    pub(super) limit: u32,
    pub(super) labels: std::collections::HashMap<String, String>,
    pub(super) search: String,
    pub(super) query: String,
}

/// One of a list.
pub(super) struct Item<R: Visible> {
    pub(super) known: Known<R>,
    pub(super) usable: R::As,
    pub(super) health: &'static str,
    pub(super) problem: String,
    /// The ids of the agents that take connections as TLS from the user's program.
    pub(super) agents: Vec<String>,
}

/// Why a user may use one, or may not.
pub(super) struct Why {
    pub(super) allowed: bool,
    pub(super) summary: String,
    pub(super) details: Vec<String>,
}

/// Answers from what the authority knows.
pub(super) struct Answers<'a, R: Visible> {
    pub(super) gate: &'a Gate,
    pub(super) policy: &'a Policy,
    pub(super) identities: &'a Identities,
    pub(super) registry: &'a HostRegistry,
    pub(super) register: &'a Arc<Register<R>>,
}

impl<R: Visible> Answers<'_, R> {
    /// Those that the caller may use; all of them for a caller who may list the kind. With the name behind which the next page begins;
    /// empty where this is the last.
    pub(super) fn list(&self, caller: &Caller, page: Page) -> Result<(Vec<Item<R>>, String), Status> {
        let now = OffsetDateTime::now_utc();
        let Page { kind, after, limit, labels, search, query } = page;
        let all = self.gate.check(caller, kind.row().document, Verb::List).is_ok();
        let after = match after.as_str() {
            "" => None,
            text => Some(R::id_of(kind, text).ok_or_else(|| {
                Status::invalid_argument(format!("{:?} is no name of {}", shown(text), kind.row().plural))
            })?),
        };
        let limit = match limit {
            0 => MOST,
            limit => (limit as usize).min(MOST),
        };
        let nodes = v1::ListNodesRequest { labels, search, query, ..v1::ListNodesRequest::default() };
        let selection = Selection::new(&nodes)?;
        let mut known = self.register.after(after.as_ref());
        known.retain(|known| {
            known.resource.kind() == kind && selection.may_fit_resource(known.resource.as_ref())
        });
        let cache = self.policy.cache();
        let usable = match caller.identity() {
            // For those who see all of a kind that has none, nothing would be taken of it.
            Some(identity) if !all || R::HAS_ACCOUNTS => {
                R::usable(&cache.policies, identity, known.iter().map(|known| known.resource.as_ref()))
            }
            _ => Vec::new(),
        };
        // Both are in the order of names.
        let usable: Vec<_> = usable.into_iter().map(|(of, usable)| (of.id(), usable)).collect();
        let mut usable = usable.into_iter().peekable();
        let (mut items, mut next): (Vec<Item<R>>, _) = (Vec::new(), String::new());
        for known in known {
            let mine = usable.next_if(|(id, _)| *id == known.resource.id()).map(|(_, usable)| usable);
            if mine.is_none() && !all {
                continue;
            }
            let mine = mine.unwrap_or_default();
            let (health, problem) = known.health(&self.registry.presence, now);
            if !known.resource.fits(&selection, &mine, health != "offline") {
                continue;
            }
            if items.len() == limit {
                next = items.last().map(|last| last.known.resource.name().to_owned()).unwrap_or_default();
                break;
            }
            let agents = known.end_to_end_agents(&self.registry.presence, now);
            let agents = agents.iter().map(ToString::to_string).collect();
            items.push(Item { known, usable: mine, health, problem, agents });
        }
        Ok((items, next))
    }

    /// Why a user may use the one of this name with this account, or may not. As about nodes: what the caller cannot see is answered like what
    /// is not there; `act` says then what was asked about.
    pub(super) fn explain(
        &self,
        caller: &Caller,
        (kind, name): (Kind, &str),
        user: &str,
        (account, act): (&R::Account, &str),
    ) -> Result<Why, Status> {
        let now = OffsetDateTime::now_utc();
        let user =
            UserName::new(user.to_owned()).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let stored = self.identities.user(&user);
        let stored = stored.ok_or_else(|| Status::not_found(format!("there is no user {user}")))?;
        let identity = self.identities.asked_about(&stored, caller, now);
        let cache = self.policy.cache();
        let (document, word) = (kind.row().document, kind.row().word);
        let sees_all = self.gate.check(caller, "access", Verb::Read).is_ok()
            || self.gate.check(caller, document, Verb::List).is_ok();
        let known = self.register.one(kind, name).filter(|known| {
            let one = std::iter::once(known.resource.as_ref());
            sees_all || !R::usable(&cache.policies, &identity, one).is_empty()
        });
        let known = match known {
            Some(known) => known,
            None if !sees_all => {
                let summary =
                    format!("{user} may not {act}: no {word} of this name is among those of {user}");
                return Ok(Why { allowed: false, summary, details: Vec::new() });
            }
            None => {
                return Err(Status::not_found(format!(
                    "there is no {word} {}; see: sallyport {document} ls",
                    shown(name)
                )));
            }
        };
        let why = cache.policies.explain(&identity, &*known.resource, account, &cache.locks, now);
        let (health, problem) = known.health(&self.registry.presence, now);
        let mut details = why.details;
        let problem = if problem.is_empty() { problem } else { format!(": {problem}") };
        details.push(format!("the {word} is {health}{problem}"));
        details.push(DECIDED_BY_STATE.to_owned());
        Ok(Why { allowed: why.allowed, summary: why.summary, details })
    }
}

/// A resource's labels, as answers have them.
pub(super) fn labels<R: Kept>(resource: &R) -> std::collections::HashMap<String, String> {
    resource.labels().iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The names of its agents, and whether it stands in their configurations.
pub(super) fn served<R: Kept>(known: &Known<R>) -> (Vec<String>, String) {
    let agents = known.resource.agents().iter().map(ToString::to_string).collect();
    (agents, if known.is_static() { "static" } else { "dynamic" }.to_owned())
}
