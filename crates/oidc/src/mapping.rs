//! From what a provider says about a person to roles and traits, with a trace of how that came.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::OidcError;
use crate::expression::Expression;
use crate::overage::overages;
use crate::path::{Found, Path};
use crate::template::Template;

/// A text with `*` for any characters, none too. Case counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Default for Pattern {
    /// Any text.
    fn default() -> Self {
        Self("*".to_owned())
    }
}

impl Pattern {
    /// A pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Whether every text is as it says.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0 == "*"
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
    #[serde(default)]
    pub value: Pattern,
    /// What a value has to be besides, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<Expression>,
    /// The roles. A role may have claims in it.
    pub roles: Vec<Template>,
}

/// A rule of a trait: a person with a value like this at a path has these values of the trait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraitRule {
    /// Where to look.
    pub claim: Path,
    /// What to look for; any value will do where it is left out.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub value: Pattern,
    /// What a value has to be besides, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<Expression>,
    /// The trait's values, which may have claims in them. Without any these are the claim's values that are as the rule wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Template>,
}

/// What values of a trait come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TraitSource {
    /// A template, which gives values to each person who has its claims.
    Template(Template),
    /// A rule.
    Rule(TraitRule),
}

/// How claims become roles and traits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The rules, all of which are looked at.
    #[serde(default)]
    pub roles: Vec<Rule>,
    /// Traits by name, each with the templates and rules that its values come from, all of which are looked at.
    #[serde(default)]
    pub traits: BTreeMap<String, Vec<TraitSource>>,
}

/// What a rule, or a template of a trait, came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It gave these.
    Hit {
        /// The values that were as the rule wants; none of a template.
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
    /// The rule, by its place among those of the roles or of the trait from 1 on; none for a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The trait; none for a rule that gives roles.
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
        let rules = self.roles.iter().map(|rule| (&rule.claim, &rule.roles));
        let sources = || self.traits.values().flatten();
        let of_traits = sources().filter_map(|source| match source {
            TraitSource::Rule(rule) => Some((&rule.claim, &rule.values)),
            TraitSource::Template(_) => None,
        });
        let templates = sources().filter_map(|source| match source {
            TraitSource::Template(template) => Some(template),
            TraitSource::Rule(_) => None,
        });
        let mut claims: BTreeSet<&str> = templates.flat_map(Template::claims).collect();
        for (claim, given) in rules.chain(of_traits) {
            claims.insert(claim.claim());
            claims.extend(given.iter().flat_map(Template::claims));
        }
        claims
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
        for (name, sources) in &self.traits {
            for (at, source) in sources.iter().enumerate() {
                let (rule, from, (outcome, cut)) = match source {
                    TraitSource::Template(template) => {
                        (None, template.to_string(), claims.rendered(template))
                    }
                    TraitSource::Rule(rule) => (Some(at + 1), rule.claim.to_string(), rule.apply(claims)),
                };
                if let Outcome::Hit { gave, .. } = &outcome
                    && !gave.is_empty()
                {
                    mapped.traits.entry(name.clone()).or_default().extend(gave.iter().cloned());
                }
                mapped.trace.push(Step { rule, named: Some(name.clone()), from, outcome, cut });
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
        let (matched, cut) = match claims.matching(&self.claim, &self.value, self.matches.as_ref()) {
            Ok(found) => found,
            Err(none) => return none,
        };
        claims.given(matched, &self.roles, cut)
    }
}

impl TraitRule {
    fn apply(&self, claims: &Claims<'_>) -> (Outcome, bool) {
        let (matched, cut) = match claims.matching(&self.claim, &self.value, self.matches.as_ref()) {
            Ok(found) => found,
            Err(none) => return none,
        };
        if self.values.is_empty() {
            return (Outcome::Hit { gave: matched.clone(), matched }, cut);
        }
        claims.given(matched, &self.values, cut)
    }
}

impl Claims<'_> {
    /// The values at a path that are as a rule wants, and whether others were left out; or why the rule is no hit.
    fn matching(
        &self,
        claim: &Path,
        value: &Pattern,
        matches: Option<&Expression>,
    ) -> Result<(Vec<String>, bool), (Outcome, bool)> {
        let (found, cut) = claim.find_bounded(self.claims);
        let values = match found {
            Found::Values(values) => values,
            Found::Nothing => return Err((self.absent(claim, None), false)),
            Found::Other(found) => return Err((self.absent(claim, Some(found)), false)),
        };
        let wanted =
            |text: &str| value.matches(text) && matches.is_none_or(|expression| expression.matches(text));
        let matched: Vec<String> = values.iter().filter(|value| wanted(value)).cloned().collect();
        match matched.is_empty() {
            true => Err((Outcome::NoMatch { values: values.len() }, cut)),
            false => Ok((matched, cut)),
        }
    }

    /// What the templates of a rule give that is a hit. One with a claim that is not there gives nothing.
    fn given(&self, matched: Vec<String>, templates: &[Template], mut cut: bool) -> (Outcome, bool) {
        let mut gave = Vec::new();
        for template in templates {
            let rendered = template.render(self.claims);
            if let Some((path, found)) = rendered.missing
                && let elsewhere @ Outcome::Elsewhere { .. } = self.absent(&path, found)
            {
                return (elsewhere, cut);
            }
            cut |= rendered.cut;
            gave.extend(rendered.texts);
        }
        (Outcome::Hit { matched, gave }, cut)
    }

    /// What a template of a trait comes to by itself.
    fn rendered(&self, template: &Template) -> (Outcome, bool) {
        let rendered = template.render(self.claims);
        let outcome = match rendered.missing {
            Some((path, found)) => self.absent(&path, found),
            None => Outcome::Hit { matched: Vec::new(), gave: rendered.texts },
        };
        (outcome, rendered.cut)
    }

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

impl<'de> Deserialize<'de> for TraitSource {
    /// A text is a template, and an object is a rule: what is wrong with one of them is told as it is.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = TraitSource;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a template, or a rule with claim and values")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<TraitSource, E> {
                Template::parse(text).map(TraitSource::Template).map_err(E::custom)
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, members: A) -> Result<TraitSource, A::Error> {
                TraitRule::deserialize(serde::de::value::MapAccessDeserializer::new(members))
                    .map(TraitSource::Rule)
            }
        }

        deserializer.deserialize_any(Either)
    }
}
