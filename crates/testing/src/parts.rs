//! What every cluster that is started here consists of: the configurations of its processes, the authority's socket, tokens and
//! pins.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The head of a process's configuration.
pub(crate) fn head(cluster: &str, data: &Path) -> String {
    format!(
        "version: v1\ncluster: {cluster}\ndata_dir: {}\nlog:\n  level: info\ndrain_timeout: 2s\n",
        data.display()
    )
}

/// Services that a process does not run.
pub(crate) fn off(services: &[&str]) -> String {
    services.iter().map(|service| format!("{service}:\n  enabled: false\n")).collect()
}

/// How a host joins, in its section.
pub(crate) fn join(token: &str, pin: &str) -> String {
    format!("  join:\n    token: {token}\n    ca_pin: {pin}\n")
}

/// `sallyport admin`, through the authority's socket.
pub(crate) fn admin(program: &Path, data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["admin", "--data-dir"]).arg(data).args(arguments);
    command
}

/// A user's `sallyport`.
pub(crate) fn client(program: &Path, home: &Path, proxy: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg("--home").arg(home).args(["--proxy", proxy]).args(arguments).env_remove("SSH_AUTH_SOCK");
    command
}

/// A login with a password on standard input.
pub(crate) fn login<'a>(user: &'a str, pin: &'a str) -> [&'a str; 8] {
    ["login", "--user", user, "--password-stdin", "--add-keys-to-agent", "no", "--ca-pin", pin]
}

/// An invitation that is accepted with a password on standard input.
pub(crate) fn signup(link: &str) -> [&str; 4] {
    ["signup", link, "--no-second-factor", "--password-stdin"]
}

/// The host CA's pin, of what `admin status --format json` says.
pub(crate) fn host_pin(status: &str) -> Option<String> {
    let status = json(status);
    let host = status.pointer("/cas")?.as_array()?.iter().find(|ca| is(ca, "/kind", &Value::from("host")))?;
    Some(host.pointer("/tls_pin")?.as_str()?.to_owned())
}

/// A text of what a command says in JSON.
pub(crate) fn text(said: &str, pointer: &str) -> Option<String> {
    json(said).pointer(pointer)?.as_str().map(str::to_owned)
}

/// Whether `admin nodes ls --format json` says that a node is online.
pub(crate) fn is_online(nodes: &str, name: &str) -> bool {
    let online =
        |node: &Value| is(node, "/name", &Value::from(name)) && is(node, "/online", &Value::from(true));
    json(nodes).as_array().is_some_and(|nodes| nodes.iter().any(online))
}

fn is(value: &Value, pointer: &str, wanted: &Value) -> bool {
    value.pointer(pointer) == Some(wanted)
}

fn json(said: &str) -> Value {
    serde_json::from_str(said).unwrap_or_default()
}
