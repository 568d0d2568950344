//! As whom, and under which database name, a database is used from here.
//!
//! ```text
//! PROFILE/db/NAME.json   the choice
//! ```

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use sallyport_access::DatabaseName;
use serde::{Deserialize, Serialize};

use crate::error::{CliError, CliResult, Context, Exit};
use sallyport_client::profile::{DEFAULT_PORT, Stored, private_directory, write_private};

/// What `db login` has chosen for one database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Choice {
    /// The database's name in the cluster.
    pub(super) database: String,
    /// The user there.
    pub(super) db_user: String,
    /// The name of the database on its server.
    pub(super) db_name: String,
    /// The service of the service file, where one was written.
    #[serde(default)]
    pub(super) service: Option<String>,
    /// Where stock clients go, and which name they check.
    #[serde(default, rename = "way")]
    pub(super) endpoint: Option<Endpoint>,
}

/// Where stock clients go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Endpoint {
    /// The name that the proxy proves.
    pub(super) host: String,
    /// Where it is, if not where that name leads.
    #[serde(default)]
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
}

impl Endpoint {
    /// To the proxy of a login, under the name that it was logged in to by.
    pub(super) fn of(stored: &Stored) -> Self {
        let proxy = &stored.profile.proxy;
        let (host, port) = proxy.rsplit_once(':').unwrap_or((proxy, ""));
        let port = port.parse().unwrap_or(DEFAULT_PORT);
        Self { host: host.trim_matches(['[', ']']).to_owned(), address: None, port }
    }
}

/// A name that may be part of a path.
pub(super) fn parse(name: &str) -> CliResult<DatabaseName> {
    DatabaseName::new(name)
        .map_err(|error| CliError::new(error.to_string()).hint("sallyport db ls").exit(Exit::Usage))
}

pub(super) fn not_chosen(name: &str) -> CliError {
    CliError::new(format!("you are not logged in to database {name}"))
        .hint(format!("sallyport db login {name} --db-user USER --db-name DATABASE"))
        .exit(Exit::NotLoggedIn)
}

/// Where a choice is remembered.
pub(super) fn path(stored: &Stored, database: &str) -> PathBuf {
    stored.directory.join("db").join(format!("{database}.json"))
}

/// What was chosen for a database; the caller has parsed its name.
pub(super) fn find(stored: &Stored, database: &str) -> CliResult<Option<Choice>> {
    let path = path(stored, database);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).doing(format!("read {}", path.display())),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        CliError::new(format!("{} is damaged: {error}", path.display()))
            .hint(format!("sallyport db login {database} --db-user USER --db-name DATABASE"))
    })
}

/// All that was chosen, sorted by database.
pub(super) fn all(stored: &Stored) -> Vec<Choice> {
    let Ok(entries) = fs::read_dir(stored.directory.join("db")) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_suffix(".json").map(str::to_owned)
    });
    let mut chosen: Vec<Choice> =
        names.filter_map(|name| find(stored, parse(&name).ok()?.as_str()).ok().flatten()).collect();
    chosen.sort_by(|a, b| a.database.cmp(&b.database));
    chosen
}

/// Remembers a choice.
pub(super) fn save(stored: &Stored, choice: &Choice) -> CliResult {
    let text = serde_json::to_string_pretty(choice).doing("encode the choice")?;
    private_directory(&stored.directory.join("db"))?;
    Ok(write_private(&path(stored, &choice.database), &text)?)
}
