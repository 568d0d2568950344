//! From what a provider says about a person to roles and traits, with a trace of how that came.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::OidcError;
use crate::overage::overages;
use crate::path::{Found, Path};
use crate::template::Template;

/// A text with `*` for any characters, none too. Case counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Whether the whole value is as the pattern says. In time of the product of both lengths at most.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = value.strip_prefix(first) else { return false };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else { return rest.is_empty() };
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = rest.get(at + part.len()..).unwrap_or_default();
        }
        rest.ends_with(last)
    }
}

/// A rule: a person with a value like this at a path has these roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Where to look.
    pub claim: Path,
    /// What to look for; any value will do where it is left out.
    #[serde(default = "anything")]
    pub value: Pattern,
    /// The roles. A role may have claims in it.
    pub roles: Vec<Template>,
}

fn anything() -> Pattern {
    Pattern::new("*")
}

/// How claims become roles and traits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The rules, all of which are looked at.
    #[serde(default)]
    pub roles: Vec<Rule>,
    /// Traits by name, each with the templates that its values come from.
    #[serde(default)]
    pub traits: BTreeMap<String, Vec<Template>>,
}

/// What a rule or a trait's template came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It gave these.
    Hit {
        /// The values that were as the rule wants; none for a trait.
        matched: Vec<String>,
        /// The roles, or the trait's values.
        gave: Vec<String>,
    },
    /// The claim is not there.
    Missing {
        /// The claim.
        claim: String,
    },
    /// The claim is something that has no values, such as an object.
    NotValues {
        /// The claim.
        claim: String,
        /// What it is.
        found: &'static str,
    },
    /// The claim is elsewhere, since it was too large for the token. What it would give is not known.
    Elsewhere {
        /// The claim.
        claim: String,
        /// Where it is, if the token says so.
        endpoint: Option<String>,
    },
    /// The claim is there, and the provider does not say that it has verified it.
    Unverified {
        /// The claim.
        claim: String,
    },
    /// The claim has other values.
    NoMatch {
        /// How many.
        values: usize,
    },
}

/// One line of the trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The rule, by its place in the mapping from 1 on; none for a trait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The trait; none for a rule.
    #[serde(rename = "trait", skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The path or the template.
    pub from: String,
    /// What it came to.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whether some values were left out, since there were too many or they were too long.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// What a person gets, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Mapped {
    /// The roles.
    pub roles: BTreeSet<String>,
    /// The traits, without those that have no value.
    pub traits: BTreeMap<String, BTreeSet<String>>,
    /// Every rule and template with what it came to, in their order.
    pub trace: Vec<Step>,
}

impl Mapped {
    /// Whether a claim that was asked for is elsewhere, or was cut, so that roles may be missing. A login goes on without them only where
    /// that is wanted.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.trace.iter().any(|step| step.cut || matches!(step.outcome, Outcome::Elsewhere { .. }))
    }
}

impl Mapping {
    /// Reads one from JSON, as settings have it.
    ///
    /// # Errors
    /// [`OidcError::BadSettings`] cannot say where; [`OidcError::BadTemplate`] says which text is wrong.
    pub fn parse(json: &[u8]) -> Result<Self, OidcError> {
        serde_json::from_slice(json).map_err(|error| OidcError::BadTemplate {
            text: error.to_string(),
            reason: "the mapping cannot be read",
        })
    }

    /// The claims that it looks at, each once.
    #[must_use]
    pub fn claims(&self) -> BTreeSet<&str> {
        let rules = self.roles.iter().map(|rule| rule.claim.claim());
        let roles = self.roles.iter().flat_map(|rule| &rule.roles);
        let templates = roles.chain(self.traits.values().flatten()).flat_map(Template::claims);
        rules.chain(templates).collect()
    }

    /// What a person with these claims gets.
    #[must_use]
    pub fn apply(&self, claims: &Map<String, Value>) -> Mapped {
        self.apply_without(claims, &BTreeSet::new())
    }

    /// As [`Self::apply`] of claims out of which some were taken, since the provider does not say that it has verified them.
    #[must_use]
    pub fn apply_without(&self, claims: &Map<String, Value>, unverified: &BTreeSet<&str>) -> Mapped {
        let claims = &Claims { claims, unverified };
        let mut mapped = Mapped::default();
        for (at, rule) in self.roles.iter().enumerate() {
            let (outcome, cut) = rule.apply(claims);
            if let Outcome::Hit { gave, .. } = &outcome {
                mapped.roles.extend(gave.iter().cloned());
            }
            let from = rule.claim.to_string();
            mapped.trace.push(Step { rule: Some(at + 1), named: None, from, outcome, cut });
        }
        for (name, templates) in &self.traits {
            for template in templates {
                let rendered = template.render(claims.claims);
                let outcome = match rendered.missing {
                    Some((path, found)) => claims.absent(&path, found),
                    None => {
                        let values = mapped.traits.entry(name.clone()).or_default();
                        values.extend(rendered.texts.iter().cloned());
                        Outcome::Hit { matched: Vec::new(), gave: rendered.texts }
                    }
                };
                let (named, from) = (Some(name.clone()), template.to_string());
                mapped.trace.push(Step { rule: None, named, from, outcome, cut: rendered.cut });
            }
        }
        mapped
    }
}

/// What there is, and what was taken out.
struct Claims<'a> {
    claims: &'a Map<String, Value>,
    unverified: &'a BTreeSet<&'a str>,
}

impl Rule {
    fn apply(&self, claims: &Claims<'_>) -> (Outcome, bool) {
        let (found, mut cut) = self.claim.find_bounded(claims.claims);
        let values = match found {
            Found::Values(values) => values,
            Found::Nothing => return (claims.absent(&self.claim, None), false),
            Found::Other(found) => return (claims.absent(&self.claim, Some(found)), false),
        };
        let matched: Vec<String> = values.iter().filter(|value| self.value.matches(value)).cloned().collect();
        if matched.is_empty() {
            return (Outcome::NoMatch { values: values.len() }, cut);
        }
        let mut gave = Vec::new();
        for role in &self.roles {
            let rendered = role.render(claims.claims);
            if let Some((path, found)) = rendered.missing
                && let elsewhere @ Outcome::Elsewhere { .. } = claims.absent(&path, found)
            {
                return (elsewhere, cut);
            }
            cut |= rendered.cut;
            gave.extend(rendered.texts);
        }
        (Outcome::Hit { matched, gave }, cut)
    }
}

impl Claims<'_> {
    /// Why a path has no values.
    fn absent(&self, path: &Path, found: Option<&'static str>) -> Outcome {
        let claim = path.to_string();
        let mut elsewhere = overages(self.claims).into_iter();
        if let Some(overage) = elsewhere.find(|overage| overage.claim == path.claim()) {
            return Outcome::Elsewhere { claim, endpoint: overage.endpoint };
        }
        match found {
            Some(found) => Outcome::NotValues { claim, found },
            None if self.unverified.contains(path.claim()) => Outcome::Unverified { claim },
            None => Outcome::Missing { claim },
        }
    }
}
