//! A role as it is written out.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use super::definition::{LabelRules, Role, Rules};
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
struct Document {
    kind: &'static str,
    version: &'static str,
    metadata: BTreeMap<&'static str, String>,
    spec: Spec,
}

#[derive(Serialize)]
struct Spec {
    #[serde(skip_serializing_if = "Side::is_empty")]
    allow: Side,
    #[serde(skip_serializing_if = "Side::is_empty")]
    deny: Side,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<&'static str, Value>,
}

/// One side's keys, in the order in which they are written; none that says nothing.
struct Side(Vec<(&'static str, Value)>);

impl Side {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Side {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl Document {
    fn of(role: &Role) -> Self {
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

fn side(rules: &Rules) -> Side {
    let login = |matcher: &LoginMatcher| match matcher {
        LoginMatcher::Literal(login) => login.to_string(),
        LoginMatcher::Any => "*".to_owned(),
        LoginMatcher::Trait(reference) => format!("{{{{{}}}}}", reference.name()),
    };
    let names = |names: &[NameMatcher]| json!(names.iter().map(NameMatcher::text).collect::<Vec<_>>());
    let labels = rules.labels.iter().map(|(kind, labels)| (kind.row().labels, label_texts(labels)));
    let joins = rules.join_sessions.iter().map(|rule| {
        let modes: Vec<&str> = rule.modes.iter().map(|mode| mode.as_str()).collect();
        json!({ "modes": modes, "roles": rule.roles })
    });
    let api = rules.rules.iter().map(|rule| {
        let verbs: Vec<&str> = rule.verbs.iter().map(|verb| verb.as_str()).collect();
        json!({ "resources": rule.resources, "verbs": verbs })
    });
    let written = [("logins", json!(rules.logins.iter().map(login).collect::<Vec<_>>()))]
        .into_iter()
        .chain(labels)
        .chain([
            ("db_names", names(&rules.db_names)),
            ("db_users", names(&rules.db_users)),
            ("db_roles", names(&rules.db_roles)),
            ("join_sessions", Value::Array(joins.collect())),
            ("rules", Value::Array(api.collect())),
        ]);
    Side(written.filter(|(_, value)| value.as_array().is_none_or(|list| !list.is_empty())).collect())
}

fn label_texts(labels: &LabelRules) -> Value {
    let texts = |values: &Vec<ValueMatcher>| json!(values.iter().map(ValueMatcher::text).collect::<Vec<_>>());
    Value::Object(labels.iter().map(|(key, values)| (key.clone(), texts(values))).collect())
}
