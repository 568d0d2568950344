//! A role as it is written out.

use std::collections::BTreeMap;

use serde::Serialize;
use time::format_description::well_known::Rfc3339;

use super::definition::{Role, Rules};
use super::matchers::{LoginMatcher, NameMatcher, ValueMatcher};

impl Role {
    /// The role as YAML that [`Role::parse`] reads back to the same role.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(&Document::of(self)).unwrap_or_default()
    }
}

/// The shape in which a role is written out.
#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: &'static str,
    metadata: BTreeMap<&'static str, String>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Side::is_empty")]
    allow: Side<'a>,
    #[serde(skip_serializing_if = "Side::is_empty")]
    deny: Side<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<&'static str, serde_json::Value>,
}

#[derive(Serialize)]
struct Side<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logins: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_labels: BTreeMap<&'a str, Vec<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    db_labels: BTreeMap<&'a str, Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    db_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    db_users: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    db_roles: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    join_sessions: Vec<BTreeMap<&'static str, Vec<String>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<BTreeMap<&'static str, Vec<String>>>,
}

impl Side<'_> {
    fn is_empty(&self) -> bool {
        self.logins.is_empty()
            && self.node_labels.is_empty()
            && self.db_labels.is_empty()
            && [&self.db_names, &self.db_users, &self.db_roles].iter().all(|names| names.is_empty())
            && self.join_sessions.is_empty()
            && self.rules.is_empty()
    }
}

impl<'a> Document<'a> {
    fn of(role: &'a Role) -> Self {
        let mut metadata = BTreeMap::from([("name", role.name.to_string())]);
        if !role.description.is_empty() {
            metadata.insert("description", role.description.clone());
        }
        if let Some(expires) = role.expires.and_then(|expires| expires.format(&Rfc3339).ok()) {
            metadata.insert("expires", expires);
        }
        let spec = Spec { allow: side(&role.allow), deny: side(&role.deny), options: role.options.to_map() };
        Self { kind: "role", version: "v1", metadata, spec }
    }
}

fn side(rules: &Rules) -> Side<'_> {
    let login = |matcher: &LoginMatcher| match matcher {
        LoginMatcher::Literal(login) => login.to_string(),
        LoginMatcher::Any => "*".to_owned(),
        LoginMatcher::Trait(reference) => format!("{{{{{}}}}}", reference.name()),
    };
    let names = |names: &[NameMatcher]| names.iter().map(NameMatcher::text).collect();
    Side {
        logins: rules.logins.iter().map(login).collect(),
        node_labels: label_texts(&rules.node_labels),
        db_labels: label_texts(&rules.db_labels),
        db_names: names(&rules.db_names),
        db_users: names(&rules.db_users),
        db_roles: names(&rules.db_roles),
        join_sessions: rules
            .join_sessions
            .iter()
            .map(|rule| {
                let modes = rule.modes.iter().map(|mode| mode.as_str().to_owned()).collect();
                BTreeMap::from([("roles", rule.roles.clone()), ("modes", modes)])
            })
            .collect(),
        rules: rules
            .rules
            .iter()
            .map(|rule| {
                let verbs = rule.verbs.iter().map(|verb| verb.as_str().to_owned()).collect();
                BTreeMap::from([("resources", rule.resources.clone()), ("verbs", verbs)])
            })
            .collect(),
    }
}

fn label_texts(labels: &BTreeMap<String, Vec<ValueMatcher>>) -> BTreeMap<&str, Vec<String>> {
    let texts = |values: &Vec<ValueMatcher>| values.iter().map(ValueMatcher::text).collect();
    labels.iter().map(|(key, values)| (key.as_str(), texts(values))).collect()
}
