//! Databases as people write them: resource documents, and items of an agent's configuration.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Database, DatabaseLogin, DatabaseProtocol, DatabaseTls, DatabaseTlsMode, check_name};
pub use crate::document::read_labels;
use crate::document::{metadata, metadata_labels, read_document};
use crate::yaml::{Errors, Problems, Section};
use crate::{DatabaseName, Labels, NodeName};

const TOP: &[&str] = &["kind", "version", "metadata", "spec"];
/// What the specification of a database may say.
pub const SPEC: [&str; 6] = ["protocol", "address", "via", "tls", "login", "admin_user"];
const TLS: &[&str] = &["mode", "server_name", "ca", "danger"];
const TLS_WITH_FILES: &[&str] = &["mode", "server_name", "ca", "ca_file", "danger"];
const DANGER: &[&str] = &["mode"];
/// Longest bundle of CA certificates: some hundred of them.
const MOST_CA_BYTES: usize = 1 << 20;
/// Agents of one database.
const MOST_AGENTS: usize = 64;

const MODES: [(&str, DatabaseTlsMode); 2] =
    [("verify-full", DatabaseTlsMode::VerifyFull), ("verify-ca", DatabaseTlsMode::VerifyCa)];
const DANGEROUS_MODES: [(&str, DatabaseTlsMode); 2] =
    [("insecure", DatabaseTlsMode::Insecure), ("disabled", DatabaseTlsMode::Disabled)];

/// Reads the file at this path.
pub type ReadFile<'f> = &'f dyn Fn(&str) -> io::Result<String>;

/// Why `ca_file` gives no CA certificates.
#[derive(Debug, thiserror::Error)]
enum BundleFileError {
    #[error("{path}")]
    Unread { path: String, source: io::Error },
    /// The text is no bundle.
    #[error("{path} {problem}")]
    Unfit { path: String, problem: &'static str },
}

impl BundleFileError {
    /// The error with its cause, as the report of a document has it.
    fn said(self) -> String {
        match self.source() {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl Database {
    /// Reads a document of kind `db`.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        read_document("db", text, TOP, read)
    }

    /// The database as YAML that [`Database::parse`] reads back to the same database.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut metadata = BTreeMap::from([("name", json!(self.name.as_str()))]);
        let labels: BTreeMap<&str, &str> = self.labels.iter().collect();
        if !labels.is_empty() {
            metadata.insert("labels", json!(labels));
        }
        let mut spec = BTreeMap::from([("protocol", json!("postgres")), ("address", json!(self.address))]);
        if !self.agents.is_empty() {
            let agents: Vec<&str> = self.agents.iter().map(NodeName::as_str).collect();
            spec.insert("via", json!(agents));
        }
        let mut tls = BTreeMap::new();
        let name_of = |modes: &[(&'static str, DatabaseTlsMode)]| {
            modes.iter().find(|(_, mode)| *mode == self.tls.mode).map(|(name, _)| *name)
        };
        match self.tls.mode {
            DatabaseTlsMode::VerifyFull => {}
            DatabaseTlsMode::VerifyCa => drop(tls.insert("mode", json!(name_of(&MODES)))),
            _ => drop(tls.insert("danger", json!({ "mode": name_of(&DANGEROUS_MODES) }))),
        }
        if let Some(name) = &self.tls.server_name {
            tls.insert("server_name", json!(name));
        }
        if let Some(ca) = &self.tls.ca_pem {
            tls.insert("ca", json!(ca));
        }
        if !tls.is_empty() {
            spec.insert("tls", json!(tls));
        }
        if self.login == DatabaseLogin::Password {
            spec.insert("login", json!("password"));
        }
        if let Some(user) = &self.admin_user {
            spec.insert("admin_user", json!(user));
        }
        serde_saphyr::to_string(&Document { kind: "db", version: "v1", metadata, spec }).unwrap_or_default()
    }

    /// Reads what a specification says, of a document or of an item in an agent's configuration: [`SPEC`] are its keys.
    /// `files` reads a file that a configuration names; documents name none. `None` where something that is needed is
    /// missing or wrong; then `problems` has it.
    pub fn read_settings(
        name: Option<DatabaseName>,
        labels: Labels,
        spec: &Section<'_>,
        files: Option<ReadFile<'_>>,
        problems: &mut Problems,
    ) -> Option<Self> {
        let protocol = spec.choice("protocol", &[("postgres", DatabaseProtocol::Postgres)], problems);
        let address = spec.parsed("address", "write host:port, such as db.internal:5432", problems, address);
        if spec.present("address").is_none() {
            problems.push(spec.at(), &spec.name("address"), "is missing", "write address: host:port");
        }
        let agents =
            spec.several("via", "write the name of an agent's node, or a list of them", problems, |text| {
                NodeName::new(text)
            });
        if agents.len() > MOST_AGENTS {
            let message = format!("{} agents, at most {MOST_AGENTS} are allowed", agents.len());
            problems.push(spec.place("via"), &spec.name("via"), message, "name fewer");
        }
        let login = spec.choice(
            "login",
            &[("certificate", DatabaseLogin::Certificate), ("password", DatabaseLogin::Password)],
            problems,
        );
        let admin_user = spec.parsed("admin_user", "write the name of a database user", problems, |text| {
            check_name(text).map(|()| text.to_owned())
        });
        if admin_user.is_some() && login == Some(DatabaseLogin::Password) {
            problems.push(
                spec.place("admin_user"),
                &spec.name("admin_user"),
                "needs login: certificate: users that are made have no password",
                "remove admin_user, or login: password",
            );
        }
        let known = if files.is_some() { TLS_WITH_FILES } else { TLS };
        let tls = spec.section("tls", known, problems).map(|tls| read_tls(&tls, files, problems));
        Some(Self {
            name: name?,
            labels,
            protocol: protocol.unwrap_or_default(),
            address: address?,
            agents,
            tls: tls.unwrap_or_default(),
            login: login.unwrap_or_default(),
            admin_user,
        })
    }
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: &'static str,
    metadata: BTreeMap<&'a str, Value>,
    spec: BTreeMap<&'a str, Value>,
}

fn read(top: &Section<'_>, problems: &mut Problems) -> Option<Database> {
    let head = metadata(top, "db", problems);
    let name = head.name.and_then(|name| match DatabaseName::new(name) {
        Ok(name) => Some(name),
        Err(error) => {
            problems.push(head.place, "metadata.name", error.to_string(), "choose another name");
            None
        }
    });
    let labels = metadata_labels(top, problems);
    let Some(spec) = top.section("spec", &SPEC, problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with address: host:port below it");
        return None;
    };
    Database::read_settings(name, labels, &spec, None, problems)
}

fn read_tls(section: &Section<'_>, files: Option<ReadFile<'_>>, problems: &mut Problems) -> DatabaseTls {
    let mode = section.choice("mode", &MODES, problems);
    let danger = section.section("danger", DANGER, problems);
    let dangerous = danger.as_ref().and_then(|danger| danger.choice("mode", &DANGEROUS_MODES, problems));
    if mode.is_some() && dangerous.is_some() {
        problems.push(
            section.place("danger"),
            &section.name("danger"),
            "contradicts mode",
            "remove danger, and the server's certificate is checked",
        );
    }
    let host = |text: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
        if text.is_empty() || text.len() > 253 || !text.chars().all(fine) {
            return Err("is not a host name");
        }
        Ok(text.to_owned())
    };
    let ca = |text: &str| {
        if text.len() > MOST_CA_BYTES {
            return Err("is too long");
        }
        if !text.contains("-----BEGIN CERTIFICATE-----") {
            return Err("has no certificate in PEM");
        }
        Ok(text.to_owned())
    };
    let named = files.and_then(|read| {
        section.parsed("ca_file", "write the path of a file with certificates in PEM", problems, |path| {
            let path = path.to_owned();
            let bundle = match read(&path) {
                Ok(text) => ca(&text).map_err(|problem| BundleFileError::Unfit { path, problem }),
                Err(source) => Err(BundleFileError::Unread { path, source }),
            };
            bundle.map_err(BundleFileError::said)
        })
    });
    DatabaseTls {
        mode: dangerous.or(mode).unwrap_or_default(),
        server_name: section.parsed(
            "server_name",
            "write the name in the server's certificate",
            problems,
            host,
        ),
        ca_pem: named.or_else(|| section.parsed("ca", "write certificates in PEM below ca: |", problems, ca)),
    }
}

fn address(text: &str) -> Result<String, &'static str> {
    if text.contains("://") {
        return Err("is a URL: write host:port alone");
    }
    let (host, port) = text.rsplit_once(':').ok_or("has no port")?;
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err("does not end in a port number");
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let fine = match bare {
        Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !host.is_empty() && host.len() <= 253 && host.chars().all(fine)
        }
    };
    if fine { Ok(text.to_owned()) } else { Err("is not a host name or an address (IPv6 in brackets)") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "\
kind: db
version: v1
metadata: {name: prod, labels: {env: prod}}
spec:
  address: 'db.internal:5432'
  via: [db-agent, other]
  tls:
    mode: verify-ca
    server_name: db.example.com
    ca: |
      -----BEGIN CERTIFICATE-----
      AA==
      -----END CERTIFICATE-----
  admin_user: sallyport_admin
";

    #[test]
    fn a_database_survives_being_written() {
        let database = Database::parse(FULL).unwrap();
        assert_eq!(database.agents.len(), 2);
        assert_eq!(database.tls.mode, DatabaseTlsMode::VerifyCa);
        assert_eq!(Database::parse(&database.to_yaml()).unwrap(), database);
        let least = "kind: db\nversion: v1\nmetadata: {name: x}\nspec: {address: '[::1]:5432', via: a}\n";
        let least = Database::parse(least).unwrap();
        assert_eq!((least.tls.mode, least.login), (DatabaseTlsMode::VerifyFull, DatabaseLogin::Certificate));
        assert_eq!(Database::parse(&least.to_yaml()).unwrap(), least);
        let password = FULL.replace("admin_user: sallyport_admin", "login: password");
        let password = Database::parse(&password).unwrap();
        assert_eq!(password.login, DatabaseLogin::Password);
        assert_eq!(Database::parse(&password.to_yaml()).unwrap(), password);
    }

    #[test]
    fn users_that_are_made_log_in_by_certificate() {
        let told = Database::parse(&format!("{FULL}  login: password\n")).unwrap_err().to_string();
        assert!(told.contains("spec.admin_user") && told.contains("have no password"), "{told}");
    }

    #[test]
    fn nothing_is_unchecked_but_below_danger() {
        let with = |tls: &str| {
            Database::parse(&format!(
                "kind: db\nversion: v1\nmetadata: {{name: x}}\nspec: {{address: 'a:1', tls: {tls}}}\n"
            ))
        };
        assert_eq!(with("{danger: {mode: insecure}}").unwrap().tls.mode, DatabaseTlsMode::Insecure);
        assert!(with("{mode: insecure}").unwrap_err().to_string().contains("verify-full"));
        assert!(
            with("{mode: verify-ca, danger: {mode: disabled}}")
                .unwrap_err()
                .to_string()
                .contains("contradicts")
        );
        let insecure = with("{danger: {mode: insecure}}").unwrap();
        assert_eq!(Database::parse(&insecure.to_yaml()).unwrap(), insecure);
    }

    #[test]
    fn mistakes_are_told_together() {
        let text = "kind: db\nversion: v1\nmetadata: {name: Not.Fine}\nspec:\n  address: postgres://x\n  login: kerberos\n  tls: {ca: none}\n  adress: y\n";
        let told = Database::parse(text).unwrap_err().to_string();
        for part in ["metadata.name", "is a URL", "login", "no certificate in PEM", "adress"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
