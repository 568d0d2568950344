//! Compiled roles, and how Cedar is asked about them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityId, EntityTypeName, EntityUid, PolicySet, Request,
    RestrictedExpression, Schema, ValidationMode, Validator,
};
use parking_lot::RwLock;

use super::error::{PolicyError, SchemaError};
use crate::compile::{CompiledRole, compile};
use crate::role::{Role, TraitRef};
use crate::{Kind, KindRow, Labels, RoleName, SessionPolicy, Traits};

/// All roles of a cluster, compiled. Making one is the expensive part; share it.
#[derive(Debug)]
pub struct Policies {
    pub(super) roles: BTreeMap<RoleName, Arc<CompiledRole>>,
    pub(super) sessions: SessionPolicy,
    pub(super) types: &'static Types,
    /// Policy sets for the combinations of roles that users really have.
    combinations: RwLock<HashMap<Vec<RoleName>, Arc<Combination>>>,
}

/// Names are parsed by a machine that is made anew for each: once in a process, too.
static TYPES: LazyLock<Result<Types, Arc<SchemaError>>> = LazyLock::new(|| {
    let name = |name| EntityTypeName::from_str(name).map_err(|error| Arc::new(SchemaError::Type(error)));
    Ok(Types {
        user: name("User")?,
        role: name("Role")?,
        resources: Kind::ALL
            .iter()
            .map(|kind| Ok((*kind, name(kind.row().entity)?)))
            .collect::<Result<_, Arc<SchemaError>>>()?,
        resource: name("Resource")?,
        action: name("Action")?,
    })
});

/// Checks compiled roles against the schema. Roles are compiled at every change of one, and reading the schema takes longer than
/// compiling several: a process reads it once, and one that has no roles never does.
static VALIDATOR: LazyLock<Result<Validator, Arc<SchemaError>>> = LazyLock::new(|| {
    let (schema, _) =
        Schema::from_cedarschema_str(&schema()).map_err(|error| Arc::new(SchemaError::Schema(error)))?;
    Ok(Validator::new(schema))
});

/// What roles compile to, with the types and questions of every kind of resource.
fn schema() -> String {
    let mut schema = include_str!("../schema.cedarschema").to_owned();
    for KindRow { entity, action, asked, .. } in Kind::ALL.iter().map(|kind| kind.row()) {
        let asked: String = asked.iter().map(|(name, of)| format!("{name}: {of}, ")).collect();
        schema.push_str(&format!(
            "entity {entity} tags String;\naction \"{action}\" appliesTo {{ principal: [User], resource: [{entity}], \
             context: {{ {asked}matched: Set<String> }} }};\n"
        ));
    }
    schema
}

/// Combinations kept before all are dropped and made again as needed.
const COMBINATIONS_KEPT: usize = 4096;

#[derive(Debug)]
pub(super) struct Types {
    pub(super) user: EntityTypeName,
    pub(super) role: EntityTypeName,
    /// Of what sessions are with.
    pub(super) resources: BTreeMap<Kind, EntityTypeName>,
    /// Of what the API is about.
    pub(super) resource: EntityTypeName,
    pub(super) action: EntityTypeName,
}

/// The roles of one user, together.
#[derive(Debug)]
pub(crate) struct Combination {
    pub(super) roles: Vec<Arc<CompiledRole>>,
    pub(super) unknown: Vec<RoleName>,
    pub(super) policies: PolicySet,
    /// The labels of each kind that any of the roles looks at: resources that agree in these get the same answer.
    labels: BTreeMap<Kind, Vec<String>>,
    pub(super) has_regexes: bool,
}

impl Combination {
    /// The labels of resources of this kind that any of the roles looks at.
    pub(super) fn labels(&self, kind: Kind) -> &[String] {
        self.labels.get(&kind).map(Vec::as_slice).unwrap_or_default()
    }
}

/// What decides when a certificate is bound to a user.
pub(super) struct Weighed {
    pub(super) allowed: bool,
    /// Policy ids: those that allow, or those that forbid.
    pub(super) rules: Vec<String>,
    pub(super) errors: Vec<String>,
}

impl Weighed {
    /// For a question that could not be put.
    pub(super) fn broken(error: &str) -> Self {
        Self { allowed: false, rules: Vec::new(), errors: vec![error.to_owned()] }
    }
}

/// What is asked of Cedar about one resource, besides who asks.
#[derive(Debug)]
pub struct Question<'q> {
    kind: Kind,
    /// Which one.
    id: String,
    action: &'static str,
    /// Its labels, of which rules see those that they look at.
    labels: &'q Labels,
    /// What the question says besides the labels.
    asked: Vec<(String, RestrictedExpression)>,
}

impl<'q> Question<'q> {
    /// Whether a session with this resource may begin.
    #[must_use]
    pub fn session(kind: Kind, id: impl Into<String>, labels: &'q Labels) -> Self {
        Self { kind, id: id.into(), action: kind.row().action, labels, asked: Vec::new() }
    }

    /// Whether something else may be done with it, that the schema has.
    pub(super) fn other(action: &'static str, kind: Kind, id: impl Into<String>, labels: &'q Labels) -> Self {
        Self { action, ..Self::session(kind, id, labels) }
    }

    /// Says a text of [`crate::KindRow::asked`].
    #[must_use]
    pub fn text(self, attribute: &str, text: &str) -> Self {
        self.with(attribute, RestrictedExpression::new_string(text.to_owned()))
    }

    /// Says a truth value of [`crate::KindRow::asked`].
    #[must_use]
    pub fn flag(self, attribute: &str, flag: bool) -> Self {
        self.with(attribute, RestrictedExpression::new_bool(flag))
    }

    /// Says several texts.
    pub(super) fn texts(self, attribute: &str, texts: &[&str]) -> Self {
        let texts = texts.iter().map(|text| RestrictedExpression::new_string((*text).to_owned()));
        self.with(attribute, RestrictedExpression::new_set(texts))
    }

    fn with(mut self, attribute: &str, value: RestrictedExpression) -> Self {
        self.asked.push((attribute.to_owned(), value));
        self
    }
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
            let validator = VALIDATOR.as_ref().map_err(|error| PolicyError::Internal(Arc::clone(error)))?;
            let one = compile(role)?;
            let set = PolicySet::from_policies(one.policies.iter().cloned()).map_err(SchemaError::from)?;
            let result = validator.validate(&set, ValidationMode::Strict);
            if let Some(error) = result.validation_errors().next() {
                return Err(SchemaError::from(error.clone()).into());
            }
            compiled.insert(role.name.clone(), Arc::new(one));
        }
        let types = TYPES.as_ref().map_err(|error| PolicyError::Internal(Arc::clone(error)))?;
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

    pub(super) fn combination(&self, roles: &[RoleName]) -> Arc<Combination> {
        if let Some(known) = self.combinations.read().get(roles) {
            return Arc::clone(known);
        }
        let found: Vec<Arc<CompiledRole>> =
            roles.iter().filter_map(|role| self.roles.get(role).cloned()).collect();
        let unknown = roles.iter().filter(|role| !self.roles.contains_key(*role)).cloned().collect();
        let labels_of = |kind: Kind| {
            let looked_at = found.iter().flat_map(|role| role.role.label_keys(kind)).map(str::to_owned);
            let mut labels: Vec<String> = looked_at.collect();
            labels.sort_unstable();
            labels.dedup();
            (kind, labels)
        };
        let labels = Kind::ALL.iter().map(|kind| labels_of(*kind)).collect();
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
        });
        let mut known = self.combinations.write();
        if known.len() >= COMBINATIONS_KEPT {
            known.clear();
        }
        known.insert(roles.to_vec(), Arc::clone(&combination));
        drop(known);
        combination
    }

    /// Asks whether a user with these roles and traits may.
    pub(super) fn weigh(
        &self,
        combination: &Combination,
        user: &str,
        traits: &Traits,
        question: Question<'_>,
    ) -> Weighed {
        let Question { kind, id, action, labels, asked } = question;
        let looked_at = combination.labels(kind);
        let matches = if combination.has_regexes { matched(combination, labels) } else { Vec::new() };
        let matches = ("matched".to_owned(), RestrictedExpression::new_set(matches));
        let context = Context::from_pairs(asked.into_iter().chain([matches]));
        let kind = self.types.resources.get(&kind);
        let entity = kind.and_then(|kind| {
            Entity::new_with_tags(self.uid(kind, &id), [], [], tags(looked_at, labels)).ok()
        });
        let (Ok(context), Some(entity)) = (context, entity) else {
            return Weighed::broken("the question could not be put");
        };
        let roles: Vec<RoleName> = combination.roles.iter().map(|role| role.role.name.clone()).collect();
        self.ask(combination, self.user_entity(user, &roles, traits), action, entity, context)
    }

    pub(super) fn user_entity(&self, user: &str, roles: &[RoleName], traits: &Traits) -> Option<Entity> {
        let parents: HashSet<EntityUid> =
            roles.iter().map(|role| self.uid(&self.types.role, role.as_str())).collect();
        let tags = traits.iter().map(|(name, values)| {
            let values = values.iter().map(|value| RestrictedExpression::new_string(value.clone()));
            (TraitRef::full_name(name), RestrictedExpression::new_set(values))
        });
        Entity::new_with_tags(self.uid(&self.types.user, user), [], parents, tags).ok()
    }

    pub(super) fn ask(
        &self,
        combination: &Combination,
        user: Option<Entity>,
        action: &str,
        resource: Entity,
        context: Context,
    ) -> Weighed {
        let Some(user) = user else { return Weighed::broken("a trait could not be read") };
        let action = self.uid(&self.types.action, action);
        let request = Request::new(user.uid(), action, resource.uid(), context, None);
        let entities = Entities::from_entities([user, resource], None);
        let (Ok(request), Ok(entities)) = (request, entities) else {
            return Weighed::broken("the question could not be put");
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

    pub(super) fn uid(&self, kind: &EntityTypeName, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
    }
}

/// The roles whose rules allowed it.
pub(super) fn granting<'c>(
    combination: &'c Combination,
    weighed: &Weighed,
) -> impl Iterator<Item = &'c Role> {
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

/// Ids of the regular expressions that match.
fn matched(combination: &Combination, labels: &Labels) -> Vec<RestrictedExpression> {
    let regexes = combination.roles.iter().flat_map(|role| &role.regexes);
    regexes
        .filter(|one| labels.value(&one.label).is_some_and(|value| one.regex.is_match(value)))
        .map(|one| RestrictedExpression::new_string(one.id.clone()))
        .collect()
}

pub(super) fn no_role_allows(combination: &Combination, errors: &[String]) -> String {
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
