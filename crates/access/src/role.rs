//! Roles: what people write down, checked when it is written.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::Regex;
use serde_saphyr::Spanned;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

mod names;
mod written;

use crate::options::{self, Options};
use crate::permit::JoinMode;
use crate::yaml::{self, Errors, Problems, Section, Tree};
use crate::{Login, RoleName};

pub use names::NameMatcher;
use written::Document;

/// Shortest and longest `max_session_ttl`.
pub const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(7 * 86_400));
/// Session lifetime where no role says otherwise: 12 h.
pub const DEFAULT_SESSION_TTL: Duration = Duration::from_secs(12 * 3600);
/// Sessions on one SSH connection where no role says otherwise, as OpenSSH's `MaxSessions`.
pub const DEFAULT_MAX_SESSIONS: usize = 10;

/// One role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: RoleName,
    /// For people; may be empty.
    pub description: String,
    /// When the role ends, if it does.
    pub expires: Option<OffsetDateTime>,
    /// What it grants.
    pub allow: Rules,
    /// What it takes away, whatever any role grants.
    pub deny: Rules,
    /// Limits of the sessions that it grants.
    pub options: Options,
}

/// One side of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// OS logins.
    pub logins: Vec<LoginMatcher>,
    /// For each label, the values of which one must match; every label listed must match. `'*': '*'` is every node.
    pub node_labels: BTreeMap<String, Vec<ValueMatcher>>,
    /// As `node_labels`, of databases.
    pub db_labels: BTreeMap<String, Vec<ValueMatcher>>,
    /// Databases within a database server.
    pub db_names: Vec<NameMatcher>,
    /// Users of a database server.
    pub db_users: Vec<NameMatcher>,
    /// Roles of a database server that a user gets who is made there.
    pub db_roles: Vec<NameMatcher>,
    /// Whose live sessions may be joined.
    pub join_sessions: Vec<JoinRule>,
    /// What of the API.
    pub rules: Vec<ApiRule>,
}

/// Whose live sessions may be joined, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRule {
    /// Roles of the sessions' owners, of which they have one, or `*`.
    pub roles: Vec<String>,
    /// In which modes.
    pub modes: Vec<JoinMode>,
}

/// An OS login, or a template for several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginMatcher {
    /// Exactly this account.
    Literal(Login),
    /// Every account.
    Any,
    /// Every value of a trait.
    Trait(TraitRef),
}

/// What a label's value must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueMatcher {
    /// Exactly this.
    Literal(String),
    /// With `*` for any run of characters.
    Glob(String),
    /// A regular expression over the whole value; the text includes `^` and `$`.
    Regex(String),
    /// One of the values of a trait.
    Trait(TraitRef),
}

/// A trait that a template names: `{{internal.logins}}` or `{{external.team}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraitRef(String);

impl TraitRef {
    /// The full name, such as `external.team`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The full name under which a user's trait is known to templates: `team` is `external.team`.
    #[must_use]
    pub fn full_name(key: &str) -> String {
        if key.starts_with("internal.") || key.starts_with("external.") {
            key.to_owned()
        } else {
            format!("external.{key}")
        }
    }

    fn parse(text: &str) -> Option<Result<Self, &'static str>> {
        let inner = text.strip_prefix("{{")?.strip_suffix("}}")?.trim();
        let word = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        };
        Some(match inner.split_once('.') {
            Some(("internal" | "external", name)) if word(name) => Ok(Self(inner.to_owned())),
            _ => Err("is not a trait that a template can name"),
        })
    }
}

/// A kind of resource and what may be done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRule {
    /// Kinds, or `*`.
    pub resources: Vec<String>,
    /// What may be done.
    pub verbs: Vec<Verb>,
}

/// What can be done with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the words say it")]
pub enum Verb {
    List,
    Read,
    Create,
    Update,
    Delete,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 5] = [Self::List, Self::Read, Self::Create, Self::Update, Self::Delete];

    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// The kinds of resource that rules may name.
pub const RESOURCES: [&str; 14] = [
    "access",
    "ca",
    "certificate",
    "cluster",
    "db",
    "event",
    "lock",
    "node",
    "recording",
    "role",
    "session",
    "session_policy",
    "token",
    "user",
];

/// Every user's own logins, everywhere.
pub const PRESET_ACCESS: &str = "\
kind: role
version: v1
metadata:
  name: access
  description: Log in to every node and database with one's own logins
spec:
  allow:
    logins: ['{{internal.logins}}']
    node_labels:
      '*': '*'
    db_labels:
      '*': '*'
    db_names: ['{{internal.db_names}}']
    db_users: ['{{internal.db_users}}']
  options:
    forward_agent: true
";

/// Reads the audit log and recordings.
pub const PRESET_AUDITOR: &str = "\
kind: role
version: v1
metadata:
  name: auditor
  description: Read the audit log and every recording, see live sessions
spec:
  allow:
    rules:
      - resources: [event, recording, session]
        verbs: [list, read]
";

/// Administers the cluster.
pub const PRESET_EDITOR: &str = "\
kind: role
version: v1
metadata:
  name: editor
  description: Administer everything
spec:
  allow:
    rules:
      - resources: ['*']
        verbs: ['*']
";

const TOP: &[&str] = &["kind", "version", "metadata", "spec"];
const METADATA: &[&str] = &["name", "description", "expires", "revision", "labels"];
const SPEC: &[&str] = &["allow", "deny", "options"];
const RULES: &[&str] =
    &["logins", "node_labels", "db_labels", "db_names", "db_users", "db_roles", "join_sessions", "rules"];
const RULE: &[&str] = &["resources", "verbs"];
const JOIN: &[&str] = &["roles", "modes"];

/// The name and expiry of a resource document, of which the rest is read by its kind.
pub(crate) struct Metadata {
    pub(crate) name: Option<String>,
    pub(crate) description: String,
    pub(crate) expires: Option<OffsetDateTime>,
    pub(crate) place: serde_saphyr::Location,
}

/// Reads what every resource document has on top.
pub(crate) fn metadata(top: &Section<'_>, kind: &str, problems: &mut Problems) -> Metadata {
    match top.text("kind", problems).as_deref() {
        Some(found) if found == kind => {}
        Some(found) => {
            problems.push(
                top.place("kind"),
                "kind",
                format!("{found:?} is not {kind:?}"),
                format!("write kind: {kind}"),
            );
        }
        None => problems.push(top.at(), "kind", "is missing", format!("write kind: {kind}")),
    }
    match top.text("version", problems).as_deref() {
        Some("v1") => {}
        Some(_) => {
            problems.push(top.place("version"), "version", "this release only knows v1", "write version: v1")
        }
        None => problems.push(top.at(), "version", "is missing", "write version: v1"),
    }
    let Some(section) = top.section("metadata", METADATA, problems) else {
        problems.push(top.at(), "metadata", "is missing", "write metadata: with a name below it");
        return Metadata { name: None, description: String::new(), expires: None, place: top.at() };
    };
    let name = section.text("name", problems);
    if name.is_none() && section.present("name").is_none() {
        problems.push(
            section.at(),
            "metadata.name",
            "is missing",
            "write name: and the name of the resource",
        );
    }
    let expires = section.parsed("expires", "write a time such as 2030-01-31T12:00:00Z", problems, |text| {
        OffsetDateTime::parse(text, &Rfc3339).map_err(|_| "is not a time")
    });
    let description =
        section.parsed("description", "write text", problems, |text| Ok::<_, &str>(text.to_owned()));
    Metadata { name, description: description.unwrap_or_default(), expires, place: section.place("name") }
}

impl Role {
    /// Reads a role.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        let document = yaml::parse("role", text)?;
        let mut problems = Problems::new();
        let role = Section::read(&document, "", TOP, &mut problems).and_then(|top| read(&top, &mut problems));
        problems.finish("role")?;
        role.ok_or_else(|| Errors { file: "role".to_owned(), problems: Vec::new() })
    }

    /// The role as YAML that [`Role::parse`] reads back to the same role.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(&Document::of(self)).unwrap_or_default()
    }

    /// The labels of nodes that either side looks at.
    pub(crate) fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.allow.node_labels.keys().chain(self.deny.node_labels.keys()).map(String::as_str)
    }

    /// The labels of databases that either side looks at.
    pub(crate) fn db_label_keys(&self) -> impl Iterator<Item = &str> {
        self.allow.db_labels.keys().chain(self.deny.db_labels.keys()).map(String::as_str)
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
        let side = spec.section(key, RULES, problems);
        side.map(|side| rules(&side, effect, problems)).unwrap_or_default()
    };
    let (allow, deny) = (side("allow", Effect::Allow), side("deny", Effect::Deny));
    let options = spec
        .section("options", &options::KEYS, problems)
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
    let logins = side.several("logins", LOGIN_FIX, problems, |text| match TraitRef::parse(text) {
        Some(template) => template.map(LoginMatcher::Trait).map_err(str::to_owned),
        None if text == "*" => Ok(LoginMatcher::Any),
        None if text.contains(['{', '}']) => Err("is not a whole template".to_owned()),
        None => Login::new(text).map(LoginMatcher::Literal).map_err(|error| error.to_string()),
    });
    Rules {
        logins,
        node_labels: labels(side, "node_labels", problems),
        db_labels: labels(side, "db_labels", problems),
        db_names: names::names(side, "db_names", true, problems),
        db_users: names::names(side, "db_users", true, problems),
        db_roles: names::names(side, "db_roles", effect == Effect::Deny, problems),
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

fn labels(side: &Section<'_>, key: &str, problems: &mut Problems) -> BTreeMap<String, Vec<ValueMatcher>> {
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
                    Err((message, fix)) => {
                        problems.push(item.referenced, &path, format!("{text:?}: {message}"), fix)
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

impl ValueMatcher {
    fn parse(text: &str) -> Result<Self, (String, String)> {
        if let Some(template) = TraitRef::parse(text) {
            return template.map(Self::Trait).map_err(|message| {
                (message.to_owned(), "write '{{external.NAME}}' or '{{internal.NAME}}'".to_owned())
            });
        }
        if text.starts_with('^') && text.ends_with('$') {
            return match whole_value(text) {
                Ok(_) => Ok(Self::Regex(text.to_owned())),
                Err(error) => Err((
                    format!("is not a regular expression: {}", regex_problem(&error)),
                    "mend it, or write a glob such as 'web-*'".to_owned(),
                )),
            };
        }
        if text.starts_with('^') || (text.ends_with('$') && text.len() > 1) {
            return Err((
                "looks like half a regular expression".to_owned(),
                "begin it with ^ and end it with $".to_owned(),
            ));
        }
        if text.contains("{{") || text.contains("}}") {
            return Err(("is not a whole template".to_owned(), "write '{{external.NAME}}' alone".to_owned()));
        }
        Ok(if text.contains('*') { Self::Glob(text.to_owned()) } else { Self::Literal(text.to_owned()) })
    }

    fn text(&self) -> String {
        match self {
            Self::Literal(text) | Self::Glob(text) | Self::Regex(text) => text.clone(),
            Self::Trait(reference) => format!("{{{{{}}}}}", reference.name()),
        }
    }
}

/// The expression of a label, over the whole value: `^prod|dev$` is `prod` or `dev`, and not what begins or ends so.
/// The text alone has to be an expression, or a parenthesis of it could close the group around it.
pub(crate) fn whole_value(text: &str) -> Result<Regex, regex::Error> {
    Regex::new(text)?;
    // With `(?x)` it may end in a comment, which the line break ends.
    Regex::new(&format!(r"\A(?:{text})\z")).or_else(|_| Regex::new(&format!("\\A(?:{text}\n)\\z")))
}

/// The last line of the library's drawing says what is wrong.
fn regex_problem(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or("invalid").trim().trim_start_matches("error: ").to_owned()
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
