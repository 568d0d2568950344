//! Commands and shells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sallyport_audit::Code;
use sallyport_audit::recording::Body;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::world::{
    World, accounts, alive, is_root, ok, output, output_of, role, shown as recorded, stands_still, started,
    text, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_and_its_record_says_so() {
    let world = World::new().await;
    let output = output(world.ssh(&[], &["echo out; echo err >&2; exit 3"])).await;
    assert_eq!(text(&output.stdout), "out\n");
    assert_eq!(text(&output.stderr), "err\n");
    assert_eq!(output.status.code(), Some(3));
    let end = world.event(&Code::SessionEnd).await;
    assert_eq!((end.user.as_str(), end.login.as_str()), ("alice", world.own.name.as_str()));
    assert_eq!(end.fields["exit_status"], 3);
    assert_eq!(end.fields["bytes_out"], 8);
    let start = world.event(&Code::SessionStart).await;
    assert_eq!(start.fields["command"], "echo out; echo err >&2; exit 3");
    assert_eq!(start.session_id, end.session_id);
    assert!(start.source.starts_with("127.0.0.1:"), "{}", start.source);
    assert_eq!(world.events(&Code::SessionExec).len(), 1);
    assert!(world.events(&Code::SessionRefused).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_by_signal_is_told_as_one() {
    let world = World::new().await;
    let output = output(world.ssh(&["-v"], &["kill -TERM $$; sleep 5"])).await;
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("exit-signal"), "{}", text(&output.stderr));
    let end = world.event(&Code::SessionEnd).await;
    assert_eq!(end.fields["exit_signal"], "TERM");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_finds_what_a_login_finds() {
    let world = World::new().await;
    let script = "pwd; umask; echo $USER $LOGNAME $HOME $SHELL; echo $LC_ALL; echo \"${SECRET-none}\"; \
                  echo $SALLYPORT_USER; echo ${#SALLYPORT_SESSION}; ps -o sid= -p $$ | tr -d ' '; echo $$";
    let mut command = world.ssh(&["-oSendEnv=LC_ALL SECRET"], &[script]);
    command.env("SECRET", "x");
    let lines = ok(&output(command).await);
    let lines: Vec<&str> = lines.lines().collect();
    let own = &world.own;
    assert_eq!(lines[0], own.home.to_str().unwrap());
    assert_eq!(lines[1], "0022");
    let (home, shell) = (own.home.display(), own.shell.display());
    assert_eq!(lines[2], format!("{0} {0} {home} {shell}", own.name));
    assert_eq!(lines[3], "C.UTF-8");
    assert_eq!(lines[4], "none");
    assert_eq!(lines[5], "alice");
    assert_eq!(lines[6], "36");
    assert_eq!(lines[7], lines[8], "the shell leads its own session");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_has_a_terminal_that_follows_the_clients() {
    let world = World::new().await;
    let mut command = world.ssh(&["-tt"], &[] as &[&str]);
    command.env("TERM", "xterm-256color");
    let mut shell = started(command);
    let mut stdin = shell.stdin.take().unwrap();
    stdin.write_all(b"stty -echo; PS1=; echo [$0 $TERM]; tty; echo over; exit 7\n").await.unwrap();
    let mut shown = String::new();
    shell.stdout.take().unwrap().read_to_string(&mut shown).await.unwrap();
    assert_eq!(shell.wait().await.unwrap().code(), Some(7), "{shown}");
    let name = world.own.shell.file_name().unwrap().to_str().unwrap();
    assert!(shown.contains(&format!("[-{name} xterm-256color]")), "{shown}");
    assert!(shown.contains("/dev/pts/"), "{shown}");
    let recorded = recorded(&world.recording().await);
    assert!(recorded.contains("/dev/pts/") && recorded.contains("over"), "{recorded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_follows_the_size_of_the_clients() {
    let world = World::new().await;
    // A terminal of our own around ssh, which passes its size and every change of it on.
    let ssh = world.remote_shell();
    let ready = world.path("ready");
    let script = format!(
        "stty rows 30 cols 100; \
         (while [ ! -e {ready} ]; do sleep 0.1; done; stty rows 41 cols 121 < /dev/tty) & \
         {ssh} -tt {} 'stty size; touch {ready}; until [ \"$(stty size)\" = \"41 121\" ]; do sleep 0.1; done; stty size'",
        world.destination(),
        ready = ready.display()
    );
    let mut command = tokio::process::Command::new("script");
    command.args(["-qefc", &script, "/dev/null"]).kill_on_drop(true);
    let shown = text(&output(command).await.stdout);
    assert!(shown.contains("30 100"), "{shown}");
    assert!(shown.contains("41 121"), "{shown}");
    let frames = world.recording().await;
    assert!(frames.iter().any(|frame| frame.body == Body::Resize { cols: 121, rows: 41 }), "{frames:?}");
}

/// Bytes: twice the widest window that there is, and so more than all that may wait anywhere on the way.
const LARGE: usize = 32 << 20;

/// So many bytes that are the same again after `period` ones only.
fn numbered(bytes: usize, period: u8) -> Vec<u8> {
    let mut input = (0..period).collect::<Vec<u8>>().repeat(bytes / usize::from(period) + 1);
    input.truncate(bytes);
    input
}

#[tokio::test(flavor = "multi_thread")]
async fn large_output_arrives_whole() {
    let world = World::new().await;
    let command = format!("head -c {LARGE} /dev/zero | tr '\\0' 'x'; printf end");
    let output = output(world.ssh(&[], &[command])).await;
    assert!(output.status.success());
    assert_eq!(output.stdout.len(), LARGE + 3);
    assert!(output.stdout.ends_with(b"xend"));
    assert!(output.stdout[..LARGE] == vec![b'x'; LARGE]);
    assert_eq!(world.event(&Code::SessionEnd).await.fields["bytes_out"], LARGE + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_input_arrives_whole_and_in_order() {
    let world = World::new().await;
    let input = numbered(LARGE, 251);
    let expected = data_hex(&sallyport_sal::hash::sha256(&input));
    let shown = ok(&output_of(world.ssh(&[], &["sha256sum"]), input).await);
    assert!(shown.starts_with(&expected), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_echoes_as_it_reads_does_not_lock_up() {
    let world = World::new().await;
    let input = numbered(LARGE, 253);
    let output = output_of(world.ssh(&[], &["cat"]), input.clone()).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout == input, "{} bytes came back", output.stdout.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_exchanged_again_while_bytes_flow_both_ways() {
    let world = World::new().await;
    let input = numbered(12_000_000, 249);
    let output = output_of(world.ssh(&["-v", "-oRekeyLimit=1M"], &["cat"]), input.clone()).await;
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(output.stdout == input, "{} bytes came back", output.stdout.len());
    let exchanges = said.matches("SSH2_MSG_NEWKEYS received").count();
    assert!(exchanges > 5, "{exchanges} key exchanges");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_reads_late_gets_everything() {
    let world = World::new().await;
    let (go, input) = (world.path("go"), vec![b'z'; 20_000_000]);
    let script = format!("until [ -e {} ]; do sleep 0.02; done; wc -c", go.display());
    let mut client = started(world.ssh(&[], &[script]));
    let (mut stdin, taken) = (client.stdin.take().unwrap(), Arc::new(AtomicU64::new(0)));
    let counting = taken.clone();
    let feed = tokio::spawn(async move {
        for block in input.chunks(64 * 1024) {
            stdin.write_all(block).await.unwrap();
            counting.fetch_add(block.len() as u64, Ordering::Relaxed);
        }
    });
    // All that goes without a reader has gone, and it is not all there is.
    let before = stands_still("the client to stand still", || taken.load(Ordering::Relaxed)).await;
    assert!(before < 20_000_000, "{before} bytes went to a command that reads nothing");
    std::fs::write(go, "").unwrap();
    assert_eq!(ok(&client.wait_with_output().await.unwrap()).trim(), "20000000");
    feed.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_reads_nothing_ends_all_the_same() {
    let world = World::new().await;
    let shown = ok(&output_of(world.ssh(&[], &["echo done"]), vec![0; 8_000_000]).await);
    assert_eq!(shown, "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_stops_the_command() {
    let world = World::new().await;
    let counter = world.path("count");
    let script = format!(
        "i=0; while :; do head -c 1000000 /dev/zero; i=$((i+1)); echo $i > {}; done",
        counter.display()
    );
    let mut client = started(world.ssh(&[], &[script]));
    let count = || std::fs::read_to_string(&counter).unwrap_or_default().trim().parse::<u64>().unwrap_or(0);
    // It goes on until every buffer is full; then it stands still, and does not go on into memory.
    let first = stands_still("the command to stand still", count).await;
    // The client's window of 2 MiB, the sockets' buffers, and little of ours.
    assert!(first < 24, "{first} MB went somewhere");
    client.kill().await.unwrap();
    let end = world.event(&Code::SessionEnd).await;
    assert_eq!(end.message, "the client went away");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_hangs_up_the_command() {
    let world = World::new().await;
    let mut client = started(world.ssh(&[], &["echo $$; exec sleep 1000"]));
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let pid: u32 = line.trim().parse().unwrap();
    assert!(alive(pid));
    client.kill().await.unwrap();
    until("the end of the command", || (!alive(pid)).then_some(())).await;
    world.event(&Code::SessionEnd).await;
    until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_command() {
    // OpenSSH's client sends none; asyncssh does.
    let world = World::new().await;
    let script = format!(
        "import asyncio, asyncssh\n\
         async def main():\n\
         \x20 async with asyncssh.connect('127.0.0.1', {}, username='{}', known_hosts=None, \
         client_keys=[('{key}', '{key}-cert.pub')], agent_path=None, config=None) as c:\n\
         \x20   p = await c.create_process('trap \"echo got; exit 9\" USR1; echo ready; while :; do sleep 0.1; done')\n\
         \x20   print((await p.stdout.readline()).strip())\n\
         \x20   p.send_signal('USR1')\n\
         \x20   r = await p.wait()\n\
         \x20   print(r.stdout.strip(), r.exit_status)\n\
         asyncio.run(main())\n",
        world.address.port(),
        world.own.name,
        key = world.path("alice").display()
    );
    let probe = std::process::Command::new("python3").args(["-c", "import asyncssh"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        eprintln!("left out: python3-asyncssh is not installed (cargo xtask setup)");
        return;
    }
    let mut command = tokio::process::Command::new("python3");
    command.args(["-c", &script]).kill_on_drop(true);
    let shown = ok(&output(command).await);
    assert_eq!(shown, "ready\ngot 9\n");
    assert_eq!(world.event(&Code::SessionEnd).await.fields["exit_status"], 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_at_once_do_not_mix() {
    let world = Arc::new(World::new().await);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..50 {
        let world = world.clone();
        clients.spawn(async move {
            let shown =
                ok(&output(world.ssh(&[], &[format!("echo {number}; sleep 0.2; echo {number}")])).await);
            assert_eq!(shown, format!("{number}\n{number}\n"));
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    until("the last record", || (world.events(&Code::SessionEnd).len() == 50).then_some(())).await;
    assert_eq!(world.server.sessions_running(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn root_serves_other_accounts() {
    if !is_root() {
        eprintln!("left out: only root can become another account");
        return;
    }
    let login = &format!("sp-test-{}", std::process::id());
    let made = accounts("useradd", &["-m", "-s", "/bin/sh", login]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let world = World::with_roles(&[role("dev", &[login], "forward_agent: true")], |_| {}).await;
    let mut card = world.card("bob");
    card.logins = vec![login.clone()];
    world.issue("bob", &card);
    let mut command = world.client("ssh", "bob");
    command
        .arg(format!("{login}@127.0.0.1"))
        .arg("id -un; id -Gn; pwd; touch made; stat -c %U made; cat /etc/shadow");
    let outcome = output(command).await;
    let mut terminal = world.client("ssh", "bob");
    terminal.args(["-tt", &format!("{login}@127.0.0.1"), "stat -c '%U %a' $(tty)"]);
    let terminal = output(terminal).await;
    let mut sftp = world.client("sftp", "bob");
    sftp.args(["-b", "-", &format!("{login}@127.0.0.1")]);
    let sftp =
        output_of(sftp, b"pwd\nput /etc/hostname there\nls -l there\n-get /etc/shadow /dev/null\n".to_vec())
            .await;
    let uid = std::process::Command::new("id").args(["-u", login]).output().unwrap();
    let uid = text(&uid.stdout);
    accounts("userdel", &["-r", login]);
    let shown = text(&outcome.stdout);
    assert_eq!(shown, format!("{login}\n{login}\n/home/{login}\n{login}\n"));
    assert!(text(&outcome.stderr).contains("Permission denied"), "{}", text(&outcome.stderr));
    assert_eq!(outcome.status.code(), Some(1));
    assert!(text(&terminal.stdout).contains(&format!("{login} 620")), "{}", text(&terminal.stdout));
    let shown = text(&sftp.stdout);
    assert!(shown.contains(&format!("/home/{login}")), "{shown}");
    assert!(shown.contains(&format!(" {} ", uid.trim())), "the file is another account's: {shown}");
    assert!(text(&sftp.stderr).contains("Permission denied"), "{}", text(&sftp.stderr));
}

#[test]
fn a_session_process_that_is_not_root_serves_no_other_account() {
    use std::os::unix::process::CommandExt;
    let mut helper = std::process::Command::new(env!("CARGO_BIN_EXE_sallyport-session-helper"));
    let spec = r#"{"login":"root","work":"exec","terminal":false,"environment":[]}"#;
    helper.env_clear().env("SALLYPORT_SESSION_SPEC", spec).args(["__session", "id"]);
    if is_root() {
        // The number of the account nobody; the program has to be in a place that this account can read.
        let copy = std::env::temp_dir().join(format!("sallyport-helper-{}", std::process::id()));
        std::fs::copy(env!("CARGO_BIN_EXE_sallyport-session-helper"), &copy).unwrap();
        helper = std::process::Command::new(&copy);
        helper
            .env_clear()
            .env("SALLYPORT_SESSION_SPEC", spec)
            .args(["__session", "id"])
            .uid(65534)
            .gid(65534);
        let refused = helper.output();
        std::fs::remove_file(&copy).unwrap();
        check(&refused.unwrap());
    } else {
        check(&helper.output().unwrap());
    }
    fn check(refused: &std::process::Output) {
        assert_eq!(refused.status.code(), Some(255));
        assert_eq!(text(&refused.stdout), "");
        let said = text(&refused.stderr);
        assert!(said.contains("can only serve that account, not root"), "{said}");
    }
}

fn data_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Feeds a client for as long as it takes anything, and counts.
fn fed(client: &mut tokio::process::Child) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let (counting, mut stdin) = (count.clone(), client.stdin.take().unwrap());
    tokio::spawn(async move {
        let block = vec![b'x'; 64 * 1024];
        while stdin.write_all(&block).await.is_ok() {
            counting.fetch_add(block.len() as u64, Ordering::Relaxed);
        }
    });
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_reads_nothing_stops_its_client_and_no_other() {
    let world = World::new().await;
    let control = format!("-oControlPath={}", world.path("mux").display());
    let mut stuck = started(world.ssh(&["-oControlMaster=yes", &control], &["sleep 60"]));
    until("the master's socket", || world.path("mux").exists().then_some(())).await;
    let sent = fed(&mut stuck);
    let standing = || sent.load(Ordering::Relaxed);
    stands_still("the client to stand still", standing).await;
    // Beside it, on the same connection, another one sends a lot, and a third is prompt.
    let beside = |command| world.ssh(&["-oControlMaster=no", &control], &[command]);
    let input = vec![b'z'; LARGE];
    let (copied, prompt) = tokio::join!(output_of(beside("wc -c"), input), async {
        let mut longest = std::time::Duration::ZERO;
        for _ in 0..5 {
            let began = std::time::Instant::now();
            assert_eq!(ok(&output(beside("echo prompt")).await), "prompt\n");
            longest = longest.max(began.elapsed());
        }
        longest
    });
    assert_eq!(ok(&copied).trim(), LARGE.to_string());
    assert!(prompt < std::time::Duration::from_secs(30), "{prompt:?}");
    assert!(standing() < 48 << 20, "{} MiB went to a command that reads nothing", standing() >> 20);
    stuck.kill().await.unwrap();
}

/// Past the gibibyte after which SSH libraries ask for new keys, while the client goes on sending.
#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_gibibyte_goes_up_one_connection() {
    const BYTES: u64 = 1100 << 20;
    let world = World::new().await;
    let mut upload = started(world.ssh(&[], &["wc -c"]));
    let mut stdin = upload.stdin.take().unwrap();
    let block = vec![b'x'; 1 << 20];
    for _ in 0..BYTES >> 20 {
        stdin.write_all(&block).await.unwrap();
    }
    drop(stdin);
    let mut shown = String::new();
    upload.stdout.take().unwrap().read_to_string(&mut shown).await.unwrap();
    assert_eq!(shown.trim(), BYTES.to_string());
    assert!(upload.wait().await.unwrap().success());
}

/// How fast input and output are; run by hand: `cargo test -p sallyport-ssh --test node measure -- --ignored`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_input_and_output() {
    let world = World::new().await;
    let mebibytes = 512;
    for (name, command) in
        [("up", "cat > /dev/null"), ("up to a reader", "sha256sum"), ("both ways at once", "cat")]
    {
        for _ in 0..3 {
            let began = std::time::Instant::now();
            let line = format!("head -c {mebibytes}M /dev/zero | \"$@\" | tail -c 1 > /dev/null");
            let ssh = world.ssh(&[], &[command]);
            let mut shell = tokio::process::Command::new("sh");
            shell.arg("-c").arg(line).arg("sh").arg(ssh.as_std().get_program()).args(ssh.as_std().get_args());
            ok(&output(shell).await);
            let rate = f64::from(mebibytes) / began.elapsed().as_secs_f64();
            println!("{name}: {rate:.0} MiB/s");
        }
    }
}
