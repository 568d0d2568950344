//! Single sign-on in a real browser: our page, then a certified provider's, then ours again.

use std::io::BufRead as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::passkeys::{Page, Shown};
use crate::support::{Browser, Cluster, User, ok, stdout, wait_for};

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
            "logout_uri": "http://127.0.0.1:1/",
            "people": { "1": { "name": "alice", "groups": ["ops"] }, "4": { "name": "mallory", "groups": [] } },
        });
        let file = directory.join("provider.json");
        std::fs::write(&file, settings.to_string()).unwrap();
        let mut process = Command::new("node")
            .arg("provider.mjs")
            .arg(file)
            .current_dir(sources)
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

fn connect(cluster: &Cluster, provider: &Provider, proxy: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let secret = cluster.path("client-secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let yaml = format!(
        "kind: oidc\nversion: v1\nmetadata: {{name: corp}}\nspec:\n  title: Corporate login\n  issuer: {}\n  client_id: sallyport\n  \
         client_secret_file: {}\n  insecure_loopback: true\n  scopes: [openid, profile, groups]\n  redirect_urls: \
         ['{proxy}/web/sso/callback/corp']\n  provider_checks_second_factor: true\n  mapping: {{roles: [{{claim: groups, value: ops, \
         roles: [access]}}]}}\n",
        provider.issuer,
        secret.display()
    );
    ok(cluster.create(&yaml));
}

/// Logs in at the provider's own page, and agrees to what it asks.
fn at_the_provider(browser: &mut Browser, provider: &Provider, person: &str) {
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
    let consent = "document.querySelector('[name=prompt][value=consent]') !== null && \
                   (document.querySelector('[type=submit]').click(), true)";
    browser.wait_for("the provider's question", consent);
}

#[test]
fn a_browser_goes_through_our_page_and_the_providers_and_the_program_has_certificates() {
    let page = Page::new();
    let cluster = page.cluster();
    let proxy = format!("https://{}", cluster.proxy().replacen("127.0.0.1", "localhost", 1));
    let provider = Provider::start(&page.path(""), &proxy);
    connect(&cluster, &provider, &proxy);
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
