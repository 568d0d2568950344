//! What the user's own machine has always kept out: it stays so.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Cluster, User, is_root, me, ok, ssh, ssh_command, stdout, target};

/// What a shell would do something about; `PLACE` becomes a file that must not be made.
const HOSTILE: [&str; 7] = [
    "$(touch PLACE)",
    "`touch PLACE`",
    "x;touch PLACE;",
    "x|touch PLACE",
    "x&touch PLACE&",
    "x\ntouch PLACE\n",
    "-oProxyCommand=touch PLACE",
];

/// The command of the configuration's ProxyCommand as an `ssh` makes it that puts any name into it.
fn proxy_command(config: &Path, login: &str, host: &str) -> String {
    let text = fs::read_to_string(config).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("ProxyCommand ")).unwrap();
    line.replace("%r", login).replace("%h", host).replace("%p", "22").replace("%%", "%")
}

#[test]
fn hostile_names_run_nothing_by_ssh_config() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let config = alice.ssh_config(&[]);
    let web = target("web-1");
    let (login, host) = web.split_once('@').unwrap();
    let (_, domain) = host.split_once('.').unwrap();
    let place = cluster.path("made");
    for hostile in HOSTILE {
        let name = hostile.replace("PLACE", &place.display().to_string());
        let hosts = format!("{name}.{domain}");
        let by_ssh = [
            ssh_command(&config).args(["--", &hosts, "true"]).output().unwrap(),
            ssh_command(&config).args(["-l", &name, host, "true"]).output().unwrap(),
            alice.run(&["ssh", "--", &hosts, "true"]),
            alice.run(&["ssh", "--", &format!("{name}@{host}"), "true"]),
        ];
        for output in by_ssh {
            assert!(!output.status.success(), "{name}");
        }
        // An ssh of before 9.6 puts any name into the command that its shell runs.
        for (login, host) in [(login, hosts.as_str()), (name.as_str(), host)] {
            let command = proxy_command(&config, login, host);
            let output = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).output().unwrap();
            assert!(!output.status.success(), "{command}");
        }
        assert!(!place.exists(), "{name} was run");
    }
    // A login that would be an option of ours.
    let command = proxy_command(&config, &format!("--home={}", place.display()), host);
    let output = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    assert!(!place.exists());
}

/// A program of another user that listens in the helper's place and says what it heard, ended when dropped.
struct Listening {
    child: Child,
    heard: BufReader<std::process::ChildStdout>,
}

impl Listening {
    fn start(socket: &Path) -> Self {
        // It listens in a place of its own, and is moved to the user's by who may do that.
        let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\n\
                      print('listening',flush=True)\nsys.stdin.readline()\ns.setblocking(False)\nheard=b''\n\
                      while True:\n  try: c,_=s.accept()\n  except BlockingIOError: break\n  c.settimeout(60)\n  \
                      heard+=c.recv(4096)\nprint(len(heard),flush=True)";
        let shared = tempfile::tempdir().unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let path = shared.path().join("socket");
        let mut child = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", script])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut heard = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        heard.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "listening");
        fs::rename(&path, socket).unwrap();
        Self { child, heard }
    }

    /// How many bytes it was told.
    fn heard(&mut self) -> usize {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.heard.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stop(alice: &User) {
    let _ = alice.run(&["connect", "--stop"]);
}

#[test]
fn a_helper_of_another_user_is_told_nothing() {
    if !is_root() {
        eprintln!("left out: only root can be another user");
        return;
    }
    let (_cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let web = target("web-1");
    ok(ssh(&config, &[&web, "true"]));
    stop(&alice);
    let place = alice.home.join(alice.proxy.replace(':', "_")).join("connect");
    let mut other = Listening::start(&place.join("socket"));
    // Both ways there: stock ssh by its ProxyCommand, and the program's own.
    let said = stdout(&ok(ssh(&config, &[&web, "echo by itself"])));
    let own = stdout(&ok(alice.run(&["ssh", &web, "echo by itself"])));
    stop(&alice);
    assert_eq!((said.trim(), own.trim()), ("by itself", "by itself"));
    assert_eq!(other.heard(), 0, "another user's program was asked to carry the session");
}
