//! From the document to [`Config`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sallyport_access::database::document::read_labels;
use sallyport_access::labels::{LabelError, check_set};
use sallyport_access::{
    ClusterName, Database, DatabaseName, IdError, Kind, Labels, Listed, NodeName, ResourceName,
};

use super::danger::Danger;
use super::host_port::HostPort;
use super::log::{LogConfig, LogFormat};
use super::names::check_pin;
use super::sections::{
    AuthSection, Config, HttpsFiles, JoinConfig, LabelCommand, Limits, NodeSection, ProxySection,
    SecondFactor, Secret, TunnelCarrier,
};
use super::{audit, authentication, ca_keys, crypto, lifetimes, telemetry};
use sallyport_access::yaml::{Errors as ConfigErrors, Problems, Section, parse_own};
use sallyport_protocols::spec;

const TOP: &[&str] = &[
    "version",
    "cluster",
    "data_dir",
    "log",
    "diag_addr",
    "drain_timeout",
    "crypto",
    "telemetry",
    "auth",
    "proxy",
    "node",
];
const LOG: &[&str] = &["level", "format"];
const AUTH: &[&str] = &[
    "enabled",
    "second_factor",
    "listen",
    "public_addr",
    "suite",
    "ca_keys",
    "lifetimes",
    "audit",
    "authentication",
];
const PROXY: &[&str] =
    &["enabled", "listen", "public_addr", "quic", "limits", "auth_server", "join", "https", "danger"];
const HTTPS: &[&str] = &["certificate", "key"];
const LIMITS: &[&str] = &[
    "connections",
    "connections_per_address",
    "connections_per_user",
    "handshake_timeout",
    "sessions_per_user",
];
const LABEL_COMMAND: &[&str] = &["name", "command", "period", "timeout"];
/// Labels from commands of one node.
const MOST_COMMANDS: usize = 64;
const NODE: &[&str] = &[
    "enabled",
    "name",
    "labels",
    "commands",
    "proxy_server",
    "carrier",
    "join",
    "allow_env",
    "gateway_ports",
    "native_door",
    "early_data",
    "login_records",
    "kill_orphans",
    "pam_account",
    "refuse_locked_accounts",
    "pam_session",
    "forwards_to_cluster",
    "spool_limit_mib",
    "databases",
    "pgpass",
    "check_interval",
    // What it was called while databases alone were asked.
    "database_check_interval",
    "danger",
];
/// An item of `databases`: as a document of kind `db`, with the name and the labels beside the rest. Without the agents,
/// because this is the agent, and without `admin_user`, which administrators say.
const DATABASE: &[&str] = &["name", "labels", "protocol", "address", "tls", "login"];
/// Databases of one agent's configuration.
const MOST_DATABASES: usize = 1_000;
/// Resources of one kind of the catalogue there.
const MOST_RESOURCES: usize = 1_000;
const JOIN: &[&str] = &["token", "token_file", "ca_pin"];

const ADDRESS: &str = "write an IP address and a port, such as 0.0.0.0:3080 or [::1]:3080";
const HOST_PORT: &str = "write a name and a port, such as proxy.example.com:3080";

pub(super) fn config(file: &str, text: &str) -> Result<Config, ConfigErrors> {
    let document = parse_own(file, text)?;
    let mut problems = Problems::new();
    let Some(top) = Section::read(&document, "", TOP, &mut problems) else {
        problems.finish(file)?;
        return Err(ConfigErrors { file: file.to_owned(), problems: Vec::new() });
    };
    let config = top_level(&top, &mut problems);
    problems.finish(file)?;
    config.ok_or_else(|| ConfigErrors { file: file.to_owned(), problems: Vec::new() })
}

fn top_level(top: &Section<'_>, problems: &mut Problems) -> Option<Config> {
    match top.text("version", problems).as_deref() {
        Some("v1") => {}
        Some(_) => {
            problems.push(top.place("version"), "version", "this release only knows v1", "write version: v1");
        }
        None => problems.push(top.at(), "version", "is missing", "write version: v1 at the top"),
    }
    let cluster =
        top.parsed("cluster", "write a name such as example.com", problems, |text| ClusterName::new(text));
    if cluster.is_none() && top.place("cluster") == top.at() {
        problems.push(top.at(), "cluster", "is missing", "write cluster: and the name of your installation");
    }
    let data_dir =
        top.text("data_dir", problems).map_or_else(|| PathBuf::from("/var/lib/sallyport"), PathBuf::from);
    if data_dir.is_relative() {
        problems.push(
            top.place("data_dir"),
            "data_dir",
            format!("{:?} is relative", data_dir.display().to_string()),
            "write a path that begins with /",
        );
    }
    let auth = enabled(top, "auth", AUTH, problems).map(|section| auth(&section, problems));
    let proxy =
        enabled(top, "proxy", PROXY, problems).map(|section| proxy(&section, auth.is_some(), problems));
    let resources = Kind::listed().map(|kind| kind.row().plural);
    let keys: Vec<&str> = NODE.iter().copied().chain(resources).collect();
    let node = enabled(top, "node", &keys, problems).map(|section| node(&section, proxy.is_some(), problems));
    if auth.is_none() && proxy.is_none() && node.is_none() && !broken(top) {
        problems.push(
            top.at(),
            "",
            "no service is on",
            "set enabled: true in at least one of the sections auth, proxy and node",
        );
    }
    let log = log(top, problems);
    let crypto = crypto::read(top, &data_dir, problems);
    let telemetry = telemetry::read(top, problems);
    let diag_addr = address(top, "diag_addr", problems);
    let drain_timeout = top
        .duration("drain_timeout", Duration::ZERO, Duration::from_secs(86_400), problems)
        .unwrap_or(Duration::from_secs(30));
    Some(Config {
        cluster: cluster?,
        data_dir,
        log,
        diag_addr,
        drain_timeout,
        crypto,
        telemetry,
        auth,
        proxy,
        node,
    })
}

/// Whether a service section is there at all; then its own mistakes say enough.
fn broken(top: &Section<'_>) -> bool {
    ["auth", "proxy", "node"].iter().any(|name| {
        let mut ignored = Problems::new();
        top.place(name) != top.at()
            && top.section(name, &["enabled"], &mut ignored).is_none_or(|s| s.place("enabled") == s.at())
    })
}

fn enabled<'t>(
    top: &Section<'t>,
    name: &str,
    known: &[&str],
    problems: &mut Problems,
) -> Option<Section<'t>> {
    let section = top.section(name, known, problems)?;
    match section.boolean("enabled", problems) {
        Some(true) => Some(section),
        Some(false) => None,
        // Read as if it were on, so that what else is wrong in it is told at once.
        None if section.present("enabled").is_some() => Some(section),
        None => {
            problems.push(
                section.place("enabled"),
                &section.name("enabled"),
                "is missing",
                "write enabled: true or enabled: false",
            );
            None
        }
    }
}

fn address(section: &Section<'_>, key: &str, problems: &mut Problems) -> Option<SocketAddr> {
    section.parsed(key, ADDRESS, problems, |text| {
        text.parse::<SocketAddr>().map_err(|_| match text.parse::<HostPort>() {
            Ok(_) => "is a name; this process binds to an IP address",
            Err(_) => "is not an IP address with a port",
        })
    })
}

fn host_port(section: &Section<'_>, key: &str, problems: &mut Problems) -> Option<HostPort> {
    section.parsed(key, HOST_PORT, problems, str::parse::<HostPort>)
}

fn log(top: &Section<'_>, problems: &mut Problems) -> LogConfig {
    let default = LogConfig::default();
    let Some(section) = top.section("log", LOG, problems) else { return default };
    let level = section.parsed(
        "level",
        "write error, warn, info, debug or trace, or a filter such as info,sallyport_ssh=debug",
        problems,
        |text| crate::log_filter(text).map(|_| text.to_owned()),
    );
    let format = section.choice("format", &[("text", LogFormat::Text), ("json", LogFormat::Json)], problems);
    LogConfig { level: level.unwrap_or(default.level), format: format.unwrap_or(default.format) }
}

fn auth(section: &Section<'_>, problems: &mut Problems) -> AuthSection {
    let second_factor = section
        .choice(
            "second_factor",
            &[("optional", SecondFactor::Optional), ("required", SecondFactor::Required)],
            problems,
        )
        .unwrap_or_default();
    AuthSection {
        second_factor,
        listen: address(section, "listen", problems),
        public_addr: host_port(section, "public_addr", problems),
        suite: section.parsed(
            "suite",
            "write the name of a suite, such as balanced-v1",
            problems,
            str::parse,
        ),
        ca_keys: ca_keys::read(section, problems),
        lifetimes: lifetimes::read(section, problems),
        audit: audit::read(section, problems),
        authentication: authentication::read(section, problems),
        ..AuthSection::default()
    }
}

fn https(section: &Section<'_>, problems: &mut Problems) -> Option<HttpsFiles> {
    let path = |key: &str, problems: &mut Problems| {
        let path = section.text(key, problems).map(PathBuf::from).filter(|path| path.is_absolute());
        if path.is_none() {
            problems.push(
                section.place(key),
                &section.name(key),
                "the path of a PEM file is missing or relative",
                "write certificate: and key: with paths that begin with /, or remove https",
            );
        }
        path
    };
    let (certificate, key) = (path("certificate", problems), path("key", problems));
    Some(HttpsFiles { certificate: certificate?, key: key? })
}

fn proxy(section: &Section<'_>, authority_here: bool, problems: &mut Problems) -> ProxySection {
    let default = ProxySection::default();
    let auth_server = host_port(section, "auth_server", problems);
    if auth_server.is_none() && !authority_here && section.place("auth_server") == section.at() {
        problems.push(
            section.at(),
            "proxy.auth_server",
            "is missing, and no authority runs in this process",
            "write the authority's address, such as auth.internal:3025, or enable the section auth",
        );
    }
    if auth_server.is_some() && authority_here {
        problems.push(
            section.place("auth_server"),
            "proxy.auth_server",
            "names another authority while one runs in this process",
            "remove auth_server, or disable the section auth",
        );
    }
    let limits = section.section("limits", LIMITS, problems).map_or_else(Limits::default, |section| {
        let default = Limits::default();
        Limits {
            connections: section.count("connections", 1, 1_000_000, problems).unwrap_or(default.connections),
            connections_per_address: section
                .count("connections_per_address", 1, 1_000_000, problems)
                .unwrap_or(default.connections_per_address),
            connections_per_user: section
                .count("connections_per_user", 1, 1_000_000, problems)
                .unwrap_or(default.connections_per_user),
            handshake_timeout: section
                .duration("handshake_timeout", Duration::from_millis(100), Duration::from_secs(300), problems)
                .unwrap_or(default.handshake_timeout),
            sessions_per_user: section
                .count("sessions_per_user", 1, 1_000_000, problems)
                .unwrap_or(default.sessions_per_user),
        }
    });
    let join = join(section, problems);
    needs_pin(section, &join, problems);
    let https = section.section("https", HTTPS, problems).and_then(|section| https(&section, problems));
    ProxySection {
        danger: Danger::read(section, problems),
        https,
        listen: address(section, "listen", problems).unwrap_or(default.listen),
        public_addr: section.several("public_addr", HOST_PORT, problems, str::parse::<HostPort>),
        quic: section.boolean("quic", problems).unwrap_or(default.quic),
        limits,
        auth_server,
        join,
    }
}

fn node(section: &Section<'_>, proxy_here: bool, problems: &mut Problems) -> NodeSection {
    let default = NodeSection::default();
    let proxy_server = host_port(section, "proxy_server", problems);
    if proxy_server.is_none() && !proxy_here && section.place("proxy_server") == section.at() {
        problems.push(
            section.at(),
            "node.proxy_server",
            "is missing, and no proxy runs in this process",
            "write the proxy's public address, such as proxy.example.com:3080",
        );
    }
    let join = join(section, problems);
    needs_pin(section, &join, problems);
    let labels = read_labels(section, problems);
    let allow_env = section.several("allow_env", "write names such as LANG or LC_*", problems, variable);
    NodeSection {
        name: section.parsed("name", "write a host name in lower case", problems, |text| NodeName::new(text)),
        commands: label_commands(section, &labels, problems),
        labels,
        proxy_server,
        carrier: section
            .choice(
                "carrier",
                &[("tcp", TunnelCarrier::Tcp), ("auto", TunnelCarrier::Auto), ("quic", TunnelCarrier::Quic)],
                problems,
            )
            .unwrap_or_default(),
        join,
        allow_env: if section.place("allow_env") == section.at() { default.allow_env } else { allow_env },
        native_door: section.boolean("native_door", problems).unwrap_or(default.native_door),
        early_data: section.boolean("early_data", problems).unwrap_or(default.early_data),
        login_records: section.boolean("login_records", problems).unwrap_or(default.login_records),
        kill_orphans: section.boolean("kill_orphans", problems).unwrap_or(default.kill_orphans),
        pam_account: pam_service(section, problems),
        refuse_locked_accounts: section
            .boolean("refuse_locked_accounts", problems)
            .unwrap_or(default.refuse_locked_accounts),
        pam_session: section.boolean("pam_session", problems).unwrap_or(default.pam_session),
        forwards_to_cluster: section
            .boolean("forwards_to_cluster", problems)
            .unwrap_or(default.forwards_to_cluster),
        gateway_ports: section.boolean("gateway_ports", problems).unwrap_or(default.gateway_ports),
        spool_limit_mib: section
            .count("spool_limit_mib", 16, 1_048_576, problems)
            .unwrap_or(default.spool_limit_mib),
        danger: Danger::read(section, problems),
        databases: databases(section, problems),
        resources: resources(section, problems),
        pgpass: section.parsed("pgpass", "write the path of a password file", problems, |text| {
            if text.is_empty() { Err("is empty") } else { Ok(PathBuf::from(text)) }
        }),
        check_interval: check_interval(section, problems).unwrap_or(default.check_interval),
        helper: None,
    }
}

fn check_interval(section: &Section<'_>, problems: &mut Problems) -> Option<Duration> {
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(86_400));
    let [now, before] =
        ["check_interval", "database_check_interval"].map(|key| section.duration(key, least, most, problems));
    if now.is_some() && before.is_some() {
        problems.push(
            section.place("database_check_interval"),
            &section.name("database_check_interval"),
            "is what check_interval was called before, and both are set",
            "remove it, and keep check_interval",
        );
    }
    now.or(before)
}

/// The name of a file in `/etc/pam.d`; `off` is none.
fn pam_service(section: &Section<'_>, problems: &mut Problems) -> Option<String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let service =
        section.parsed("pam_account", "write the name of a file in /etc/pam.d, or off", problems, |name| {
            let named =
                !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(fine);
            named.then(|| name.to_owned()).ok_or_else(|| format!("{name:?} is no name of a PAM service"))
        });
    let service = service.filter(|service| service != "off")?;
    if !sallyport_ssh::HAS_PAM {
        problems.push(
            section.place("pam_account"),
            &section.name("pam_account"),
            "asks for PAM, and this program was built without it",
            "build it with `cargo build --release --features pam`, or remove the key",
        );
    }
    Some(service)
}

/// Why the name of a resource, or a label's key, is not taken.
#[derive(Debug, thiserror::Error)]
enum BadName {
    #[error("is there already")]
    Taken,
    #[error("is set already")]
    Set,
    #[error(transparent)]
    Name(#[from] IdError),
    #[error(transparent)]
    Key(#[from] LabelError),
}

fn databases(section: &Section<'_>, problems: &mut Problems) -> Vec<Database> {
    let fix = "write - name: NAME with address: host:port below it";
    let read = |path: &str| std::fs::read_to_string(path);
    let mut found: Vec<Database> = Vec::new();
    for item in section.sections("databases", DATABASE, fix, problems) {
        let name =
            item.parsed("name", "write a name such as prod", problems, |text| {
                match DatabaseName::new(text) {
                    Ok(name) if found.iter().any(|other| other.name == name) => Err(BadName::Taken),
                    other => Ok(other?),
                }
            });
        if item.present("name").is_none() {
            problems.push(item.at(), &item.name("name"), "is missing", fix);
        }
        let labels = read_labels(&item, problems);
        found.extend(Database::read_settings(name, labels, &item, Some(&read), problems));
    }
    if found.len() > MOST_DATABASES {
        let message = format!("{} databases, at most {MOST_DATABASES} are allowed", found.len());
        problems.push(section.place("databases"), &section.name("databases"), message, "use several agents");
    }
    found
}

/// What an agent serves of the kinds of the catalogue: as a document's specification, with the name and the labels beside it. Without
/// the agents, because this is the agent.
fn resources(section: &Section<'_>, problems: &mut Problems) -> Vec<Listed> {
    let mut found: Vec<Listed> = Vec::new();
    for kind in Kind::listed() {
        let (Some(spec), row) = (spec(kind), kind.row()) else { continue };
        let fix = format!("write - name: NAME with {} below it", spec.keys.join(", "));
        let keys: Vec<&str> =
            ["name", "description", "labels"].into_iter().chain(spec.keys.iter().copied()).collect();
        for item in section.sections(row.plural, &keys, &fix, problems) {
            let name = item.parsed("name", "write a name such as wiki", problems, |text| {
                match ResourceName::new(text) {
                    Ok(name) if found.iter().any(|other| other.kind == kind && other.name == name) => {
                        Err(BadName::Taken)
                    }
                    other => Ok(other?),
                }
            });
            if item.present("name").is_none() {
                problems.push(item.at(), &item.name("name"), "is missing", fix.as_str());
            }
            let labels = read_labels(&item, problems);
            let description =
                item.parsed("description", "write text", problems, |text| Ok::<_, &str>(text.to_owned()));
            let read = Listed::read_settings(kind, name, labels, &item, spec, problems);
            found
                .extend(read.map(|listed| Listed { description: description.unwrap_or_default(), ..listed }));
        }
        let count = found.iter().filter(|listed| listed.kind == kind).count();
        if count > MOST_RESOURCES {
            let message = format!("{count} {}, at most {MOST_RESOURCES} are allowed", row.plural);
            problems.push(
                section.place(row.plural),
                &section.name(row.plural),
                message,
                "use several agents",
            );
        }
    }
    found
}

fn label_commands(section: &Section<'_>, labels: &Labels, problems: &mut Problems) -> Vec<LabelCommand> {
    let fix = "write - name: KEY with command: [PROGRAM, ARGUMENT] below it";
    let mut found: Vec<LabelCommand> = Vec::new();
    for section in section.sections("commands", LABEL_COMMAND, fix, problems) {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        let name = section.parsed("name", "write the label's key", problems, |text| {
            if labels.value(text).is_some() || found.iter().any(|other| other.name == text) {
                return Err(BadName::Set);
            }
            check_set(text, "")?;
            Ok(text.to_owned())
        });
        let command = section.several("command", "write [PROGRAM, ARGUMENT]", problems, |text| {
            if text.contains('\0') { Err("has a zero byte") } else { Ok(text.to_owned()) }
        });
        for key in ["name", "command"] {
            if section.present(key).is_none() {
                problems.push(section.at(), &section.name(key), "is missing", fix);
            }
        }
        if section.present("command").is_some() && command.first().is_none_or(String::is_empty) {
            problems.push(section.place("command"), &section.name("command"), "names no program", fix);
        }
        let period = section.duration("period", second, day * 30, problems);
        let timeout = section.duration("timeout", second / 10, second * 300, problems);
        found.push(LabelCommand {
            name: name.unwrap_or_default(),
            command,
            period: period.unwrap_or(second * 600),
            timeout: timeout.unwrap_or(second * 10),
        });
    }
    if found.len() > MOST_COMMANDS {
        let problem = format!("{} commands, at most {MOST_COMMANDS} are allowed", found.len());
        problems.push(section.place("commands"), &section.name("commands"), problem, "have one print more");
    }
    found
}

fn variable(text: &str) -> Result<String, &'static str> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.chars().all(fine) || name.starts_with(|c: char| c.is_ascii_digit()) || text.is_empty() {
        return Err("is not the name of an environment variable");
    }
    if name.is_empty()
        || name.starts_with("LD_")
        || matches!(name, "PATH" | "HOME" | "SHELL" | "ENV" | "BASH_ENV")
    {
        return Err("would let a client change which program runs");
    }
    Ok(text.to_owned())
}

fn join(section: &Section<'_>, problems: &mut Problems) -> JoinConfig {
    let Some(section) = section.section("join", JOIN, problems) else { return JoinConfig::default() };
    let token = section.secret(
        "token",
        "paste the token that `sallyport admin tokens add` printed",
        problems,
        |text| {
            if text.is_empty() || text.contains(char::is_whitespace) {
                return Err("is not a token");
            }
            Ok(Secret::new(text))
        },
    );
    let token_file = section.text("token_file", problems).map(PathBuf::from);
    if token.is_some() && token_file.is_some() {
        problems.push(
            section.place("token_file"),
            &section.name("token_file"),
            "token is given as well",
            "keep one of token and token_file",
        );
    }
    let ca_pin = section.parsed(
        "ca_pin",
        "paste the pin that `sallyport admin tokens add` printed, sha256: and 64 hexadecimal digits",
        problems,
        check_pin,
    );
    JoinConfig { token, token_file, ca_pin }
}

fn needs_pin(section: &Section<'_>, join: &JoinConfig, problems: &mut Problems) {
    let inner = section.section("join", JOIN, &mut Problems::new());
    let Some(inner) = inner else { return };
    if join.has_token() && join.ca_pin.is_none() && inner.place("ca_pin") == inner.at() {
        problems.push(
            inner.at(),
            &inner.name("ca_pin"),
            "is missing: without it a stranger could answer the first call and take the token",
            "paste the pin that `sallyport admin tokens add` printed next to the token",
        );
    }
}
