//! Programs that open many sessions at once: Ansible, an editor that works over `ssh`, and our own `--hosts`. The person is asked once.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout};

use super::*;
use crate::support::{free_port, lines_of, wait_for, with_usual_signals};
use crate::tools::{Scale, all_online, fleet, playbook};

#[test]
fn ansible_with_as_many_forks_as_nodes_asks_once() {
    asks_once(Scale { nodes: 3, forks: 3, few: 1 });
}

#[test]
fn ansible_with_twenty_forks_asks_once() {
    asks_once(Scale { nodes: 20, forks: 20, few: 4 });
}

/// The program of a person who types nothing: the pipe has no writer.
fn silent(cluster: &Cluster, person: &Person) -> PathBuf {
    let (script, pipe) = (cluster.path("silent.sh"), cluster.path("pipe"));
    ok(Command::new("mkfifo").arg(&pipe).output().unwrap());
    let words = format!("echo \"$1\" | tr '\\n' ' ' >> '{0}'\necho >> '{0}'\n", person.asked.display());
    fs::write(&script, format!("#!/bin/sh\n{words}exec cat '{}'\n", pipe.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// What the page does for a person who opens the address that they were told, types the code of the terminal, and has a recovery code.
fn proves_at_the_page(cluster: &Cluster, person: &Person) {
    let asked = fs::read_to_string(&person.asked).unwrap();
    let word = |after: &str| asked.split_once(after).unwrap().1.split_whitespace().next().unwrap().to_owned();
    let (id, code) = (word("/approve#"), word("type this code there: "));
    let recovery = fs::read_to_string(cluster.path("codes")).unwrap().lines().next().unwrap().to_owned();
    let origin = format!("https://{}", cluster.proxy());
    for (path, body) in [
        ("describe", serde_json::json!({ "id": id })),
        ("otp", serde_json::json!({ "id": id, "otp": recovery, "code": code })),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["-sk", "--http1.1", "--fail-with-body", "-H", "content-type: application/json"]);
        curl.args(["-H", &format!("origin: {origin}"), "-H", "sec-fetch-site: same-origin"]);
        ok(curl.args(["-d", &body.to_string(), &format!("{origin}/web/approve/{path}")]).output().unwrap());
    }
}

fn asks_once(scale: Scale) {
    let mut cluster = Cluster::bare();
    fleet(&mut cluster, scale.nodes);
    let person = Person::new(&cluster, DEMANDS);
    all_online(&person.alice, scale.nodes);
    let (config, domain) = (person.alice.ssh_config(&[]), format!(".{CLUSTER}"));
    let play = |name: &str, nodes| playbook(&cluster, name, &config, &domain, nodes, scale);
    // Without a person it fails, and nobody is asked.
    let output = play("unattended", scale.few).env("SALLYPORT_MFA_PROMPT", "never").output().unwrap();
    assert!(!output.status.success() && stdout(&output).contains("unreachable=1"), "{}", stdout(&output));
    assert_eq!((person.questions(), challenges(&cluster)), (0, 0));

    // The person goes to the page once every fork has come to the question, as people are slower than forks.
    let began = Instant::now();
    let mut ansible = play("all", scale.nodes);
    ansible.env("SSH_ASKPASS", silent(&cluster, &person)).env("SSH_ASKPASS_REQUIRE", "force");
    // It runs with no standard stream that does not block, as `ssh` leaves the one that other tests of this process share with it.
    ansible.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ansible = ansible.spawn().unwrap();
    let before = scale.few;
    wait_for("every fork", || {
        let wanting = |event: &&serde_json::Value| event["fields"]["reason"] == "factor_missing";
        let refused = cluster.events().iter().filter(wanting).count();
        (refused >= before + scale.nodes && person.questions() > 0).then_some(())
    });
    proves_at_the_page(&cluster, &person);
    let said = stdout(&ok(ansible.wait_with_output().unwrap()));
    eprintln!("ansible, {} nodes, {} forks: {:.1?}", scale.nodes, scale.forks, began.elapsed());
    let done = said.lines().filter(|line| line.contains("ok=4") && line.contains("failed=0")).count();
    assert_eq!(done, scale.nodes, "{said}");
    assert_eq!((person.questions(), challenges(&cluster)), (1, 1));

    // While the proof serves: a run that copies each module by a session of its own, scp and rsync, with no person there.
    ok(play("few", scale.few).env("SALLYPORT_MFA_PROMPT", "never").output().unwrap());
    let file = cluster.path("file");
    fs::write(&file, "copied\n").unwrap();
    let (from, node) = (file.display().to_string(), format!("{}@n01{domain}", me()));
    let to = |name: &str| cluster.path(name).display().to_string();
    ok(person.silent("scp", &[&from, &format!("{node}:{}", to("by-scp"))]));
    let shell = format!("ssh -F {} -o BatchMode=yes", config.display());
    let mut rsync = Command::new("rsync");
    rsync.args(["-a", "-e", &shell, &from, &format!("{node}:{}", to("by-rsync"))]);
    ok(rsync.env("SALLYPORT_MFA_PROMPT", "never").stdin(Stdio::null()).output().unwrap());
    for name in ["by-scp", "by-rsync"] {
        assert_eq!(fs::read_to_string(cluster.path(name)).unwrap(), "copied\n", "{name}");
    }
    assert_eq!((person.questions(), challenges(&cluster)), (1, 1));
}

/// A connection as VS Code's Remote-SSH has it: `ssh -T -D PORT HOST bash`, with a script on standard input.
struct Window {
    ssh: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    socks: u16,
}

impl Window {
    /// `more` are further arguments. The script has it say `text` once it is there.
    fn open(person: &Person, asked: bool, text: &str, more: &[&str]) -> Self {
        let mut command = ssh_command(&person.alice.ssh_config(&[]));
        match asked {
            true => person.asks(&mut command),
            false => command.env("SALLYPORT_MFA_PROMPT", "never"),
        };
        let socks = free_port();
        command.args(more).args(["-T", "-D", &socks.to_string(), "-o", "ExitOnForwardFailure=yes"]);
        command.args([&target("web-1"), "bash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ssh = command.spawn().unwrap();
        let (mut input, output) = (ssh.stdin.take().unwrap(), lines_of(&mut ssh));
        writeln!(input, "echo '{text} is there'").unwrap();
        Self { ssh, input, output, socks }
    }

    fn is_there(&mut self, text: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, format!("{text} is there\n"));
        assert!(TcpStream::connect(("127.0.0.1", self.socks)).is_ok(), "{text}: its SOCKS proxy");
    }

    fn close(mut self) {
        writeln!(self.input, "exit").unwrap();
        drop(self.input);
        assert!(self.ssh.wait().unwrap().success());
    }
}

#[test]
fn a_burst_of_an_editor_asks_once() {
    let mut cluster = Cluster::bare();
    cluster.add_node("web-1", "env: prod");
    let person = Person::new(&cluster, DEMANDS);
    // Some share a connection, and which of those makes it is decided by the race.
    let shared = format!("ControlPath={}", cluster.path("shared").display());
    let sharing = ["-o", "ControlMaster=auto", "-o", "ControlPersist=no", "-o", shared.as_str()];
    let more = |number: usize| if number.is_multiple_of(2) { &sharing[..] } else { &[] };
    let open = |number: usize| Window::open(&person, true, &format!("window {number}"), more(number));
    let mut windows: Vec<Window> = (0..8).map(open).collect();
    for (number, window) in windows.iter_mut().enumerate() {
        window.is_there(&format!("window {number}"));
    }
    assert_eq!((person.questions(), challenges(&cluster)), (1, 1));
    // The next windows open while the proof serves, also those of no shared connection, and with no person there.
    for (text, number) in [("a shared one", 0), ("one of its own", 1)] {
        let mut window = Window::open(&person, false, text, more(number));
        window.is_there(text);
        window.close();
    }
    assert_eq!((person.questions(), challenges(&cluster)), (1, 1));
    // What shares a connection goes before that which made it.
    for window in windows {
        let Window { mut ssh, input, .. } = window;
        drop(input);
        wait_for("a window to close", || {
            let _ = ssh.kill();
            ssh.try_wait().unwrap()
        });
    }
}

/// A node is down, another is the user's by another login alone, and a third is none of the user's.
#[test]
fn a_command_on_labels_asks_once_for_those_that_it_runs_on() {
    let mut cluster = Cluster::bare();
    for (name, team) in [("web-1", "a"), ("web-2", "a"), ("web-3", "a"), ("db-1", "b"), ("secret-1", "c")] {
        cluster.add_node(name, &format!("env: prod\n    team: {team}"));
    }
    ok(cluster.create(&format!(
        "kind: role\nversion: v1\nmetadata: {{name: web}}\nspec:\n  options: {DEMANDS}\n  allow: {{logins: [{}], node_labels: {{team: a}}}}\n",
        me()
    )));
    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: db}\nspec: {allow: {logins: [reader], node_labels: {team: b}}}\n",
    ));
    let person = Person::with_role(&cluster, "web,db");
    cluster.node("web-3").kill_9();
    wait_for("web-3 to be offline", || {
        let all = stdout(&cluster.admin(&["nodes", "ls", "--query", "online", "--format", "names"]));
        (!all.contains("web-3")).then_some(())
    });
    let all = format!("{}@env=prod", me());
    let run = || {
        let mut command = person.alice.command(&["ssh", "--hosts", &all, "echo", "up"]);
        person.asks(&mut command).output().unwrap()
    };
    for (questions, what) in [(1, "asked once"), (1, "not asked again")] {
        let output = run();
        let (said, told) = (stdout(&output), stderr(&output));
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["web-1 | up", "web-2 | up"], "{what}: {told}");
        assert!(told.contains("left out: web-3 (offline)") && !told.contains("secret-1"), "{what}: {told}");
        assert!(told.contains("db-1 ") && output.status.code() == Some(255), "{what}: {told}");
        assert_eq!((person.questions(), challenges(&cluster)), (questions, 1), "{what}: {told}");
    }
    // The challenge is for those that the user may have, and for no other.
    let proven = cluster.wait_event("user.challenge_proven", |event| event["fields"]["purpose"] == "session");
    let sessions = proven["fields"]["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{proven}");
}

/// Whichever program asks: when the last that waits for the answer was ended, nothing is left that a page could prove.
#[test]
fn ctrl_c_at_the_question_ends_it() {
    let mut cluster = Cluster::bare();
    cluster.add_node("web-1", "env: prod");
    let person = Person::new(&cluster, "{require_session_mfa: yes}");
    let silent = silent(&cluster, &person);
    let own = person.alice.command(&["ssh", "--hosts", &format!("{}@env=prod", me()), "uptime"]);
    let mut stock = ssh_command(&person.alice.ssh_config(&[]));
    stock.args([&target("web-1"), "uptime"]);
    let mut waiting = Vec::new();
    for command in [own, stock] {
        let mut command = with_usual_signals(&command);
        command.env("SSH_ASKPASS", &silent).env("SSH_ASKPASS_REQUIRE", "force").process_group(0);
        waiting.push(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
        wait_for("the question", || (person.questions() == waiting.len()).then_some(()));
    }
    assert_eq!(challenges(&cluster), 1, "the second joins");
    for mut child in waiting {
        let group = format!("-{}", child.id());
        ok(Command::new("kill").args(["-INT", "--", &group]).output().unwrap());
        assert!(!child.wait().unwrap().success());
    }
    let ended = |event: &serde_json::Value| event["message"] == "the program that asked for it has gone";
    cluster.wait_event("user.challenge_refused", ended);
    // It was no refusal: the next program asks anew, and the person proves it.
    let mut next = person.alice.command(&["ssh", &target("web-1"), "echo", "in"]);
    assert_eq!(stdout(&ok(person.asks(&mut next).output().unwrap())), "in\n");
    assert_eq!(challenges(&cluster), 2);
    assert_eq!(cluster.events().iter().filter(|event| ended(event)).count(), 1);
}
