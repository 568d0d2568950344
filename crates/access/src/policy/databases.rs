//! Who may use which database, as which of its users.

use std::collections::{BTreeSet, HashMap};

use super::decidable::{AccountError, Decidable, Seeker, show_factor};
use super::engine::{Policies, Question, granting};
use super::explaining::{show_span, unfit_labels};
use super::merged::Merged;
use crate::database::{Database, DatabaseAccount, DatabaseOptions, DatabaseUserMode, check_name};
use crate::factor::SessionTarget;
use crate::limits::{Limits, RecordAt};
use crate::role::{NameMatcher, Role};
use crate::{Identity, Kind, Principal, Traits, UserName};

/// A name that no user can have, to ask whether every name is allowed.
const ANY_PROBE: &str = "\u{0}";
/// Users and names that are weighed for a list; a role that lists more is used all the same.
const MOST_CANDIDATES: usize = 64;

/// What a user may use a database as; locks aside.
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

impl Decidable for Database {
    fn act(&self, account: &DatabaseAccount) -> String {
        format!("use the database {} as {} with {}", self.name, shown(&account.user), shown(&account.name))
    }

    fn session_target(&self, account: &DatabaseAccount) -> SessionTarget {
        SessionTarget {
            account: Some(account.user.clone()),
            db_name: Some(account.name.clone()),
            ..SessionTarget::any(Kind::Database, self.name.as_str())
        }
    }

    fn question(&self, seeker: &Seeker<'_>, account: &DatabaseAccount) -> Question<'_> {
        // One's own name is open to every user where users are made; elsewhere it is a name like any other.
        let own = self.admin_user.is_some() && account.user == seeker.user.as_str();
        Question::session(Kind::Database, self.name.as_str(), &self.labels)
            .text("db_user", &account.user)
            .text("db_name", &account.name)
            .flag("own", own)
    }

    fn check(account: &DatabaseAccount) -> Result<(), AccountError> {
        check_name(&account.user).map_err(AccountError::User)?;
        check_name(&account.name).map_err(AccountError::DatabaseName)
    }

    fn options(
        &self,
        seeker: &Seeker<'_>,
        granting: &[&Role],
        merged: &Merged<'_>,
        account: &DatabaseAccount,
    ) -> DatabaseOptions {
        let mut options = merged.database();
        // Made is only a user of the caller's own name: no account of another's is changed or dropped.
        if self.admin_user.is_none() || account.user != seeker.user.as_str() {
            options.user_mode = DatabaseUserMode::Off;
        }
        options.roles = seeker.roles(granting);
        options
    }

    fn hint(&self, seeker: &Seeker<'_>) -> Option<String> {
        let DatabaseChoices { users, names, .. } = seeker.choices(self);
        (!users.is_empty())
            .then(|| format!("users you may use there: {}; names: {}", users.join(", "), names.join(", ")))
    }

    fn missing(&self, role: &Role, seeker: &Seeker<'_>, account: &DatabaseAccount) -> String {
        let own = self.admin_user.as_ref().map(|_| seeker.user);
        missing(role, own, seeker.traits, account)
    }

    fn remark(options: &DatabaseOptions) -> Option<String> {
        (options.user_mode != DatabaseUserMode::Off).then(|| {
            let roles = if options.roles.is_empty() { "none".into() } else { options.roles.join(", ") };
            format!("the user is made when it comes, with the roles {roles}")
        })
    }

    fn show(limits: &Limits, options: &DatabaseOptions) -> Vec<String> {
        let recording = match (limits.recording.at, limits.recording.sync) {
            (RecordAt::Off, _) => "off",
            (_, false) => "node",
            (_, true) => "node-sync",
        };
        vec![
            format!("create_db_user_mode {}", options.user_mode.as_str()),
            format!("record_session {}", limits.record_session.as_str()),
            format!("session_recording {recording}"),
            format!("record_db_parameters {}", options.record_parameters),
            format!("db_statement_bytes {}", options.statement_bytes),
            format!("client_idle_timeout {}", show_span(limits.client_idle_timeout)),
            format!("max_session_duration {}", show_span(limits.max_session_duration)),
            format!("disconnect_expired_cert {}", limits.disconnect_expired_cert),
            format!("device_trust {}", limits.device_trust.as_str()),
            format!("pin_source_ip {}", limits.pin_source_ip),
            format!("db_end_to_end {}", if options.end_to_end { "required" } else { "optional" }),
            format!("max_db_sessions {}", options.max_sessions),
            format!("db_unseen_sql {}", if options.refuse_unseen { "refused" } else { "allowed" }),
        ]
        .into_iter()
        .chain(show_factor(&limits.factor))
        .collect()
    }
}

impl Policies {
    /// What this identity may use a database as, locks aside.
    #[must_use]
    pub fn database_choices(&self, identity: &Identity, database: &Database) -> DatabaseChoices {
        let Principal::User { name, roles, traits, .. } = &identity.principal else {
            return DatabaseChoices::default();
        };
        let combination = self.combination(roles);
        Seeker { policies: self, combination: &combination, user: name, traits }.choices(database)
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
        let seeker = Seeker { policies: self, combination: &combination, user: name, traits };
        let mut answers: HashMap<(Vec<Option<&str>>, bool), DatabaseChoices> = HashMap::new();
        let mut visible = Vec::new();
        for database in databases {
            let labels =
                combination.labels(Kind::Database).iter().map(|label| database.labels.value(label)).collect();
            let key = (labels, database.admin_user.is_some());
            let choices = answers.entry(key).or_insert_with(|| seeker.choices(database));
            if !choices.is_empty() {
                visible.push((database, choices.clone()));
            }
        }
        visible
    }
}

impl Seeker<'_> {
    /// What the granting roles give, less what any role denies.
    fn roles(&self, granting: &[&Role]) -> Vec<String> {
        let all = |matchers: &mut dyn Iterator<Item = &NameMatcher>| -> BTreeSet<String> {
            matchers.flat_map(|one| one.names(self.traits)).map(str::to_owned).collect()
        };
        let denied = || self.combination.roles.iter().flat_map(|role| &role.role.deny.db_roles);
        if denied().any(|one| *one == NameMatcher::Any) {
            return Vec::new();
        }
        let given = all(&mut granting.iter().flat_map(|role| &role.allow.db_roles));
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
                let account = DatabaseAccount::new(user, name);
                let weighed = self.weigh(database, &account);
                if !weighed.allowed {
                    continue;
                }
                usable = true;
                usable_names.insert(name);
                if user == self.user.as_str() {
                    let granting: Vec<&Role> = granting(self.combination, &weighed).collect();
                    let granted = granting.iter().map(|role| &role.options);
                    let merged = Merged::of(granted, &self.policies.sessions.options);
                    let options = database.options(self, &granting, &merged, &account);
                    choices.user_mode = choices.user_mode.max(options.user_mode);
                    choices.roles.extend(options.roles);
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
}

fn star(name: &str) -> String {
    if name == ANY_PROBE { "*".to_owned() } else { name.to_owned() }
}

/// A name that the client chose, short and without characters that would change what a person reads.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(crate::database::NAME_BYTES).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Which part of a role's `allow` does not fit. `own` is the user's name where users are made.
fn missing(role: &Role, own: Option<&UserName>, traits: &Traits, account: &DatabaseAccount) -> String {
    let allow = &role.allow;
    let makes = role.options.create_db_user_mode.is_some_and(|mode| mode != DatabaseUserMode::Off);
    let own = own.filter(|_| makes).map(UserName::as_str);
    if allow.labels.of(Kind::Database).is_empty()
        || allow.db_names.is_empty()
        || (allow.db_users.is_empty() && !makes)
    {
        return "it grants no database".to_owned();
    }
    let unfit = |matchers: &[NameMatcher], asked: &str, more: Option<&str>| -> Option<String> {
        let names: Vec<&str> = matchers.iter().flat_map(|one| one.names(traits)).chain(more).collect();
        let fits = matchers.contains(&NameMatcher::Any) || names.contains(&asked);
        (!fits).then(|| if names.is_empty() { "none".to_owned() } else { names.join(", ") })
    };
    if let Some(users) = unfit(&allow.db_users, &account.user, own) {
        return format!("its db_users are {users}");
    }
    if let Some(names) = unfit(&allow.db_names, &account.name, None) {
        return format!("its db_names are {names}");
    }
    unfit_labels(Kind::Database, role)
}
