//! `sallyport login --browser` and `--headless`, and `sallyport mfa`, with a passkey in software. The test holds the proxy's own
//! certificate, as what serves its pages does, and plays the browser.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use sallyport_access::HostRole;
use sallyport_ca::{Trust, TrustBundle};
use sallyport_testing::authenticator::Authenticator;
use sallyport_wire::v1::web_client::WebClient;
use sallyport_wire::{alpn, v1};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::floods::{channel, tls};
use crate::support::{Cluster, PASSWORD, User, json, me, ok, refused, stdout};

const ORIGIN: &str = "https://sallyport.example.org";
const SETTINGS: &str = "  authentication:\n    webauthn:\n      rp_id: sallyport.example.org\n      origins: \
                        [https://sallyport.example.org]\n";
const BROWSER: &str = "192.0.2.7";

/// What serves the pages of the cluster's proxy.
struct Pages {
    runtime: Runtime,
    web: WebClient<Channel>,
}

impl Pages {
    fn of(cluster: &Cluster) -> Self {
        let identity = fs::read(cluster.data_dir().join("proxy/identity.json")).unwrap();
        let identity: serde_json::Value = serde_json::from_slice(&identity).unwrap();
        let bundle: TrustBundle = serde_json::from_value(identity["trust"].clone()).unwrap();
        let trust = Trust::from_bundle(&bundle).unwrap();
        let text = |name: &str| identity[name].as_str().unwrap().to_owned();
        let pair = (text("tls_chain"), text("tls_key"));
        let runtime = Runtime::new().unwrap();
        let web = runtime.block_on(async {
            let line = tls(cluster, &trust, (&pair.0, &pair.1), (alpn::AUTH, HostRole::Auth)).await;
            WebClient::new(channel(line, 1 << 20).await)
        });
        Self { runtime, web }
    }

    fn enrol(&mut self, id: &str, code: &str) -> Authenticator {
        let begun = self.runtime.block_on(self.web.begin_enrolment(begin(id, code))).unwrap();
        let mut key = Authenticator::at(ORIGIN);
        let request = v1::WebFinishEnrolmentRequest {
            id: id.to_owned(),
            address: BROWSER.to_owned(),
            response_json: key.create(&begun.into_inner().options_json),
        };
        self.runtime.block_on(self.web.finish_enrolment(request)).unwrap();
        key
    }

    /// Where the browser goes after the login; empty where it goes nowhere.
    fn log_in(&mut self, id: &str, code: &str, key: &mut Authenticator) -> String {
        let request = begin(id, code);
        let begun = self.runtime.block_on(self.web.begin_login_passkey(request)).unwrap().into_inner();
        let request = finish(id, key.get(&begun.options_json));
        self.runtime.block_on(self.web.finish_login_passkey(request)).unwrap().into_inner().redirect
    }

    fn approve(&mut self, id: &str, code: &str, key: &mut Authenticator) {
        let request = begin(id, code);
        let begun = self.runtime.block_on(self.web.begin_approval_passkey(request)).unwrap().into_inner();
        let request = finish(id, key.get(&begun.options_json));
        self.runtime.block_on(self.web.finish_approval_passkey(request)).unwrap();
    }
}

fn begin(id: &str, code: &str) -> v1::WebBeginPasskeyRequest {
    v1::WebBeginPasskeyRequest { id: id.to_owned(), address: BROWSER.to_owned(), code: code.to_owned() }
}

fn finish(id: &str, response_json: String) -> v1::WebFinishPasskeyRequest {
    v1::WebFinishPasskeyRequest { id: id.to_owned(), address: BROWSER.to_owned(), response_json }
}

/// A command that waits for a page, with what it says about it: the id in the page's address, and the code that is typed there.
fn waiting(user: &User, arguments: &[&str], page: &str, input: &str) -> (Child, String, String) {
    let mut child = user
        .command(arguments)
        .env("BROWSER", "true")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let (mut id, mut code) = (String::new(), String::new());
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    while id.is_empty() || code.is_empty() {
        let line = lines.next().expect("the command ended before it named a page").unwrap();
        if let Some((_, found)) = line.split_once(&format!("{ORIGIN}/{page}#")) {
            id = found.trim().to_owned();
        }
        if let Some((_, found)) = line.split_once("type this code there: ") {
            code = found.trim().to_owned();
        }
    }
    drop(lines);
    (child, id, code)
}

/// What a browser does that is sent to the program's port.
fn follow(redirect: &str) -> String {
    let (host, path) = redirect.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn ended(child: Child) -> std::process::Output {
    child.wait_with_output().unwrap()
}

#[test]
fn a_passkey_is_added_logs_in_here_and_elsewhere_and_makes_recovery_codes() {
    let cluster = Cluster::with_auth_settings(SETTINGS);
    let alice = cluster.add_user("alice", "access", &me());
    let mut pages = Pages::of(&cluster);

    let add = ["mfa", "add", "laptop", "--password-stdin"];
    let (child, id, code) = waiting(&alice, &add, "enrol", &format!("{PASSWORD}\n"));
    let mut key = pages.enrol(&id, &code);
    assert_eq!(stdout(&ok(ended(child))), "Added laptop.\n");
    let listed = json(&ok(alice.run(&["mfa", "ls", "--format", "json"])));
    assert_eq!(listed["factors"][0]["name"], "laptop", "{listed}");
    // The password alone is not enough any more.
    let said = refused(&alice.login(&[]), 3);
    assert!(said.contains("sallyport login --browser"), "{said}");

    let login = ["login", "--browser", "--add-keys-to-agent", "no"];
    let (child, id, code) = waiting(&alice, &login, "login", "");
    let redirect = pages.log_in(&id, &code, &mut key);
    // Any page that the person has open may ask the program's port, with a code of its making: that is no answer, and the login goes on.
    let (port, _) = redirect.split_once("/callback").unwrap();
    let other = follow(&format!("{port}/callback?code=abcdefghijklmnopqrst_-"));
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    let answer = follow(&redirect);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("close this page"), "{answer}");
    let said = stdout(&ok(ended(child)));
    assert!(said.contains("as alice for"), "{said}");
    cluster.wait_event("user.login", |event| {
        event["user"] == "alice"
            && event["fields"]["way"] == "passkey"
            && event["fields"]["factor"] == "laptop"
    });

    let login = ["login", "--headless", "--add-keys-to-agent", "no"];
    let (child, id, code) = waiting(&alice, &login, "login", "");
    assert_eq!(pages.log_in(&id, &code, &mut key), "");
    assert!(stdout(&ok(ended(child))).contains("as alice for"));

    // The page was proven by another user than the command names.
    let login = ["login", "--headless", "--user", "bob", "--add-keys-to-agent", "no"];
    let (child, id, code) = waiting(&alice, &login, "login", "");
    pages.log_in(&id, &code, &mut key);
    let said = refused(&ended(child), 4);
    assert!(said.contains("alice has logged in at the page, and not bob"), "{said}");
    // A page that another user has proven does not log in a person who was bob before, whether or not a name was given.
    let bob = cluster.add_user("bob", "access", &me());
    let (child, id, code) = waiting(&bob, &["login", "--browser"], "login", "");
    follow(&pages.log_in(&id, &code, &mut key));
    let said = refused(&ended(child), 4);
    assert!(said.contains("alice has logged in at the page, and not bob"), "{said}");

    let (child, id, code) = waiting(&alice, &["mfa", "recovery-codes", "--browser"], "approve", "");
    pages.approve(&id, &code, &mut key);
    let codes = stdout(&ok(ended(child)));
    let first = codes.lines().next().unwrap().trim().to_owned();
    assert_eq!(codes.lines().count(), 10, "{codes}");
    ok(alice.login(&["--otp", &first]));
    refused(&alice.login(&["--otp", &first]), 3);
    let second = codes.lines().nth(1).unwrap().trim();
    assert_eq!(stdout(&ok(alice.run(&["mfa", "rm", "laptop", "--otp", second]))), "Removed laptop.\n");
    ok(alice.login(&[]));
}
