//! The one access decision.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;
use std::sync::{Arc, LazyLock, RwLock};
use std::time::Duration;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityId, EntityTypeName, EntityUid, PolicySet, Request,
    RestrictedExpression, Schema, ValidationMode, Validator,
};
use time::OffsetDateTime;

mod databases;
mod error;
mod explaining;
mod holding;
mod joining;
mod kept_out;
mod locking;

use crate::compile::{CompiledRole, compile};
use crate::options;
use crate::permit::{ApiPermit, Permit, Refusal};
use crate::role::{DEFAULT_SESSION_TTL, LoginMatcher, Role, TTL_RANGE, TraitRef, Verb};
use crate::{HostRole, Identity, Labels, Lock, Login, Node, Principal, RoleName, SessionPolicy, Traits};

pub use databases::DatabaseChoices;
pub use error::PolicyError;
pub use explaining::Explanation;
pub use joining::JoinTarget;
use kept_out::kept_out;

/// All roles of a cluster, compiled. Making one is the expensive part; share it.
#[derive(Debug)]
pub struct Policies {
    roles: BTreeMap<RoleName, Arc<CompiledRole>>,
    sessions: SessionPolicy,
    types: &'static Types,
    /// Policy sets for the combinations of roles that users really have.
    combinations: RwLock<HashMap<Vec<RoleName>, Arc<Combination>>>,
}

/// Names are parsed by a machine that is made anew for each: once in a process, too.
static TYPES: LazyLock<Result<Types, String>> = LazyLock::new(|| {
    let name = |name| EntityTypeName::from_str(name).map_err(|error| error.to_string());
    Ok(Types {
        user: name("User")?,
        role: name("Role")?,
        node: name("Node")?,
        database: name("Database")?,
        resource: name("Resource")?,
        action: name("Action")?,
    })
});

/// Checks compiled roles against the schema. Roles are compiled at every change of one, and reading the schema takes longer than
/// compiling several: a process reads it once, and one that has no roles never does.
static VALIDATOR: LazyLock<Result<Validator, String>> = LazyLock::new(|| {
    let (schema, _) = Schema::from_cedarschema_str(include_str!("schema.cedarschema"))
        .map_err(|error| error.to_string())?;
    Ok(Validator::new(schema))
});

/// Combinations kept before all are dropped and made again as needed.
const COMBINATIONS_KEPT: usize = 4096;

#[derive(Debug)]
struct Types {
    user: EntityTypeName,
    role: EntityTypeName,
    node: EntityTypeName,
    database: EntityTypeName,
    resource: EntityTypeName,
    action: EntityTypeName,
}

/// The roles of one user, together.
#[derive(Debug)]
struct Combination {
    roles: Vec<Arc<CompiledRole>>,
    unknown: Vec<RoleName>,
    policies: PolicySet,
    /// The labels that any of the roles looks at: nodes that agree in these get the same answer.
    labels: Vec<String>,
    /// As `labels`, of databases.
    db_labels: Vec<String>,
    has_regexes: bool,
}

/// The kind of certificate that agents ask for in order to log in to databases. No role can name it.
pub const DB_CLIENT: &str = "db_client";

/// What decides when a certificate is bound to a user.
struct Weighed {
    allowed: bool,
    /// Policy ids: those that allow, or those that forbid.
    rules: Vec<String>,
    errors: Vec<String>,
}

/// What roles allow of forwarding on some server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardingSomewhere {
    /// The agent.
    pub agent: bool,
    /// Any port or socket, in any direction.
    pub ports: bool,
    /// X11.
    pub x11: bool,
}

impl Policies {
    /// Compiles and validates roles, with nothing said by the cluster's session policy. Names must be unique; the last
    /// of two wins.
    ///
    /// # Errors
    /// [`PolicyError`] for a role that does not compile.
    pub fn compile(roles: &[Role]) -> Result<Self, PolicyError> {
        Self::compile_with(roles, SessionPolicy::default())
    }

    /// As [`Policies::compile`], under a cluster's session policy.
    ///
    /// # Errors
    /// [`PolicyError`] for a role that does not compile.
    pub fn compile_with(roles: &[Role], sessions: SessionPolicy) -> Result<Self, PolicyError> {
        let mut compiled = BTreeMap::new();
        for role in roles {
            let validator = VALIDATOR.as_ref().map_err(|problem| PolicyError::internal(problem))?;
            let one = compile(role)?;
            let set = PolicySet::from_policies(one.policies.iter().cloned())
                .map_err(|error| PolicyError::internal(&error.to_string()))?;
            let result = validator.validate(&set, ValidationMode::Strict);
            if let Some(error) = result.validation_errors().next() {
                return Err(PolicyError::internal(&error.to_string()));
            }
            compiled.insert(role.name.clone(), Arc::new(one));
        }
        let types = TYPES.as_ref().map_err(|problem| PolicyError::internal(problem))?;
        Ok(Self { roles: compiled, sessions, types, combinations: RwLock::default() })
    }

    /// What holds for the sessions of the whole cluster.
    #[must_use]
    pub fn sessions(&self) -> &SessionPolicy {
        &self.sessions
    }

    /// A role as it was compiled.
    #[must_use]
    pub fn role(&self, name: &RoleName) -> Option<&Role> {
        self.roles.get(name).map(|compiled| &compiled.role)
    }

    /// The decision: may this identity log in to this node as this account, now?
    ///
    /// # Errors
    /// A [`Refusal`] that names the deciding rule.
    pub fn decide(
        &self,
        identity: &Identity,
        node: &Node,
        login: &Login,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Result<Permit, Refusal> {
        let what = format!("{} may not log in as {login} on {}", identity.display_name(), node.name);
        let refuse =
            |why: String, rule: Option<String>| Refusal { what: what.clone(), why, rule, hint: None };
        let Principal::User { name, roles, traits, .. } = &identity.principal else {
            return Err(refuse("only users have sessions".to_owned(), None));
        };
        if let Some(refusal) = self.invalid(identity, now) {
            return Err(refusal);
        }
        if let Some(refusal) = self.locked(identity, Some(node), Some(login), locks, now) {
            return Err(refusal);
        }
        let combination = self.combination(roles);
        let weighed = self.weigh(&combination, name.as_str(), traits, node, login);
        if !weighed.allowed {
            let mut refusal = match weighed.rules.into_iter().next() {
                Some(rule) => refuse("a role denies it".to_owned(), Some(rule)),
                None => refuse(no_role_allows(&combination, &weighed.errors), None),
            };
            let usable = self.logins_on(identity, node);
            if !usable.is_empty() {
                let usable: Vec<&str> = usable.iter().map(Login::as_str).collect();
                refusal.hint = Some(format!("logins you may use there: {}", usable.join(", ")));
            }
            return Err(refusal);
        }
        let granting = granting(&combination, &weighed).map(|role| &role.options);
        let options = options::merge(granting, &self.sessions.options);
        Ok(Permit {
            user: name.clone(),
            node: node.id,
            login: login.clone(),
            options,
            rule: weighed.rules.into_iter().next().unwrap_or_default(),
            valid_until: identity.valid_before,
        })
    }

    /// The logins that this identity may use on a node, locks aside.
    #[must_use]
    pub fn logins_on(&self, identity: &Identity, node: &Node) -> Vec<Login> {
        let Principal::User { name, roles, traits, .. } = &identity.principal else { return Vec::new() };
        let combination = self.combination(roles);
        self.usable(&combination, name.as_str(), traits, node, &candidates(&combination, traits))
    }

    /// The nodes that this identity may log in to at all, each with the logins. Nodes that agree in the labels which
    /// the user's roles look at share one answer, so that a large fleet costs little more than its variety.
    pub fn visible<'n>(
        &self,
        identity: &Identity,
        nodes: impl IntoIterator<Item = &'n Node>,
    ) -> Vec<(&'n Node, Vec<Login>)> {
        let Principal::User { name, roles, traits, .. } = &identity.principal else { return Vec::new() };
        let combination = self.combination(roles);
        let candidates = candidates(&combination, traits);
        let mut answers: HashMap<Vec<Option<&str>>, Vec<Login>> = HashMap::new();
        let mut visible = Vec::new();
        for node in nodes {
            let key: Vec<Option<&str>> =
                combination.labels.iter().map(|label| node.labels.value(label)).collect();
            let logins = answers
                .entry(key)
                .or_insert_with(|| self.usable(&combination, name.as_str(), traits, node, &candidates));
            if !logins.is_empty() {
                visible.push((node, logins.clone()));
            }
        }
        visible
    }

    /// May this identity do this with resources of this kind?
    ///
    /// # Errors
    /// A [`Refusal`] that names the deciding rule.
    pub fn may(&self, identity: &Identity, resource: &str, verb: Verb) -> Result<ApiPermit, Refusal> {
        let what = format!("{} may not {} {resource}", identity.display_name(), verb.as_str());
        let refuse = |why: &str, rule| Refusal { what: what.clone(), why: why.to_owned(), rule, hint: None };
        let (name, roles, traits) = match &identity.principal {
            Principal::User { name, roles, traits, .. } => (name, roles, traits),
            Principal::Host { role, .. } => {
                return if host_may(*role, resource, verb) {
                    Ok(ApiPermit { rule: "built in for hosts".to_owned() })
                } else {
                    Err(refuse("hosts may not", None))
                };
            }
        };
        let combination = self.combination(roles);
        let weighed = self.ask(
            &combination,
            self.user_entity(name.as_str(), roles, traits),
            verb.as_str(),
            Entity::new_no_attrs(self.uid(&self.types.resource, resource), HashSet::new()),
            Context::empty(),
        );
        match (weighed.allowed, weighed.rules.into_iter().next()) {
            (true, rule) => Ok(ApiPermit { rule: rule.unwrap_or_default() }),
            (false, Some(rule)) => Err(refuse("a role denies it", Some(rule))),
            (false, None) => Err(refuse("no role allows it", None)),
        }
    }

    /// May this identity see this session and its recording? One's own always, others by rule.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub fn may_read_session(&self, identity: &Identity, owner: &str) -> Result<ApiPermit, Refusal> {
        if identity.user().is_some_and(|user| user.as_str() == owner) {
            return Ok(ApiPermit { rule: "one's own session".to_owned() });
        }
        self.may(identity, "recording", Verb::Read)
    }

    /// The lifetime of certificates for these roles: what was asked for, at most the roles' bound.
    ///
    /// # Errors
    /// A [`Refusal`] when more than the bound, or less than a minute, was asked for.
    pub fn session_ttl(&self, roles: &[RoleName], asked: Option<Duration>) -> Result<Duration, Refusal> {
        let known = roles.iter().filter_map(|role| self.role(role));
        let bounds = known.filter_map(|role| role.options.max_session_ttl.map(|ttl| (ttl, &role.name)));
        let bound = bounds.min_by_key(|(ttl, _)| *ttl);
        let longest = bound.map_or(DEFAULT_SESSION_TTL, |(ttl, _)| ttl);
        let Some(asked) = asked else { return Ok(longest) };
        let refuse = |why: String, rule| Refusal {
            what: format!("no certificate for {}", crate::yaml::show(asked)),
            why,
            rule,
            hint: None,
        };
        if asked < TTL_RANGE.0 {
            return Err(refuse(format!("the shortest lifetime is {}", crate::yaml::show(TTL_RANGE.0)), None));
        }
        if asked > longest {
            let rule = bound.map(|(_, role)| format!("role \"{role}\" options.max_session_ttl"));
            return Err(refuse(format!("the longest lifetime is {}", crate::yaml::show(longest)), rule));
        }
        Ok(asked)
    }

    /// What these roles could allow of forwarding somewhere. A certificate permits no more. Servers that ask nobody know
    /// nothing else; nodes decide at each session.
    #[must_use]
    pub fn forwarding_for(&self, roles: &[RoleName]) -> ForwardingSomewhere {
        let known = roles.iter().filter_map(|role| self.role(role));
        let each = known.map(|role| options::merge(std::iter::once(&role.options), &self.sessions.options));
        each.fold(ForwardingSomewhere::default(), |so_far, options| {
            let (tcp, sockets) = (options.port_forwarding, options.stream_local_forwarding);
            let any = tcp.local || tcp.remote || sockets.local || sockets.remote;
            ForwardingSomewhere {
                agent: so_far.agent || options.forward_agent,
                ports: so_far.ports || any,
                x11: so_far.x11 || options.x11_forwarding,
            }
        })
    }

    /// Whether a node may do what comes with a ticket before the client has answered it: not where any of these roles, or
    /// the session policy for one of them that is silent, says no. It is asked before the login is known, so that roles
    /// count that do not grant it, too.
    #[must_use]
    pub fn early_data_for(&self, roles: &[RoleName]) -> bool {
        let cluster = self.sessions.options.early_data.unwrap_or(true);
        roles.iter().filter_map(|role| self.role(role)).all(|role| role.options.early_data.unwrap_or(cluster))
    }

    /// Every login that these roles could allow somewhere: the principals of an SSH certificate.
    #[must_use]
    pub fn logins_for(&self, roles: &[RoleName], traits: &Traits) -> Vec<Login> {
        candidates(&self.combination(roles), traits)
    }

    fn combination(&self, roles: &[RoleName]) -> Arc<Combination> {
        if let Ok(known) = self.combinations.read()
            && let Some(found) = known.get(roles)
        {
            return Arc::clone(found);
        }
        let found: Vec<Arc<CompiledRole>> =
            roles.iter().filter_map(|role| self.roles.get(role).cloned()).collect();
        let unknown = roles.iter().filter(|role| !self.roles.contains_key(*role)).cloned().collect();
        let sorted = |mut labels: Vec<String>| {
            labels.sort_unstable();
            labels.dedup();
            labels
        };
        let labels =
            sorted(found.iter().flat_map(|role| role.role.label_keys()).map(str::to_owned).collect());
        let db_labels =
            sorted(found.iter().flat_map(|role| role.role.db_label_keys()).map(str::to_owned).collect());
        let mut unique = HashSet::new();
        let policies = found
            .iter()
            .filter(|role| unique.insert(role.role.name.clone()))
            .flat_map(|role| role.policies.iter().cloned());
        let combination = Arc::new(Combination {
            // Ids hold the role's name, names are unique: the set cannot have two of one id. Were that ever wrong,
            // an empty set refuses everything.
            policies: PolicySet::from_policies(policies).unwrap_or_default(),
            has_regexes: found.iter().any(|role| !role.regexes.is_empty()),
            roles: found,
            unknown,
            labels,
            db_labels,
        });
        if let Ok(mut known) = self.combinations.write() {
            if known.len() >= COMBINATIONS_KEPT {
                known.clear();
            }
            known.insert(roles.to_vec(), Arc::clone(&combination));
        }
        combination
    }

    fn usable(
        &self,
        combination: &Combination,
        user: &str,
        traits: &Traits,
        node: &Node,
        candidates: &[Login],
    ) -> Vec<Login> {
        candidates
            .iter()
            .filter(|login| self.weigh(combination, user, traits, node, login).allowed)
            .cloned()
            .collect()
    }

    fn weigh(
        &self,
        combination: &Combination,
        user: &str,
        traits: &Traits,
        node: &Node,
        login: &Login,
    ) -> Weighed {
        let asked = [("login".to_owned(), RestrictedExpression::new_string(login.to_string()))];
        self.weigh_on(combination, user, traits, node, "login", asked)
    }

    /// Asks about a node, with what the question says besides the node's labels.
    fn weigh_on<const N: usize>(
        &self,
        combination: &Combination,
        user: &str,
        traits: &Traits,
        node: &Node,
        action: &str,
        asked: [(String, RestrictedExpression); N],
    ) -> Weighed {
        let matches = if combination.has_regexes { matched(combination, &node.labels) } else { Vec::new() };
        let matches = ("matched".to_owned(), RestrictedExpression::new_set(matches));
        let context = Context::from_pairs(asked.into_iter().chain([matches]));
        let tags = tags(&combination.labels, &node.labels);
        let node = Entity::new_with_tags(self.uid(&self.types.node, &node.id.to_string()), [], [], tags);
        let (Ok(context), Ok(node)) = (context, node) else {
            return Weighed {
                allowed: false,
                rules: Vec::new(),
                errors: vec!["the question could not be put".to_owned()],
            };
        };
        let roles: Vec<RoleName> = combination.roles.iter().map(|role| role.role.name.clone()).collect();
        self.ask(combination, self.user_entity(user, &roles, traits), action, node, context)
    }

    fn user_entity(&self, user: &str, roles: &[RoleName], traits: &Traits) -> Option<Entity> {
        let parents: HashSet<EntityUid> =
            roles.iter().map(|role| self.uid(&self.types.role, role.as_str())).collect();
        let tags = traits.iter().map(|(name, values)| {
            let values = values.iter().map(|value| RestrictedExpression::new_string(value.clone()));
            (TraitRef::full_name(name), RestrictedExpression::new_set(values))
        });
        Entity::new_with_tags(self.uid(&self.types.user, user), [], parents, tags).ok()
    }

    fn ask(
        &self,
        combination: &Combination,
        user: Option<Entity>,
        action: &str,
        resource: Entity,
        context: Context,
    ) -> Weighed {
        let refuse =
            |error: &str| Weighed { allowed: false, rules: Vec::new(), errors: vec![error.to_owned()] };
        let Some(user) = user else { return refuse("a trait could not be read") };
        let action = self.uid(&self.types.action, action);
        let request = Request::new(user.uid(), action, resource.uid(), context, None);
        let entities = Entities::from_entities([user, resource], None);
        let (Ok(request), Ok(entities)) = (request, entities) else {
            return refuse("the question could not be put");
        };
        let response = Authorizer::new().is_authorized(&request, &combination.policies, &entities);
        let mut rules: Vec<String> =
            response.diagnostics().reason().map(|id| AsRef::<str>::as_ref(id).to_owned()).collect();
        rules.sort_unstable();
        let errors: Vec<String> = response.diagnostics().errors().map(ToString::to_string).collect();
        // A rule that failed to evaluate may have been the one that denies.
        let allowed = response.decision() == Decision::Allow && errors.is_empty();
        Weighed { allowed, rules, errors }
    }

    fn uid(&self, kind: &EntityTypeName, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
    }
}

/// The roles whose rules allowed it.
fn granting<'c>(combination: &'c Combination, weighed: &Weighed) -> impl Iterator<Item = &'c Role> {
    combination.roles.iter().map(|role| &role.role).filter(|role| {
        let prefix = format!("role \"{}\" ", role.name);
        weighed.rules.iter().any(|rule| rule.starts_with(&prefix))
    })
}

/// The labels that rules look at, for Cedar.
fn tags<'l>(
    looked_at: &'l [String],
    labels: &'l Labels,
) -> impl Iterator<Item = (String, RestrictedExpression)> + 'l {
    looked_at.iter().filter_map(|label| {
        let value = labels.value(label)?;
        Some((label.clone(), RestrictedExpression::new_string(value.to_owned())))
    })
}

/// What hosts may do, by what they are. Everything that is not here is refused.
fn host_may(role: HostRole, resource: &str, verb: Verb) -> bool {
    use Verb::{Create, List, Read, Update};
    match role {
        // The view of the policy that deciding needs, one's own presence and certificates, and what one reports.
        HostRole::Node => matches!(
            (resource, verb),
            ("role" | "lock" | "ca" | "session_policy" | "db", List | Read)
                | ("node" | "host" | "session", Update)
                | ("event" | DB_CLIENT, Create)
                | ("recording", Create | Update)
        ),
        HostRole::Proxy => matches!(
            (resource, verb),
            ("role" | "lock" | "ca" | "node" | "session_policy" | "db", List | Read)
                | ("host" | "session", Update)
                | ("event", Create)
                | ("recording", Create | Update)
        ),
        // It renews its certificate, and learns whom its sshd is to trust.
        HostRole::OpenSsh => matches!((resource, verb), ("host", Update) | ("ca", List | Read)),
        HostRole::Auth => false,
    }
}

/// Ids of the regular expressions that match.
fn matched(combination: &Combination, labels: &Labels) -> Vec<RestrictedExpression> {
    let regexes = combination.roles.iter().flat_map(|role| &role.regexes);
    regexes
        .filter(|one| labels.value(&one.label).is_some_and(|value| one.regex.is_match(value)))
        .map(|one| RestrictedExpression::new_string(one.id.clone()))
        .collect()
}

fn candidates(combination: &Combination, traits: &Traits) -> Vec<Login> {
    logins_of(combination.roles.iter().map(|role| &role.role), traits)
}

/// The accounts that `allow.logins` name. A role that allows every account adds none: what cannot be listed cannot be
/// a principal, so that the accounts of a user's traits take its place.
fn logins_of<'r>(roles: impl Iterator<Item = &'r Role>, traits: &Traits) -> Vec<Login> {
    let mut logins = Vec::new();
    let mut take = |login: Login| {
        if !logins.contains(&login) {
            logins.push(login);
        }
    };
    let values = |name: &str| -> Vec<Login> {
        let of_trait = traits.iter().filter(|(key, _)| TraitRef::full_name(key) == name);
        of_trait.flat_map(|(_, values)| values).filter_map(|value| Login::new(value).ok()).collect()
    };
    for matcher in roles.flat_map(|role| &role.allow.logins) {
        match matcher {
            LoginMatcher::Literal(login) => take(login.clone()),
            LoginMatcher::Trait(reference) => values(reference.name()).into_iter().for_each(&mut take),
            LoginMatcher::Any => values("internal.logins").into_iter().for_each(&mut take),
        }
    }
    logins
}

fn no_role_allows(combination: &Combination, errors: &[String]) -> String {
    if let Some(error) = errors.first() {
        return format!("a rule could not be evaluated: {error}");
    }
    let names: Vec<String> = combination.roles.iter().map(|role| format!("\"{}\"", role.role.name)).collect();
    if names.is_empty() {
        "there is no role to allow it".to_owned()
    } else {
        format!("no role allows it (of {})", names.join(", "))
    }
}
