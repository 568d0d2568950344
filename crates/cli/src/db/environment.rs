//! How to connect, in the words of several clients: `sallyport db env` and `db config`.

use std::path::Path;

use serde_json::json;

use super::choice::{self, Choice, Endpoint};
use crate::error::{CliError, CliResult, Context, Exit};
use crate::global::Global;
use crate::ui::{self, Format};
use sallyport_client::advice::shell_word;
use sallyport_client::profile::{Stored, TLS_CA, TLS_KEY_DER};

#[derive(Debug, clap::Args)]
pub(crate) struct EnvArgs {
    /// The database. Default: the only one that you are logged in to.
    name: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// The database. Default: the only one that you are logged in to.
    name: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: ConfigFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ConfigFormat {
    /// Everything, for people and for the forms of graphical clients.
    Text,
    /// A command line of psql.
    Cmd,
    /// For programs.
    Json,
    /// A URL for JDBC.
    Jdbc,
}

/// One setting of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// As libpq calls it.
    pub(super) keyword: &'static str,
    /// The variable that libpq reads.
    variable: &'static str,
    pub(super) value: String,
}

/// What a client needs that goes to the public port by itself, with the user's certificate.
pub(super) fn settings(stored: &Stored, choice: &Choice) -> CliResult<Vec<Setting>> {
    let endpoint = choice.endpoint.clone().unwrap_or_else(|| Endpoint::of(stored));
    let directory = std::path::absolute(&stored.directory).doing("find the profile")?;
    let file = |name: &str| path_text(&directory.join(name));
    let setting = |keyword, variable, value| Setting { keyword, variable, value };
    let mut settings = vec![setting("host", "PGHOST", endpoint.host)];
    if let Some(address) = endpoint.address {
        settings.push(setting("hostaddr", "PGHOSTADDR", address.to_string()));
    }
    settings.extend([
        setting("port", "PGPORT", endpoint.port.to_string()),
        setting("user", "PGUSER", choice.db_user.clone()),
        setting("dbname", "PGDATABASE", choice.db_name.clone()),
        setting("options", "PGOPTIONS", format!("-c sallyport.database={}", choice.database)),
        setting("sslmode", "PGSSLMODE", "verify-full".to_owned()),
        setting("sslcert", "PGSSLCERT", file("tls_cert.pem")?),
        setting("sslkey", "PGSSLKEY", file("tls_key.pem")?),
        setting("sslrootcert", "PGSSLROOTCERT", file(TLS_CA)?),
    ]);
    Ok(settings)
}

fn path_text(path: &Path) -> CliResult<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        CliError::new(format!("{} is not UTF-8, which database clients need", path.display()))
            .hint("set SALLYPORT_HOME to another directory")
    })
}

pub(super) async fn env(global: &Global, args: EnvArgs) -> CliResult {
    let (stored, choice) = chosen(global, args.name.as_deref())?;
    let settings = settings(&stored, &choice)?;
    if args.format == Format::Json {
        let variables: std::collections::BTreeMap<_, _> =
            settings.iter().map(|setting| (setting.variable, &setting.value)).collect();
        return ui::json(&variables);
    }
    for Setting { variable, value, .. } in &settings {
        ui::data(format!("export {variable}={}", shell_word(value)))?;
    }
    Ok(())
}

pub(super) async fn config(global: &Global, args: ConfigArgs) -> CliResult {
    let (stored, choice) = chosen(global, args.name.as_deref())?;
    let settings = settings(&stored, &choice)?;
    match args.format {
        ConfigFormat::Cmd => ui::data(format!("psql {}", shell_word(&conninfo(&settings)))),
        ConfigFormat::Jdbc => ui::data(jdbc(&stored, &choice)?),
        ConfigFormat::Json => {
            let mut all: serde_json::Map<String, serde_json::Value> =
                settings.iter().map(|setting| (setting.keyword.to_owned(), json!(setting.value))).collect();
            all.insert("database".to_owned(), json!(choice.database));
            all.insert("service".to_owned(), json!(choice.service));
            all.insert("jdbc".to_owned(), json!(jdbc(&stored, &choice)?));
            ui::json(&all)
        }
        ConfigFormat::Text => {
            for Setting { keyword, value, .. } in &settings {
                ui::data(format!("{keyword:12} {value}"))?;
            }
            if let Some(service) = &choice.service {
                ui::data(format!("{:12} {service}", "service"))?;
            }
            ui::data(format!("{:12} psql {}", "psql", shell_word(&conninfo(&settings))))?;
            ui::data(format!("{:12} {}", "jdbc", jdbc(&stored, &choice)?))
        }
    }
}

fn chosen(global: &Global, name: Option<&str>) -> CliResult<(Stored, Choice)> {
    let stored = global.profiles().load_valid()?;
    if let Some(name) = name {
        let found = choice::find(&stored, choice::parse(name)?.as_str())?;
        return found.map(|choice| (stored, choice)).ok_or_else(|| choice::not_chosen(name));
    }
    let mut all = choice::all(&stored);
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok((stored, only)),
        (Some(_), false) => Err(CliError::new("you are logged in to several databases")
            .hint("name one; sallyport db ls shows them")
            .exit(Exit::Usage)),
        (None, _) => Err(choice::not_chosen("NAME")),
    }
}

/// libpq's `keyword=value` pairs: values with spaces or quotes between single quotes, with `\'` and `\\` inside.
fn conninfo(settings: &[Setting]) -> String {
    let pairs =
        settings.iter().map(|Setting { keyword, value, .. }| format!("{keyword}={}", conninfo_value(value)));
    pairs.collect::<Vec<_>>().join(" ")
}

/// A value of a conninfo string.
pub(super) fn conninfo_value(value: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && c != '\'' && c != '\\';
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A URL of pgjdbc. Its key is the one in DER: it takes no PEM.
fn jdbc(stored: &Stored, choice: &Choice) -> CliResult<String> {
    let endpoint = choice.endpoint.clone().unwrap_or_else(|| Endpoint::of(stored));
    let directory = std::path::absolute(&stored.directory).doing("find the profile")?;
    let file = |name: &str| path_text(&directory.join(name));
    // JDBC knows no address beside the name; where the name leads nowhere, the address it is, and its name unchecked
    // would be any user's of the cluster: it is checked, and says so.
    let host = endpoint.address.map_or(endpoint.host, |address| address.to_string());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let properties = [
        ("user", choice.db_user.clone()),
        ("options", format!("-c sallyport.database={}", choice.database)),
        ("sslmode", "verify-full".to_owned()),
        ("sslcert", file("tls_cert.pem")?),
        ("sslkey", file(TLS_KEY_DER)?),
        ("sslrootcert", file(TLS_CA)?),
        ("gssEncMode", "disable".to_owned()),
    ];
    let properties: Vec<String> =
        properties.iter().map(|(name, value)| format!("{name}={}", percent(value))).collect();
    let port = endpoint.port;
    Ok(format!("jdbc:postgresql://{host}:{port}/{}?{}", percent(&choice.db_name), properties.join("&")))
}

/// RFC 3986 §2.1, with everything but the unreserved characters encoded.
fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_each_client() {
        assert_eq!(conninfo_value("shop"), "shop");
        assert_eq!(conninfo_value("it's a \\ b"), "'it\\'s a \\\\ b'");
        assert_eq!(conninfo_value(""), "''");
        assert_eq!(shell_word("-c x=y"), "'-c x=y'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(percent("-c a=b&c"), "-c%20a%3Db%26c");
        assert_eq!(percent("/home/größe"), "/home/gr%C3%B6%C3%9Fe");
    }
}
