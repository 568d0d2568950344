//! What a provider has said of a person, and what that comes to here.

use std::collections::BTreeSet;
use std::fmt;

use sallyport_access::{RoleName, Traits, UserName};
use sallyport_oidc::{Identity, Mapped, Outcome, Step, Template};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::connector::Connector;
use super::error::{NoUserName, SsoError};
use crate::authority::identities::origins::SaidRecord;
use crate::authority::scim::admission::ExternalId;

/// The claim of a mail address, and what a provider says of it where it has verified it (Core §5.1).
pub(super) const EMAIL: &str = "email";
pub(super) const EMAIL_VERIFIED: &str = "email_verified";

/// Under which mapping and templates find what the connector's SCIM client says. No provider's claim is called so here.
pub(super) const PROVISIONED: &str = "scim";

/// Longest list of a message.
const SHOWN: usize = 5;

/// What a provider has said of a person: each part as it came.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    pub(crate) identity: Identity,
    /// Of the ID token.
    pub(crate) token: Map<String, Value>,
    /// Of the provider's user information, where it was asked.
    pub(crate) userinfo: Option<Map<String, Value>>,
    /// What was fetched from where the token said that it is.
    pub(crate) fetched: Map<String, Value>,
    /// The groups that the person is in, by the connector's SCIM client; none where it has none.
    pub(crate) groups: Option<BTreeSet<String>>,
    /// By what the provider can be asked again, where the connector wants that.
    pub(crate) renewal: Option<Renewal>,
}

/// By what a provider is asked again whether a login stands.
#[derive(Clone)]
pub(crate) struct Renewal {
    pub(crate) refresh_token: Zeroizing<String>,
    /// Of the login's request: a token that comes later has the same, if any (OpenID Connect Core §12.2).
    pub(crate) nonce: String,
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}

impl Claims {
    /// When the person has proven themselves to the provider, by its own word (Core §2, `auth_time`).
    pub(super) fn signed_in_at(&self) -> Option<OffsetDateTime> {
        let seconds = self.token.get("auth_time")?.as_i64()?;
        OffsetDateTime::from_unix_timestamp(seconds).ok()
    }

    /// All of it: of a claim that stands in several parts, what was fetched, then the ID token's, then the user information's.
    pub(crate) fn all(&self) -> Map<String, Value> {
        let mut all = self.userinfo.clone().unwrap_or_default();
        let said = all.remove("_claim_names").zip(all.remove("_claim_sources"));
        // A claim of the token that is null says nothing, and hides nothing of the user information.
        all.extend(self.token.clone().into_iter().filter(|(_, value)| !value.is_null()));
        if let Some((names, sources)) = said {
            also_elsewhere(&mut all, &names, &sources);
        }
        all.extend(self.fetched.clone());
        all
    }

    /// What rules and templates read: all of it, but `email` only from a part that says that the provider has verified it. An
    /// address that people write into their own profile, or that another directory's administrator does, may be any person's. Also the
    /// claims that were left out by that.
    pub(super) fn counted(&self, connector: &Connector) -> (Map<String, Value>, BTreeSet<&'static str>) {
        let (mut all, unverified) = self.said(connector);
        provision(&mut all, self.groups.as_ref());
        (all, unverified)
    }

    /// What the provider said of it alone.
    fn said(&self, connector: &Connector) -> (Map<String, Value>, BTreeSet<&'static str>) {
        if connector.email_without_verification {
            return (self.all(), BTreeSet::new());
        }
        let mut kept = self.clone();
        // What is fetched from elsewhere says of no address that it is verified.
        let mut dropped = kept.fetched.remove(EMAIL).is_some();
        for part in [Some(&mut kept.token), kept.userinfo.as_mut()].into_iter().flatten() {
            if part.get(EMAIL_VERIFIED) != Some(&Value::Bool(true)) {
                dropped |= part.remove(EMAIL).is_some();
            }
        }
        let all = kept.all();
        let unverified =
            if dropped && !all.contains_key(EMAIL) { BTreeSet::from([EMAIL]) } else { BTreeSet::new() };
        (all, unverified)
    }

    /// What is kept of it, to know the roles again when the groups change: what the mapping looks at, where that reads groups, too.
    pub(super) fn kept(&self, connector: &Connector) -> Option<SaidRecord> {
        if !reads_groups(connector) {
            return None;
        }
        let wanted = connector.mapping.claims();
        let (mut claims, unverified) = self.said(connector);
        claims.retain(|name, _| wanted.contains(name.as_str()));
        Some(SaidRecord { claims, unverified: unverified.into_iter().map(str::to_owned).collect() })
    }

    /// Whether a claim is there.
    pub(super) fn has(&self, claim: &str) -> bool {
        let parts = [Some(&self.token), self.userinfo.as_ref(), Some(&self.fetched)];
        parts.into_iter().flatten().any(|part| part.get(claim).is_some_and(|value| !value.is_null()))
    }

    /// With what the provider says now, where it says it. A part that it does not repeat stays as it was, but for claims that the part
    /// which it does repeat has, or had and has no more: what is new hides what is old, and what was taken away comes back from no
    /// older part.
    pub(super) fn renewed(
        mut self,
        token: Option<Map<String, Value>>,
        userinfo: Option<Map<String, Value>>,
    ) -> Self {
        if token.is_some() || userinfo.is_some() {
            self.fetched = Map::new();
        }
        match (token, userinfo) {
            (Some(token), Some(userinfo)) => (self.token, self.userinfo) = (token, Some(userinfo)),
            (Some(token), None) => {
                if let Some(old) = &mut self.userinfo {
                    old.retain(|claim, _| !self.token.contains_key(claim) && !token.contains_key(claim));
                }
                self.token = token;
            }
            (None, Some(userinfo)) => {
                let before = self.userinfo.take().unwrap_or_default();
                self.token.retain(|claim, _| !before.contains_key(claim) && !userinfo.contains_key(claim));
                self.userinfo = Some(userinfo);
            }
            (None, None) => {}
        }
        self
    }

    /// The id of the session at the provider, for its logouts.
    pub(crate) fn session(&self) -> Option<&str> {
        self.token.get("sid").and_then(Value::as_str).filter(|id| !id.is_empty())
    }
}

/// Claims that the user information says are elsewhere stay so when the token says the same of others: neither list hides the
/// other one's.
fn also_elsewhere(all: &mut Map<String, Value>, names: &Value, sources: &Value) {
    let (Some(names), Some(sources)) = (names.as_object(), sources.as_object()) else { return };
    for (member, found) in [("_claim_names", names), ("_claim_sources", sources)] {
        let entry = all.entry(member).or_insert_with(|| Value::Object(Map::new()));
        let Some(entry) = entry.as_object_mut() else { continue };
        for (name, value) in found {
            // Sources of the two may have one name.
            match (member, value.as_str()) {
                ("_claim_names", Some(source)) => {
                    entry.entry(name.clone()).or_insert_with(|| format!("userinfo {source}").into());
                }
                ("_claim_sources", _) => drop(entry.insert(format!("userinfo {name}"), value.clone())),
                _ => {}
            }
        }
    }
}

/// Puts what the connector's SCIM client says in the place of all that is called so.
fn provision(claims: &mut Map<String, Value>, groups: Option<&BTreeSet<String>>) {
    claims.remove(PROVISIONED);
    if let Some(groups) = groups {
        claims.insert(PROVISIONED.to_owned(), json!({ "groups": groups }));
    }
}

/// Whether a connector's mapping reads the groups of its SCIM client.
pub(crate) fn reads_groups(connector: &Connector) -> bool {
    connector.mapping.claims().contains(PROVISIONED)
}

/// The claims that a connector looks at, and that the provider is asked for.
pub(super) fn wanted(connector: &Connector) -> BTreeSet<&str> {
    let mut wanted = connector.mapping.claims();
    wanted.extend(connector.username.claims());
    wanted.extend(connector.scim_external_id.iter().flat_map(Template::claims));
    wanted.remove(PROVISIONED);
    if wanted.contains(EMAIL) && !connector.email_without_verification {
        wanted.insert(EMAIL_VERIFIED);
    }
    wanted
}

/// By what a person who is none of the users of the connector's SCIM client yet is found among them, where the connector says it.
pub(super) fn external_id(connector: &Connector, claims: &Claims) -> Option<ExternalId> {
    let template = connector.scim_external_id.as_ref()?;
    let (all, _) = claims.counted(connector);
    let value = template.single(&all).filter(|value| !value.is_empty());
    Some(ExternalId { template: template.to_string(), value })
}

/// What a person gets here.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) roles: Vec<RoleName>,
    /// Roles of the mapping that there are not.
    pub(crate) unknown_roles: Vec<String>,
    pub(crate) traits: Traits,
    /// The name by the template, which counts for a person who has none yet.
    pub(crate) name: Result<UserName, NoUserName>,
    pub(crate) second_factor: bool,
    pub(crate) mapped: Mapped,
}

/// What the connector's mapping makes of what the provider said, with the roles that there are.
pub(crate) fn judge(connector: &Connector, claims: &Claims, known: impl Fn(&str) -> bool) -> Verdict {
    let (all, unverified) = claims.counted(connector);
    let Given { roles, unknown_roles, traits, mapped } = given(connector, &all, &unverified, known);
    let name = match connector.username.single(&all) {
        Some(text) => UserName::new(text).map_err(NoUserName::from),
        None if connector.username.claims().any(|claim| unverified.contains(claim)) => {
            Err(NoUserName::Unverified)
        }
        None => Err(NoUserName::Missing),
    };
    Verdict { roles, unknown_roles, traits, name, second_factor: second_factor(connector, claims), mapped }
}

/// What the mapping gives.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) roles: Vec<RoleName>,
    unknown_roles: Vec<String>,
    pub(crate) traits: Traits,
    mapped: Mapped,
}

fn given(
    connector: &Connector,
    claims: &Map<String, Value>,
    unverified: &BTreeSet<&str>,
    known: impl Fn(&str) -> bool,
) -> Given {
    let mapped = connector.mapping.apply_without(claims, unverified);
    let (mut roles, mut unknown_roles) = (Vec::new(), Vec::new());
    for name in &mapped.roles {
        match RoleName::new(name.clone()) {
            Ok(role) if known(role.as_str()) => roles.push(role),
            _ => unknown_roles.push(name.clone()),
        }
    }
    let traits =
        mapped.traits.iter().map(|(name, values)| (name.clone(), values.iter().cloned().collect())).collect();
    Given { roles, unknown_roles, traits, mapped }
}

/// What a person gets by what was kept of their login, and by the groups that they are in now.
pub(crate) fn judge_again(
    connector: &Connector,
    said: &SaidRecord,
    groups: BTreeSet<String>,
    known: impl Fn(&str) -> bool,
) -> Given {
    let mut claims = said.claims.clone();
    provision(&mut claims, Some(&groups));
    let unverified = said.unverified.iter().map(String::as_str).collect();
    given(connector, &claims, &unverified, known)
}

impl Given {
    /// As [`Verdict::told`].
    pub(crate) fn told(&self) -> String {
        told_all(&self.mapped, &self.unknown_roles)
    }
}

/// Whether the provider has said that a second factor was used.
pub(super) fn second_factor(connector: &Connector, claims: &Claims) -> bool {
    connector.provider_checks_second_factor
        || amr(claims).iter().any(|method| connector.second_factors.iter().any(|one| one == method))
}

/// Refuses who signed in at the provider without a second factor.
pub(super) fn check_second_factor(connector: &Connector, claims: &Claims) -> Result<(), SsoError> {
    if second_factor(connector, claims) { Ok(()) } else { Err(no_second_factor(claims)) }
}

/// Refuses a local user who is linked, and signed in at the provider without a second factor, where their password alone would not do
/// either.
pub(super) fn check_linked(
    connector: &Connector,
    claims: &Claims,
    required: bool,
    has_factor: bool,
) -> Result<(), SsoError> {
    match second_factor(connector, claims) {
        true => Ok(()),
        false if required => Err(no_second_factor(claims)),
        false if has_factor => Err(SsoError::FactorOfLinked { said: methods(claims) }),
        false => Ok(()),
    }
}

fn no_second_factor(claims: &Claims) -> SsoError {
    SsoError::NoSecondFactor { said: methods(claims) }
}

/// How the person proved themselves, for a message.
fn methods(claims: &Claims) -> String {
    let said: Vec<&str> = amr(claims).into_iter().take(SHOWN).collect();
    if said.is_empty() { "nothing of how".to_owned() } else { said.join(", ") }
}

/// The ways in which the person proved who they are (RFC 8176). Of the token alone, which is signed for this login.
fn amr(claims: &Claims) -> BTreeSet<&str> {
    match claims.token.get("amr") {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => BTreeSet::from([one.as_str()]),
        _ => BTreeSet::new(),
    }
}

/// Refuses what the provider said where it is not what the connector wants, whatever roles it would give.
pub(super) fn check_class(connector: &Connector, claims: &Claims) -> Result<(), SsoError> {
    if connector.acr_values.is_empty() {
        return Ok(());
    }
    // The request's acr_values are voluntary for a provider (Core §3.1.2.1).
    let got = claims.token.get("acr").and_then(Value::as_str).unwrap_or_default();
    if connector.acr_values.iter().any(|one| one == got) {
        return Ok(());
    }
    Err(SsoError::WrongClass {
        got: got.chars().take(128).collect(),
        expected: connector.acr_values.join(", "),
    })
}

impl Verdict {
    /// Whether the person may log in with it.
    ///
    /// # Errors
    /// [`SsoError`] with the reason.
    pub(crate) fn admit(&self, claims: &Claims, factor_required: bool) -> Result<(), SsoError> {
        let elsewhere = self.mapped.trace.iter().find_map(|step| match &step.outcome {
            Outcome::Elsewhere { claim, endpoint } => Some((claim.clone(), endpoint.clone())),
            _ => None,
        });
        if let Some((claim, endpoint)) = elsewhere {
            return Err(SsoError::Elsewhere {
                claim,
                endpoint: endpoint.unwrap_or_else(|| "it does not say where".to_owned()),
                reason: "which is on no server of allowed_hosts".to_owned(),
            });
        }
        if let Some(step) = self.mapped.trace.iter().find(|step| step.cut) {
            return Err(SsoError::Cut { from: step.from.clone() });
        }
        if factor_required && !self.second_factor {
            return Err(no_second_factor(claims));
        }
        if self.roles.is_empty() {
            return Err(SsoError::NoRoles { trace: self.told() });
        }
        Ok(())
    }

    /// The trace of the rules on one line.
    pub(crate) fn told(&self) -> String {
        told_all(&self.mapped, &self.unknown_roles)
    }
}

fn told_all(mapped: &Mapped, unknown_roles: &[String]) -> String {
    let rules = mapped.trace.iter().filter(|step| step.named.is_none());
    let mut lines: Vec<String> = rules.map(told).collect();
    if !unknown_roles.is_empty() {
        lines.push(format!("there are no roles {}", unknown_roles.join(", ")));
    }
    let more = lines.len().saturating_sub(2 * SHOWN);
    lines.truncate(2 * SHOWN);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}

/// One line of the trace, for people.
pub(crate) fn told(step: &Step) -> String {
    let of = match (step.rule, &step.named) {
        (Some(rule), None) => format!("rule {rule} ({})", step.from),
        (Some(rule), Some(name)) => format!("trait {name} rule {rule} ({})", step.from),
        (None, Some(name)) => format!("trait {name} ({})", step.from),
        (None, None) => step.from.clone(),
    };
    let came = match &step.outcome {
        Outcome::Hit { matched, gave } if gave.is_empty() => {
            format!("{} gives nothing: no template of it has all of its claims", listed(matched))
        }
        Outcome::Hit { matched, gave } if matched.is_empty() => format!("gives {}", listed(gave)),
        Outcome::Hit { matched, gave } => format!("{} gives {}", listed(matched), listed(gave)),
        Outcome::Missing { claim } => format!("there is no claim {claim}"),
        Outcome::NotValues { claim, found } => format!("the claim {claim} is {found}"),
        Outcome::Elsewhere { claim, .. } => format!("the claim {claim} is elsewhere, and not known"),
        Outcome::Unverified { claim } => {
            format!("the claim {claim} does not count: the provider does not say that it has verified it")
        }
        Outcome::NoMatch { values } => format!("none of {values} values is as it wants"),
    };
    let cut = if step.cut { " (values were left out: too many, or too long)" } else { "" };
    format!("{of}: {came}{cut}")
}

fn listed(items: &[String]) -> String {
    let more = items.len().saturating_sub(SHOWN);
    let shown: Vec<&str> = items.iter().take(SHOWN).map(String::as_str).collect();
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}
