//! Sessions of PAM's, by the machine's own runuser and modules.
//!
//! The service's file belongs to the machine, so each keeper runs in a mount namespace of its own, where another is in its place.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sallyport_audit::Code;
use sallyport_ssh::session::Helper;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::world::{PATIENCE, World, accounts, alive, is_root, ok, output, role, started, text, until};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Limits, variables, a module that talks, and one that keeps a log.
pub(crate) const RULES: &str = "\
session required pam_limits.so conf=DIRECTORY/limits\n\
session required pam_env.so conffile=DIRECTORY/variables readenv=0\n\
session optional pam_exec.so /bin/false\n\
session optional pam_echo.so file=DIRECTORY/limits\n\
session required pam_exec.so DIRECTORY/log\n";

/// An account of this machine and what PAM does for it; gone with this.
pub(crate) struct Ground {
    pub(crate) login: String,
    directory: TempDir,
    world: World,
}

impl Ground {
    /// None for who may neither make accounts nor run as them.
    #[allow(clippy::print_stderr, reason = "says what is left out")]
    pub(crate) async fn new(rules: &str, kill_orphans: bool) -> Option<Self> {
        if !is_root() {
            eprintln!("left out: only root can open a PAM session");
            return None;
        }
        let login = format!("sp-pams-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let made = accounts("useradd", &["-M", "-d", "/", "-s", "/bin/sh", &login]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("limits"), "* hard nofile 777\n* soft nofile 555\n").unwrap();
        let variables = "FROM_PAM DEFAULT=yes\nHOME DEFAULT=/nowhere\nSSH_CONNECTION DEFAULT=forged\n";
        std::fs::write(path("variables"), variables).unwrap();
        // Closing takes longer than what the account runs has to go.
        let log = "#!/bin/sh\n[ $PAM_TYPE = open_session ] || sleep 0.3\necho \"$PAM_TYPE $PAM_SERVICE $PAM_USER $PAM_TTY\" >> DIRECTORY/seen\n";
        let here = directory.path().to_str().unwrap();
        std::fs::write(path("log"), log.replace("DIRECTORY", here)).unwrap();
        std::fs::set_permissions(path("log"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(path("rules"), rules.replace("DIRECTORY", here)).unwrap();
        let helper = elsewhere(&path("rules"));
        let world = World::with_roles(&[role("dev", &[&login], "")], |config| {
            config.helper = helper;
            config.pam_session = true;
            config.kill_orphans = kill_orphans;
        })
        .await;
        let mut card = world.card("alice");
        card.logins = vec![login.clone()];
        world.issue("alice", &card);
        Some(Self { login, directory, world })
    }

    pub(crate) fn client(&self, program: &str) -> Command {
        self.world.client(program, "alice")
    }

    pub(crate) fn destination(&self) -> String {
        format!("{}@127.0.0.1", self.login)
    }

    fn ssh(&self, before: &[&str], command: &[&str]) -> Command {
        let mut ssh = self.client("ssh");
        ssh.args(before).arg(self.destination()).args(command);
        ssh
    }

    pub(crate) async fn run(&self, command: &str) -> Output {
        output(self.ssh(&[], &[command])).await
    }

    /// What the modules have logged.
    fn seen(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("seen")).unwrap_or_default()
    }

    pub(crate) async fn closed(&self) {
        until("the end of the PAM session", || self.seen().contains("close_session").then_some(())).await;
    }

    /// Checks that nothing of the account's sessions is left.
    pub(crate) async fn nothing_left(&self) {
        let began = Instant::now();
        while !self.left().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "left: {}", self.left());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What runs as the account or for it, by `ps`.
    fn left(&self) -> String {
        let all = std::process::Command::new("ps").args(["-eww", "-o", "user:40=,stat=,args="]).output();
        let all = text(&all.unwrap().stdout);
        // Clients name it too.
        let (own, runuser) = (format!("{} ", self.login), format!("runuser -u {} ", self.login));
        let ours = |line: &&str| line.starts_with(&own) || line.contains(&runuser);
        all.lines().filter(ours).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        accounts("userdel", &["-f", &self.login]);
    }
}

/// Session processes that find these rules, and in `/etc` what is in a directory beside them, if there is one.
fn elsewhere(rules: &std::path::Path) -> Helper {
    let script = "[ ! -d \"$0.etc\" ] || mount --bind \"$0.etc\" /etc; \
                  mount --bind \"$0\" /etc/pam.d/runuser && exec \"$@\"";
    let arguments = ["--mount", "sh", "-c", script].map(std::ffi::OsString::from);
    let mut arguments = arguments.to_vec();
    arguments.push(rules.into());
    arguments.push(env!("CARGO_BIN_EXE_sallyport-session-helper").into());
    arguments.push(sallyport_ssh::helper::ARGUMENT.into());
    Helper { program: PathBuf::from("/usr/bin/unshare"), arguments }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_modules_set_arrives_and_nothing_else() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    let script = "ulimit -Sn; ulimit -Hn; umask; id -un; pwd; env | sort; ls /proc/self/fd | tr '\\n' ' '; \
                  grep ^SigBlk /proc/self/status; cat; echo err >&2";
    let mut client = ground.ssh(&[], &[script]);
    client.stdin(std::fs::File::open(ground.directory.path().join("limits")).unwrap());
    let shown = output(client).await;
    assert_eq!(text(&shown.stderr), "err\n");
    let shown = ok(&shown);
    assert!(shown.starts_with(&format!("555\n777\n0022\n{}\n/\n", ground.login)), "{shown}");
    assert!(shown.ends_with("* hard nofile 777\n* soft nofile 555\n"), "{shown}");
    // No descriptors but those that whatever runs the tests has left open.
    let inherited = std::process::Command::new("sh").args(["-c", "ls /proc/self/fd | tr '\\n' ' '"]).output();
    let inherited = text(&inherited.unwrap().stdout);
    assert!(shown.contains(&format!("\n{inherited}SigBlk:\t0000000000000000\n")), "{shown}");
    let line = |name: &str| shown.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    assert_eq!(line("FROM_PAM"), Some("yes"));
    assert_eq!(line("HOME"), Some("/"));
    assert_eq!(line("LOGNAME"), Some(ground.login.as_str()));
    assert!(line("SSH_CONNECTION").unwrap().starts_with("127.0.0.1 "), "{shown}");
    assert!(line("SALLYPORT_SESSION").is_some() && line("SALLYPORT_SESSION_SPEC").is_none(), "{shown}");
    // It is closed before the client hears the end.
    let of = |kind: &str| format!("{kind}_session runuser {} \n", ground.login);
    assert_eq!(ground.seen(), of("open") + &of("close"));
    assert!(ground.world.events(&Code::SessionRefused).is_empty());
    ground.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_learns_how_the_command_ended() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    for code in [0, 1, 7, 126, 143, 254, 255] {
        assert_eq!(ground.run(&format!("exit {code}")).await.status.code(), Some(code));
    }
    let events = || ground.world.events(&Code::SessionEnd);
    until("their ends", || (events().len() == 7).then_some(())).await;
    for signal in ["TERM", "PIPE", "KILL", "SEGV", "INT"] {
        let before = events().len();
        let ended = ground.run(&format!("ulimit -c 0; kill -{signal} $$; sleep 5")).await;
        assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(255), ""), "{signal}");
        until("the end", || (events().len() > before).then_some(())).await;
        assert_eq!(events().pop().unwrap().fields["exit_signal"], signal);
    }
    ground.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_pam_refuses_does_not_begin() {
    let rules = "session required pam_exec.so DIRECTORY/log\nsession required pam_deny.so\n";
    let Some(ground) = Ground::new(rules, false).await else { return };
    let witness = ground.directory.path().join("ran");
    std::fs::set_permissions(ground.directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    for before in [&[][..], &["-tt"]] {
        let shown = output(ground.ssh(before, &[&format!("touch {}", witness.display())])).await;
        assert_eq!(shown.status.code(), Some(255));
        assert_eq!(text(&shown.stdout), "");
        let login = &ground.login;
        let reason = format!("this machine opens no session for the account {login} (PAM service runuser): ");
        let said = text(&shown.stderr);
        assert!(said.starts_with(&format!("sallyport: {reason}cannot open session: ")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let event = ground.world.event(&Code::SessionRefused).await;
        assert!(event.message.starts_with(&reason), "{}", event.message);
        assert_eq!(&event.login, login);
    }
    let mut sftp = ground.client("sftp");
    sftp.arg(ground.destination());
    let shown = output(sftp).await;
    assert!(!shown.status.success() && text(&shown.stderr).contains("opens no session"), "{shown:?}");
    assert!(!witness.exists());
    for code in [Code::SessionStart, Code::SessionExec, Code::SessionEnd] {
        assert!(ground.world.events(&code).is_empty(), "{code:?}");
    }
    ground.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_works_as_ever() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    let mut command = ground.ssh(&["-tt"], &[]);
    command.env("TERM", "xterm");
    let mut shell = started(command);
    let mut stdin = shell.stdin.take().unwrap();
    let script = b"stty -echo; PS1=; set -m; stty cols 91 rows 33; tty; ps -o sid=,pgid=,tpgid= -p $$; echo $$; stty size; sleep 100\n";
    stdin.write_all(script).await.unwrap();
    let mut reader = BufReader::new(shell.stdout.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("33 91") {
        assert!(reader.read_line(&mut shown).await.unwrap() > 0, "{shown}");
    }
    let in_front = |line: &str| line.ends_with("sleep 100") && line.contains('+');
    until("the sleep", || ground.left().lines().any(in_front).then_some(())).await;
    // Ctrl-C ends the sleep and not the shell.
    stdin.write_all(b"\x03\nexit 7\n").await.unwrap();
    reader.read_to_string(&mut shown).await.unwrap();
    assert_eq!(shell.wait().await.unwrap().code(), Some(7), "{shown}");
    assert!(!shown.contains("job control"), "{shown}");
    let lines: Vec<&str> = shown.lines().map(|line| line.trim_start_matches("$ ").trim()).collect();
    let at = lines.iter().position(|line| line.starts_with("/dev/pts/")).unwrap_or_else(|| panic!("{shown}"));
    let ids: Vec<&str> = lines[at + 1].split_whitespace().collect();
    // The shell leads its session and its group; ps is in the foreground.
    assert_eq!((ids[0], ids[1]), (lines[at + 2], lines[at + 2]), "{shown}");
    // Modules know the terminal.
    let terminal = lines[at].trim_start_matches("/dev/");
    let (opened, told) = (format!("open_session runuser {} ", ground.login), ground.seen());
    let told = told.lines().next().and_then(|line| line.strip_prefix(&opened)).unwrap();
    assert_eq!(told.trim_start_matches("/dev/"), terminal);
    ground.closed().await;
    ground.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_served_in_a_session() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    let target = tempfile::tempdir().unwrap();
    std::fs::set_permissions(target.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let source = ground.directory.path().join("limits");
    let mut scp = ground.client("scp");
    scp.arg(&source).arg(format!("{}:{}/there", ground.destination(), target.path().display()));
    ok(&output(scp).await);
    let there = target.path().join("there");
    assert_eq!(std::fs::read(&there).unwrap(), std::fs::read(&source).unwrap());
    use std::os::unix::fs::MetadataExt;
    assert_ne!(there.metadata().unwrap().uid(), 0);
    assert!(ground.world.event(&Code::SessionSftp).await.fields.contains_key("path"));
    ground.closed().await;
    ground.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_of_the_client_reach_the_command() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    crate::node::orphans::signals_arrive(&ground.world, &ground.login).await;
    ground.closed().await;
    ground.nothing_left().await;
}

/// Waits for the number that a command prints first.
async fn number(client: &mut tokio::process::Child) -> u32 {
    let mut line = String::new();
    let mut reader = BufReader::new(client.stdout.take().unwrap());
    if tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await.is_err() {
        let arguments = ["-eww", "--forest", "-o", "pid,ppid,user,wchan:32,stat,args"];
        let all = std::process::Command::new("ps").args(arguments).output().unwrap();
        panic!("no number came: {}", text(&all.stdout));
    }
    line.trim().parse().unwrap_or_else(|_| panic!("{line}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_ends_it() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    for before in [&[][..], &["-tt"]] {
        let mut client = started(ground.ssh(before, &["echo $$; exec sleep 1000"]));
        let pid = number(&mut client).await;
        assert!(alive(pid));
        client.kill().await.unwrap();
        until("its end", || (!alive(pid)).then_some(())).await;
        ground.nothing_left().await;
    }
    assert_eq!(ground.seen().matches("close_session").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_ends_what_does_not_listen() {
    // The command itself, and a child of one that does listen.
    let scripts = [
        "echo $$; trap '' HUP TERM; while :; do sleep 0.1; done",
        "sh -c 'trap \"\" HUP TERM; echo $$; exec sleep 1000' & wait",
    ];
    for script in scripts {
        let Some(ground) = Ground::new(RULES, false).await else { return };
        let mut client = started(ground.ssh(&[], &[script]));
        let pid = number(&mut client).await;
        let lock = "kind: lock\nversion: v1\nmetadata: { name: out }\nspec: { target: { user: alice } }";
        ground.world.set_locks(&[lock]);
        assert_eq!(client.wait().await.unwrap().code(), Some(255));
        until("its end", || (!alive(pid)).then_some(())).await;
        ground.closed().await;
        ground.nothing_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_goes_on_or_does_not() {
    for kill_orphans in [false, true] {
        let Some(ground) = Ground::new(RULES, kill_orphans).await else { return };
        let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; sleep 0.2; exit 3";
        let ended = ground.run(script).await;
        assert_eq!(ended.status.code(), Some(3), "{}", text(&ended.stderr));
        let pid: u32 = text(&ended.stdout).trim().parse().unwrap();
        assert!(ground.seen().contains("close_session"));
        if !kill_orphans {
            assert!(alive(pid), "it was to go on");
            std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
        }
        ground.nothing_left().await;
        assert!(!alive(pid));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_anchor_holds_nothing_up() {
    for kill_orphans in [false, true] {
        let Some(ground) = Ground::new(RULES, kill_orphans).await else { return };
        let began = Instant::now();
        let script =
            "pkill -STOP -u $(id -u) -f 'below-pam [a]nchor' && sleep 0.5; ps -o stat= -u $(id -u); exit 4";
        let ended = ground.run(script).await;
        assert_eq!(ended.status.code(), Some(4), "{}", text(&ended.stderr));
        assert!(text(&ended.stdout).contains('T'), "{}", text(&ended.stdout));
        assert!(ground.seen().contains("close_session"));
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        assert_eq!(ground.left(), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_anchor_does_not_outlast_a_session_that_ignores_its_end() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    let script =
        "trap '' HUP; pkill -STOP -u $(id -u) -f 'below-pam [a]nchor'; echo $$; while :; do sleep 0.1; done";
    let mut client = started(ground.ssh(&[], &[script]));
    let pid = number(&mut client).await;
    client.kill().await.unwrap();
    until("the end of the PAM session", || {
        (ground.seen().contains("close_session") && !ground.left().contains("runuser")).then_some(())
    })
    .await;
    let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    ground.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_takes_no_logins_opens_no_session() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    let etc = ground.directory.path().join("rules.etc");
    // Files come and go there while other tests make accounts: a copy that misses one is made again.
    until("a copy of /etc", || {
        let _ = std::fs::remove_dir_all(&etc);
        let copied = std::process::Command::new("cp").args(["-a", "/etc"]).arg(&etc).output().unwrap();
        copied.status.success().then_some(())
    })
    .await;
    std::fs::write(etc.join("nologin"), "down for\x1b[2J repairs\n").unwrap();
    std::fs::set_permissions(etc.join("nologin"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let shown = ground.run("echo ran").await;
    assert_eq!((shown.status.code(), text(&shown.stdout).as_str()), (Some(255), ""));
    assert_eq!(text(&shown.stderr).trim_end(), "sallyport: down for; [2J repairs");
    assert_eq!(ground.world.event(&Code::SessionRefused).await.message, "down for; [2J repairs");
    assert_eq!(ground.seen(), "");
    ground.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_does_not_outlive_its_pam_session() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    let mut client = started(ground.ssh(&[], &["echo $$; exec sleep 1000"]));
    let pid = number(&mut client).await;
    // As an administrator may, or systemd's `loginctl terminate-session`.
    let all =
        text(&std::process::Command::new("ps").args(["-eww", "-o", "pid=,args="]).output().unwrap().stdout);
    let name = format!("runuser -u {} ", ground.login);
    let runuser = all.lines().find(|line| line.contains(&name)).unwrap().split_whitespace().next().unwrap();
    std::process::Command::new("kill").arg(runuser).status().unwrap();
    assert_eq!(client.wait().await.unwrap().code(), Some(255));
    assert_eq!(ground.world.event(&Code::SessionEnd).await.fields["exit_signal"], "HUP");
    assert!(!alive(pid));
    ground.closed().await;
    ground.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_leaves_no_session_open() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    // Python stands for the node. It inherits from the test runner that hang-ups are ignored where nohup started that; a
    // node undoes it for its sessions.
    let helper = elsewhere(&ground.directory.path().join("rules"));
    let arguments: Vec<String> =
        helper.arguments.iter().map(|one| format!("{:?}", one.to_str().unwrap())).collect();
    let script = format!(
        "import json, os, signal, socket, subprocess\n\
         signal.signal(signal.SIGHUP, signal.SIG_DFL)\n\
         ours, its = socket.socketpair()\n\
         spec = dict(login='{}', work='exec', terminal=False, environment=[], keeper_for=os.getpid(), \
         pam_session=True, spares_orphans=True)\n\
         keeper = subprocess.Popen(['/usr/bin/unshare', {}, 'echo $$; exec sleep 1000'], stdin=its, stderr=its, \
         env=dict(SALLYPORT_SESSION_SPEC=json.dumps(spec)))\n\
         its.close()\n\
         null = os.open('/dev/null', os.O_RDWR)\n\
         socket.send_fds(ours, [b'+'], [null, 1, null])\n\
         ours.recv(100)\n\
         keeper.wait()\n",
        ground.login,
        arguments.join(", ")
    );
    let mut node = Command::new("/usr/bin/python3");
    node.args(["-c", &script]);
    let mut node = started(node);
    let pid = number(&mut node).await;
    assert!(alive(pid) && !ground.seen().contains("close_session"));
    node.kill().await.unwrap();
    until("its end", || (!alive(pid)).then_some(())).await;
    ground.closed().await;
    ground.nothing_left().await;
}
