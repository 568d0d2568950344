//! Logins with a security key at the terminal. The key is in software: programs of the names of libfido2's speak their command lines
//! (fido2-token(1), fido2-assert(1)), and the test says what becomes of them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use sallyport_testing::authenticator::Authenticator;
use serde_json::{Value, json};

use crate::own_keys::{keygen, type_of_own_key};
use crate::passkeys::Page;
use crate::support::{Cluster, PROGRAM, User, me, ok, refused, stderr, stdout, wait_for};

/// Both programs: they tell the test how they were called, and do what it answers. A PIN is asked for at the terminal.
const PROGRAMS: &str = r#"#!/usr/bin/python3
import json, os, resource, signal, socket, sys, termios
program = os.path.basename(sys.argv[0])
question = "" if program == "fido2-token" else sys.stdin.read()
pin = None
if "-v" in sys.argv:
    tty = os.open("/dev/tty", os.O_RDWR)
    before = termios.tcgetattr(tty)
    silent = termios.tcgetattr(tty)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(tty, termios.TCSAFLUSH, silent)
    os.write(tty, b"Enter PIN for %s: " % sys.argv[-1].encode())
    pin = os.read(tty, 1024).decode().strip()
    termios.tcsetattr(tty, termios.TCSAFLUSH, before)
test = socket.socket(socket.AF_UNIX)
test.connect(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "test"))
test.sendall(json.dumps([program, sys.argv[1:], question, pin]).encode() + b"\n")
said = json.loads(test.makefile().readline())
if said is None:
    signal.pause()
if said["err"].startswith("signal "):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), int(said["err"].split()[1]))
sys.stdout.write(said["out"])
if said["err"]:
    sys.exit("%s: %s" % (program, said["err"]))
"#;

/// Answers at a terminal: what is to be seen, and what is typed then. It has to be as it was afterwards.
const AT_A_TERMINAL: &str = r#"
import json, os, pty, select, sys, termios, time
steps = json.loads(sys.argv[1])
master, slave = pty.openpty()
before = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.setsid()
    import fcntl
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    os.execv(sys.argv[2], sys.argv[2:])
seen, end, status = b"", time.time() + 60, None
while status is None:
    if time.time() > end:
        sys.exit("%r was not shown, or nothing came after it: %r" % (steps[:1], seen))
    if select.select([master], [], [], 0.1)[0]:
        seen += os.read(master, 65536)
    elif os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        status = os.waitpid(pid, 0)[1]
    if steps and steps[0][0].encode() in seen:
        # The next one is awaited behind this one.
        shown, seen = seen, seen[seen.index(steps[0][0].encode()) + len(steps[0][0]):]
        sys.stdout.write(shown[:len(shown) - len(seen)].decode())
        os.write(master, steps.pop(0)[1].encode())
sys.stdout.write(seen.decode())
assert termios.tcgetattr(slave) == before, "the terminal was not put back"
sys.exit(os.waitstatus_to_exitcode(status))
"#;

/// What becomes of a call of fido2-assert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// The key signs.
    Touched,
    /// It is not touched, and the program waits.
    Never,
    /// The program fails with this.
    Fails(&'static str),
    /// The program dies of this signal, as where it has a fault.
    Dies(i32),
    /// What it signs is for another relying party.
    Elsewhere,
    /// A thief has the program give what was signed before.
    Replayed,
}

struct State {
    key: Authenticator,
    /// Paths.
    plugged_in: Vec<&'static str>,
    options: &'static str,
    pin: &'static str,
    pins_left: u32,
    touch: Touch,
    /// Authenticator data and signature.
    last: Option<(Vec<u8>, Vec<u8>)>,
    /// Arguments of fido2-assert.
    calls: Vec<Vec<String>>,
}

/// A security key, and the programs that reach it.
struct Key {
    programs: PathBuf,
    state: Arc<Mutex<State>>,
}

impl State {
    fn token(&self, arguments: &[String]) -> (String, String) {
        if arguments[0] == "-L" {
            let device =
                |path: &&str| format!("{path}: vendor=0x1050, product=0x0402 (Test Key of {path})\n");
            return (self.plugged_in.iter().map(device).collect(), String::new());
        }
        assert_eq!(arguments[0], "-I", "{arguments:?}");
        if !self.plugged_in.contains(&arguments[1].as_str()) {
            return (String::new(), format!("fido_dev_open {}: FIDO_ERR_INTERNAL", arguments[1]));
        }
        let said = format!(
            "proto: 0x02\noptions: {}\npin retries: {}\npin change required: false\n",
            self.options, self.pins_left
        );
        (said, String::new())
    }

    fn assert(
        &mut self,
        arguments: &[String],
        question: &str,
        pin: Option<&str>,
    ) -> Option<(String, String)> {
        self.calls.push(arguments.to_vec());
        let failed = |name: &str| Some((String::new(), format!("fido_dev_get_assert: {name}")));
        if pin.is_some_and(|pin| pin != self.pin) {
            self.pins_left -= 1;
            return failed("FIDO_ERR_PIN_INVALID");
        }
        let (hash, rp_id) = question.trim_end().split_once('\n').unwrap();
        assert_eq!(&arguments[..2], ["-G", "-r"]);
        self.key.verifies = pin.is_some() || arguments.contains(&"uv=true".to_owned());
        let signed_for = if self.touch == Touch::Elsewhere { "phisher.example" } else { rp_id };
        let (data, signature) = match self.touch {
            Touch::Never => return None,
            Touch::Fails(name) => return failed(name),
            Touch::Dies(signal) => return Some((String::new(), format!("signal {signal}"))),
            Touch::Replayed => self.last.clone().unwrap(),
            Touch::Touched | Touch::Elsewhere => {
                self.key.assertion(signed_for, &BASE64.decode(hash.as_bytes()).unwrap())
            }
        };
        self.last = Some((data.clone(), signature.clone()));
        let in_cbor = [&[0x58, u8::try_from(data.len()).unwrap()][..], &data].concat();
        let parts = [in_cbor, signature, self.key.user().to_vec()].map(|part| BASE64.encode(&part));
        Some((format!("{hash}\n{rp_id}\n{}\n", parts.join("\n")), String::new()))
    }

    fn answer(&mut self, call: &Value) -> Value {
        let (program, arguments, question, pin): (String, Vec<String>, String, Option<String>) =
            serde_json::from_value(call.clone()).unwrap();
        let said = match program.as_str() {
            "fido2-token" => Some(self.token(&arguments)),
            _ => self.assert(&arguments, &question, pin.as_deref()),
        };
        said.map_or(Value::Null, |(out, err)| json!({ "out": out, "err": err }))
    }
}

impl Key {
    /// One with a fingerprint reader, with a passkey that the person of an invitation has made with it in a browser.
    fn of(cluster: &Cluster, page: &Page, link: &str) -> Self {
        let mut key = Authenticator::at(&format!("https://{}", address(cluster)));
        accept(cluster, page, link, |options| {
            serde_json::from_str(&key.create(&options.to_string())).unwrap()
        });
        let programs = cluster.path("programs");
        fs::create_dir(&programs).unwrap();
        for name in ["fido2-token", "fido2-assert"] {
            fs::write(programs.join(name), PROGRAMS).unwrap();
            fs::set_permissions(programs.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let state = State {
            key,
            plugged_in: vec!["/dev/hidraw5"],
            options: "rk, up, uv, noplat, clientPin",
            pin: "123456",
            pins_left: 8,
            touch: Touch::Touched,
            last: None,
            calls: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let (listener, answering) = (UnixListener::bind(programs.join("test")).unwrap(), Arc::clone(&state));
        std::thread::spawn(move || {
            // A program that waits for a touch holds its connection, until it is ended.
            let mut waiting: Vec<UnixStream> = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                if BufReader::new(&stream).read_line(&mut line).unwrap() == 0 {
                    continue;
                }
                let said = answering.lock().unwrap().answer(&serde_json::from_str(&line).unwrap());
                writeln!(stream, "{said}").unwrap();
                waiting.push(stream);
            }
        });
        Self { programs, state }
    }

    fn is(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// The login of a user, where these programs come first.
    fn login(&self, user: &User, more: &[&str]) -> Command {
        let mut command = user.command(&[&["login", "--security-key"], more].concat());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs.display()));
        command
    }

    fn run(&self, user: &User, more: &[&str]) -> Output {
        self.login(user, more).output().unwrap()
    }
}

/// A login at a terminal, where these answers are given.
fn at_a_terminal(cluster: &Cluster, login: &Command, steps: &[(&str, &str)]) -> Output {
    let script = cluster.path("terminal.py");
    fs::write(&script, AT_A_TERMINAL).unwrap();
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).arg(serde_json::to_string(steps).unwrap()).arg(PROGRAM).args(login.get_args());
    for (name, value) in login.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).output().expect("run /usr/bin/python3")
}

/// Accepts an invitation as a browser does, with a passkey that `create` makes by the options of the page.
fn accept(cluster: &Cluster, page: &Page, link: &str, create: impl FnOnce(&Value) -> Value) {
    let origin = format!("https://{}", address(cluster));
    let token = link.split_once("/invite/").unwrap().1.split('#').next().unwrap();
    let call = |path: &str, said: Value| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--cacert"]).arg(page.path("ca.pem"));
        curl.args(["-H", &format!("Origin: {origin}"), "-H", "Content-Type: application/json", "--data"]);
        let answer = ok(curl.arg(said.to_string()).arg(format!("{origin}{path}")).output().unwrap());
        serde_json::from_str::<Value>(&stdout(&answer)).unwrap()
    };
    let begun = call("/web/invite/begin", json!({ "token": token }));
    let response = create(&begun["public_key"]);
    call("/web/invite/finish", json!({ "token": token, "name": "yubi", "response": response }));
}

/// Where its passkeys work.
fn address(cluster: &Cluster) -> String {
    cluster.proxy().replacen("127.0.0.1", "localhost", 1)
}

fn person(cluster: &Cluster, name: &str) -> User {
    let (home, proxy) = (cluster.path(&format!("home-{name}")), address(cluster));
    User { name: name.to_owned(), home, proxy, otp_uri: None }
}

fn status(user: &User) -> Value {
    serde_json::from_str(&stdout(&ok(user.run(&["status", "--format", "json"])))).unwrap()
}

/// A directory without programs.
fn nothing(cluster: &Cluster) -> PathBuf {
    let path = cluster.path("nothing");
    fs::create_dir(&path).unwrap();
    path
}

#[test]
fn a_security_key_logs_in_at_the_terminal_without_a_browser() {
    let page = Page::new();
    let cluster = page.cluster();
    let key = Key::of(&cluster, &page, &cluster.invite("alice", "access", &me()));
    let alice = person(&cluster, "alice");
    let first = ["--user", "alice", "--ca-pin", &cluster.pin];
    ok(key.run(&alice, &first));
    assert_eq!(status(&alice)["user"], "alice");
    ok(alice.run(&["ls"]));
    let login = cluster.wait_event("user.login", |event| event["user"] == "alice");
    let fields = &login["fields"];
    assert_eq!(
        (&fields["way"], &fields["factor"], &fields["user_verified"]),
        (&"passkey".into(), &"yubi".into(), &true.into())
    );
    let proven = cluster.wait_event("user.challenge_proven", |event| event["user"] == "alice");
    assert!(proven["fields"]["proxy"].is_null(), "no proxy has a part in it: {proven}");
    key.is(|key| {
        assert_eq!(key.calls, [["-G", "-r", "-t", "uv=true", "/dev/hidraw5"]], "asked once, by its finger")
    });

    // The next one knows the user and the cluster.
    ok(key.run(&alice, &[]));

    // By another address than those of its passkeys, nothing is asked of the key: it may be another site's.
    let elsewhere = User { proxy: cluster.proxy(), ..person(&cluster, "alice") };
    let said = refused(&key.run(&elsewhere, &first), 4);
    let wanted = format!("are for https://{}, and you log in at {}", address(&cluster), cluster.proxy());
    assert!(said.contains(&wanted), "{said}");
    key.is(|key| assert_eq!(key.calls.len(), 2));
    // The login that was begun for it is over, and takes no place of another.
    cluster.wait_event("user.challenge_refused", |event| {
        event["message"] == "given up by the program that began it"
    });

    // Which key.
    key.is(|key| key.plugged_in = vec!["/dev/hidraw5", "/dev/hidraw7"]);
    let said = refused(&key.run(&alice, &[]), 2);
    assert!(said.contains("2 security keys") && said.contains("--security-key-device PATH"), "{said}");
    let own = keygen(cluster.path("id"));
    let own = ["--ssh-key", own.to_str().unwrap()];
    ok(key.run(&alice, &[&["--security-key-device", "/dev/hidraw7"][..], &own].concat()));
    assert_eq!(type_of_own_key(&alice), "ssh-ed25519");
    key.is(|key| assert_eq!(key.calls.last().unwrap().last().unwrap(), "/dev/hidraw7"));
    let said = refused(&key.run(&alice, &["--security-key-device", "/dev/hidraw9"]), 3);
    assert!(said.contains("/dev/hidraw9 cannot be opened"), "{said}");

    // What a key cannot do, or its person does not.
    for (change, expected, hint) in [
        ((|key| key.plugged_in.clear()) as fn(&mut State), "no security key is plugged in", "plug it in"),
        (|key| key.options = "rk, up, noplat, noclientPin", "has no PIN", "fido2-token -S /dev/hidraw5"),
        (|key| key.options = "rk, up, noplat", "cannot verify its person", "sallyport login --password"),
        (
            |key| key.options = "rk, up, noplat, clientPin",
            "wants its PIN, and there is no terminal",
            "in a terminal",
        ),
        (|key| key.touch = Touch::Fails("FIDO_ERR_USER_ACTION_TIMEOUT"), "was not touched in time", "again"),
        (
            |key| key.touch = Touch::Fails("FIDO_ERR_NO_CREDENTIALS"),
            "has no passkey for localhost",
            "mfa add",
        ),
        (
            |key| key.touch = Touch::Fails("FIDO_ERR_RX"),
            "fido2-assert says: fido_dev_get_assert: FIDO_ERR_RX",
            "",
        ),
        (|key| key.touch = Touch::Dies(6), "cannot run fido2-assert: killed by signal 6", "fido2-token -L"),
        (|key| key.touch = Touch::Dies(11), "cannot run fido2-assert: killed by signal 11", "--browser"),
    ] {
        key.is(|key| {
            key.plugged_in = vec!["/dev/hidraw5"];
            key.options = "rk, up, uv, noplat";
            key.touch = Touch::Touched;
            change(key);
        });
        let output = key.run(&alice, &[]);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expected) && said.contains(hint), "{said}");
    }
    let mut without = key.login(&alice, &[]);
    let said = refused(&without.env("PATH", nothing(&cluster)).output().unwrap(), 1);
    assert!(said.contains("fido2-token is not installed") && said.contains("fido2-tools"), "{said}");
}

/// What was signed is for one login's challenge, one relying party and one user.
#[test]
fn attacks_what_a_security_key_has_signed_opens_nothing_else() {
    let page = Page::new();
    let cluster = page.cluster();
    let key = Key::of(&cluster, &page, &cluster.invite("alice", "access", &me()));
    let alice = person(&cluster, "alice");
    let first = ["--user", "alice", "--ca-pin", &cluster.pin];
    ok(key.run(&alice, &first));

    // A thief with another machine, and with what the key has signed for the first.
    let thief = User { home: cluster.path("home-thief"), ..person(&cluster, "alice") };
    key.is(|key| key.touch = Touch::Replayed);
    let said = refused(&key.run(&thief, &first), 3);
    assert!(said.contains("not one that is registered here"), "{said}");
    let failed = cluster.wait_event("user.login_failed", |event| event["fields"]["way"] == "passkey");
    assert_eq!(failed["fields"]["named_user"], "alice", "{failed}");
    refused(&thief.run(&["ls"]), 3);

    key.is(|key| key.touch = Touch::Elsewhere);
    let output = key.run(&alice, &[]);
    assert!(stderr(&output).contains("of another relying party"), "{}", stderr(&output));

    // Another user's name.
    key.is(|key| key.touch = Touch::Touched);
    cluster.add_user_without_login("bob", "access", &me());
    for name in ["bob", "mallory"] {
        let said = refused(&key.run(&thief, &["--user", name, "--ca-pin", &cluster.pin]), 3);
        assert!(said.contains("not one that is registered here"), "{said}");
    }
    refused(&thief.run(&["ls"]), 3);
    ok(alice.run(&["ls"]));
}

#[test]
fn a_pin_is_typed_to_its_program_and_an_interrupted_login_ends_with_it() {
    let page = Page::new();
    let cluster = page.cluster();
    let key = Key::of(&cluster, &page, &cluster.invite("alice", "access", &me()));
    let alice = person(&cluster, "alice");
    ok(key.run(&alice, &["--user", "alice", "--ca-pin", &cluster.pin]));
    key.is(|key| {
        key.options = "rk, up, noplat, clientPin";
        key.calls.clear();
    });
    let ask = "Enter PIN for /dev/hidraw5: ";
    let output = at_a_terminal(&cluster, &key.login(&alice, &[]), &[(ask, "000000\n"), (ask, "123456\n")]);
    let shown = stdout(&ok(output));
    assert!(shown.contains("is wrong; 7 more wrong ones block it"), "{shown}");
    assert!(shown.contains("Logged in to") && !shown.contains("123456"), "{shown}");
    key.is(|key| assert_eq!(key.calls, [["-G", "-r", "-v", "/dev/hidraw5"]; 2]));

    // Three in a row have a key take none until it is unplugged, so that the program stops there.
    let wrong = [(ask, "0\n"), (ask, "0\n"), (ask, "0\n")];
    let output = at_a_terminal(&cluster, &key.login(&alice, &[]), &wrong);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stdout(&output).contains("4 more wrong ones block it"), "{}", stdout(&output));

    // Ctrl-C while the PIN is asked for, and while the key waits for a touch.
    let output = at_a_terminal(&cluster, &key.login(&alice, &[]), &[(ask, "\u{3}")]);
    assert_eq!(output.status.code(), Some(130), "{}{}", stdout(&output), stderr(&output));
    cluster.wait_event("user.challenge_refused", |event| {
        event["message"] == "given up by the program that began it"
    });
    key.is(|key| {
        key.touch = Touch::Never;
        key.options = "rk, up, uv, noplat";
        key.calls.clear();
    });
    let mut login = key.login(&alice, &[]);
    let waiting = login.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the key to be asked", || (!key.state.lock().unwrap().calls.is_empty()).then_some(()));
    let asked = child_of(waiting.id());
    ok(Command::new("kill").args(["-TERM", &waiting.id().to_string()]).output().unwrap());
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    wait_for("the program that asked to end", || {
        (!Path::new(&format!("/proc/{asked}/exe")).exists()).then_some(())
    });
    // The login of before is as it was.
    ok(alice.run(&["ls"]));
}

/// The programs of libfido2 themselves, with a key that speaks CTAP behind a terminal of its own.
#[test]
fn the_programs_of_libfido2_log_in_with_a_key_that_wants_its_pin() {
    if Command::new("fido2-assert").stdin(Stdio::null()).output().is_err() {
        println!("skipped: 1 (fido2-assert is not installed)");
        return;
    }
    let page = Page::new();
    let cluster = page.cluster();
    let link = cluster.invite("alice", "access", &me());
    let mut key = Command::new("/usr/bin/python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/support/security_key.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run /usr/bin/python3");
    let mut said = BufReader::new(key.stdout.take().unwrap());
    let mut device = String::new();
    accept(&cluster, &page, &link, |options| {
        let origin = format!("https://{}", address(&cluster));
        let asked = json!({ "origin": origin, "options": options, "pin": "123456" });
        writeln!(key.stdin.as_mut().unwrap(), "{asked}").unwrap();
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let made: Value = serde_json::from_str(&line).expect("install python3-cryptography");
        device = made["device"].as_str().unwrap().to_owned();
        made["response"].clone()
    });
    let alice = person(&cluster, "alice");
    let arguments = ["login", "--security-key", "--security-key-device", &device];
    let first = [&arguments[..], &["--user", "alice", "--ca-pin", &cluster.pin]].concat();
    let login = |arguments: &[&str], steps: &[(&str, &str)]| {
        at_a_terminal(&cluster, &alice.command(arguments), steps)
    };
    let ask = format!("Enter PIN for {device}: ");
    let output = login(&first, &[(&ask, "000000\n"), (&ask, "123456\n")]);
    let shown = stdout(&output);
    assert!(shown.contains("is wrong; 7 more wrong ones block it"), "{shown}{}", stderr(&output));
    assert!(shown.contains("Logged in to") && output.status.success(), "{shown}{}", stderr(&output));
    let event = cluster.wait_event("user.login", |event| event["user"] == "alice");
    let fields = &event["fields"];
    assert_eq!((&fields["factor"], &fields["user_verified"]), (&"yubi".into(), &true.into()), "{fields}");
    ok(alice.run(&["ls"]));

    // The third wrong one in a row has the key take none, and says so itself.
    let wrong = [(ask.as_str(), "000000\n"); 3];
    let output = login(&arguments, &wrong);
    assert!(stdout(&output).contains("takes no PIN until it was unplugged"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(3));
    // Ctrl-C at the PIN.
    let output = login(&arguments, &[(&ask, "\u{3}")]);
    assert_eq!(output.status.code(), Some(130), "{}{}", stdout(&output), stderr(&output));
    drop(key.stdin.take());
    key.wait().unwrap();
}

/// The program that a program has started.
fn child_of(process: u32) -> String {
    wait_for("the program that asks", || {
        let found = Command::new("pgrep").args(["-P", &process.to_string()]).output().unwrap();
        stdout(&found).lines().next().map(str::to_owned)
    })
}
