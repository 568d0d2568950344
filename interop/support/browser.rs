//! Debian's Chromium without a window, told what to do by its DevTools protocol over two pipes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::ok;

/// How long anything of the browser's may take, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page, and a security key of its own that is touched and unlocked at once.
pub struct Browser {
    child: Child,
    _home: TempDir,
    commands: File,
    heard: Receiver<Value>,
    last: u64,
    /// The page's, once there is one.
    session: Option<String>,
}

impl Browser {
    /// Starts one that believes this certificate authority (PEM), and no page with an error of its certificate.
    pub fn start(authority: &Path) -> Self {
        let home = tempfile::Builder::new().prefix("sallyport-browser-").tempdir().unwrap();
        let database = home.path().join(".pki/nssdb");
        std::fs::create_dir_all(&database).unwrap();
        let certutil = |arguments: &[&str]| {
            let mut command = Command::new("certutil");
            command.arg("-d").arg(format!("sql:{}", database.display())).args(arguments);
            ok(command.output().expect("install libnss3-tools"));
        };
        certutil(&["-N", "--empty-password"]);
        certutil(&["-A", "-t", "C,,", "-n", "the test's", "-i", authority.to_str().unwrap()]);
        let (there, back) = (home.path().join("commands"), home.path().join("answers"));
        ok(Command::new("mkfifo").arg(&there).arg(&back).output().unwrap());
        // For reading and writing, so that opening waits for no other end.
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (commands, answers) = (open(&there), open(&back));
        // The protocol's descriptors are 3 and 4.
        let child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<\"$HOME/commands\" 4>\"$HOME/answers\"", "sh", "chromium"])
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--no-sandbox",
                "--disable-gpu",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-extensions", "--no-proxy-server", "--disable-quic", "--password-store=basic"])
            .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
            .arg("about:blank")
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("XDG_CONFIG_HOME", home.path().join(".config"))
            .env("XDG_CACHE_HOME", home.path().join(".cache"))
            .env_remove("XDG_DATA_HOME")
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(home.path().join("log")).unwrap())
            .process_group(0)
            .spawn()
            .expect("install chromium");
        let (hears, heard) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if hears.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self { child, _home: home, commands, heard, last: 0, session: None };
        let page = browser.tell("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached =
            browser.tell("Target.attachToTarget", &json!({ "targetId": page["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.tell("WebAuthn.enable", &json!({}));
        let key = json!({
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": true, "hasUserVerification": true,
            "isUserVerified": true, "automaticPresenceSimulation": true,
        });
        browser.tell("WebAuthn.addVirtualAuthenticator", &json!({ "options": key }));
        browser
    }

    /// One command of the protocol, and its result.
    fn tell(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.heard.recv_timeout(left).unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// Goes to an address.
    pub fn go(&mut self, address: &str) {
        // From one fragment to another a page is not loaded anew.
        self.tell("Page.navigate", &json!({ "url": "about:blank" }));
        let went = self.tell("Page.navigate", &json!({ "url": address }));
        assert!(went.get("errorText").is_none(), "{address}: {went}");
    }

    /// Waits until an expression of JavaScript is something, and gives it.
    pub fn wait_for(&mut self, what: &str, expression: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let parameters = json!({ "expression": expression, "returnByValue": true });
            let said = self.tell("Runtime.evaluate", &parameters);
            let value = said["result"]["value"].clone();
            if !matches!(value, Value::Null | Value::Bool(false)) && value != "" {
                return value;
            }
            assert!(Instant::now() < deadline, "{what} did not come: {}", self.text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the page has these words.
    pub fn reads(&mut self, words: &str) {
        let words = json!(words);
        self.wait_for(&words.to_string(), &format!("document.body?.innerText.includes({words})"));
    }

    /// Waits for a button with this name, and presses it.
    pub fn press(&mut self, name: &str) {
        let button = format!(
            "[...document.querySelectorAll('button')].find((one) => one.textContent.trim() === {})",
            json!(name)
        );
        self.wait_for(name, &format!("{button} && ({button}.click(), true)"));
    }

    /// Waits for a field with this label, and fills it in.
    pub fn fill(&mut self, label: &str, value: &str) {
        let field = format!(
            "[...document.querySelectorAll('label')].find((one) => one.textContent.trim() === {})?.control",
            json!(label)
        );
        let event = "new Event('input', { bubbles: true })";
        let fill = format!("(({field}).value = {}, ({field}).dispatchEvent({event}), true)", json!(value));
        self.wait_for(label, &format!("({field}) && {fill}"));
    }

    /// Where it is.
    pub fn address(&mut self) -> String {
        self.wait_for("an address", "location.href").as_str().unwrap_or_default().to_owned()
    }

    /// What the page reads.
    pub fn text(&mut self) -> String {
        let parameters = json!({ "expression": "location.href + '\\n' + document.body?.innerText", "returnByValue": true });
        self.tell("Runtime.evaluate", &parameters)["result"]["value"].as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its processes are a group of their own.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).output();
        let _ = self.child.wait();
    }
}
