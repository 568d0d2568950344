//! Stock OpenSSH through a real cluster: `ssh`, `scp`, `sftp`, `rsync` and `ssh -J`.

use crate::support;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    CLUSTER, Cluster, User, free_port, me, ok, ssh, ssh_command, stderr, stdout, target, wait_for,
};

fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
    command
}

/// A file of `size` bytes that does not compress to nothing.
fn sample(path: &Path, size: usize) {
    let bytes: Vec<u8> =
        (0..size).map(|at| u8::try_from(((at * 2_654_435_761) >> 13) % 251).unwrap()).collect();
    fs::write(path, bytes).unwrap();
}

#[test]
fn ssh_runs_commands_and_gives_their_exit_code() {
    let (cluster, alice) = Cluster::with_node();
    let web = target("web-1");
    let output = ok(alice.ssh(&[&web, "echo out; echo err >&2; printf '%s' \"$HOME\""]));
    assert!(stdout(&output).starts_with("out\n/"), "{}", stdout(&output));
    assert_eq!(stderr(&output), "err\n");
    assert_eq!(alice.ssh(&[&web, "exit 42"]).status.code(), Some(42));
    // A signal, as sshd and ssh tell it.
    assert_eq!(alice.ssh(&[&web, "kill -TERM $$"]).status.code(), Some(255));
    let output = ok(alice.ssh(&["-tt", &web, "tty; stty size"]));
    assert!(stdout(&output).contains("/dev/pts/"), "{}", stdout(&output));
    let output = ok(ssh_command(&alice.ssh_config(&[]))
        .args(["-o", "SetEnv=LANG=C.UTF-8 SECRET=x", &web, "echo $LANG-$SECRET-$USER"])
        .output()
        .unwrap());
    assert_eq!(stdout(&output).trim(), format!("C.UTF-8--{}", me()));
    cluster.wait_event("session.exec", |event| {
        event["fields"]["command"] == "exit 42" && event["user"] == "alice"
    });
    cluster.wait_event("session.start", |event| event["node"] == "web-1" && event["origin"] == "node:web-1");
    cluster.wait_event("session.end", |event| event["login"] == me().as_str());
}

#[test]
fn standard_input_and_large_output_arrive_whole() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let file = cluster.path("sample");
    sample(&file, 24 << 20);
    let input = fs::File::open(&file).unwrap();
    // Both directions at once: a program that stalls on one must not hang.
    let output = ok(ssh_command(&config).args([&target("web-1"), "cat"]).stdin(input).output().unwrap());
    assert!(output.stdout == fs::read(&file).unwrap(), "{} bytes came back", output.stdout.len());
}

#[test]
fn scp_and_sftp_copy_both_ways() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let file = cluster.path("sample");
    sample(&file, 3 << 20);
    let remote = cluster.path("remote");
    fs::create_dir(&remote).unwrap();
    let at = |name: &str| format!("{}:{}", target("web-1"), remote.join(name).display());
    // -O is the old protocol, which is a command and not SFTP.
    for (name, options) in [("sftp", &[][..]), ("legacy", &["-O"][..])] {
        ok(program("scp").arg("-F").arg(&config).args(options).arg(&file).arg(at(name)).output().unwrap());
        assert!(fs::read(remote.join(name)).unwrap() == fs::read(&file).unwrap());
        let back = cluster.path(&format!("back-{name}"));
        ok(program("scp").arg("-F").arg(&config).args(options).arg(at(name)).arg(&back).output().unwrap());
        assert!(fs::read(&back).unwrap() == fs::read(&file).unwrap());
    }
    let batch = cluster.path("batch");
    let commands = format!(
        "cd {}\nput {} uploaded\nchmod 600 uploaded\nrename uploaded renamed\nmkdir sub\nsymlink renamed link\nls -l\nget \
         renamed {}\nrm renamed\n",
        remote.display(),
        file.display(),
        cluster.path("fetched").display()
    );
    fs::write(&batch, commands).unwrap();
    ok(program("sftp").arg("-F").arg(&config).arg("-b").arg(&batch).arg(target("web-1")).output().unwrap());
    assert!(fs::read(cluster.path("fetched")).unwrap() == fs::read(&file).unwrap());
    assert!(!remote.join("renamed").exists() && remote.join("sub").is_dir());
    let missing = program("scp").arg("-F").arg(&config).arg(at("nothing")).arg(&batch).output().unwrap();
    assert!(!missing.status.success() && stderr(&missing).contains("No such file"), "{}", stderr(&missing));
    cluster.wait_event("session.sftp", |event| {
        event["message"].as_str().is_some_and(|text| text.contains("renamed"))
    });
}

#[test]
fn rsync_copies_trees() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let (source, there, back) = (cluster.path("source"), cluster.path("there"), cluster.path("back"));
    fs::create_dir_all(source.join("deep/er")).unwrap();
    for (number, name) in ["a", "deep/b", "deep/er/c"].iter().enumerate() {
        sample(&source.join(name), 100_000 * (number + 1));
    }
    let shell = format!("ssh -F {} -o BatchMode=yes", config.display());
    let remote = format!("{}:{}/", target("web-1"), there.display());
    ok(program("rsync")
        .args(["-a", "-e", &shell])
        .arg(format!("{}/", source.display()))
        .arg(&remote)
        .output()
        .unwrap());
    ok(program("rsync")
        .args(["-a", "-e", &shell])
        .arg(&remote)
        .arg(format!("{}/", back.display()))
        .output()
        .unwrap());
    for name in ["a", "deep/b", "deep/er/c"] {
        assert!(fs::read(back.join(name)).unwrap() == fs::read(source.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn ssh_jumps_through_the_same_port() {
    let (cluster, alice) = Cluster::with_node();
    let jump = alice.ssh_config(&["--jump"]);
    let output = ok(ssh(&jump, &[&target("web-1"), "echo through the jump"]));
    assert_eq!(stdout(&output), "through the jump\n");
    // With -J by hand, and a name without the cluster behind it.
    let name = format!("{}@web-1", me());
    let alias = format!("{CLUSTER}-proxy");
    let known = format!("HostKeyAlias=web-1.{CLUSTER}");
    let key = format!("IdentityFile={}", key_of(&alice).display());
    let hosts = format!("UserKnownHostsFile={}", alice_file(&alice, "known_hosts").display());
    let output = ok(ssh(
        &alice.ssh_config(&[]),
        &["-J", &alias, "-o", &known, "-o", &key, "-o", &hosts, &name, "echo by hand"],
    ));
    assert_eq!(stdout(&output), "by hand\n");
    // A shell on the proxy itself is refused in words.
    let refused = ssh(&alice.ssh_config(&[]), &[&alias, "id"]);
    assert!(!refused.status.success());
    assert!(stderr(&refused).to_lowercase().contains("sallyport"), "{}", stderr(&refused));
    let unknown = ssh(&jump, &[&target("nowhere"), "true"]);
    assert!(!unknown.status.success());
    assert!(stderr(&unknown).contains("nowhere"), "{}", stderr(&unknown));
    cluster.wait_event("session.refused", |event| {
        event["message"].as_str().is_some_and(|text| text.contains("nowhere"))
    });
}

fn alice_file(alice: &User, name: &str) -> std::path::PathBuf {
    fs::read_dir(&alice.home)
        .unwrap()
        .map(|entry| entry.unwrap().path().join(name))
        .find(|path| path.exists())
        .expect("the profile's file")
}

fn key_of(alice: &User) -> std::path::PathBuf {
    alice_file(alice, "ssh_key")
}

#[test]
fn ports_are_forwarded_where_a_role_lets_them() {
    let (cluster, alice) = Cluster::with_node();
    let echo = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in echo.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"behind the node\n");
        }
    });
    let read = |local: u16| {
        wait_for("the forwarded port", || {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", local)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
            let mut text = String::new();
            std::io::Read::read_to_string(&mut stream, &mut text).ok()?;
            (!text.is_empty()).then_some(text)
        })
    };
    let local = free_port();
    let forward = format!("127.0.0.1:{local}:127.0.0.1:{port}");
    let mut tunnel =
        ssh_command(&alice.ssh_config(&[])).args(["-N", "-L", &forward, &target("web-1")]).spawn().unwrap();
    assert_eq!(read(local), "behind the node\n");
    tunnel.kill().unwrap();
    tunnel.wait().unwrap();
    cluster.wait_event("session.port_forward", |event| event["user"] == "alice");

    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: narrow}\nspec:\n  allow: {logins: ['{{internal.logins}}'], node_labels: \
         {'*': '*'}}\n  options: {port_forwarding: false, ssh_file_copy: false}\n",
    ));
    let bob = cluster.add_user("bob", "narrow", &me());
    let local = free_port();
    let forward = format!("127.0.0.1:{local}:127.0.0.1:{port}");
    let mut tunnel = ssh_command(&bob.ssh_config(&[]))
        .args(["-N", "-L", &forward, &target("web-1")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = wait_for("the port to be tried", || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", local)).ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).ok().map(|_| text)
    });
    assert_eq!(text, "");
    tunnel.kill().unwrap();
    let said = stderr(&tunnel.wait_with_output().unwrap());
    assert!(said.contains("port forwarding") || said.contains("prohibited"), "{said}");
    let config = bob.ssh_config(&[]);
    let file = cluster.path("x");
    fs::write(&file, "x").unwrap();
    let copied = program("scp")
        .arg("-F")
        .arg(&config)
        .arg(&file)
        .arg(format!("{}:{}", target("web-1"), cluster.path("y").display()))
        .output()
        .unwrap();
    assert!(!copied.status.success() && !cluster.path("y").exists());
    assert_eq!(bob.ssh(&[&target("web-1"), "echo still"]).stdout, b"still\n");
}

#[test]
fn fifty_sessions_at_once() {
    let (_cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let children: Vec<_> = (0..50)
        .map(|number| {
            let child = ssh_command(&config)
                .args([&target("web-1"), &format!("echo number {number}")])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            (number, child)
        })
        .collect();
    for (number, child) in children {
        let output = ok(child.wait_with_output().unwrap());
        assert_eq!(stdout(&output), format!("number {number}\n"));
    }
}

#[test]
fn a_session_is_recorded_and_played_back() {
    let (cluster, alice) = Cluster::with_node();
    ok(alice
        .ssh(&["-tt", &target("web-1"), "echo recorded; printf '\\033[31mred\\033[0m\\n'; exit 3"])
        .status
        .code()
        .map_or_else(
            || panic!("no exit code"),
            |code| {
                assert_eq!(code, 3);
                Command::new("true").output().unwrap()
            },
        ));
    let session = cluster.wait_recording("complete", |recording| recording["user"] == "alice");
    let text = cluster.playback(&session, "text");
    assert!(text.contains("recorded\n") && text.contains("red\n") && !text.contains('\u{1b}'), "{text:?}");
    let cast = cluster.playback(&session, "asciicast");
    let head: serde_json::Value = serde_json::from_str(cast.lines().next().unwrap()).unwrap();
    assert_eq!(head["version"], 2);
    assert!(cast.contains("\\u001b[31mred"), "{cast}");
    let json = cluster.playback(&session, "json");
    assert!(json.lines().last().unwrap().contains(r#""exit""#), "{json}");
    // The session's user may play it; another user may not.
    ok(alice.run(&["play", &session]));
    let bob = cluster.add_user("bob", "access", &me());
    let refused = support::refused(&bob.run(&["play", &session]), 4);
    assert!(refused.contains("bob"), "{refused}");
    cluster.wait_event("recording.played", |event| event["user"] == "alice");
    cluster.wait_event("api.refused", |event| event["fields"]["method"] == "Cluster.PlayRecording");
    // Nothing of it stands in the clear on any disk.
    for directory in ["data/auth/recordings", "node-web-1"] {
        let found =
            Command::new("grep").args(["-rl", "recorded"]).arg(cluster.path(directory)).output().unwrap();
        let listed = stdout(&found);
        assert!(!listed.contains(".rec"), "{listed}");
    }
}
