//! From roles to Cedar policies.
//!
//! Policies are built as Cedar's JSON policy format, never as text: whatever a role holds stays a value.

use std::str::FromStr;

use cedar_policy::{Policy, PolicyId};
use regex::Regex;
use serde_json::{Value, json};

use crate::database::DatabaseUserMode;
use crate::policy::{PolicyError, SchemaError};
use crate::role::{LabelRules, LoginMatcher, NameMatcher, Role, Rules, TraitRef, ValueMatcher, whole_value};
use crate::{Kind, Nature, RoleName};

/// One role, ready to be decided with.
#[derive(Debug)]
pub(crate) struct CompiledRole {
    pub(crate) role: Role,
    pub(crate) policies: Vec<Policy>,
    pub(crate) regexes: Vec<LabelRegex>,
}

/// A regular expression over one label's value. Cedar has none, so that the answer is handed in by id.
#[derive(Debug)]
pub(crate) struct LabelRegex {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) regex: Regex,
}

struct Compiler<'r> {
    role: &'r RoleName,
    policies: Vec<Policy>,
    regexes: Vec<LabelRegex>,
}

pub(crate) fn compile(role: &Role) -> Result<CompiledRole, PolicyError> {
    let mut compiler = Compiler { role: &role.name, policies: Vec::new(), regexes: Vec::new() };
    for kind in Kind::ALL {
        match kind.row().nature {
            Nature::Node => compiler.allow_nodes(&role.allow)?,
            Nature::Database => compiler.allow_databases(role)?,
            Nature::Listed => compiler.allow_listed(*kind, &role.allow)?,
        }
        compiler.deny_labels(*kind, &role.deny)?;
    }
    compiler.deny_accounts(&role.deny)?;
    for (effect, side, rules) in [("permit", "allow", &role.allow), ("forbid", "deny", &role.deny)] {
        compiler.join(effect, side, rules)?;
        compiler.api(effect, side, rules)?;
    }
    Ok(CompiledRole { role: role.clone(), policies: compiler.policies, regexes: compiler.regexes })
}

impl Compiler<'_> {
    /// Logins and labels together grant a login; either alone grants nothing.
    fn allow_nodes(&mut self, rules: &Rules) -> Result<(), PolicyError> {
        let labels = rules.labels.of(Kind::Node);
        if rules.logins.is_empty() || labels.is_empty() {
            return Ok(());
        }
        let logins = any(rules.logins.iter().map(login).collect());
        let labels = self.labels(&labels_path("allow", Kind::Node), labels)?;
        self.add("permit", "allow", &action_of(Kind::Node), None, Some(both(logins, labels)))
    }

    /// Labels alone grant what the catalogue keeps.
    fn allow_listed(&mut self, kind: Kind, rules: &Rules) -> Result<(), PolicyError> {
        let labels = rules.labels.of(kind);
        if labels.is_empty() {
            return Ok(());
        }
        let path = labels_path("allow", kind);
        let labels = self.labels(&path, labels)?;
        self.add("permit", &path, &action_of(kind), None, Some(labels))
    }

    /// The labels of a kind deny by themselves. Those of nodes also keep out of the sessions of others there.
    fn deny_labels(&mut self, kind: Kind, rules: &Rules) -> Result<(), PolicyError> {
        let labels = rules.labels.of(kind);
        if labels.is_empty() {
            return Ok(());
        }
        let path = labels_path("deny", kind);
        let labels = self.labels(&path, labels)?;
        let actions = match kind.row().nature {
            Nature::Node => json!({ "op": "in", "entities": [action(kind.row().action), action("join")] }),
            Nature::Database | Nature::Listed => action_of(kind),
        };
        self.add("forbid", &path, &actions, None, Some(labels))
    }

    /// Each login, each user of databases and each name in one denies by itself.
    fn deny_accounts(&mut self, rules: &Rules) -> Result<(), PolicyError> {
        for (index, matcher) in rules.logins.iter().enumerate() {
            let path = format!("deny.logins[{index}]");
            self.add("forbid", &path, &action_of(Kind::Node), None, Some(login(matcher)))?;
        }
        let lists = [("db_users", "db_user", &rules.db_users), ("db_names", "db_name", &rules.db_names)];
        for (key, attribute, list) in lists {
            for (index, matcher) in list.iter().enumerate() {
                let path = format!("deny.{key}[{index}]");
                self.add("forbid", &path, &action_of(Kind::Database), None, Some(name(attribute, matcher)))?;
            }
        }
        Ok(())
    }

    /// Labels, names and users together grant a database; two of them grant nothing. A role that has users made lets
    /// every user come under their own name.
    fn allow_databases(&mut self, role: &Role) -> Result<(), PolicyError> {
        let rules = &role.allow;
        let makes = role.options.create_db_user_mode.is_some_and(|mode| mode != DatabaseUserMode::Off);
        let labels = rules.labels.of(Kind::Database);
        if labels.is_empty() || rules.db_names.is_empty() || (rules.db_users.is_empty() && !makes) {
            return Ok(());
        }
        let mut users: Vec<Value> = rules.db_users.iter().map(|user| name("db_user", user)).collect();
        if makes {
            users.push(asked("own"));
        }
        let names = any(rules.db_names.iter().map(|one| name("db_name", one)).collect());
        let labels = self.labels(&labels_path("allow", Kind::Database), labels)?;
        let all = both(any(users), both(names, labels));
        self.add("permit", "allow.db", &action_of(Kind::Database), None, Some(all))
    }

    /// Whose sessions may be joined: by the owner's roles and the mode.
    fn join(&mut self, effect: &str, side: &str, rules: &Rules) -> Result<(), PolicyError> {
        for (index, rule) in rules.join_sessions.iter().enumerate() {
            let one = |attribute: &'static str, values: Vec<&str>| {
                let values = values.into_iter().map(|value| call("contains", asked(attribute), text(value)));
                any(values.collect())
            };
            let modes = one("modes", rule.modes.iter().map(|mode| mode.as_str()).collect());
            let condition = if rule.roles.iter().any(|role| role == "*") {
                modes
            } else {
                both(modes, one("owner_roles", rule.roles.iter().map(String::as_str).collect()))
            };
            let path = format!("{side}.join_sessions[{index}]");
            let join = json!({ "op": "==", "entity": action("join") });
            self.add(effect, &path, &join, None, Some(condition))?;
        }
        Ok(())
    }

    fn api(&mut self, effect: &str, side: &str, rules: &Rules) -> Result<(), PolicyError> {
        for (index, rule) in rules.rules.iter().enumerate() {
            let actions: Vec<Value> = rule.verbs.iter().map(|verb| action(verb.as_str())).collect();
            let verbs = json!({ "op": "in", "entities": actions });
            for (position, resource) in rule.resources.iter().enumerate() {
                let path = format!("{side}.rules[{index}].resources[{position}]");
                let target = (resource != "*")
                    .then(|| json!({ "op": "==", "entity": { "type": "Resource", "id": resource } }));
                self.add(effect, &path, &verbs, target, None)?;
            }
        }
        Ok(())
    }

    /// `path` is where they stand, such as `allow.node_labels`.
    fn labels(&mut self, path: &str, labels: &LabelRules) -> Result<Value, PolicyError> {
        let mut all = Vec::new();
        for (label, matchers) in labels {
            if label == "*" {
                continue;
            }
            let mut values = Vec::new();
            for (index, matcher) in matchers.iter().enumerate() {
                values.push(self.label(path, label, index, matcher)?);
            }
            all.push(both(call("hasTag", resource(), text(label)), any(values)));
        }
        Ok(all.into_iter().reduce(both).unwrap_or(json!({ "Value": true })))
    }

    fn label(
        &mut self,
        path: &str,
        label: &str,
        index: usize,
        matcher: &ValueMatcher,
    ) -> Result<Value, PolicyError> {
        let value = || call("getTag", resource(), text(label));
        Ok(match matcher {
            ValueMatcher::Literal(literal) => call("==", value(), text(literal)),
            ValueMatcher::Glob(glob) => like(value(), glob),
            ValueMatcher::Trait(reference) => trait_contains(reference, value()),
            ValueMatcher::Regex(pattern) => {
                let id = format!("{} {path}.{label}[{index}]", self.role);
                let regex =
                    whole_value(pattern).map_err(|error| PolicyError::regex(self.role, pattern, &error))?;
                self.regexes.push(LabelRegex { id: id.clone(), label: label.to_owned(), regex });
                call("contains", asked("matched"), text(&id))
            }
        })
    }

    fn add(
        &mut self,
        effect: &str,
        path: &str,
        action: &Value,
        resource: Option<Value>,
        condition: Option<Value>,
    ) -> Result<(), PolicyError> {
        let id = PolicyId::from_str(&rule_id(self.role, path)).map_err(|_| SchemaError::RuleName)?;
        let conditions: Vec<Value> =
            condition.into_iter().map(|body| json!({ "kind": "when", "body": body })).collect();
        let estimate = json!({
            "effect": effect,
            "principal": { "op": "in", "entity": { "type": "Role", "id": self.role.as_str() } },
            "action": action,
            "resource": resource.unwrap_or(json!({ "op": "All" })),
            "conditions": conditions,
        });
        let policy = Policy::from_json(Some(id), estimate).map_err(SchemaError::from)?;
        self.policies.push(policy);
        Ok(())
    }
}

/// How a rule is called in messages and in Cedar's own diagnostics: `role "dev" deny.logins[0]`.
fn rule_id(role: &RoleName, path: &str) -> String {
    format!("role \"{role}\" {path}")
}

fn action(name: &str) -> Value {
    json!({ "type": "Action", "id": name })
}

fn action_of(kind: Kind) -> Value {
    json!({ "op": "==", "entity": action(kind.row().action) })
}

/// Where the labels of a kind stand in a role, such as `allow.node_labels`.
fn labels_path(side: &str, kind: Kind) -> String {
    format!("{side}.{}", kind.row().labels)
}

/// What the question says besides who and where.
fn asked(attribute: &str) -> Value {
    json!({ ".": { "left": { "Var": "context" }, "attr": attribute } })
}

fn login(matcher: &LoginMatcher) -> Value {
    match matcher {
        LoginMatcher::Literal(login) => call("==", asked("login"), text(login.as_str())),
        LoginMatcher::Any => json!({ "Value": true }),
        LoginMatcher::Trait(reference) => trait_contains(reference, asked("login")),
    }
}

fn name(attribute: &str, matcher: &NameMatcher) -> Value {
    match matcher {
        NameMatcher::Literal(name) => call("==", asked(attribute), text(name)),
        NameMatcher::Any => json!({ "Value": true }),
        NameMatcher::Trait(reference) => trait_contains(reference, asked(attribute)),
    }
}

fn trait_contains(reference: &TraitRef, value: Value) -> Value {
    let name = || text(reference.name());
    let principal = || json!({ "Var": "principal" });
    both(call("hasTag", principal(), name()), call("contains", call("getTag", principal(), name()), value))
}

fn resource() -> Value {
    json!({ "Var": "resource" })
}

fn text(text: &str) -> Value {
    json!({ "Value": text })
}

fn call(operator: &str, left: Value, right: Value) -> Value {
    json!({ operator: { "left": left, "right": right } })
}

fn both(left: Value, right: Value) -> Value {
    call("&&", left, right)
}

fn any(values: Vec<Value>) -> Value {
    values.into_iter().reduce(|left, right| call("||", left, right)).unwrap_or(json!({ "Value": false }))
}

fn like(left: Value, glob: &str) -> Value {
    let mut pattern = Vec::new();
    for (index, part) in glob.split('*').enumerate() {
        if index > 0 {
            pattern.push(json!("Wildcard"));
        }
        if !part.is_empty() {
            pattern.push(json!({ "Literal": part }));
        }
    }
    json!({ "like": { "left": left, "pattern": pattern } })
}
