//! What is cut at the front door ends at the server behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::openssh::recorded::{World, text};
use crate::openssh::rig::{NODE, SshdOptions};
use crate::world::{PATIENCE, accounts, stands_still, until};

/// A world whose sshd logs alice in as this account.
async fn world_of(account: &Account) -> World {
    World::with("", &SshdOptions::default(), |behind| behind.login.clone_from(&account.0)).await
}

/// What a client that is gone has left at the server.
struct Behind {
    world: World,
    process: PathBuf,
    _room: tempfile::TempDir,
    _account: Account,
}

/// A client has gone, without a word, from a command that goes on; none where there is no account to run it as. The front door
/// waits so long to hear of a lock.
async fn left(late_word: Duration) -> Option<Behind> {
    if !may_make_accounts() {
        return None;
    }
    let (account, room) = (Account::new(), room());
    let world = World::with("", &SshdOptions::default(), |behind| {
        behind.login.clone_from(&account.0);
        behind.late_word = late_word;
    })
    .await;
    let (client, process) = stubborn(&world, &account, room.path()).await;
    vanish(&world, client).await;
    Some(Behind { world, process, _room: room, _account: account })
}

/// A directory that every account may write to.
fn room() -> tempfile::TempDir {
    let room = tempfile::tempdir().unwrap();
    fs::set_permissions(room.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    room
}

/// Whether there is an account to run things as.
fn may_make_accounts() -> bool {
    let may = nix::unistd::getuid().is_root();
    if !may {
        eprintln!("left out: needs root, to make an account");
    }
    may
}

/// The process, by its directory in `/proc`, that has written its number there.
async fn process_of(file: &Path) -> PathBuf {
    let number: u32 = until("the command", || fs::read_to_string(file).ok()?.trim().parse().ok()).await;
    let process = Path::new("/proc").join(number.to_string());
    assert!(process.exists());
    process
}

/// A client whose command goes on when it is hung up, and the process of that.
async fn stubborn(world: &World, account: &Account, room: &Path) -> (Child, PathBuf) {
    let file = room.join("number");
    let mut client = world.program("ssh");
    client.args(["-T", "-l", &account.0, NODE]);
    client.arg(format!("trap '' HUP; echo $$ > {0}; while [ -e {0} ]; do sleep 0.1; done", file.display()));
    let client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    (client, process_of(&file).await)
}

/// Ends a client without a word, and waits until the front door has noticed.
async fn vanish(world: &World, mut client: Child) {
    client.kill().unwrap();
    client.wait().unwrap();
    until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_heard_of_late_ends_what_runs_at_the_server() {
    let Some(left) = left(PATIENCE).await else { return };
    let (world, process) = (&left.world, &left.process);
    world.lock();
    let ended = world.event("session.end", |event| event.user == "alice").await;
    assert!(ended.message.starts_with("cut off: ") && ended.message.contains("enough"), "{}", ended.message);
    until("the end of what was run", || (!process.exists()).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_leaves_behind_at_the_server_may_go_on() {
    let Some(left) = left(Duration::ZERO).await else { return };
    let (world, process) = (&left.world, &left.process);
    let ended = world.event("session.end", |event| event.user == "alice").await;
    assert_eq!(ended.message, "the client went away");
    world.server.drain(Duration::ZERO).await;
    assert!(process.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_door_that_stops_waits_for_the_end_of_what_it_cuts() {
    if !may_make_accounts() {
        return;
    }
    let (account, room) = (Account::new(), room());
    let world = world_of(&account).await;
    let (mut client, process) = stubborn(&world, &account, room.path()).await;
    world.server.drain(Duration::ZERO).await;
    assert!(!process.exists(), "it outlives the front door");
    let _ = client.kill();
    client.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_to_run_does_not_run_still() {
    let world = World::with("", &SshdOptions { no_files: true, ..SshdOptions::default() }, |_| {}).await;
    let refused = world.ssh(&["-s", NODE, "sftp"]).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(text(&refused.stderr).contains("refused to run this"), "{}", text(&refused.stderr));
    let ended = world.event("session.end", |event| event.user == "alice").await;
    assert!(ended.message.contains("refused to run this"), "{}", ended.message);
    world.server.drain(Duration::ZERO).await;
    assert!(world.sink.events().iter().all(|event| event.kind != "session.outlived"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_in_a_terminal_of_root_is_hung_up() {
    if !may_make_accounts() {
        return;
    }
    // sshd may not pass on signals to root's processes; the end of a terminal it cannot keep from them.
    let (world, room) = (World::new("").await, room());
    let file = room.path().join("number");
    let mut client = world.program("ssh");
    client.args(["-tt", NODE, &format!("echo $$ > {}; exec sleep 600", file.display())]);
    let locked = async {
        let process = process_of(&file).await;
        world.lock();
        process
    };
    let (output, process) = tokio::join!(world.run(client), locked);
    assert!(text(&output.stderr).contains("enough"), "{}", text(&output.stderr));
    until("the end of what was run", || (!process.exists()).then_some(())).await;
}

/// Bytes that a process has written.
fn written(process: &Path) -> u64 {
    let counts = fs::read_to_string(process.join("io")).unwrap_or_default();
    let wchar = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    wchar.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

/// An account that is gone when this is: sshd passes on no signals to sessions of root's.
struct Account(String);

impl Account {
    fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let login = format!("sp-cut-{}-{next}", std::process::id());
        let made = accounts("useradd", &["-M", "-d", "/", "-s", "/bin/sh", "-p", "*", &login]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        Self(login)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // What a test that failed has left.
        let _ = Command::new("pkill").args(["-KILL", "-u", &self.0]).status();
        accounts("userdel", &["-f", &self.0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cut_ends_at_the_server() {
    if !may_make_accounts() {
        return;
    }
    let (account, room) = (Account::new(), room());
    // A command that waits, one that ignores what can be ignored, and the same in a terminal.
    let stubborn = "trap '' HUP TERM; echo $$ > FILE; while [ -e FILE ]; do sleep 0.1; done";
    let commands = [("-T", "echo $$ > FILE; exec sleep 600"), ("-T", stubborn), ("-tt", stubborn)];
    for (number, (terminal, command)) in commands.into_iter().enumerate() {
        let world = world_of(&account).await;
        let file = room.path().join(number.to_string());
        let mut program = world.program("ssh");
        let command = command.replace("FILE", &file.display().to_string());
        program.args([terminal, "-l", &account.0, NODE, &command]);
        let locked = async {
            let process = process_of(&file).await;
            world.lock();
            process
        };
        let (output, process) = tokio::join!(world.run(program), locked);
        assert!(text(&output.stderr).contains("enough"), "{}", text(&output.stderr));
        until("the end of what was run", || (!process.exists()).then_some(())).await;
        assert!(world.sink.events().iter().all(|event| event.kind != "session.outlived"), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_keeps_no_cut_from_the_server() {
    if !may_make_accounts() {
        return;
    }
    let (account, room) = (Account::new(), room());
    for locks in [true, false] {
        let world = world_of(&account).await;
        let file = room.path().join(locks.to_string());
        // Output that stands, since the client does not read it, and input on and on.
        let command = format!("yes & echo $! $$ > {}; cat > /dev/null", file.display());
        let mut client = world.program("ssh");
        client.args(["-T", "-l", &account.0, NODE, &command]);
        client.stdin(fs::File::open("/dev/zero").unwrap()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        let (yes, process) = until("the command", || {
            let said = fs::read_to_string(&file).ok()?;
            let (yes, process) = said.strip_suffix('\n')?.split_once(' ')?;
            Some((Path::new("/proc").join(yes), Path::new("/proc").join(process)))
        })
        .await;
        // The pipe to the client is full, and what is in between with it.
        stands_still("the output", || written(&yes)).await;
        if locks {
            world.lock();
        } else {
            client.kill().unwrap();
        }
        world.event("session.end", |event| event.user == "alice").await;
        until("the end of what was run", || (!process.exists()).then_some(())).await;
        let _ = client.kill();
        client.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_does_not_end_is_told_of() {
    // sshd passes on no signals to a command that its own configuration forces.
    let forced = SshdOptions { extra: "ForceCommand sleep 600\n", ..SshdOptions::default() };
    let world = World::with("", &forced, |_| {}).await;
    let mut program = world.program("ssh");
    program.args([NODE, "true"]);
    let locked = async {
        world.event("session.exec", |_| true).await;
        world.lock();
    };
    let (output, ()) = tokio::join!(world.run(program), locked);
    assert!(text(&output.stderr).contains("enough"), "{}", text(&output.stderr));
    world.event("session.outlived", |event| event.user == "alice").await;
}
