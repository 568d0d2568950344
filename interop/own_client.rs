//! `sallyport ssh` and `sallyport scp`, as people who know `ssh` and `scp` expect them.

use crate::support;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::support::{Cluster, PROGRAM, me, ok, refused, stderr, stdout, wait_for};

#[test]
fn commands_input_and_exit_codes_are_those_of_ssh() {
    let (_cluster, alice) = Cluster::with_node();
    let web = format!("{}@web-1", me());
    let output = ok(alice.run(&["ssh", &web, "echo out; echo err >&2"]));
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("out\n", "err\n"));
    assert_eq!(alice.run(&["ssh", &web, "exit", "42"]).status.code(), Some(42));
    assert_eq!(alice.run(&["ssh", "-l", &me(), "web-1", "exit 7"]).status.code(), Some(7));
    let output = ok(alice.run(&["ssh", "-tt", &web, "tty"]));
    assert!(stdout(&output).contains("/dev/pts/"), "{}", stdout(&output));
    let input: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    let output = ok(alice.run_with_input(&["ssh", &web, "cat"], &input));
    assert!(stdout(&output) == input, "{} bytes", output.stdout.len());
    let said = refused(&alice.run(&["ssh", "-o", "Nonsense=yes", &web, "true"]), 255);
    assert!(said.contains("Nonsense"), "{said}");
}

#[test]
fn labels_select_nodes() {
    let (mut cluster, alice) = Cluster::with_node();
    cluster.add_node("web-2", "env: prod");
    cluster.add_node("db-1", "env: dev");
    let login = me();
    let output = ok(alice.run(&["ssh", "-l", &login, "env=prod", "echo here"]));
    let text = stdout(&output);
    assert!(text.contains("web-1") && text.contains("web-2") && !text.contains("db-1"), "{text}");
    assert_eq!(text.matches("here").count(), 2, "{text}");
    let output = ok(alice.run(&["ls", "env=pr*", "--format", "json"]));
    let nodes: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(nodes.as_array().unwrap().len(), 2);
    assert_eq!(nodes[0]["logins"][0], login.as_str());
    let said = stderr(&alice.run(&["ssh", "-l", &login, "env=none", "true"]));
    assert!(said.contains("env=none"), "{said}");
    // A node that is away is left out, and told from a command that failed.
    let away = cluster.nodes.iter().position(|(name, _)| name == "web-2").unwrap();
    drop(cluster.nodes.remove(away));
    wait_for("web-2 to be offline", || {
        let nodes = stdout(&ok(alice.run(&["ls", "--format", "json", "env=prod"])));
        let nodes: serde_json::Value = serde_json::from_str(&nodes).unwrap();
        let web = nodes.as_array().unwrap().iter().find(|node| node["name"] == "web-2");
        web.is_none_or(|node| node["online"] == false).then_some(())
    });
    let ran = alice.run(&["ssh", "-l", &login, "env=prod", "echo here"]);
    let said = refused(&ran, 254);
    assert!(said.contains("left out: web-2 (offline)"), "{said}");
    assert!(stdout(&ran).contains("here"), "{}", stdout(&ran));
    refused(&alice.run(&["ssh", "-l", &login, "env=prod", "exit 3"]), 3);
    refused(&alice.run(&["ssh", "-l", &login, "env=*", "exit 3"]), 3);
    refused(&alice.run(&["ssh", "-l", &login, "env=*", "true"]), 254);
}

#[test]
fn files_are_copied_both_ways() {
    let (cluster, alice) = Cluster::with_node();
    let (source, there, back) = (cluster.path("source"), cluster.path("there"), cluster.path("back"));
    fs::create_dir_all(source.join("deep")).unwrap();
    fs::write(source.join("a"), vec![1; 3 << 20]).unwrap();
    fs::write(source.join("deep/b"), "b").unwrap();
    let remote = format!("{}@web-1:{}", me(), there.display());
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    ok(alice.run(&["scp", "-q", "-r", &path(&source), &remote]));
    ok(alice.run(&["scp", "-q", "-r", &remote, &path(&back)]));
    let copied = if back.join("a").exists() { back } else { back.join("source") };
    assert_eq!(fs::read(copied.join("a")).unwrap(), vec![1; 3 << 20]);
    assert_eq!(fs::read_to_string(copied.join("deep/b")).unwrap(), "b");
    let said = stderr(&alice.run(&["scp", "-q", &format!("{remote}/nothing"), &path(&source)]));
    assert!(said.to_lowercase().contains("no such file"), "{said}");
}

#[test]
fn a_role_without_file_copy_says_so() {
    let (cluster, _alice) = Cluster::with_node();
    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: narrow}\nspec:\n  allow: {logins: ['{{internal.logins}}'], node_labels: \
         {'*': '*'}}\n  options: {ssh_file_copy: false}\n",
    ));
    let bob = cluster.add_user("bob", "narrow", &me());
    let file = cluster.path("file");
    fs::write(&file, "x").unwrap();
    let there = cluster.path("there");
    let target = format!("{}@web-1:{}", me(), there.display());
    let said = refused(&bob.run(&["scp", "-q", file.to_str().unwrap(), &target]), 4);
    assert!(said.contains("do not allow file copies"), "{said}");
    assert!(!there.exists());
}

/// A terminal is made by Python's own module, which every Debian has.
#[test]
fn a_terminal_session_ends_by_escape_and_leaves_the_terminal_as_it_was() {
    let (cluster, alice) = Cluster::with_node();
    let script = cluster.path("terminal.py");
    fs::write(
        &script,
        r#"
import os, pty, select, sys, termios, time
master, slave = pty.openpty()
before = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.setsid()
    import fcntl
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    os.execv(sys.argv[1], sys.argv[1:])

seen = b""
def until(text, seconds=30):
    global seen
    end = time.time() + seconds
    while text not in seen:
        left = end - time.time()
        if left <= 0 or not select.select([master], [], [], left)[0]:
            sys.exit("no %r in %r" % (text, seen))
        seen += os.read(master, 65536)

os.write(master, b"echo be''gin; stty -a | head -1\n")
until(b"begin")
raw = termios.tcgetattr(slave)
assert raw != before, "the terminal is not raw during the session"
os.write(master, b"\n~.")
_, status = os.waitpid(pid, 0)
after = termios.tcgetattr(slave)
assert after == before, "the terminal was not put back"
assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 255, status
print("done")
"#,
    )
    .unwrap();
    let output = Command::new("/usr/bin/python3")
        .arg(&script)
        .arg(PROGRAM)
        .arg("--home")
        .arg(&alice.home)
        .args(["--proxy", &alice.proxy, "ssh"])
        .arg(format!("{}@web-1", me()))
        .env_remove("SSH_AUTH_SOCK")
        .stdin(Stdio::null())
        .output()
        .expect("run /usr/bin/python3");
    assert_eq!(stdout(&ok(output)), "done\n");
}

#[test]
fn logging_out_leaves_nothing() {
    let (_cluster, alice) = Cluster::with_node();
    ok(alice.run(&["logout"]));
    let said = refused(&alice.run(&["ls"]), 3);
    assert!(said.contains("not logged in") && said.contains("sallyport login"), "{said}");
    let left: Vec<_> = fs::read_dir(&alice.home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("127.0.0.1")), "{left:?}");
}

#[test]
fn ports_and_sockets_are_forwarded_in_both_directions() {
    let (cluster, alice) = Cluster::with_node();
    let web = format!("{}@web-1", me());
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = target.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = target.accept() {
            let _ = stream.write_all(b"reached\n");
        }
    });
    let (there, here) = (cluster.path("there.sock"), cluster.path("here.sock"));
    // To the background: the command is there again when everything stands.
    let remote = format!("{}:127.0.0.1:{port}", there.display());
    let local = format!("{}:{}", here.display(), there.display());
    let mut background = alice.command(&["ssh", "-f", "-R", &remote, "-L", &local, &web, "sleep 20"]);
    assert!(background.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let mut said = String::new();
    // Here, through the node's socket, and back to here.
    UnixStream::connect(&here).unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "reached\n");
    // On a port that the node chooses; the session asks itself.
    let command = "cat < /dev/tcp/127.0.0.1/$(cat)";
    let mut running = alice
        .command(&["ssh", "-o", "ExitOnForwardFailure=yes", "-R", &format!("0:127.0.0.1:{port}"), &web])
        .arg(format!("bash -c '{command}'"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(running.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let allocated = line.split_whitespace().find_map(|word| word.parse::<u16>().ok()).expect(&line);
    running.stdin.take().unwrap().write_all(allocated.to_string().as_bytes()).unwrap();
    assert_eq!(stdout(&running.wait_with_output().unwrap()), "reached\n");

    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: outward}\nspec:\n  allow: {logins: ['{{internal.logins}}'], \
         node_labels: {'*': '*'}}\n  options: {port_forwarding: local, stream_local_forwarding: local}\n",
    ));
    let bob = cluster.add_user("bob", "outward", &me());
    for forward in ["0:127.0.0.1:9", "/tmp/never-there.sock:127.0.0.1:9"] {
        // SSH has no words for it; the native protocol has the node's.
        for (front, words) in [("ssh", "a role does not allow it"), ("native", "your roles do not allow")] {
            let mut command = bob.command(&["ssh", "-N", "-R", forward, &web]);
            let said = refused(&command.env("SALLYPORT_FRONT", front).output().unwrap(), 255);
            assert!(said.contains(words), "{said}");
        }
    }
    assert!(!std::path::Path::new("/tmp/never-there.sock").exists());
}

/// Shows the session's cookie to the session's display.
const X_PROGRAM: &str = r#"
import os, socket, struct, subprocess
name = os.environ["DISPLAY"]
shown = subprocess.run(["xauth", "list", name], capture_output=True, text=True, check=True).stdout.split()
cookie, proto = bytes.fromhex(shown[-1]), b"MIT-MAGIC-COOKIE-1"
line = socket.create_connection(("localhost", 6000 + int(name.split(":")[1].split(".")[0])))
line.sendall(struct.pack("<BxHHHHxx", 0x6c, 11, 0, len(proto), len(cookie)) + proto + bytes(2) + cookie)
print(line.recv(100).decode())
"#;

#[test]
fn a_display_is_forwarded_with_its_cookie_kept_here() {
    let (cluster, alice) = Cluster::with_node();
    if Command::new("xauth").arg("version").output().is_err() {
        eprintln!("left out: there is no xauth here");
        return;
    }
    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: screens}\nspec:\n  allow: {logins: ['{{internal.logins}}'], \
         node_labels: {'*': '*'}}\n  options: {permit_x11_forwarding: true}\n",
    ));
    let carol = cluster.add_user("carol", "screens", &me());
    let (number, display) = (400..600)
        .find_map(|number| Some((number, TcpListener::bind(("127.0.0.1", 6000 + number)).ok()?)))
        .unwrap();
    let (name, cookies) = (format!("127.0.0.1:{number}"), cluster.path("cookies"));
    let mut xauth = Command::new("xauth");
    let added = xauth.arg("-f").arg(&cookies).args(["add", &name, "MIT-MAGIC-COOKIE-1"]);
    assert!(added.arg("00112233445566778899aabbccddeeff").output().unwrap().status.success());
    std::thread::spawn(move || {
        let (mut stream, _) = display.accept().unwrap();
        let mut setup = [0; 12 + 20 + 16];
        stream.read_exact(&mut setup).unwrap();
        let said: &[u8] = if setup[32..34] == [0, 0x11] { b"welcome" } else { b"who?" };
        stream.write_all(said).unwrap();
    });
    let run = |who: &support::User, switch: &str, command: &str| {
        let mut ssh = who.command(&["ssh", switch, &format!("{}@web-1", me()), command]);
        ssh.env("DISPLAY", &name).env("XAUTHORITY", &cookies).output().unwrap()
    };
    let output = ok(run(&carol, "-Y", &format!("python3 -c '{X_PROGRAM}'")));
    assert_eq!(stdout(&output), "welcome\n", "{}", stderr(&output));
    let output = ok(run(&alice, "-Y", "echo [$DISPLAY]"));
    assert_eq!(stdout(&output), "[]\n");
    assert!(stderr(&output).contains("permit_x11_forwarding"), "{}", stderr(&output));
    // This display tells the trusted from others no more than a stone.
    let output = ok(run(&carol, "-X", "echo [$DISPLAY]"));
    assert!(stderr(&output).contains("no display is forwarded"), "{}", stderr(&output));
}
