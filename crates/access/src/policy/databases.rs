//! Who may use which database, as which of its users.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use cedar_policy::{Context, Entity, RestrictedExpression};
use time::OffsetDateTime;

use super::{Combination, Explanation, Policies, Weighed, granting, kept_out, matched, no_role_allows, tags};
use crate::database::{Database, DatabaseOptions, DatabasePermit, DatabaseUserMode, check_name};
use crate::options;
use crate::permit::Refusal;
use crate::role::{NameMatcher, Role, TraitRef};
use crate::{DatabaseName, Identity, Lock, Principal, RoleName, Traits, UserName};

/// A name that nobody can have, to ask whether every name is allowed.
const ANY_PROBE: &str = "\u{0}";
/// Users and names that are weighed for a list; a role that lists more is used all the same.
const MOST_CANDIDATES: usize = 64;

/// What somebody may use a database as; locks aside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseChoices {
    /// Users of the database server; `*` stands for every one that is not denied. None: nothing is allowed there.
    pub users: Vec<String>,
    /// Databases within the server; `*` as above.
    pub names: Vec<String>,
    /// Roles that a user gets who is made there.
    pub roles: Vec<String>,
    /// Whether users are made.
    pub user_mode: DatabaseUserMode,
}

impl DatabaseChoices {
    /// Whether nothing is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

/// One user as the questions about databases need it.
struct Asker<'p> {
    policies: &'p Policies,
    combination: &'p Combination,
    user: &'p UserName,
    traits: &'p Traits,
}

impl Policies {
    /// The decision: may this identity use this database, as this user of its server, under this database name, now?
    ///
    /// # Errors
    /// A [`Refusal`] that names the deciding rule.
    pub fn decide_database(
        &self,
        identity: &Identity,
        database: &Database,
        db_user: &str,
        db_name: &str,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Result<DatabasePermit, Refusal> {
        let what = format!(
            "{} may not use the database {} as {} with {}",
            identity.display_name(),
            database.name,
            shown(db_user),
            shown(db_name)
        );
        let refuse = |why: String, rule| Refusal { what: what.clone(), why, rule, hint: None };
        let Principal::User { name, roles, traits, .. } = &identity.principal else {
            return Err(refuse("only users have sessions".to_owned(), None));
        };
        if let Some(refusal) = self.invalid(identity, now) {
            return Err(refusal);
        }
        if let Some(refusal) = self.locked_database(identity, &database.name, locks, now) {
            return Err(refusal);
        }
        for (text, of) in [(db_user, "user"), (db_name, "database name")] {
            check_name(text).map_err(|bad| refuse(format!("the {of} {bad}"), None))?;
        }
        let combination = self.combination(roles);
        let asker = Asker { policies: self, combination: &combination, user: name, traits };
        let weighed = asker.weigh(database, db_user, db_name);
        if !weighed.allowed {
            let mut refusal = match weighed.rules.into_iter().next() {
                Some(rule) => refuse("a role denies it".to_owned(), Some(rule)),
                None => refuse(no_role_allows(&combination, &weighed.errors), None),
            };
            refusal.hint = asker.hint(database);
            return Err(refusal);
        }
        let options = asker.options(&weighed, database, db_user);
        Ok(DatabasePermit {
            user: name.clone(),
            database: database.name.clone(),
            db_user: db_user.to_owned(),
            db_name: db_name.to_owned(),
            roles: asker.roles(&weighed),
            options,
            rule: weighed.rules.into_iter().next().unwrap_or_default(),
            valid_until: identity.valid_before,
        })
    }

    /// The lock that keeps this identity out of this database, if any.
    #[must_use]
    pub fn locked_database(
        &self,
        identity: &Identity,
        database: &DatabaseName,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Option<Refusal> {
        let lock = locks.iter().find(|lock| lock.covers_database(identity, database, now))?;
        Some(kept_out(identity, lock))
    }

    /// What this identity may use a database as, locks aside.
    #[must_use]
    pub fn database_choices(&self, identity: &Identity, database: &Database) -> DatabaseChoices {
        let Principal::User { name, roles, traits, .. } = &identity.principal else {
            return DatabaseChoices::default();
        };
        let combination = self.combination(roles);
        Asker { policies: self, combination: &combination, user: name, traits }.choices(database)
    }

    /// The databases that this identity may use at all, each with what it may use them as. Databases that agree in the
    /// labels which the user's roles look at share one answer, as nodes do.
    pub fn visible_databases<'d>(
        &self,
        identity: &Identity,
        databases: impl IntoIterator<Item = &'d Database>,
    ) -> Vec<(&'d Database, DatabaseChoices)> {
        let Principal::User { name, roles, traits, .. } = &identity.principal else { return Vec::new() };
        let combination = self.combination(roles);
        let asker = Asker { policies: self, combination: &combination, user: name, traits };
        let mut answers: HashMap<(Vec<Option<&str>>, bool), DatabaseChoices> = HashMap::new();
        let mut visible = Vec::new();
        for database in databases {
            let labels = combination.db_labels.iter().map(|label| database.labels.value(label)).collect();
            let key = (labels, database.admin_user.is_some());
            let choices = answers.entry(key).or_insert_with(|| asker.choices(database));
            if !choices.is_empty() {
                visible.push((database, choices.clone()));
            }
        }
        visible
    }

    /// Why an identity may or may not use a database so, with everything that was weighed.
    #[must_use]
    pub fn explain_database(
        &self,
        identity: &Identity,
        database: &Database,
        db_user: &str,
        db_name: &str,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Explanation {
        let labels = super::explaining::show_labels(&database.labels);
        let mut details = vec![format!("database {} has the labels {labels}", database.name)];
        if let Principal::User { name, roles, traits, .. } = &identity.principal {
            for (name, values) in traits {
                details.push(format!("trait {} is {}", TraitRef::full_name(name), values.join(", ")));
            }
            let combination = self.combination(roles);
            for role in &combination.roles {
                let alone = self.combination(std::slice::from_ref(&role.role.name));
                let asker = Asker { policies: self, combination: &alone, user: name, traits };
                let weighed = asker.weigh(database, db_user, db_name);
                let verdict = match (weighed.allowed, weighed.rules.first()) {
                    (true, _) => "allows it".to_owned(),
                    (false, Some(rule)) => format!("denies it: {rule}"),
                    (false, None) => {
                        let own = database.admin_user.as_ref().map(|_| name);
                        let missing = missing(&role.role, own, traits, db_user, db_name);
                        format!("does not allow it: {missing}")
                    }
                };
                details.push(format!("role \"{}\" {verdict}", role.role.name));
            }
            for role in &combination.unknown {
                details.push(format!("role \"{role}\" does not exist"));
            }
        }
        for lock in locks.iter().filter(|lock| lock.covers_database(identity, &database.name, now)) {
            details.push(format!("lock \"{}\" covers {}", lock.name, lock.target));
        }
        match self.decide_database(identity, database, db_user, db_name, locks, now) {
            Ok(permit) => {
                let mode = permit.options().user_mode;
                if mode != DatabaseUserMode::Off {
                    let roles =
                        if permit.roles().is_empty() { "none".into() } else { permit.roles().join(", ") };
                    details.push(format!("the user is made when it comes, with the roles {roles}"));
                }
                details.push(format!("options: {}", show_options(permit.options())));
                let summary = format!(
                    "{} may use the database {} as {db_user:?} with {db_name:?}: {} allows it",
                    permit.user(),
                    database.name,
                    permit.rule()
                );
                Explanation { allowed: true, summary, details }
            }
            Err(refusal) => Explanation { allowed: false, summary: refusal.public_message(), details },
        }
    }
}

impl Asker<'_> {
    fn weigh(&self, database: &Database, db_user: &str, db_name: &str) -> Weighed {
        let Self { policies, combination, .. } = self;
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        let matches =
            if combination.has_regexes { matched(combination, &database.labels) } else { Vec::new() };
        // One's own name is open to everybody where users are made; elsewhere it is a name like any other.
        let own = database.admin_user.is_some() && db_user == self.user.as_str();
        let context = Context::from_pairs([
            ("db_user".to_owned(), text(db_user)),
            ("db_name".to_owned(), text(db_name)),
            ("own".to_owned(), RestrictedExpression::new_bool(own)),
            ("matched".to_owned(), RestrictedExpression::new_set(matches)),
        ]);
        let uid = policies.uid(&policies.types.database, database.name.as_str());
        let entity = Entity::new_with_tags(uid, [], [], tags(&combination.db_labels, &database.labels));
        let (Ok(context), Ok(entity)) = (context, entity) else {
            return Weighed {
                allowed: false,
                rules: Vec::new(),
                errors: vec!["the question could not be put".to_owned()],
            };
        };
        let roles: Vec<RoleName> = combination.roles.iter().map(|role| role.role.name.clone()).collect();
        let user = policies.user_entity(self.user.as_str(), &roles, self.traits);
        policies.ask(combination, user, "connect", entity, context)
    }

    fn options(&self, weighed: &Weighed, database: &Database, db_user: &str) -> DatabaseOptions {
        let granting = granting(self.combination, weighed).map(|role| &role.options);
        let mut options = options::merge_database(granting, &self.policies.sessions.options);
        // Made is only a user of the caller's own name: nobody has an account of somebody else's changed or dropped.
        if database.admin_user.is_none() || db_user != self.user.as_str() {
            options.user_mode = DatabaseUserMode::Off;
        }
        options
    }

    /// What the granting roles give, less what any role denies.
    fn roles(&self, weighed: &Weighed) -> Vec<String> {
        let all = |matchers: &mut dyn Iterator<Item = &NameMatcher>| -> BTreeSet<String> {
            matchers.flat_map(|one| one.names(self.traits)).map(str::to_owned).collect()
        };
        let denied = || self.combination.roles.iter().flat_map(|role| &role.role.deny.db_roles);
        if denied().any(|one| *one == NameMatcher::Any) {
            return Vec::new();
        }
        let given = all(&mut granting(self.combination, weighed).flat_map(|role| &role.allow.db_roles));
        let taken = all(&mut denied());
        given.difference(&taken).filter(|role| check_name(role).is_ok()).cloned().collect()
    }

    fn choices(&self, database: &Database) -> DatabaseChoices {
        let mut users = self.candidates(|role| &role.allow.db_users);
        users.insert(self.user.to_string());
        let names = self.candidates(|role| &role.allow.db_names);
        let mut choices = DatabaseChoices::default();
        let mut usable_names = BTreeSet::new();
        for user in users.iter().map(String::as_str).chain([ANY_PROBE]) {
            let mut usable = false;
            for name in names.iter().map(String::as_str).chain([ANY_PROBE]) {
                if usable && usable_names.contains(name) {
                    continue;
                }
                let weighed = self.weigh(database, user, name);
                if !weighed.allowed {
                    continue;
                }
                usable = true;
                usable_names.insert(name);
                if user == self.user.as_str() {
                    choices.user_mode =
                        choices.user_mode.max(self.options(&weighed, database, user).user_mode);
                    choices.roles.extend(self.roles(&weighed));
                }
            }
            if usable {
                choices.users.push(star(user));
            }
        }
        choices.names = usable_names.into_iter().map(star).collect();
        for list in [&mut choices.users, &mut choices.names, &mut choices.roles] {
            list.sort_unstable();
            list.dedup();
        }
        if choices.user_mode == DatabaseUserMode::Off {
            choices.roles.clear();
        }
        choices
    }

    fn candidates<'r>(&'r self, of: impl Fn(&'r Role) -> &'r Vec<NameMatcher>) -> BTreeSet<String> {
        let matchers = self.combination.roles.iter().flat_map(|role| of(&role.role));
        let names = matchers
            .flat_map(|one| one.names(self.traits))
            .filter(|name| *name != "*" && check_name(name).is_ok());
        names.take(MOST_CANDIDATES).map(str::to_owned).collect()
    }

    fn hint(&self, database: &Database) -> Option<String> {
        let choices = self.choices(database);
        (!choices.is_empty()).then(|| {
            format!(
                "users you may use there: {}; names: {}",
                choices.users.join(", "),
                choices.names.join(", ")
            )
        })
    }
}

fn star(name: &str) -> String {
    if name == ANY_PROBE { "*".to_owned() } else { name.to_owned() }
}

/// A name of anybody's choice, short and without characters that would change what a person reads.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(crate::database::NAME_BYTES).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Which part of a role's `allow` does not fit. `own` is the user's name where users are made.
fn missing(role: &Role, own: Option<&UserName>, traits: &Traits, db_user: &str, db_name: &str) -> String {
    let allow = &role.allow;
    let makes = role.options.create_db_user_mode.is_some_and(|mode| mode != DatabaseUserMode::Off);
    let own = own.filter(|_| makes).map(UserName::as_str);
    if allow.db_labels.is_empty() || allow.db_names.is_empty() || (allow.db_users.is_empty() && !makes) {
        return "it grants no database".to_owned();
    }
    let unfit = |matchers: &[NameMatcher], asked: &str, more: Option<&str>| -> Option<String> {
        let names: Vec<&str> = matchers.iter().flat_map(|one| one.names(traits)).chain(more).collect();
        let fits = matchers.contains(&NameMatcher::Any) || names.contains(&asked);
        (!fits).then(|| if names.is_empty() { "none".to_owned() } else { names.join(", ") })
    };
    if let Some(users) = unfit(&allow.db_users, db_user, own) {
        return format!("its db_users are {users}");
    }
    if let Some(names) = unfit(&allow.db_names, db_name, None) {
        return format!("its db_names are {names}");
    }
    let labels = allow.db_labels.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!("its db_labels ({labels}) do not match")
}

fn show_options(options: &DatabaseOptions) -> String {
    let span = |span: Option<Duration>| span.map_or("none".to_owned(), crate::yaml::show);
    let recording = match (options.record, options.sync) {
        (false, _) => "off",
        (true, false) => "node",
        (true, true) => "node-sync",
    };
    [
        format!("create_db_user_mode {}", options.user_mode.as_str()),
        format!("record_session {}", options.record_session.as_str()),
        format!("session_recording {recording}"),
        format!("record_db_parameters {}", options.record_parameters),
        format!("db_statement_bytes {}", options.statement_bytes),
        format!("client_idle_timeout {}", span(options.client_idle_timeout)),
        format!("max_session_duration {}", span(options.max_session_duration)),
        format!("disconnect_expired_cert {}", options.disconnect_expired_cert),
        format!("db_end_to_end {}", if options.end_to_end { "required" } else { "optional" }),
        format!("max_db_sessions {}", options.max_sessions),
        format!("db_unseen_sql {}", if options.refuse_unseen { "refused" } else { "allowed" }),
    ]
    .join(", ")
}
