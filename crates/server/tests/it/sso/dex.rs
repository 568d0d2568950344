//! Single sign-on by Dex, which does not name itself in its answers and gives each person one refresh token a client: by hand.

use std::path::PathBuf;
use std::time::Duration;

use sallyport_wire::v1::cluster_client::ClusterClient;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tonic::Code;

use super::provider::{Browser, REDIRECT, SECRET};
use super::*;
use crate::support::{PATIENCE, events, until};

/// Of `correct horse battery staple`, by bcrypt of the least cost that Dex takes.
const HASH: &str = "$2b$10$2ONtAZnev.Dwi8DkEaTGKeN9IWEieBeCQYnjfkto7XHomc3nZNEaq";

/// The program that `SALLYPORT_DEX` names, beside the sources with its pages.
fn program() -> PathBuf {
    let program = std::env::var_os("SALLYPORT_DEX").map(PathBuf::from).unwrap_or_default();
    assert!(
        program.is_file(),
        "SALLYPORT_DEX has to name Dex's executable, with the directory web of its sources beside it; CONTRIBUTING.md has the commands"
    );
    program
}

struct Dex {
    issuer: String,
    directory: tempfile::TempDir,
    process: Child,
}

impl Dex {
    async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let (issuer, directory) = (format!("http://127.0.0.1:{port}"), tempfile::tempdir().unwrap());
        let person = |id: &str, name: &str| json!({ "email": format!("{name}@example.com"), "username": name, "userID": id, "hash": HASH });
        let settings = json!({
            "issuer": issuer,
            // Its keys, too, are gone when it ends.
            "storage": { "type": "memory" },
            "web": { "http": format!("127.0.0.1:{port}") },
            "frontend": { "dir": program().with_file_name("web") },
            "oauth2": { "skipApprovalScreen": true },
            "staticClients": [{ "id": "sallyport", "secret": SECRET, "name": "Sallyport", "redirectURIs": [REDIRECT] }],
            "connectors": [{ "type": "mockCallback", "id": "mock", "name": "Mock" }],
            "enablePasswordDB": true,
            "staticPasswords": [person("1", "alice"), person("2", "bob")],
        });
        std::fs::write(directory.path().join("settings.json"), settings.to_string()).unwrap();
        let process = Self::run(directory.path(), port).await;
        Self { issuer, directory, process }
    }

    async fn run(directory: &std::path::Path, port: u16) -> Child {
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let process = Command::new(program())
            .arg("serve")
            .arg(directory.join("settings.json"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("Dex starts");
        let listening = async {
            let mut looks = tokio::time::interval(Duration::from_millis(20));
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                looks.tick().await;
            }
        };
        let told = || std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        assert!(tokio::time::timeout(PATIENCE, listening).await.is_ok(), "Dex did not start: {}", told());
        process
    }

    /// It signs by another key from now on, and knows none of the logins before.
    async fn rotate(&mut self) {
        self.process.kill().await.unwrap();
        let port = self.issuer.rsplit_once(':').unwrap().1.parse().unwrap();
        self.process = Self::run(self.directory.path(), port).await;
    }

    fn document(&self, more: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let secret = self.directory.path().join("secret");
        std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        // Dex has no preferred_username of its own passwords, and groups of connectors alone that have some.
        format!(
            "kind: oidc\nversion: v1\nmetadata: {{name: corp}}\nspec:\n  issuer: {}\n  client_id: sallyport\n  insecure_loopback: true\n  \
             client_secret_file: {}\n  scopes: [openid, profile, email, groups, offline_access]\n  redirect_urls: ['{REDIRECT}']\n  \
             username: 'dex-{{{{claims.sub}}}}'\n  provider_checks_second_factor: true\n  mapping:\n    roles:\n      - \
             {{claim: groups, value: authors, roles: [access]}}\n      - {{claim: email, value: 'alice@example.com', roles: [auditor]}}\n{more}",
            self.issuer,
            secret.display()
        )
    }
}

async fn list(user: &User) -> Result<(), Status> {
    let mut mine = ClusterClient::new(user.authority().await);
    mine.list_nodes(v1::ListNodesRequest::default()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_groups_codes_keys_and_refreshes_of_a_dex_are_as_the_guide_says() {
    let (cluster, mut dex) = (Cluster::without_node().await, Dex::start().await);
    let refresh = "  refresh: {interval: 1s, grace: 3s}\n";
    connect(&cluster, dex.document(refresh)).await;
    let pages = Pages::of(&cluster).await;

    // Groups come from what is behind it; its own passwords have none.
    let (mock, login) = pages.log_in(&mut Browser::default(), "mock").await.unwrap();
    assert_eq!(login.roles, ["access"]);
    let (_, login) = pages.log_in(&mut Browser::default(), "alice").await.unwrap();
    assert_eq!(login.roles, ["auditor"]);
    let status = pages.log_in(&mut Browser::default(), "bob").await.map(drop).unwrap_err();
    assert!(crate::support::is(&status, Code::PermissionDenied, "gives you no role here"), "{status:?}");

    // A code that was used, in another login, and an answer that came to another's address.
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let used = Browser::default().through(&away.url, "alice").await;
    assert!(!used.contains_key("iss"), "Dex names itself by now: {used:?}");
    pages.answer(&used, &away.binding).await.unwrap();
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let mut again = Browser::default().through(&away.url, "alice").await;
    again.insert("code".to_owned(), used["code"].clone());
    let status = pages.answer(&again, &away.binding).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let mut mixed = Browser::default().through(&away.url, "alice").await;
    mixed.insert("connector".to_owned(), String::new());
    assert_eq!(pages.answer(&mixed, &away.binding).await.unwrap_err().code(), Code::PermissionDenied);

    // It is asked again, by a token that is good once, and the login stands.
    let (alice, _) = pages.log_in(&mut Browser::default(), "alice").await.unwrap();
    list(&alice).await.unwrap();

    // Another login of the person takes the place of the first one's token there, so that the first ends with the grace. The others were
    // asked about several times by then, each by the token that took the place of the one before.
    let (second, _) = pages.log_in(&mut Browser::default(), "alice").await.unwrap();
    until("the first login has ended", async || list(&alice).await.err().map(drop)).await;
    list(&second).await.unwrap();
    list(&mock).await.unwrap();
    let log = std::fs::read_to_string(dex.directory.path().join("log")).unwrap();
    assert!(!log.contains("claimed twice"), "{log}");

    // Other keys; the connector, written anew, has not fetched the former ones a moment ago. The logins before are unknown there.
    dex.rotate().await;
    connect(&cluster, dex.document(&format!("{refresh}  user_lifetime: 11h\n"))).await;
    let (anew, _) = pages.log_in(&mut Browser::default(), "alice").await.unwrap();
    until("the login before has ended", async || list(&second).await.err().map(drop)).await;
    list(&anew).await.unwrap();
    let refused = events(&mut cluster.admin().await, "SP1050W").await;
    let reasons: Vec<_> = refused.iter().map(|event| event["fields"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["no_roles", "refused_by_provider", "other_address"]);
}
