//! An account that traces the process which reports to the node what the account does with files.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sallyport_ssh::helper::ARGUMENT;
use sallyport_ssh::session::Account;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::node::pam_session::{Ground, RULES};
use crate::world::{PATIENCE, is_root, started, text, until};

/// `PTRACE_ATTACH` of ptrace(2), by the number of the process.
const ATTACH: &str = "import ctypes, os, sys\n\
                      libc = ctypes.CDLL(None, use_errno=True)\n\
                      failed = libc.ptrace(16, int(sys.argv[1]), None, None)\n\
                      print('traced' if failed == 0 else os.strerror(ctypes.get_errno()))";

fn as_account(login: &str, words: &[&str]) -> Output {
    Command::new("runuser").args(["-u", login, "--"]).args(words).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_services_process_is_not_traced_by_its_account_within_a_pam_session() {
    let Some(ground) = Ground::new(RULES, false).await else { return };
    let mut sftp = ground.client("sftp");
    sftp.arg(ground.destination());
    let mut client = started(sftp);
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(b"pwd\n").await.unwrap();
    let mut reader = BufReader::new(client.stdout.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("working directory") {
        assert!(reader.read_line(&mut shown).await.unwrap() > 0, "{shown}");
    }
    let login = ground.login.as_str();
    let all = Command::new("ps").args(["-o", "pid=", "-u", login]).output().unwrap();
    let pids: Vec<String> = text(&all.stdout).split_whitespace().map(str::to_owned).collect();
    assert!(pids.len() >= 2, "the file service and what runuser waits for: {pids:?}");
    for pid in &pids {
        let tried = as_account(login, &["python3", "-c", ATTACH, pid]);
        let said = text(&tried.stdout);
        assert_eq!(said, "Operation not permitted\n", "{pid} {}", text(&tried.stderr));
        let read = as_account(login, &["cat", &format!("/proc/{pid}/environ")]);
        assert!(!read.status.success() && text(&read.stderr).contains("ermission denied"), "{pid}");
    }
    // Nor by another session of the same login, which is the account, too.
    for pid in &pids {
        let from = ground.run(&format!("cat /proc/{pid}/environ >/dev/null && echo read")).await;
        assert!(!text(&from.stdout).contains("read"), "{pid}: another session reads it");
        assert!(text(&from.stderr).contains("ermission denied"), "{pid}: {}", text(&from.stderr));
    }
    // A program that the account runs is its own, as ever.
    let shown = ground.run("sleep 100 & cat /proc/$!/environ >/dev/null && echo read; kill $!").await;
    assert_eq!(text(&shown.stdout), "read\n", "{}", text(&shown.stderr));
    drop(stdin);
    until("the end of the client", || client.try_wait().unwrap()).await;
    ground.closed().await;
    ground.nothing_left().await;
}

/// An account without root's rights, for root may trace every process.
struct Unprivileged(Account);

impl Unprivileged {
    fn new() -> Self {
        Self(if is_root() { Account::find("nobody").unwrap() } else { Account::own().unwrap() })
    }

    /// A program of this account's.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if is_root() {
            command.uid(self.0.uid).gid(self.0.gid);
        }
        command.current_dir("/");
        command
    }

    /// The session helper as the account starts it, from a place where it may.
    fn helper(&self, directory: &Path) -> Command {
        let helper = directory.join("helper");
        if !helper.exists() {
            std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::copy(env!("CARGO_BIN_EXE_sallyport-session-helper"), &helper).unwrap();
        }
        let mut command = self.command(helper);
        command.arg(ARGUMENT).env_clear();
        command
    }

    /// Whether the account's other processes may read this one's environment: only if they may trace it (proc(5)).
    fn reads(&self, pid: u32) -> bool {
        let read = self.command("cat").arg(format!("/proc/{pid}/environ")).output().unwrap();
        let refused = text(&read.stderr).contains("ermission denied");
        assert_ne!(read.status.success(), refused, "{}", text(&read.stderr));
        read.status.success()
    }
}

#[test]
fn a_sessions_process_below_pam_is_closed_before_it_is_told_anything() {
    let (account, directory) = (Unprivileged::new(), tempfile::tempdir().unwrap());
    let (line, theirs) = UnixStream::pair().unwrap();
    line.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut helper = account.helper(directory.path());
    helper.args(["--below-pam", "session"]).stdin(Stdio::null()).stdout(Stdio::null());
    // As the anchor does, which runuser has started as the account.
    let left = helper.stderr(std::os::fd::OwnedFd::from(theirs)).status().unwrap();
    drop(helper);
    assert!(left.success(), "{left}");
    // It says its number, and waits for what it is to do.
    let mut said = std::io::BufReader::new(&line);
    said.read_until(0, &mut Vec::new()).unwrap();
    let mut number = String::new();
    said.read_line(&mut number).unwrap();
    let pid = number.trim().parse().unwrap();
    let is_open = account.reads(pid);
    drop(line);
    assert!(!is_open, "the account's other processes may tell it what to say");
    let mut other = account.command("sleep").arg("100").spawn().unwrap();
    let reads = account.reads(other.id());
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(reads, "this account reads of no process");
}

#[test]
fn the_file_services_process_of_a_node_that_is_not_root_is_closed_to_its_account() {
    let (account, directory) = (Unprivileged::new(), tempfile::tempdir().unwrap());
    let spec =
        format!(r#"{{"login": "{}", "work": "sftp", "terminal": false, "environment": []}}"#, account.0.name);
    let mut helper = account.helper(directory.path());
    helper.env("SALLYPORT_SESSION_SPEC", spec);
    let mut service =
        helper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // SSH_FXP_INIT of version 3 (draft-ietf-secsh-filexfer-02 §4); it serves once it answers.
    service.stdin.as_mut().unwrap().write_all(&[0, 0, 0, 5, 1, 0, 0, 0, 3]).unwrap();
    let mut version = [0; 5];
    let answered = service.stdout.as_mut().unwrap().read_exact(&mut version);
    let is_open = account.reads(service.id());
    service.kill().unwrap();
    service.wait().unwrap();
    answered.unwrap();
    assert_eq!(version[4], 2, "{version:?}");
    assert!(!is_open, "the account's other processes may tell it what to say");
}
