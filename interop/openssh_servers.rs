//! Stock OpenSSH servers without an agent, behind a real cluster: registered, joined, reached from the proxy and
//! through a gateway. The server is the system's own `sshd`.

use crate::support;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::support::{
    Cluster, Process, SshAgent, User, free_port, is_root, me, ok, refused, ssh, ssh_command, stderr, stdout,
    wait_for,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sallyport");

/// An sshd of its own, in a directory of its own, that trusts no CA until `join openssh` tells it to.
pub(crate) struct Sshd {
    directory: PathBuf,
    pub(crate) port: u16,
    _process: Process,
}

impl Sshd {
    pub(crate) fn start(cluster: &Cluster, name: &str) -> Self {
        let directory = cluster.path(&format!("sshd-{name}"));
        fs::create_dir_all(directory.join("sshd_config.d")).unwrap();
        if is_root() {
            // sshd wants its own place to lock unprivileged children up in.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let key = directory.join("host_key");
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
        assert!(made.unwrap().success());
        let port = free_port();
        let config = format!(
            "Include {d}/sshd_config.d/*.conf\nPort {port}\nListenAddress 127.0.0.1\nHostKey {d}/host_key\n\
             PidFile {d}/sshd.pid\nAuthorizedKeysFile none\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\nLogLevel VERBOSE\nPermitRootLogin yes\n\
             AcceptEnv LANG LC_*\nSubsystem sftp internal-sftp\n",
            d = directory.display(),
        );
        fs::write(directory.join("sshd_config"), config).unwrap();
        let process = Process::spawn(
            Command::new("/usr/sbin/sshd").args(["-D", "-e", "-f"]).arg(directory.join("sshd_config")),
            cluster.path(&format!("sshd-{name}.log")),
        );
        let sshd = Self { directory, port, _process: process };
        wait_for("sshd to listen", || std::net::TcpStream::connect(sshd.address()).ok());
        sshd
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// `sallyport join openssh` as its administrator runs it.
    fn join(&self, cluster: &Cluster, arguments: &[&str]) -> Output {
        let reload = format!("kill -HUP $(cat {})", self.file("sshd.pid").display());
        Command::new(PROGRAM)
            .args(["join", "openssh", "--proxy", &cluster.proxy(), "--state"])
            .arg(self.file("state"))
            .arg("--host-key")
            .arg(self.file("host_key"))
            .arg("--sshd-config")
            .arg(self.file("sshd_config"))
            .arg("--drop-in")
            .arg(self.file("sshd_config.d/20-sallyport.conf"))
            .arg("--directory")
            .arg(&self.directory)
            .args(["--reload", &reload])
            .args(arguments)
            .env_remove("SALLYPORT_PROXY")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Joins under a name that an administrator has registered, where there is an address: it is one of this machine.
    pub(crate) fn join_with_token(&self, cluster: &Cluster, name: &str, arguments: &[&str]) -> Output {
        if let Some(at) = arguments.iter().position(|argument| *argument == "--address") {
            let mut add = vec!["nodes", "add", name, "--address", arguments[at + 1]];
            if let Some(via) = arguments.iter().position(|argument| *argument == "--via") {
                add.extend(["--via", arguments[via + 1]]);
            }
            if arguments.contains(&"--user-only") {
                add.extend(["--trust", "user"]);
            }
            ok(cluster.admin(&add));
        }
        let token = cluster.token(&["--role", "openssh", "--label", "env=prod"]);
        let mut all = vec!["--token", &token, "--ca-pin", &cluster.pin, "--name", name];
        all.extend(arguments);
        self.join(cluster, &all)
    }
}

fn login(name: &str) -> String {
    format!("{}@{name}", me())
}

fn with_alice() -> (Cluster, User) {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    (cluster, alice)
}

#[test]
fn a_server_that_joins_is_reached_like_a_node() {
    let (cluster, alice) = with_alice();
    let sshd = Sshd::start(&cluster, "db-1");

    // Printed, not applied: nothing changes.
    let before = fs::read(sshd.file("sshd_config")).unwrap();
    let shown = ok(sshd.join_with_token(&cluster, "db-1", &["--address", &sshd.address()]));
    assert!(stdout(&shown).contains("TrustedUserCAKeys"), "{}", stdout(&shown));
    assert!(!sshd.file("sshd_config.d/20-sallyport.conf").exists());
    refused(&sshd.join_with_token(&cluster, "db-1", &[]), 1);

    let applied = ok(sshd.join(&cluster, &["--renew", "--apply"]));
    assert!(stdout(&applied).contains("sshd accepts it"), "{}", stdout(&applied));
    assert_eq!(fs::read(sshd.file("sshd_config")).unwrap(), before, "the main file is the administrator's");
    assert!(sshd.file("host_key-cert.pub").exists());
    let again = ok(sshd.join(&cluster, &["--renew"]));
    assert!(stdout(&again).contains("Everything is in place."), "{}", stdout(&again));
    let forced = ok(sshd.join(&cluster, &["--renew", "--force"]));
    assert!(stdout(&forced).contains("host_key-cert.pub"), "{}", stdout(&forced));

    let listed = stdout(&ok(alice.run(&["ls", "-v"])));
    assert!(
        listed.contains("db-1") && listed.contains("registered") && listed.contains("env=prod"),
        "{listed}"
    );
    let found: serde_json::Value =
        serde_json::from_slice(&ok(alice.run(&["ls", "--format", "json"])).stdout).unwrap();
    assert_eq!((&found[0]["kind"], &found[0]["address"]), (&"openssh".into(), &sshd.address().into()));

    // Our client, with the server's id as well as its name.
    let output = ok(alice.run(&["ssh", &login("db-1"), "echo $((6 * 7)); exit 0"]));
    assert_eq!(stdout(&output), "42\n");
    let id = found[0]["id"].as_str().unwrap();
    assert_eq!(alice.run(&["ssh", &login(id), "exit 9"]).status.code(), Some(9));
    // Stock ssh, with ProxyCommand, and with -J.
    let output = ok(alice.ssh(&[&support::target("db-1"), "echo stock"]));
    assert_eq!(stdout(&output), "stock\n");
    cluster.wait_event("node.joined", |event| event["fields"]["role"] == "openssh");
    cluster.wait_event("cert.host_issued", |event| event["node"] == "db-1");
}

/// What sha256sum(1) says of a text.
fn sum_of(text: &str) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    stdout(&output).split(' ').next().unwrap().to_owned()
}

/// The round trips of `sallyport ssh` to a server, and that it did what it should.
fn round_trips(alice: &User, pipelined: &str) -> u64 {
    let traced = ["ssh", "--trace=json", &login("db-1"), "echo $((6 * 7)); exit 9"];
    let mut command = alice.command(&traced);
    command.env("SALLYPORT_CONNECT", "off").env("SALLYPORT_FRONT", "ssh");
    let output = command.env("SALLYPORT_PIPELINED", pipelined).output().unwrap();
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("42\n", Some(9)), "{}", stderr(&output));
    let said = stderr(&output);
    let line = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no JSON in {said}"));
    let trace: serde_json::Value = serde_json::from_str(line).unwrap();
    let seen: Vec<&str> =
        trace["phases"].as_array().unwrap().iter().filter_map(|phase| phase["name"].as_str()).collect();
    for phase in ["ssh.version", "ssh.key_exchange", "ssh.authentication", "ssh.channel", "ssh.program"] {
        assert!(seen.contains(&phase), "{seen:?}");
    }
    trace["round_trips"].as_u64().unwrap()
}

#[test]
fn a_session_takes_few_round_trips_where_both_sides_can() {
    let (cluster, alice) = with_alice();
    let sshd = Sshd::start(&cluster, "db-1");
    ok(sshd.join_with_token(&cluster, "db-1", &["--address", &sshd.address(), "--apply"]));
    // A busy machine delivers a flight in pieces, which count as several, or connects so slowly that quick answers do not count:
    // the middle one of a few connections is neither.
    let middle = |pipelined: &str| {
        let mut counted: Vec<u64> = (0..7).map(|_| round_trips(&alice, pipelined)).collect();
        counted.sort_unstable();
        counted[3]
    };
    let (few, many) = (middle("on"), middle("off"));
    assert!(few + 3 <= many, "{few} round trips, and {many} one after the other");

    // Without being asked, and with everything that a session has.
    let text = "line\n".repeat(500_000);
    let output = ok(alice.run_with_input(&["ssh", &login("db-1"), "sha256sum; echo talk >&2"], &text));
    assert_eq!(stdout(&output).split(' ').next(), Some(sum_of(&text).as_str()));
    assert!(stderr(&output).contains("talk"), "{}", stderr(&output));
    let said = refused(&alice.run(&["ssh", "not-there@db-1", "true"]), 255);
    assert!(said.contains("not-there"), "{said}");
    let said = refused(
        &alice.command(&["ssh", &login("db-1"), "true"]).env("SALLYPORT_PIPELINED", "x").output().unwrap(),
        255,
    );
    assert!(said.contains("SALLYPORT_PIPELINED is \"x\""), "{said}");

    // Files, too, in both directions.
    let [file, there, back] = ["text", "there", "back"].map(|name| cluster.path(name));
    fs::write(&file, &text).unwrap();
    let beside = |path: &PathBuf| format!("{}:{}", login("db-1"), path.display());
    for way in ["on", "off"] {
        let copy = |from: &str, to: &str| {
            ok(alice.command(&["scp", from, to]).env("SALLYPORT_PIPELINED", way).output().unwrap());
        };
        copy(file.to_str().unwrap(), &beside(&there));
        copy(&beside(&there), back.to_str().unwrap());
        assert!(fs::read_to_string(&back).unwrap() == text, "{way}");
        for copied in [&there, &back] {
            fs::remove_file(copied).unwrap();
        }
    }

    // A server without the ciphers of the pipelined client is reached by the other one, and the user does not notice.
    let config = fs::read_to_string(sshd.file("sshd_config")).unwrap();
    fs::write(sshd.file("sshd_config"), format!("{config}Ciphers chacha20-poly1305@openssh.com\n")).unwrap();
    ok(sshd.join(&cluster, &["--renew", "--force", "--apply"]));
    wait_for("sshd to read its configuration again", || (round_trips(&alice, "on") > few + 2).then_some(()));
    assert_eq!(stdout(&ok(alice.run(&["ssh", &login("db-1"), "echo still"]))), "still\n");
}

#[test]
fn a_configuration_that_sshd_refuses_is_taken_back() {
    let (cluster, _alice) = with_alice();
    let sshd = Sshd::start(&cluster, "db-1");
    ok(sshd.join_with_token(&cluster, "db-1", &["--address", &sshd.address()]));
    let drop_in = sshd.file("sshd_config.d/20-sallyport.conf");

    // sshd_config stops including the directory of drop-ins.
    let config = fs::read_to_string(sshd.file("sshd_config")).unwrap();
    let (include, rest) = config.split_once('\n').unwrap();
    fs::write(sshd.file("sshd_config"), rest).unwrap();
    let said = refused(&sshd.join(&cluster, &["--renew", "--apply"]), 1);
    assert!(said.contains("does not read") && said.contains("Include"), "{said}");
    assert!(!drop_in.exists() && !sshd.file("host_key-cert.pub").exists());

    // The command that is to tell sshd fails: a drop-in that was there stands there again.
    fs::write(sshd.file("sshd_config"), format!("{include}\n{rest}")).unwrap();
    fs::write(&drop_in, "# mine\n").unwrap();
    let pid = sshd.file("sshd.pid");
    let moved = sshd.file("away.pid");
    fs::rename(&pid, &moved).unwrap();
    let said = refused(&sshd.join(&cluster, &["--renew", "--apply"]), 1);
    assert!(said.contains("every file is as it was"), "{said}");
    assert_eq!(fs::read_to_string(&drop_in).unwrap(), "# mine\n");
    fs::rename(&moved, &pid).unwrap();
    let done = stdout(&ok(sshd.join(&cluster, &["--renew", "--apply"])));
    assert!(done.contains("before-sallyport"), "{done}");
}

#[test]
fn registered_servers_are_administered_and_refusals_are_clear() {
    let (cluster, alice) = with_alice();
    let closed = free_port();
    let added = cluster.admin(&[
        "nodes",
        "add",
        "db-1",
        "--address",
        &format!("127.0.0.1:{closed}"),
        "--label",
        "env=prod",
    ]);
    assert_eq!(stdout(&ok(added)), "Registered db-1.\n");
    refused(&cluster.admin(&["nodes", "add", "db-1", "--address", "127.0.0.1:1"]), 1);
    let said = refused(&cluster.admin(&["nodes", "add", "x", "--address", "host:port:1"]), 1);
    assert!(said.contains("spec.address"), "{said}");
    let yaml = stdout(&ok(cluster.admin(&["get", "node/db-1"])));
    assert!(yaml.contains("sub_kind: openssh") && yaml.contains("address:"), "{yaml}");
    cluster.wait_event("node.created", |event| event["fields"]["name"] == "db-1");

    // Nothing listens; something else listens.
    let said = refused(&alice.run(&["ssh", &login("db-1"), "true"]), 255);
    assert!(said.contains("refused the connection"), "{said}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let speaks = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail\r\n").unwrap();
    });
    let moved = yaml.replace(&closed.to_string(), &address.port().to_string());
    ok(cluster.create(&moved));
    cluster.wait_event("node.updated", |event| event["fields"]["name"] == "db-1");
    let said = refused(&alice.run(&["ssh", &login("db-1"), "true"]), 255);
    assert!(said.contains("not an SSH server") && said.contains("220 mail"), "{said}");
    speaks.join().unwrap();

    // Roles decide by the login before anything is dialled.
    let said = stderr(&alice.run(&["ssh", "no-such-login@db-1", "true"]));
    assert!(!said.contains("not an SSH server"), "{said}");
    cluster.wait_event("session.refused", |event| event["node"] == "db-1");
    ok(cluster.admin(&["rm", "node/db-1"]));
    let said = stderr(&alice.run(&["ssh", &login("db-1"), "true"]));
    assert!(said.contains("no node is called"), "{said}");
}

#[test]
fn an_agent_is_the_gateway() {
    let (mut cluster, alice) = with_alice();
    cluster.add_node("gate", "env: prod");
    let sshd = Sshd::start(&cluster, "db-1");
    let via = ["--address", &sshd.address(), "--via", "gate", "--apply"];
    ok(sshd.join_with_token(&cluster, "db-1", &via));
    let output = ok(alice.run(&["ssh", &login("db-1"), "echo behind"]));
    assert_eq!(stdout(&output), "behind\n");
    let output = ok(alice.ssh(&[&support::target("db-1"), "echo stock"]));
    assert_eq!(stdout(&output), "stock\n");

    // A lock cuts what goes through the gateway, too.
    let mut running = alice.command(&["ssh", &login("db-1"), "sleep 60"]).spawn().unwrap();
    wait_for("the session", || {
        let found = Command::new("pgrep").args(["-f", "^sleep 60$"]).output().unwrap();
        found.status.success().then_some(())
    });
    ok(cluster.admin(&["lock", "--user", "alice", "--message", "under review"]));
    let ended = wait_for("the end of the session", || running.try_wait().unwrap());
    assert!(!ended.success());
}

#[test]
fn stock_ssh_jumps_to_it() {
    let (cluster, alice) = with_alice();
    let sshd = Sshd::start(&cluster, "db-1");
    ok(sshd.join_with_token(&cluster, "db-1", &["--address", &sshd.address(), "--apply"]));
    let output = ok(ssh(&alice.ssh_config(&["--jump"]), &[&support::target("db-1"), "echo jumped"]));
    assert_eq!(stdout(&output), "jumped\n");
}

/// A role that has everything recorded at the proxy, for these logins.
pub(crate) fn recorded_at_the_proxy(cluster: &Cluster, options: &str) {
    ok(cluster.create(&format!(
        "kind: role\nversion: v1\nmetadata:\n  name: watched\nspec:\n  allow:\n    logins: ['{{{{internal.logins}}}}']\n    \
         node_labels:\n      '*': '*'\n  options: {{session_recording: proxy{options}}}\n"
    )));
}

#[test]
fn the_proxy_records_what_a_server_cannot() {
    let cluster = Cluster::bare();
    recorded_at_the_proxy(&cluster, ", forward_agent: true");
    let bob = cluster.add_user("bob", "watched", &me());
    let sshd = Sshd::start(&cluster, "db-1");
    // No user comes in past the proxy: sshd trusts the openssh CA alone.
    ok(sshd.join_with_token(&cluster, "db-1", &["--address", &sshd.address(), "--apply", "--proxy-only"]));

    let output = ok(bob.run(&["ssh", &login("db-1"), "echo on the record"]));
    assert_eq!(stdout(&output), "on the record\n");
    let event =
        cluster.wait_event("session.exec", |event| event["fields"]["command"] == "echo on the record");
    assert!(event["origin"].as_str().unwrap().starts_with("proxy:"), "{event}");
    assert_eq!((&event["node"], &event["user"]), (&"db-1".into(), &"bob".into()));
    let session =
        cluster.wait_recording("complete", |recording| recording["command"] == "echo on the record");
    assert!(cluster.playback(&session, "text").contains("on the record"));
    // Certificates are asked for once.
    for _ in 0..3 {
        assert_eq!(bob.run(&["ssh", &login("db-1"), "exit 7"]).status.code(), Some(7));
    }
    let issued: Vec<_> = cluster
        .events()
        .into_iter()
        .filter(|event| event["kind"] == "cert.issued" && event["node"] == "db-1")
        .collect();
    assert_eq!(issued.len(), 1, "{issued:?}");

    // Stock ssh and scp, with ProxyCommand and with -J.
    let output = ok(bob.ssh(&[&support::target("db-1"), "echo stock"]));
    assert_eq!(stdout(&output), "stock\n");
    let output =
        ok(ssh(&bob.ssh_config(&["--jump"]), &["-tt", &support::target("db-1"), "echo jumped; tty"]));
    assert!(
        stdout(&output).contains("jumped") && stdout(&output).contains("/dev/pts/"),
        "{}",
        stdout(&output)
    );
    // A session there can be watched, at the proxy.
    let none = bob.ssh(&["-tt", &format!("sallyport-join@db-1.{}", support::CLUSTER), "x"]);
    assert_eq!(none.status.code(), Some(255), "no session is there");
    let mut owner = ssh_command(&bob.ssh_config(&[]))
        .args(["-tt", &support::target("db-1"), "echo the first screen; sleep 60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let one = support::wait_for("the session to be listed", || {
        let listed = ok(bob.run(&["sessions", "ls", "--format", "json"])).stdout;
        serde_json::from_slice::<Vec<serde_json::Value>>(&listed)
            .unwrap()
            .into_iter()
            // An earlier one may still be on the list.
            .find(|one| {
                one["recording"] == "proxy" && one["command"].as_str().unwrap_or("").contains("first")
            })
    });
    let mut watching = bob
        .command(&["sessions", "join", one["session_id"].as_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = support::lines_of(&mut watching);
    support::read_until(&mut shown, "the first screen");
    ok(bob.run(&["sessions", "end", one["session_id"].as_str().unwrap()]));
    assert_eq!(owner.wait().unwrap().code(), Some(255));
    assert!(watching.wait().unwrap().success());
    let (file, copy) = (cluster.path("file"), cluster.path("copy"));
    fs::write(&file, vec![7u8; 300_000]).unwrap();
    let there = format!("{}:{}", support::target("db-1"), copy.display());
    let copied = Command::new("scp")
        .args(["-q", "-F"])
        .arg(bob.ssh_config(&[]))
        .arg(&file)
        .arg(&there)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    ok(copied);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&file).unwrap());
    cluster.wait_event("session.sftp", |event| {
        event["fields"]["operation"] == "close" && event["fields"]["bytes_written"] == 300_000
    });

    // The own certificate opens nothing past the proxy.
    let config = bob.ssh_config(&[]);
    let port = sshd.port.to_string();
    let alias = format!("HostKeyAlias=db-1.{}", support::CLUSTER);
    let past = support::ssh_command(&config)
        .args([
            "-o",
            "ProxyCommand=none",
            "-o",
            &alias,
            "-o",
            "HostName=127.0.0.1",
            "-p",
            &port,
            &support::target("db-1"),
            "true",
        ])
        .output()
        .unwrap();
    assert!(stderr(&past).contains("Permission denied"), "{}", stderr(&past));

    // A lock cuts what runs, with words.
    let mut running = bob.command(&["ssh", &login("db-1"), "sleep 61"]);
    let running = running.stderr(Stdio::piped()).spawn().unwrap();
    cluster.wait_event("session.exec", |event| event["fields"]["command"] == "sleep 61");
    ok(cluster.admin(&["lock", "--user", "bob", "--message", "under review"]));
    let ended = running.wait_with_output().unwrap();
    assert!(!ended.status.success());
    assert!(stderr(&ended).contains("under review"), "{}", stderr(&ended));
}

#[test]
fn where_sshd_trusts_the_user_ca_alone_the_users_own_key_signs_and_the_proxy_records() {
    let cluster = Cluster::bare();
    recorded_at_the_proxy(&cluster, "");
    let bob = cluster.add_user("bob", "watched", &me());
    let sshd = Sshd::start(&cluster, "db-1");
    ok(sshd.join_with_token(&cluster, "db-1", &["--address", &sshd.address(), "--apply", "--user-only"]));
    let trusted = fs::read_to_string(sshd.file("sallyport_user_cas.pub")).unwrap();
    let own = ok(cluster.admin(&["ca", "export", "--kind", "user", "--format", "openssh"]));
    let key = |line: &str| line.split_whitespace().nth(1).unwrap().to_owned();
    let keys: Vec<String> = trusted.lines().filter(|line| line.starts_with("ssh-")).map(key).collect();
    assert_eq!(keys, stdout(&own).lines().map(key).collect::<Vec<_>>(), "{trusted}");
    let yaml = stdout(&ok(cluster.admin(&["get", "node/db-1"])));
    assert!(yaml.contains("trust: user"), "{yaml}");

    // Our client, on its own connection and through the helper daemon.
    for (resident, words) in [("off", "first"), ("", "second")] {
        let mut command = bob.command(&["ssh", &login("db-1"), &format!("echo {words} [$SSH_AUTH_SOCK]")]);
        let output = ok(command.env("SALLYPORT_CONNECT", resident).output().unwrap());
        assert_eq!(stdout(&output), format!("{words} []\n"));
    }
    let event = cluster.wait_event("session.agent_signed", |event| event["user"] == "bob");
    assert!(event["origin"].as_str().unwrap().starts_with("proxy:"), "{event}");
    assert_eq!((&event["node"], &event["login"]), (&"db-1".into(), &me().as_str().into()));
    assert_eq!((&event["fields"]["agent"], &event["fields"]["key_id"]), (&"client".into(), &"bob".into()));
    let profile = bob.home.join(cluster.proxy().replace(':', "_"));
    let shown = Command::new("ssh-keygen").arg("-lf").arg(profile.join("ssh_key.pub")).output().unwrap();
    let fingerprint = stdout(&shown).split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(event["fields"]["key"], fingerprint.as_str(), "{event}");
    let session = cluster.wait_recording("complete", |recording| {
        recording["command"].as_str().unwrap_or("").contains("first")
    });
    assert!(cluster.playback(&session, "text").contains("first []"));

    // Stock ssh, with ProxyCommand as `sallyport config` writes it; scp; and past the helper.
    let output = ok(bob.ssh(&[&support::target("db-1"), "echo stock"]));
    assert_eq!(stdout(&output), "stock\n");
    let mut direct = ssh_command(&bob.ssh_config(&[]));
    direct.args([&support::target("db-1"), "echo direct"]).env("SALLYPORT_CONNECT", "off");
    assert_eq!(stdout(&ok(direct.output().unwrap())), "direct\n");
    let (file, copy) = (cluster.path("file"), cluster.path("copy"));
    fs::write(&file, vec![7u8; 300_000]).unwrap();
    let copied =
        ok(bob.run(&["scp", file.to_str().unwrap(), &format!("{}:{}", login("db-1"), copy.display())]));
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&file).unwrap(), "{}", stderr(&copied));

    // With -J nothing of ours is on the user's side: an agent has to be forwarded.
    let jump = bob.ssh_config(&["--jump"]);
    let said = refused(&ssh(&jump, &[&support::target("db-1"), "true"]), 255);
    assert!(said.contains("brings no agent") && said.contains("ssh -A"), "{said}");
    cluster.wait_event("session.refused", |event| {
        event["node"] == "db-1" && event["message"].as_str().unwrap_or("").contains("brings no agent")
    });
    let agent = SshAgent::start(cluster.path("agent"));
    agent.add(&profile.join("ssh_key"));
    let mut jumping = ssh_command(&jump);
    jumping
        .args(["-A", &support::target("db-1"), "echo jumped [$SSH_AUTH_SOCK]"])
        .env("SSH_AUTH_SOCK", &agent.socket);
    assert_eq!(stdout(&ok(jumping.output().unwrap())), "jumped []\n", "no role forwards the agent");
    cluster.wait_event("session.agent_signed", |event| event["fields"]["agent"] == "forwarded");

    // A key of the user's own, which the agent holds without its certificate: by our client, by ProxyCommand, and with -J.
    let key = cluster.path("id");
    ok(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).output().unwrap());
    ok(bob.login(&["--ssh-key", key.to_str().unwrap()]));
    let (config, jump) = (bob.ssh_config(&[]), bob.ssh_config(&["--jump"]));
    let mut own = bob.command(&["ssh", &login("db-1"), "echo signed"]);
    let (mut stock, mut jumping) = (ssh_command(&config), ssh_command(&jump));
    stock.args([&support::target("db-1"), "echo signed"]);
    jumping.args(["-A", &support::target("db-1"), "echo signed"]);
    let added = SshAgent::start(cluster.path("own-agent"));
    for command in [&mut own, &mut stock, &mut jumping] {
        command.env("SALLYPORT_CONNECT", "off").env("SSH_AUTH_SOCK", &added.socket);
    }
    let said = refused(&own.output().unwrap(), 255);
    assert!(said.contains("the agent does not hold it"), "{said}");
    added.add(&key);
    for command in [&mut own, &mut stock, &mut jumping] {
        assert_eq!(stdout(&ok(command.output().unwrap())), "signed\n");
    }
    // A helper runs, which was started without this agent.
    for command in [&mut own, &mut stock] {
        let output = command.env("SALLYPORT_CONNECT", "").output().unwrap();
        assert_eq!(stdout(&ok(output)), "signed\n");
    }
    let issued = cluster.events().into_iter().filter(|event| event["kind"] == "cert.issued");
    assert_eq!(
        issued.filter(|event| event["node"] == "db-1").count(),
        0,
        "no other user's program signs for bob"
    );
}

#[test]
fn a_pinned_host_key_is_enough_where_the_proxy_records() {
    let cluster = Cluster::bare();
    recorded_at_the_proxy(&cluster, ", ssh_file_copy: false");
    let bob = cluster.add_user("bob", "watched", &me());
    let sshd = Sshd::start(&cluster, "db-1");
    let key = sshd.file("host_key.pub");
    let added = cluster.admin(&[
        "nodes",
        "add",
        "db-1",
        "--address",
        &sshd.address(),
        "--host-key",
        key.to_str().unwrap(),
    ]);
    ok(added);
    let said = refused(&bob.run(&["ssh", &login("db-1"), "true"]), 255);
    assert!(said.contains("refused to log in"), "{said}");
    // Trusting the openssh CA by hand is all that it takes.
    let ca = ok(cluster.admin(&["ca", "export", "--kind", "openssh", "--format", "openssh"]));
    fs::write(sshd.file("cas"), &ca.stdout).unwrap();
    fs::write(
        sshd.file("sshd_config.d/cas.conf"),
        format!("TrustedUserCAKeys {}\n", sshd.file("cas").display()),
    )
    .unwrap();
    let pid = fs::read_to_string(sshd.file("sshd.pid")).unwrap();
    assert!(Command::new("kill").args(["-HUP", pid.trim()]).status().unwrap().success());
    wait_for("sshd to trust the CA", || {
        bob.run(&["ssh", &login("db-1"), "true"]).status.success().then_some(())
    });
    let refused = bob.run(&["scp", "/etc/hostname", &format!("{}:/tmp/never", login("db-1"))]);
    assert!(stderr(&refused).contains("do not allow file copies"), "{}", stderr(&refused));
}
