//! Roles as people write them, read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_saphyr::Spanned;

use super::definition::{
    ApiRule, JoinRule, KindLabels, LabelRules, PRESET_ACCESS, PRESET_AUDITOR, PRESET_EDITOR, RESOURCES, Role,
    Rules, Verb,
};
use super::matchers::{LoginMatcher, MatcherError, NameMatcher, ValueMatcher};
use crate::document::{metadata, read_document};
use crate::join::JoinMode;
use crate::options;
use crate::yaml::{self, Errors, Problems, Section, Tree};
use crate::{Kind, RoleName};

const TOP: &[&str] = &["kind", "version", "metadata", "spec"];
const SPEC: &[&str] = &["allow", "deny", "options"];
const BEHIND_LABELS: [&str; 5] = ["db_names", "db_users", "db_roles", "join_sessions", "rules"];
static RULES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let labels = Kind::ALL.iter().map(|kind| kind.row().labels);
    ["logins"].into_iter().chain(labels).chain(BEHIND_LABELS).collect()
});
const RULE: &[&str] = &["resources", "verbs"];
const JOIN: &[&str] = &["roles", "modes"];

impl Role {
    /// Reads a role.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        read_document("role", text, TOP, read)
    }

    /// The roles that a cluster begins with. Who has `access` may use everything that labels alone grant.
    ///
    /// # Errors
    /// What is wrong with one: a fault of this crate.
    pub fn presets() -> Result<Vec<Self>, Errors> {
        let mut presets = Vec::new();
        for text in [PRESET_ACCESS, PRESET_AUDITOR, PRESET_EDITOR] {
            presets.push(Self::parse(text)?);
        }
        if let Some(access) = presets.first_mut() {
            access.allow.labels.and_all(Kind::listed());
        }
        Ok(presets)
    }
}

fn read(top: &Section<'_>, problems: &mut Problems) -> Option<Role> {
    let metadata = metadata(top, "role", problems);
    let name = metadata.name.and_then(|name| match RoleName::new(name) {
        Ok(name) => Some(name),
        Err(error) => {
            problems.push(metadata.place, "metadata.name", error.to_string(), "choose another name");
            None
        }
    });
    let Some(spec) = top.section("spec", SPEC, problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with allow, deny or options below it");
        return None;
    };
    let mut side = |key: &str, effect| {
        let side = spec.section(key, &RULES, problems);
        side.map(|side| rules(&side, effect, problems)).unwrap_or_default()
    };
    let (allow, deny) = (side("allow", Effect::Allow), side("deny", Effect::Deny));
    let options = spec
        .section("options", &options::keys_of_roles(), problems)
        .map(|side| options::read(&side, problems))
        .unwrap_or_default();
    Some(Role {
        name: name?,
        description: metadata.description,
        expires: metadata.expires,
        allow,
        deny,
        options,
    })
}

const LOGIN_FIX: &str = "write an account name, '*', or a template such as '{{internal.logins}}'";

/// Which side of a role is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Allow,
    Deny,
}

fn rules(side: &Section<'_>, effect: Effect, problems: &mut Problems) -> Rules {
    let logins = side.several("logins", LOGIN_FIX, problems, LoginMatcher::parse);
    Rules {
        logins,
        labels: KindLabels::new(
            Kind::ALL.iter().map(|kind| (*kind, labels(side, kind.row().labels, problems))),
        ),
        db_names: names(side, "db_names", true, problems),
        db_users: names(side, "db_users", true, problems),
        db_roles: names(side, "db_roles", effect == Effect::Deny, problems),
        join_sessions: join_rules(side, problems),
        rules: api_rules(side, problems),
    }
}

fn join_rules(side: &Section<'_>, problems: &mut Problems) -> Vec<JoinRule> {
    let sections = side.sections(
        "join_sessions",
        JOIN,
        "write - roles: [ROLE] with modes: [observer] below it",
        problems,
    );
    let mut rules = Vec::new();
    for section in sections {
        let roles = section.several("roles", "write names of roles, or '*'", problems, |text| match text {
            "*" => Ok("*".to_owned()),
            name => RoleName::new(name).map(|name| name.to_string()),
        });
        let modes = section.several("modes", "write some of observer, peer, moderator", problems, |text| {
            JoinMode::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or("no such mode")
        });
        demand(&section, JOIN, problems);
        rules.push(JoinRule { roles, modes });
    }
    rules
}

/// Every one of these keys has to be there.
fn demand(section: &Section<'_>, keys: &[&str], problems: &mut Problems) {
    for key in keys {
        if section.present(key).is_none() {
            problems.push(section.at(), &section.name(key), "is missing", format!("write {key}: [...]"));
        }
    }
}

fn labels(side: &Section<'_>, key: &str, problems: &mut Problems) -> LabelRules {
    let Some(value) = side.present(key) else { return BTreeMap::new() };
    let name = side.name(key);
    let Tree::Map(entries) = &value.value else {
        problems.push(
            value.referenced,
            &name,
            format!("expected labels, got {}", value.value.kind()),
            "write one label a line below it, such as env: [staging, prod]",
        );
        return BTreeMap::new();
    };
    let mut labels = BTreeMap::new();
    for (key, value) in entries {
        let path = yaml::join(&name, &key.value);
        let items: Vec<&Spanned<Tree>> = match &value.value {
            Tree::List(items) => items.iter().collect(),
            _ => vec![value],
        };
        let mut matchers = Vec::new();
        for item in items {
            match item.value.scalar() {
                None => problems.push(
                    item.referenced,
                    &path,
                    format!("expected a value, got {}", item.value.kind()),
                    "write a value, a glob such as 'web-*', or a regular expression such as '^web-[0-9]+$'",
                ),
                Some(text) => match ValueMatcher::parse(&text) {
                    Ok(matcher) => matchers.push(matcher),
                    Err(error) => {
                        let fix = error.value_fix();
                        problems.push(item.referenced, &path, format!("{text:?}: {error}"), fix)
                    }
                },
            }
        }
        if key.value == "*" && matchers.iter().any(|matcher| *matcher != ValueMatcher::Glob("*".to_owned())) {
            problems.push(
                key.referenced,
                &path,
                "the label '*' goes with the value '*' only",
                "write '*': '*' for every one",
            );
        }
        if matches!(&value.value, Tree::List(items) if items.is_empty()) {
            problems.push(
                value.referenced,
                &path,
                "the list is empty",
                "name a value, or leave the label away",
            );
        }
        labels.insert(key.value.clone(), matchers);
    }
    labels
}

fn api_rules(side: &Section<'_>, problems: &mut Problems) -> Vec<ApiRule> {
    let fix = "write - resources: [KIND] with verbs: [VERB] below it";
    let mut rules = Vec::new();
    for section in side.sections("rules", RULE, fix, problems) {
        let kinds = format!("write kinds of resource: {}, or '*'", RESOURCES.join(", "));
        let resources = section.several("resources", &kinds, problems, |text| {
            if text == "*" || RESOURCES.contains(&text) {
                return Ok(text.to_owned());
            }
            Err(match yaml::nearest(text, &RESOURCES) {
                Some(near) => format!("no such kind of resource, did you mean {near}"),
                None => "no such kind of resource".to_owned(),
            })
        });
        let verbs = section.several(
            "verbs",
            "write some of list, read, create, update, delete, or '*'",
            problems,
            |text| match text {
                "*" => Ok(Verb::ALL.to_vec()),
                _ => Verb::ALL
                    .into_iter()
                    .find(|verb| verb.as_str() == text)
                    .map(|verb| vec![verb])
                    .ok_or("no such verb"),
            },
        );
        demand(&section, RULE, problems);
        let mut verbs: Vec<Verb> = verbs.into_iter().flatten().collect();
        verbs.sort_unstable();
        verbs.dedup();
        rules.push(ApiRule { resources, verbs });
    }
    rules
}

/// Reads a list of names. `any` is whether `'*'` may stand in it.
fn names(side: &Section<'_>, key: &str, any: bool, problems: &mut Problems) -> Vec<NameMatcher> {
    let fix = match any {
        true => format!("write a name, '*', or a template such as '{{{{internal.{key}}}}}'"),
        false => format!("write a name, or a template such as '{{{{internal.{key}}}}}'"),
    };
    side.several(key, &fix, problems, |text| match NameMatcher::parse(text) {
        Ok(NameMatcher::Any) if !any => Err(MatcherError::EveryRole),
        parsed => parsed,
    })
}
