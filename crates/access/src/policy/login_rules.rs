//! Login rules, compiled, and how a login is held to them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::entities_errors::EntitiesError;
use cedar_policy::{
    AuthorizationError, Authorizer, CedarSchemaError, Context, ContextCreationError, Decision, Entities,
    Entity, EntityAttrEvaluationError, EntityUid, ExpressionConstructionError, ParseErrors, Policy, PolicyId,
    PolicySet, Request, RequestValidationError, RestrictedExpression, Schema, ValidationMode, Validator,
};
use time::OffsetDateTime;

use crate::login_claims::{ClaimsRead, LoginClaims};
use crate::login_rule::{LoginRule, Network, Then};
use crate::{Device, DeviceCustody, RoleName, Traits, UserName};

/// What a condition may look at.
const SCHEMA: &str = "\
entity Cluster;
entity Person tags Set<String>;
entity Claims tags Set<String>;
action \"login\" appliesTo {
  principal: [Person],
  resource: [Cluster],
  context: {
    user: String, roles: Set<String>, networks: Set<String>, way: String, factor_kind: String, second_factor: Bool,
    user_verified: Bool, single_sign_on: Bool, hour: Long, minute: Long, weekday: Long, renewal: Bool,
    device: { trusted: Bool, hardware: Bool, id: String, custody: String },
    connector: String, claims?: Claims,
  },
};
";

static VALIDATOR: LazyLock<Result<Validator, Box<CedarSchemaError>>> = LazyLock::new(|| {
    let (schema, _) = Schema::from_cedarschema_str(SCHEMA).map_err(Box::new)?;
    Ok(Validator::new(schema))
});

/// Why it cannot be told whether a login meets a condition.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ConditionError(Box<ConditionFailure>);

/// What Cedar does not take, of a login or of a condition.
#[derive(Debug, thiserror::Error)]
enum ConditionFailure {
    /// What the login is called for Cedar.
    #[error(transparent)]
    Name(#[from] ParseErrors),
    /// The traits of the user.
    #[error(transparent)]
    Traits(#[from] EntityAttrEvaluationError),
    /// The user, as Cedar sees them.
    #[error(transparent)]
    User(#[from] EntitiesError),
    /// What is known of the login.
    #[error(transparent)]
    Known(#[from] ContextCreationError),
    /// What is known of it fits the schema of no login.
    #[error(transparent)]
    Request(#[from] RequestValidationError),
    /// A value that Cedar does not make.
    #[error(transparent)]
    Value(#[from] ExpressionConstructionError),
    /// The rule is none of this release.
    #[error(transparent)]
    Rule(#[from] LoginRuleError),
    /// It looks at what of the provider's word is not known.
    #[error(
        "what the provider says as {path:?} is not known in full here (it is too large, it is elsewhere, or it was not kept since the login); \
         log in again, and ask an administrator where that does not help"
    )]
    Claims { path: String },
    /// The condition itself, such as a number in it that grows too large.
    #[error(transparent)]
    Evaluation(#[from] AuthorizationError),
}

impl<E> From<E> for ConditionError
where
    ConditionFailure: From<E>,
{
    fn from(error: E) -> Self {
        Self(Box::new(error.into()))
    }
}

/// A rule that is none: its condition is not one of Cedar over what logins have, or its text no rule's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("login rule {rule:?}: {problem}")]
pub struct LoginRuleError {
    /// The rule.
    pub rule: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Who wants to log in, and what is known of it.
#[derive(Debug, Clone)]
pub struct LoginAsked<'a> {
    /// The user.
    pub user: &'a UserName,
    /// With these roles.
    pub roles: &'a [RoleName],
    /// And these traits.
    pub traits: &'a Traits,
    /// From where; none on the authority's own machine.
    pub address: Option<IpAddr>,
    /// In which way it was proven, such as `passkey`.
    pub way: &'a str,
    /// The kind of the factor: `webauthn`, `totp`, or empty.
    pub factor_kind: &'a str,
    /// More than a password was proven.
    pub second_factor: bool,
    /// The authenticator has verified its user.
    pub user_verified: bool,
    /// The user comes by single sign-on.
    pub single_sign_on: bool,
    /// The certificates of an open login are signed anew.
    pub renewal: bool,
    /// The trusted device that it comes from, as the authority has it on record.
    pub device: Option<Device>,
    /// The connector of single sign-on that it is proven by; empty of every other way.
    pub connector: &'a str,
    /// What the provider has said in it; none of every other way.
    pub claims: Option<&'a LoginClaims>,
}

/// What a rule came to.
#[derive(Debug)]
pub struct RuleOutcome {
    /// The rule.
    pub rule: String,
    /// What it does to logins that meet its condition.
    pub then: Then,
    /// Whether this one does; or why that could not be told.
    pub meets: Result<bool, ConditionError>,
}

/// Why a login is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginDenied {
    /// The rule; none where rules allow and none of them does so.
    pub rule: Option<String>,
    /// What the user reads.
    pub message: String,
}

#[derive(Debug)]
struct Compiled {
    name: String,
    then: Then,
    message: String,
    networks: BTreeMap<String, Vec<Network>>,
    /// The claims that its condition looks at.
    reads: ClaimsRead,
    /// Its condition; or why there is none.
    policies: Result<PolicySet, LoginRuleError>,
}

/// The login rules of a cluster. Without any, they let every login in.
#[derive(Debug, Default)]
pub struct LoginRules(Vec<Compiled>);

impl LoginRules {
    /// Compiles rules, and holds their conditions to what logins have.
    ///
    /// # Errors
    /// The first that does not compile.
    pub fn compile(rules: Vec<LoginRule>) -> Result<Self, LoginRuleError> {
        rules.into_iter().map(compile).collect::<Result<_, _>>().map(Self)
    }

    /// Rules by their names, as they are kept. One that an earlier release has taken and this one does not is as one that cannot be
    /// evaluated: it denies every login, unless it is known to be one that allows, and then it allows none.
    pub fn kept(rules: impl IntoIterator<Item = (String, String)>) -> Self {
        let each = rules.into_iter().map(|(name, text)| match LoginRule::parse(&text) {
            Ok(rule) => {
                let policies = condition(&rule);
                Compiled::new(rule, policies)
            }
            Err(errors) => {
                let broken = LoginRuleError { rule: name.clone(), problem: errors.to_string() };
                Compiled {
                    name,
                    then: Then::Deny,
                    message: String::new(),
                    networks: BTreeMap::new(),
                    reads: ClaimsRead::default(),
                    policies: Err(broken),
                }
            }
        });
        Self(each.collect())
    }

    /// Those that are rules of this release no more.
    pub fn broken(&self) -> impl Iterator<Item = &LoginRuleError> {
        self.0.iter().filter_map(|one| one.policies.as_ref().err())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The claims of single sign-on that conditions look at.
    #[must_use]
    pub fn reads(&self) -> ClaimsRead {
        self.0.iter().fold(ClaimsRead::default(), |all, one| all.and(&one.reads))
    }

    /// What each rule comes to.
    #[must_use]
    pub fn outcomes(&self, asked: &LoginAsked<'_>, now: OffsetDateTime) -> Vec<RuleOutcome> {
        let outcome = |one: &Compiled| RuleOutcome {
            rule: one.name.clone(),
            then: one.then,
            meets: one.meets(asked, now),
        };
        self.0.iter().map(outcome).collect()
    }

    /// Whether a login is let in: as [`Self::judge`] says of what the rules come to.
    ///
    /// # Errors
    /// [`LoginDenied`].
    pub fn admit(&self, asked: &LoginAsked<'_>, now: OffsetDateTime) -> Result<(), LoginDenied> {
        self.judge(&self.outcomes(asked, now))
    }

    /// Whether a login is let in: no rule denies it, and where rules allow, one does. A rule that cannot be evaluated denies, if that is
    /// what it is for, and allows nothing.
    ///
    /// # Errors
    /// [`LoginDenied`].
    pub fn judge(&self, outcomes: &[RuleOutcome]) -> Result<(), LoginDenied> {
        let judged = || self.0.iter().zip(outcomes);
        let denying =
            judged().find(|(rule, outcome)| rule.then == Then::Deny && !matches!(outcome.meets, Ok(false)));
        if let Some((rule, outcome)) = denying {
            let why = match (&outcome.meets, rule.message.as_str()) {
                _ if rule.policies.is_err() => {
                    "the authority does not understand it any more; ask an administrator to write it anew"
                        .to_owned()
                }
                (Err(error), _) => format!("it could not be evaluated: {error}"),
                (Ok(_), "") => "ask an administrator".to_owned(),
                (Ok(_), message) => message.to_owned(),
            };
            let message = format!("the login rule \"{}\" refuses it: {why}", rule.name);
            return Err(LoginDenied { rule: Some(rule.name.clone()), message });
        }
        let allowing: Vec<&str> = judged()
            .filter(|(rule, _)| rule.then == Then::Allow)
            .map(|(rule, _)| rule.name.as_str())
            .collect();
        let allowed =
            judged().any(|(rule, outcome)| rule.then == Then::Allow && matches!(outcome.meets, Ok(true)));
        if allowing.is_empty() || allowed {
            return Ok(());
        }
        let message = format!(
            "none of the login rules that allow logins does so (\"{}\"); ask an administrator",
            allowing.join("\", \"")
        );
        Err(LoginDenied { rule: None, message })
    }
}

fn compile(rule: LoginRule) -> Result<Compiled, LoginRuleError> {
    let policies = condition(&rule)?;
    Ok(Compiled::new(rule, Ok(policies)))
}

/// What a rule's condition is for Cedar.
fn condition(rule: &LoginRule) -> Result<PolicySet, LoginRuleError> {
    let wrong = |problem: String| LoginRuleError {
        rule: rule.name.to_string(),
        problem: format!("its condition is not one of Cedar over what logins have: {problem}"),
    };
    // The condition stands on lines of its own: a comment at its end takes nothing from the policy.
    let text =
        format!("permit (principal, action == Action::\"login\", resource) when {{\n{}\n}};", rule.when);
    let policy =
        Policy::parse(Some(PolicyId::new("rule")), text).map_err(|error| wrong(error.to_string()))?;
    let policies = PolicySet::from_policies([policy]).map_err(|error| wrong(error.to_string()))?;
    let validator = VALIDATOR.as_ref().map_err(|error| wrong(error.to_string()))?;
    let result = validator.validate(&policies, ValidationMode::Strict);
    if let Some(error) = result.validation_errors().next() {
        return Err(wrong(error.to_string()));
    }
    Ok(policies)
}

impl Compiled {
    fn new(rule: LoginRule, policies: Result<PolicySet, LoginRuleError>) -> Self {
        let LoginRule { name, then, message, networks, .. } = rule;
        let reads = policies.as_ref().map(reads).unwrap_or_default();
        Self { name: name.to_string(), then, message, networks, reads, policies }
    }

    fn meets(&self, asked: &LoginAsked<'_>, now: OffsetDateTime) -> Result<bool, ConditionError> {
        let policies = self.policies.as_ref().map_err(LoginRuleError::clone)?;
        if let Some(path) = asked.claims.and_then(|claims| claims.lacks(&self.reads)) {
            // What is not known could be what the rule is there for.
            return Err(ConditionFailure::Claims { path }.into());
        }
        let principal = EntityUid::from_str("Person::\"self\"")?;
        let (action, resource) =
            (EntityUid::from_str("Action::\"login\"")?, EntityUid::from_str("Cluster::\"self\"")?);
        let tags = asked.traits.iter().map(|(name, values)| (name.clone(), texts(values.iter().cloned())));
        let person = Entity::new_with_tags(principal.clone(), [], [], tags)?;
        let said = EntityUid::from_str("Claims::\"self\"")?;
        let values = asked.claims.into_iter().flat_map(LoginClaims::values);
        let tags = values.map(|(path, values)| (path.to_owned(), texts(values.iter().cloned())));
        let claims = Entity::new_with_tags(said.clone(), [], [], tags)?;
        let entities = Entities::from_entities([person, claims], None)?;
        let context = self.context(asked, said, now)?;
        let request = Request::new(principal, action, resource, context, None)?;
        let response = Authorizer::new().is_authorized(&request, policies, &entities);
        match response.diagnostics().errors().next() {
            Some(error) => Err(error.clone().into()),
            None => Ok(response.decision() == Decision::Allow),
        }
    }

    fn context(
        &self,
        asked: &LoginAsked<'_>,
        said: EntityUid,
        now: OffsetDateTime,
    ) -> Result<Context, ConditionError> {
        let inside = |ranges: &[Network]| {
            asked.address.is_some_and(|address| ranges.iter().any(|range| range.contains(address)))
        };
        let networks = self.networks.iter().filter(|(_, ranges)| inside(ranges));
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        // The authority takes a login as one from a device only where that has signed for it, is enrolled and is its user's.
        let hardware = asked.device.is_some_and(|device| device.custody == DeviceCustody::Hardware);
        let id = asked.device.map(|device| device.id.to_string()).unwrap_or_default();
        let custody = asked.device.map_or("", |device| device.custody.as_str());
        let device = [
            ("trusted", RestrictedExpression::new_bool(asked.device.is_some())),
            ("hardware", RestrictedExpression::new_bool(hardware)),
            ("id", text(&id)),
            ("custody", text(custody)),
        ];
        let device = device.map(|(name, value)| (name.to_owned(), value));
        let device = RestrictedExpression::new_record(device)?;
        let now = now.to_offset(time::UtcOffset::UTC);
        let pairs = [
            ("user", text(asked.user.as_str())),
            ("roles", texts(asked.roles.iter().map(ToString::to_string))),
            ("networks", texts(networks.map(|(name, _)| name.clone()))),
            ("way", text(asked.way)),
            ("factor_kind", text(asked.factor_kind)),
            ("second_factor", RestrictedExpression::new_bool(asked.second_factor)),
            ("user_verified", RestrictedExpression::new_bool(asked.user_verified)),
            ("single_sign_on", RestrictedExpression::new_bool(asked.single_sign_on)),
            ("hour", RestrictedExpression::new_long(i64::from(now.hour()))),
            ("minute", RestrictedExpression::new_long(i64::from(now.minute()))),
            ("weekday", RestrictedExpression::new_long(i64::from(now.weekday().number_from_monday()))),
            ("renewal", RestrictedExpression::new_bool(asked.renewal)),
            ("device", device),
            ("connector", text(asked.connector)),
        ];
        let claims = asked.claims.map(|_| ("claims", RestrictedExpression::new_entity_uid(said)));
        let pairs = pairs.into_iter().chain(claims).map(|(name, value)| (name.to_owned(), value));
        Ok(Context::from_pairs(pairs)?)
    }
}

fn texts(values: impl Iterator<Item = String>) -> RestrictedExpression {
    RestrictedExpression::new_set(values.map(RestrictedExpression::new_string))
}

/// The claims that a condition looks at.
fn reads(policies: &PolicySet) -> ClaimsRead {
    let mut read = ClaimsRead::default();
    for policy in policies.policies() {
        match policy.to_json() {
            Ok(tree) => read = read.and(&ClaimsRead::of(&tree)),
            Err(_) => return ClaimsRead::All,
        }
    }
    read
}
