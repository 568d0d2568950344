//! scim2-tester and its command line, against the provider behind HTTP.
//!
//! They come from PyPI, so that these are among the whole measurements, for which setup fetches them. The server's tests have the tester at
//! a proxy, too.

use std::path::PathBuf;
use std::sync::Arc;

use sallyport_scim::MemoryDirectory;
use tokio::process::Command;

use crate::server::Server;

/// Where `scim2-tester` and `scim2-cli` are installed, as a virtual environment of Python.
const ENVIRONMENT: &str = "SALLYPORT_SCIM_TESTER";

const TOKENS: &[&str] = &["first-token", "second-token"];

/// Prints a line for each check, and how many had which result.
const CHECKS: &str = r#"
import collections, sys
from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

url, token = sys.argv[1:]
client = Client(base_url=url, headers={"Authorization": f"Bearer {token}"})
results = check_server(SyncSCIMClient(client))
for result in results:
    print(result.status.name, result.title, result.resource_type or "-", (result.reason or "").replace("\n", " "))
print(dict(collections.Counter(result.status.name for result in results)))
good = {Status.SUCCESS, Status.COMPLIANT, Status.ACCEPTABLE}
sys.exit(any(result.status not in good for result in results))
"#;

fn installed(program: &str) -> PathBuf {
    let environment = std::env::var(ENVIRONMENT).unwrap_or_else(|_| {
        panic!(
            "scim2-tester is not there: `cargo xtask setup --measure` installs it for `cargo xtask test --measure`; {ENVIRONMENT} names a virtual \
             environment of Python that has it already (interop/providers/scim2.txt)"
        )
    });
    PathBuf::from(environment).join("bin").join(program)
}

/// Runs a program to its end, and shows what it wrote.
async fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(installed(program)).args(arguments).kill_on_drop(true).output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_check_of_the_tester_passes() {
    let server = Server::start(Arc::new(MemoryDirectory::new()), TOKENS).await;
    let url = format!("http://{}/scim/v2", server.address);
    let (passed, text) = run("python3", &["-c", CHECKS, &url, TOKENS[0]]).await;
    println!("{text}");
    assert!(passed && text.contains("SUCCESS search_with_attributes Group"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_provisions_with_its_token_alone() {
    let server = Server::start(Arc::new(MemoryDirectory::new()), TOKENS).await;
    let url = format!("http://{}/scim/v2", server.address);
    let scim = async |token: &str, arguments: &[&str]| {
        let header = format!("Authorization: Bearer {token}");
        run("scim", &[&["--url", &url, "--header", &header][..], arguments].concat()).await
    };
    let (passed, text) =
        scim(TOKENS[0], &["create", "user", "--user-name", "alice", "--active", "true"]).await;
    assert!(passed && text.contains("\"userName\": \"alice\""), "{text}");
    let made: serde_json::Value = serde_json::from_str(&text).unwrap();
    let id = made["id"].as_str().unwrap();
    let (passed, text) = scim(TOKENS[0], &["query", "user", "--filter", "userName eq \"ALICE\""]).await;
    assert!(passed && text.contains("\"totalResults\": 1"), "{text}");
    let (passed, text) =
        scim(TOKENS[0], &["replace", "user", "--id", id, "--user-name", "alice", "--active", "false"]).await;
    assert!(passed && text.contains("\"active\": false"), "{text}");
    // Another connector's token finds nothing of it, and what is no token nothing at all.
    let (passed, text) = scim(TOKENS[1], &["query", "user", id]).await;
    assert!(!passed || text.contains("\"404\""), "{text}");
    let (passed, text) = scim("guessed", &["query", "user", id]).await;
    assert!(!passed && text.contains("no valid bearer token"), "{text}");
    let (passed, text) = scim(TOKENS[0], &["delete", "user", id]).await;
    assert!(passed, "{text}");
}
