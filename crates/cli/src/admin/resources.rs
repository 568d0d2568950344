//! Resources as YAML: `get`, `create`, `edit`, `rm`, and `lock` as a shorthand.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use clap::{Arg, ArgGroup, ArgMatches, Command};
use sallyport_access::Kind;
use sallyport_wire::convert;
use sallyport_wire::v1::{
    CreateResourceRequest, DeleteResourceRequest, GetResourceRequest, ListConnectorsRequest,
    ListResourcesRequest, Resource, UpdateResourceRequest,
};
use serde_json::json;
use time::OffsetDateTime;

use crate::authority::Authority;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::ui::{self, Format};

/// The kinds of connectors of single sign-on.
const CONNECTORS: [&str; 3] = ["oidc", "github", "gitlab"];

/// Kinds of resource, as people type them.
fn kinds() -> impl Iterator<Item = &'static str> {
    let resources = Kind::ALL.iter().map(|kind| kind.row().document);
    let others = ["lock", "login_rule", "session_policy"].into_iter().chain(CONNECTORS);
    ["role", "user", "token"].into_iter().chain(resources).chain(others)
}

#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// KIND for all of a kind, or KIND/NAME.
    what: String,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// A file with one or more YAML documents; "-" is standard input.
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Replace what is there.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Edit {
    /// KIND/NAME.
    what: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Rm {
    /// KIND/NAME.
    what: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Lock {
    #[command(flatten)]
    target: LockTarget,
    /// What the locked person reads.
    #[arg(long, default_value = "")]
    message: String,
    /// Until when; without it the lock stays until removed.
    #[arg(long, value_parser = ui::parse_duration)]
    ttl: Option<Duration>,
    /// Also what does not exist: what has that name later is kept out.
    #[arg(long)]
    force: bool,
}

impl Lock {
    /// On one target that is known by its key in a lock.
    pub(super) fn on(what: &'static str, value: String, message: String) -> Self {
        Self { target: LockTarget(Some((what, value))), message, ttl: None, force: false }
    }
}

/// What is to be locked: a switch for each kind of target, of which one is given.
#[derive(Debug, Default)]
struct LockTarget(Option<(&'static str, String)>);

impl LockTarget {
    /// The target's key in a lock, and its value.
    fn chosen(&self) -> Option<(&'static str, &str)> {
        self.0.as_ref().map(|(what, value)| (*what, value.as_str()))
    }

    /// The keys of targets in a lock.
    fn keys() -> impl Iterator<Item = &'static str> {
        let resources = Kind::ALL.iter().map(|kind| kind.row().document);
        ["user", "role", "login"].into_iter().chain(resources).chain(["login_id", "device"])
    }

    fn switch(key: &'static str) -> Arg {
        let switch = Arg::new(key).long(key).value_name("NAME");
        match (key, Kind::of_document(key)) {
            ("login", _) => switch.help("An OS login, on every node"),
            ("login_id", _) => switch.long("login-id").value_name("ID").help(
                "The certificates of one login, by its id: the audit log and sallyport admin certs show it",
            ),
            ("device", _) => switch
                .value_name("ID")
                .help("All logins from a trusted device, by its id: sallyport admin devices ls"),
            (_, Some(Kind::Node)) => switch
                .visible_alias("host")
                .help("A host of any role, by its id or its registered name: sallyport admin hosts ls"),
            (_, Some(kind)) => switch.help(format!("A {}, by its name", kind.row().word)),
            (_, None) => switch.help(format!("A {key}, by name")),
        }
    }
}

impl clap::Args for LockTarget {
    fn augment_args(command: Command) -> Command {
        let group = ArgGroup::new("target").required(true).multiple(false).args(Self::keys());
        command.args(Self::keys().map(Self::switch)).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for LockTarget {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let chosen = Self::keys().find_map(|key| Some((key, matches.get_one::<String>(key)?.clone())));
        Ok(Self(chosen))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

struct Target {
    kind: String,
    name: String,
}

fn target(what: &str) -> CliResult<Target> {
    let (kind, name) = what
        .split_once('/')
        .filter(|(kind, name)| !kind.is_empty() && !name.is_empty())
        .ok_or_else(|| {
            CliError::new(format!("{what:?} does not name a resource"))
                .hint(format!("KIND/NAME, where KIND is one of {}", kinds().collect::<Vec<_>>().join(", ")))
                .exit(Exit::Usage)
        })?;
    Ok(Target { kind: singular(kind), name: name.to_owned() })
}

/// `roles` for `role`, as people type it.
fn singular(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    kinds()
        .find(|known| kind == *known || kind.strip_suffix('s') == Some(known))
        .map_or(kind.clone(), str::to_owned)
}

async fn all(authority: &Authority, kind: &str) -> CliResult<Vec<Resource>> {
    let mut client = authority.admin();
    let mut resources = Vec::new();
    let mut after = String::new();
    loop {
        let page = client
            .list_resources(ListResourcesRequest { kind: kind.to_owned(), after, limit: 0 })
            .await
            .map_err(|status| CliError::from_status("list the resources", &status))?
            .into_inner();
        resources.extend(page.resources);
        if page.next.is_empty() {
            return Ok(resources);
        }
        after = page.next;
    }
}

/// A table of one kind: name, revision, expiry and the main facts.
pub(super) async fn list(authority: &Authority, kind: &str, format: Format) -> CliResult {
    let resources = all(authority, kind).await?;
    if format == Format::Json {
        return ui::json(&resources.iter().map(as_json).collect::<CliResult<Vec<_>>>()?);
    }
    let rows = resources
        .iter()
        .map(|resource| {
            let expires = resource.expires.as_ref().and_then(convert::time_from_proto);
            Ok(vec![
                resource.name.clone(),
                resource.revision.to_string(),
                expires.map_or("-".to_owned(), ui::timestamp),
                facts(&as_json(resource)?),
            ])
        })
        .collect::<CliResult<Vec<_>>>()?;
    ui::table(&["name", "revision", "expires", "facts"], rows, &format!("There is no {kind}."))
}

/// `key=value` of what stands directly in `spec`.
fn facts(resource: &serde_json::Value) -> String {
    let Some(spec) = resource.get("spec").and_then(serde_json::Value::as_object) else {
        return String::new();
    };
    spec.iter()
        .filter_map(|(key, value)| match value {
            serde_json::Value::String(text) => Some(format!("{key}={text}")),
            serde_json::Value::Number(number) => Some(format!("{key}={number}")),
            serde_json::Value::Bool(set) => Some(format!("{key}={set}")),
            // Who a user is at an identity provider.
            serde_json::Value::Object(person) => {
                let of = |name: &str| person.get(name).and_then(serde_json::Value::as_str);
                of("connector").zip(of("subject")).map(|(by, subject)| format!("{key}={by}/{subject}"))
            }
            serde_json::Value::Array(items) => {
                let items: Vec<&str> = items.iter().filter_map(serde_json::Value::as_str).collect();
                (!items.is_empty()).then(|| format!("{key}={}", items.join(",")))
            }
            _ => None,
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn as_json(resource: &Resource) -> CliResult<serde_json::Value> {
    // A user who may list and not read is told the names alone.
    if resource.yaml.is_empty() {
        return Ok(json!({
            "kind": resource.kind, "metadata": { "name": resource.name }, "revision": resource.revision,
        }));
    }
    let mut value: serde_json::Value = serde_saphyr::from_str(&resource.yaml).map_err(|error| {
        CliError::new(format!("{}/{} is not YAML: {error}", resource.kind, resource.name))
    })?;
    if let Some(map) = value.as_object_mut() {
        map.insert("revision".to_owned(), json!(resource.revision));
    }
    Ok(value)
}

pub(super) async fn get(authority: &Authority, args: &Get) -> CliResult {
    let resources = if args.what.contains('/') {
        let Target { kind, name } = target(&args.what)?;
        let resource = authority
            .admin()
            .get_resource(GetResourceRequest { kind, name })
            .await
            .map_err(|status| CliError::from_status("get the resource", &status))?
            .into_inner();
        vec![resource]
    } else {
        all(authority, &singular(&args.what)).await?
    };
    if args.format == Format::Json {
        return ui::json(&resources.iter().map(as_json).collect::<CliResult<Vec<_>>>()?);
    }
    for (index, resource) in resources.iter().enumerate() {
        if index > 0 {
            ui::data("---")?;
        }
        ui::data(format!("# revision {}", resource.revision))?;
        if resource.yaml.is_empty() {
            ui::data(format!("# {}/{}: no role lets you read it", resource.kind, resource.name))?;
            continue;
        }
        ui::document(resource.yaml.trim_end())?;
    }
    if resources.is_empty() {
        ui::say(format!("There is no {}.", singular(&args.what)));
    }
    Ok(())
}

/// The documents of a YAML stream, each with the number of its first line.
fn documents(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        if line.trim_end() == "---" {
            documents.push((index + 2, String::new()));
        } else if let Some((_, document)) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    let empty =
        |text: &str| text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    documents.retain(|(_, document)| !empty(document));
    documents
}

pub(super) async fn create(authority: &Authority, args: &Create) -> CliResult {
    let mut text = String::new();
    if args.file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_string(&mut text).doing("read standard input")?;
    } else {
        text = fs::read_to_string(&args.file).doing(format!("read {}", args.file.display()))?;
    }
    let file = match args.file.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => args.file.display().to_string(),
    };
    let documents = documents(&text);
    if documents.is_empty() {
        return Err(CliError::new("there is no YAML document in it").in_place(file));
    }
    for (line, document) in documents {
        let resource = authority
            .admin()
            .create_resource(CreateResourceRequest { yaml: document, replace: args.force })
            .await
            .map_err(|status| not_created(&status, &file, line))?
            .into_inner();
        ui::data(format!("{}/{} written, revision {}", resource.kind, resource.name, resource.revision))?;
        if CONNECTORS.contains(&resource.kind.as_str()) {
            say_where_browsers_come_back(authority, &resource.name).await;
        }
    }
    Ok(())
}

/// What has to stand at the provider of a connector that was written, to the letter. Where it cannot be asked, the connector is written
/// all the same.
async fn say_where_browsers_come_back(authority: &Authority, name: &str) {
    let Ok(listed) = authority.sso().list_connectors(ListConnectorsRequest {}).await else { return };
    let connectors = listed.into_inner().connectors;
    let Some(connector) = connectors.iter().find(|connector| connector.name == name) else { return };
    ui::say(format!(
        "Its provider has to know where browsers come back to, as it stands here: {}. Logins go wrong at its page until it does.",
        connector.redirect_urls.join(" and ")
    ));
}

/// Why a document was not written: which of which file.
fn not_created(status: &tonic::Status, file: &str, line: usize) -> CliError {
    let error = CliError::from_status("create the resource", status);
    // Of other things that are in the way, such as a host of the name, --force does not dispose.
    let is_there =
        status.code() == tonic::Code::AlreadyExists && status.message().ends_with("exists already");
    let error = match is_there {
        true => error.hint(format!("sallyport admin create --force -f {file}  (replaces it)")),
        false => error,
    };
    match line {
        0 | 1 => error.in_place(file),
        _ => error.in_place(format!("{file}, in the document at line {line} (its lines count from 1)")),
    }
}

pub(super) async fn edit(authority: &Authority, args: &Edit) -> CliResult {
    let Target { kind, name } = target(&args.what)?;
    let resource = authority
        .admin()
        .get_resource(GetResourceRequest { kind: kind.clone(), name: name.clone() })
        .await
        .map_err(|status| CliError::from_status("get the resource", &status))?
        .into_inner();
    let file = tempfile::Builder::new()
        .prefix(&format!("sallyport-{kind}-"))
        .suffix(".yaml")
        .tempfile()
        .doing("make a temporary file")?;
    fs::write(file.path(), &resource.yaml).doing("write the temporary file")?;
    let editor =
        std::env::var("VISUAL").or_else(|_| std::env::var("EDITOR")).unwrap_or_else(|_| "vi".to_owned());
    // Through the shell, since $EDITOR may carry arguments.
    let status = process::Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sallyport-edit")
        .arg(file.path())
        .status()
        .doing(format!("run the editor {editor:?}"))?;
    if !status.success() {
        return Err(CliError::new(format!("the editor {editor:?} failed; nothing was changed"))
            .hint("set VISUAL or EDITOR to another"));
    }
    let edited = fs::read_to_string(file.path()).doing("read the edited file")?;
    if edited == resource.yaml {
        ui::say("No change.");
        return Ok(());
    }
    let updated = authority
        .admin()
        .update_resource(UpdateResourceRequest { yaml: edited, revision: resource.revision })
        .await;
    match updated {
        Ok(resource) => {
            let resource = resource.into_inner();
            ui::data(format!("{}/{} written, revision {}", resource.kind, resource.name, resource.revision))
        }
        Err(status) => {
            let (_, kept) = file.keep().map_err(|error| error.error).doing("keep the edited file")?;
            Err(CliError::quoted(status.message()).hint(format!(
                "your edit is in {}; mend it, then: sallyport admin create --force -f {}",
                kept.display(),
                kept.display()
            )))
        }
    }
}

pub(super) async fn rm(authority: &Authority, args: &Rm) -> CliResult {
    let Target { kind, name } = target(&args.what)?;
    authority
        .admin()
        .delete_resource(DeleteResourceRequest { kind: kind.clone(), name: name.clone() })
        .await
        .map_err(|status| CliError::from_status("delete the resource", &status))?;
    ui::data(format!("{kind}/{name} deleted"))
}

pub(super) async fn lock(authority: &Authority, args: &Lock) -> CliResult {
    let (what, value) = args.target.chosen().ok_or_else(|| {
        CliError::new("no target to lock was given")
            .hint("sallyport admin lock --user NAME; sallyport admin lock --help lists the other targets")
            .exit(Exit::Usage)
    })?;
    let name: String = format!("{what}-{value}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .collect();
    let mut metadata = json!({ "name": name });
    if let (Some(ttl), Some(map)) = (args.ttl, metadata.as_object_mut()) {
        map.insert("expires".to_owned(), json!(ui::timestamp(OffsetDateTime::now_utc() + ttl)));
    }
    // JSON is YAML, and its quoting needs no care.
    let document = json!({
        "kind": "lock", "version": "v1", "metadata": metadata,
        "spec": { "target": { what: value }, "message": args.message },
    });
    let resource = write_lock(authority, document.to_string(), args.force)
        .await
        .map_err(|status| CliError::from_status("lock", &status))?;
    ui::data(format!(
        "Locked {} {value} (lock/{}). Lift it with: sallyport admin rm lock/{}",
        what.replace('_', " "),
        resource.name,
        resource.name
    ))
}

/// Makes a lock, or writes the one that is there anew.
async fn write_lock(authority: &Authority, yaml: String, force: bool) -> Result<Resource, tonic::Status> {
    let mut admin = authority.admin();
    let create = CreateResourceRequest { yaml: yaml.clone(), replace: force };
    match admin.create_resource(create).await {
        // What it names was looked for first, and is there.
        Err(status) if status.code() == tonic::Code::AlreadyExists => {
            let replace = CreateResourceRequest { yaml, replace: true };
            admin.create_resource(replace).await.map(tonic::Response::into_inner)
        }
        other => other.map(tonic::Response::into_inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_streams_come_apart() {
        let documents = documents("# note\n---\nkind: role\n---\n\nkind: lock\n");
        assert_eq!(documents, vec![(3, "kind: role\n".to_owned()), (5, "\nkind: lock\n".to_owned())]);
    }

    #[test]
    fn a_lock_is_for_one_target_of_every_kind() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            lock: Lock,
        }
        let line = |words: &[&str]| <Line as clap::Parser>::try_parse_from([&["lock"], words].concat());
        for (switch, what) in [
            ("--user", "user"),
            ("--role", "role"),
            ("--login", "login"),
            ("--node", "node"),
            ("--db", "db"),
            ("--login-id", "login_id"),
            ("--device", "device"),
        ] {
            let line = line(&[switch, "x"]).unwrap();
            assert_eq!(line.lock.target.chosen(), Some((what, "x")));
        }
        assert!(line(&["--user", "a", "--login-id", "b"]).is_err() && line(&[]).is_err());
    }

    #[test]
    fn a_document_that_is_not_written_is_named() {
        let there = tonic::Status::already_exists("role/dev exists already");
        let said = not_created(&there, "a.yaml", 1).to_string();
        assert!(said.starts_with("error: a.yaml: role/dev exists already"), "{said}");
        assert!(said.contains("try: sallyport admin create --force -f a.yaml"), "{said}");
        let wrong = tonic::Status::invalid_argument("role:2:1: a; b\nrole:3:1: c; d");
        let said = not_created(&wrong, "a.yaml", 9).to_string();
        assert!(said.starts_with("error: a.yaml, in the document at line 9"), "{said}");
        assert!(said.contains("\n  | role:3:1: c; d") && !said.contains("--force"), "{said}");
        let host = tonic::Status::already_exists("db-1 is a proxy; give this one another name");
        assert!(!not_created(&host, "a.yaml", 1).to_string().contains("--force"));
    }

    #[test]
    fn kinds_are_forgiving() {
        assert_eq!(singular("Roles"), "role");
        assert_eq!(singular("tokens"), "token");
        assert_eq!(singular("nonsense"), "nonsense");
        assert!(target("role").is_err());
        assert!(target("role/").is_err());
    }
}
