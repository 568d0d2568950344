//! Single sign-on in a real browser: our page, then a certified provider's, then ours again.

use std::io::BufRead as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use crate::passkeys::{Page, Shown, page_and_code};
use crate::support::{
    Browser, Cluster, PROGRAM, User, json, me, ok, read_until, ssh_command, stderr, stdout, target,
    under_way, wait_for,
};

const SECRET: &str = "a-secret-of:the-client%";

/// panva's oidc-provider, for one cluster.
struct Provider {
    issuer: String,
    process: std::process::Child,
}

impl Provider {
    fn start(directory: &Path, proxy: &str) -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/providers");
        assert!(
            sources.join("node_modules/oidc-provider").exists(),
            "the provider of these tests is not installed: run npm ci in interop/providers"
        );
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = serde_json::json!({
            "port": free,
            "keys": directory.join("provider-key.json"),
            "redirect_uri": format!("{proxy}/web/sso/callback/corp"),
            "logout_uri": format!("{proxy}/web/sso/logout/corp"),
            "people": { "1": { "name": "alice", "groups": ["ops"] }, "4": { "name": "mallory", "groups": [] } },
        });
        let file = directory.join("provider.json");
        std::fs::write(&file, settings.to_string()).unwrap();
        let mut process = Command::new("node")
            .arg("provider.mjs")
            .arg(file)
            .current_dir(sources)
            // Of the proxy's page, which it tells of logouts.
            .env("NODE_EXTRA_CA_CERTS", directory.join("ca.pem"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node has to be installed (package nodejs)");
        let mut line = String::new();
        std::io::BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("http://"), "the provider did not start");
        Self { issuer: line.trim().to_owned(), process }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The document of a connector to the provider, which gives roles by these rules.
fn document(cluster: &Cluster, provider: &Provider, proxy: &str, rules: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let secret = cluster.path("client-secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    format!(
        "kind: oidc\nversion: v1\nmetadata: {{name: corp}}\nspec:\n  title: Corporate login\n  issuer: {}\n  client_id: sallyport\n  \
         client_secret_file: {}\n  insecure_loopback: true\n  scopes: [openid, profile, groups]\n  redirect_urls: \
         ['{proxy}/web/sso/callback/corp']\n  provider_checks_second_factor: true\n  logout: back-channel\n  mapping: {{roles: \
         [{rules}]}}\n",
        provider.issuer,
        secret.display()
    )
}

fn connect(cluster: &Cluster, provider: &Provider, proxy: &str, role: &str) {
    let rule = format!("{{claim: groups, value: ops, roles: [{role}]}}");
    ok(cluster.create(&document(cluster, provider, proxy, &rule)));
}

/// Logs in at the provider's own page, and agrees to what it asks of a person who comes for the first time.
fn at_the_provider(browser: &mut Browser, provider: &Provider, person: &str) {
    sign_in(browser, provider, person);
    let consent = "document.querySelector('[name=prompt][value=consent]') !== null && \
                   (document.querySelector('[type=submit]').click(), true)";
    browser.wait_for("the provider's question", consent);
}

fn sign_in(browser: &mut Browser, provider: &Provider, person: &str) {
    let there = format!(
        "location.href.startsWith('{}') && document.querySelector('[name=login]') !== null",
        provider.issuer
    );
    browser.wait_for("the provider's page", &there);
    let fill = format!(
        "(document.querySelector('[name=login]').value = '{person}', document.querySelector('[name=password]').value = 'x', \
         document.querySelector('[type=submit]').click(), true)"
    );
    browser.wait_for("the provider's form", &fill);
}

#[test]
fn a_browser_goes_through_our_page_and_the_providers_and_the_program_has_certificates() {
    let page = Page::new();
    let cluster = page.cluster();
    let proxy = format!("https://{}", cluster.proxy().replacen("127.0.0.1", "localhost", 1));
    let provider = Provider::start(&page.path(""), &proxy);
    connect(&cluster, &provider, &proxy, "access");
    let mut browser = Browser::start(&page.path("ca.pem"));
    let shown = Shown::new(&page.path(""));
    let user = User {
        name: "alice".to_owned(),
        home: cluster.path("home-alice"),
        proxy: cluster.proxy(),
        otp_uri: None,
    };
    let login = shown.start(&user, &["login", "--browser", "--user", "alice", "--ca-pin", &cluster.pin]);
    browser.go(&shown.address());
    browser.press("Continue with Corporate login");
    at_the_provider(&mut browser, &provider, "1");
    ok(login.wait_with_output().unwrap());
    wait_for("the program's page", || browser.address().starts_with("http://127.0.0.1:").then_some(()));
    let status: serde_json::Value =
        serde_json::from_str(&stdout(&ok(user.run(&["status", "--format", "json"])))).unwrap();
    assert_eq!((&status["user"], &status["expired"]), (&"alice".into(), &false.into()), "{status}");
    let came = cluster.wait_event("sso.login", |_| true);
    assert_eq!(came["fields"]["subject"], "1");

    // The provider knows the browser's session now: another login takes one press.
    let again = shown.start(&user, &["login", "--browser", "--user", "alice"]);
    browser.go(&shown.address());
    browser.press("Continue with Corporate login");
    ok(again.wait_with_output().unwrap());

    // One whom no rule gives a role reads so at our page, in a browser of their own.
    let mut other = Browser::start(&page.path("ca.pem"));
    let mut refused = shown.start(&user, &["login", "--browser", "--user", "mallory"]);
    other.go(&shown.address());
    other.press("Continue with Corporate login");
    at_the_provider(&mut other, &provider, "4");
    other.reads("gives you no role here");
    assert!(!other.address().contains("code="), "the code stays in no address: {}", other.address());
    refused.kill().unwrap();
    drop(refused.wait_with_output());
}

#[test]
fn a_person_of_single_sign_on_adds_a_passkey_and_proves_it_for_a_session() {
    let page = Page::new();
    let mut cluster = page.cluster();
    cluster.add_node("web-1", "env: prod");
    let proxy = format!("https://{}", cluster.proxy().replacen("127.0.0.1", "localhost", 1));
    let provider = Provider::start(&page.path(""), &proxy);
    ok(cluster.create(&format!(
        "kind: role\nversion: v1\nmetadata: {{name: guarded}}\nspec:\n  options: {{require_session_mfa: hardware}}\n  allow:\n    logins: \
         [{}]\n    node_labels: {{'*': '*'}}\n",
        me()
    )));
    connect(&cluster, &provider, &proxy, "guarded");
    let mut browser = Browser::start(&page.path("ca.pem"));
    let shown = Shown::new(&page.path(""));
    let user = User {
        name: "alice".to_owned(),
        home: cluster.path("home-alice"),
        proxy: cluster.proxy(),
        otp_uri: None,
    };
    let login = shown.start(&user, &["login", "--browser", "--user", "alice", "--ca-pin", &cluster.pin]);
    browser.go(&shown.address());
    browser.press("Continue with Corporate login");
    at_the_provider(&mut browser, &provider, "1");
    ok(login.wait_with_output().unwrap());

    // Without a factor the session says which command gives one.
    let refused = shown.start(&user, &["ssh", &target("web-1"), "true"]).wait_with_output().unwrap();
    let said = stderr(&refused);
    assert!(!refused.status.success() && said.contains("sallyport mfa add"), "{said}");

    // The provider knows the browser, and asks for the password again all the same.
    let mut add = shown.start(&user, &["mfa", "add", "test key"]);
    let mut said = std::io::BufReader::new(add.stderr.take().unwrap());
    let (approve, code) = page_and_code(&mut said);
    browser.go(&approve);
    browser.reads("your identity provider asks you to sign in again");
    browser.fill("Code that the program shows", &code);
    browser.press("Continue with Corporate login");
    sign_in(&mut browser, &provider, "1");
    browser.reads("You are done here");
    let (enrol, code) = page_and_code(&mut said);
    browser.go(&enrol);
    browser.fill("Code that the program shows", &code);
    browser.press("Make the passkey");
    browser.reads("The passkey is ready");
    ok(add.wait_with_output().unwrap());

    let mut session = shown.start(&user, &["ssh", &target("web-1"), "echo", "in"]);
    let mut said = std::io::BufReader::new(session.stderr.take().unwrap());
    let (approve, code) = page_and_code(&mut said);
    browser.go(&approve);
    browser.fill("Code that the program shows", &code);
    browser.press("Approve with a passkey");
    browser.reads("Approved");
    assert_eq!(stdout(&ok(session.wait_with_output().unwrap())), "in\n");

    // The passkey opens no login: the provider does.
    let login = shown.start(&user, &["login", "--browser", "--user", "alice"]);
    browser.go(&shown.address());
    browser.press("Continue with a passkey");
    browser.reads("You come by single sign-on, and log in by that alone");
    browser.press("Continue with Corporate login");
    ok(login.wait_with_output().unwrap());
}

/// The provider tells the proxy, at the address of its pages, as it would tell one on the internet.
#[test]
fn a_logout_at_the_provider_cuts_the_session_that_runs_and_no_other() {
    let page = Page::new();
    let mut cluster = page.cluster();
    cluster.add_node("web-1", "env: prod");
    let proxy = format!("https://{}", cluster.proxy().replacen("127.0.0.1", "localhost", 1));
    let provider = Provider::start(&page.path(""), &proxy);
    ok(cluster.create(&format!(
        "kind: role\nversion: v1\nmetadata: {{name: ops}}\nspec: {{allow: {{logins: [{}], node_labels: {{'*': '*'}}}}}}\n",
        me()
    )));
    connect(&cluster, &provider, &proxy, "ops");
    let bob = cluster.add_user("bob", "ops", "");
    let mut browser = Browser::start(&page.path("ca.pem"));
    let shown = Shown::new(&page.path(""));
    let alice = User {
        name: "alice".to_owned(),
        home: cluster.path("home-alice"),
        proxy: cluster.proxy(),
        otp_uri: None,
    };
    let login = shown.start(&alice, &["login", "--browser", "--user", "alice", "--ca-pin", &cluster.pin]);
    browser.go(&shown.address());
    browser.press("Continue with Corporate login");
    at_the_provider(&mut browser, &provider, "1");
    ok(login.wait_with_output().unwrap());

    let session = |user: &User| {
        let mut ssh = ssh_command(&user.ssh_config(&[]));
        ssh.env("SALLYPORT_CONNECT", "off").args([&target("web-1"), "echo began; sleep 600"]);
        let (live, mut lines) = under_way(&mut ssh);
        read_until(&mut lines, "began");
        live
    };
    let (mut of_alice, mut of_bob) = (session(&alice), session(&bob));
    browser.go(&format!("{}/session/end", provider.issuer));
    browser.press("Yes, sign me out");
    let pressed = Instant::now();
    assert!(!of_alice.wait().unwrap().success());
    assert!(pressed.elapsed() < Duration::from_secs(5), "{:?}", pressed.elapsed());
    let refused = alice.run(&["ls"]);
    assert!(stderr(&refused).contains("logged out at the identity provider"), "{refused:?}");
    assert!(of_bob.try_wait().unwrap().is_none(), "another's goes on");
    of_bob.kill().unwrap();
    of_bob.wait().unwrap();
    cluster.wait_event("sso.logout", |_| true);
}

/// `sallyport admin sso test` under way: the page to open, and its standard error, which it writes on.
fn tries(
    cluster: &Cluster,
    document: &str,
    more: &[&str],
) -> (Child, String, std::io::BufReader<ChildStderr>) {
    let file = cluster.path("connector.yaml");
    std::fs::write(&file, document).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["admin", "--data-dir"]).arg(cluster.data_dir()).args(["sso", "test"]).arg(file).args(more);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut line) = (std::io::BufReader::new(child.stderr.take().unwrap()), String::new());
    said.read_line(&mut line).unwrap();
    let address = line.strip_prefix("Open ").and_then(|line| line.split_once(" in a browser"));
    let address = address.unwrap_or_else(|| panic!("{line}")).0.replacen("127.0.0.1", "localhost", 1);
    (child, address, said)
}

#[test]
fn an_administrator_tries_a_connector_and_nothing_of_it_is_stored() {
    let page = Page::new();
    let cluster = page.cluster();
    let proxy = format!("https://{}", cluster.proxy().replacen("127.0.0.1", "localhost", 1));
    let provider = Provider::start(&page.path(""), &proxy);
    let rules = "{claim: groups, value: ops, roles: [access, nowhere]}, {claim: hd, roles: [auditor]}";
    let mut browser = Browser::start(&page.path("ca.pem"));
    let (test, address, _said) = tries(&cluster, &document(&cluster, &provider, &proxy, rules), &[]);
    browser.go(&address);
    browser.press("Continue with Corporate login");
    at_the_provider(&mut browser, &provider, "1");
    let told = stdout(&ok(test.wait_with_output().unwrap()));
    for part in [
        "Subject:  1\n",
        "\"preferred_username\": \"alice\"",
        "  rule 1 (groups): ops gives access, nowhere\n",
        "  rule 2 (hd): there is no claim hd\n",
        "Roles:    access\n",
        "Not there: nowhere",
        "This login would be alice's.\n",
    ] {
        assert!(told.contains(part), "{part:?}: {told}");
    }

    // Where no rule is a hit; the provider knows the browser by now.
    let rules = "{claim: groups, value: nobodies, roles: [access]}";
    let (test, address, _said) =
        tries(&cluster, &document(&cluster, &provider, &proxy, rules), &["--format", "json"]);
    browser.go(&address);
    browser.press("Continue with Corporate login");
    let output = test.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = json(&output);
    assert_eq!(
        (&told["refused"]["reason"], &told["roles"]),
        (&"no_roles".into(), &serde_json::json!([])),
        "{told}"
    );

    let listed = json(&ok(cluster.admin(&["sso", "ls", "--format", "json"])));
    assert_eq!(listed, serde_json::json!([]));
    let user = cluster.admin(&["get", "user/alice"]);
    assert!(!user.status.success(), "{user:?}");
    assert!(!cluster.events().iter().any(|event| event["kind"] == "sso.login"), "it was no login");
    // It has the authority call an address: that takes a right to every role.
    let carol = cluster.add_user("carol", "access", &me());
    let file = cluster.path("connector.yaml");
    let said = carol.run(&["admin", "sso", "test", file.to_str().unwrap()]);
    assert!(said.status.code() == Some(4) && stderr(&said).contains("carol may not"), "{said:?}");
}

#[test]
fn a_local_user_is_linked_by_the_command_that_the_page_shows_and_logs_in_by_the_provider() {
    let page = Page::new();
    let cluster = page.cluster();
    let proxy = format!("https://{}", cluster.proxy().replacen("127.0.0.1", "localhost", 1));
    let provider = Provider::start(&page.path(""), &proxy);
    connect(&cluster, &provider, &proxy, "auditor");
    let alice = cluster.add_user("alice", "access", "");
    let mut browser = Browser::start(&page.path("ca.pem"));
    let shown = Shown::new(&page.path(""));
    let mut refused = shown.start(&alice, &["login", "--browser", "--user", "alice"]);
    browser.go(&shown.address());
    browser.press("Continue with Corporate login");
    at_the_provider(&mut browser, &provider, "1");
    browser.reads("sallyport admin users link 'alice' --connector corp --subject '1'");
    refused.kill().unwrap();
    drop(refused.wait_with_output());

    let link = ["users", "link", "alice", "--connector", "corp", "--subject", "1"];
    let linked = ok(cluster.admin(&link));
    let said = format!(
        "User alice is linked with the person 1 of {}, and logs in by the connector corp, too.\n",
        provider.issuer
    );
    assert_eq!(stdout(&linked), said);
    let again = cluster.admin(&link);
    assert!(
        !again.status.success() && stderr(&again).contains("sallyport admin users unlink alice"),
        "{again:?}"
    );
    let listed = json(&ok(cluster.admin(&["users", "ls", "--format", "json"])));
    let of_alice = listed.as_array().unwrap().iter().find(|user| user["metadata"]["name"] == "alice");
    assert_eq!(of_alice.unwrap()["spec"]["link"]["subject"], "1", "{listed}");
    assert!(stdout(&ok(cluster.admin(&["users", "ls"]))).contains("link=corp/1"));

    let login = shown.start(&alice, &["login", "--browser", "--user", "alice"]);
    browser.go(&shown.address());
    browser.press("Continue with Corporate login");
    ok(login.wait_with_output().unwrap());
    let status = json(&ok(alice.run(&["status", "--format", "json"])));
    assert_eq!(
        (&status["user"], &status["roles"]),
        (&"alice".into(), &serde_json::json!(["access"])),
        "{status}"
    );
    let unlinked = json(&ok(cluster.admin(&["users", "unlink", "alice", "--format", "json"])));
    assert_eq!((&unlinked["subject"], &unlinked["ended_logins"]), (&"1".into(), &1.into()), "{unlinked}");
    let ended = alice.run(&["ls"]);
    assert!(stderr(&ended).contains("the user was unlinked"), "{ended:?}");
}
