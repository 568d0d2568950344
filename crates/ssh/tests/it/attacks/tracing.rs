//! An account that traces the process which reports to the node what the account does with files.

use std::process::Output;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::node::pam_session::{Ground, RULES};
use crate::world::{started, text, until};

/// `PTRACE_ATTACH` of ptrace(2), by the number of the process.
const ATTACH: &str = "import ctypes, os, sys\n\
                      libc = ctypes.CDLL(None, use_errno=True)\n\
                      failed = libc.ptrace(16, int(sys.argv[1]), None, None)\n\
                      print('traced' if failed == 0 else os.strerror(ctypes.get_errno()))";

fn as_account(login: &str, words: &[&str]) -> Output {
    std::process::Command::new("runuser").args(["-u", login, "--"]).args(words).output().unwrap()
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
    let all = std::process::Command::new("ps").args(["-o", "pid=", "-u", login]).output().unwrap();
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
