//! What a session leaves running, and `kill_orphans`.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use sallyport_audit::Code;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Child;

use crate::world::{World, alive, ok, output, started, text, until};

async fn keeping() -> World {
    World::with("forward_agent: true", |config| config.kill_orphans = true).await
}

/// Starts sleeps that get away in every way there is, and prints their numbers. cat ends when the last of them has let go of its
/// output, which is when it has got away.
const RUNAWAYS: &str = "\
    setsid sleep 1001 </dev/null >/dev/null 2>&1 & echo $!; \
    nohup sleep 1002 </dev/null >/dev/null 2>&1 & echo $!; \
    sleep 1003 & echo $!; \
    python3 -c 'import os, sys\n\
if os.fork(): os._exit(0)\n\
os.setsid()\n\
if os.fork(): os._exit(0)\n\
print(os.getpid(), flush=True)\n\
null = os.open(\"/dev/null\", os.O_RDWR)\n\
for fd in (0, 1, 2): os.dup2(null, fd)\n\
os.chdir(\"/\")\n\
os.execvpe(\"sleep\", [\"sleep\", \"1004\"], {\"PATH\": \"/usr/bin:/bin\"})' | cat;";

fn numbers(shown: &str) -> Vec<u32> {
    let numbers: Vec<u32> = shown.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert_eq!(numbers.len(), 4, "{shown}");
    numbers
}

/// Waits for these many lines of a client that goes on.
async fn lines(client: &mut Child, count: usize) -> String {
    let mut reader = BufReader::new(client.stdout.take().unwrap());
    let mut shown = String::new();
    for _ in 0..count {
        reader.read_line(&mut shown).await.unwrap();
    }
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_command() {
    let world = keeping().await;
    let began = Instant::now();
    let script = format!("{RUNAWAYS} echo over; exit 3");
    let ended = output(world.ssh(&[], &[script])).await;
    let shown = text(&ended.stdout);
    assert_eq!(ended.status.code(), Some(3), "{shown}{}", text(&ended.stderr));
    assert!(shown.ends_with("over\n"), "{shown}");
    for pid in numbers(&shown) {
        assert!(!alive(pid), "{pid} of {shown}");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "one of them held the client up");
    assert_eq!(world.event(&Code::SessionEnd).await.fields["exit_status"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_option_they_go_on() {
    let world = World::new().await;
    // With its ends redirected: a program that holds them keeps the client, as with sshd.
    let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!";
    let pid: u32 = ok(&output(world.ssh(&[], &[script])).await).trim().parse().unwrap();
    world.event(&Code::SessionEnd).await;
    // Whatever a session leaves to be done is done when the next one is over.
    ok(&output(world.ssh(&[], &["true"])).await);
    until("its end", || (world.events(&Code::SessionEnd).len() == 2).then_some(())).await;
    assert!(alive(pid));
    assert!(
        world.events(&Code::SessionOutlived).is_empty(),
        "it was put there by a session that has ended by itself"
    );
    std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ignores_the_request_is_killed() {
    let world = keeping().await;
    let ready = world.path("ready");
    let script = format!(
        "setsid sh -c 'trap \"\" TERM HUP; echo $$; touch {0}; while :; do sleep 0.1; done' & \
         until [ -e {0} ]; do sleep 0.02; done; kill -STOP $!",
        ready.display()
    );
    let shown = ok(&output(world.ssh(&[], &[script])).await);
    let pid: u32 = shown.trim().parse().unwrap();
    assert!(!alive(pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_takes_everything_along() {
    let world = keeping().await;
    let script = format!("{RUNAWAYS} trap '' HUP; while :; do sleep 0.1; done");
    let mut client = started(world.ssh(&[], &[script]));
    let pids = numbers(&lines(&mut client, 4).await);
    assert!(pids.iter().all(|pid| alive(*pid)));
    client.kill().await.unwrap();
    until("their end", || pids.iter().all(|pid| !alive(*pid)).then_some(())).await;
    assert_eq!(world.event(&Code::SessionEnd).await.message, "the client went away");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_takes_everything_along() {
    let world = keeping().await;
    let script = format!("echo $$; {RUNAWAYS} trap '' HUP TERM; while :; do sleep 0.1; done");
    let mut client = started(world.ssh(&[], &[script]));
    let shown = lines(&mut client, 5).await;
    let (shell, shown) = shown.split_once('\n').unwrap();
    let mut pids = numbers(shown);
    pids.push(shell.parse().unwrap());
    world.set_locks(&["kind: lock\nversion: v1\nmetadata: { name: out }\nspec: { target: { user: alice } }"]);
    assert_eq!(client.wait().await.unwrap().code(), Some(255));
    until("their end", || pids.iter().all(|pid| !alive(*pid)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_works_as_ever() {
    let world = keeping().await;
    let mut command = world.ssh(&["-tt"], &[] as &[&str]);
    command.env("TERM", "xterm");
    let mut shell = started(command);
    let mut stdin = shell.stdin.take().unwrap();
    stdin
        .write_all(
            b"stty -echo; PS1=; setsid sleep 1000 & echo pid=$!; ps -o sid=,tty= -p $$; echo $$; sleep 100\n",
        )
        .await
        .unwrap();
    let mut reader = BufReader::new(shell.stdout.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("pts/") {
        assert!(reader.read_line(&mut shown).await.unwrap() > 0, "{shown}");
    }
    let line = shown.lines().find(|line| line.contains("pts/")).unwrap();
    let leader = line.split_whitespace().rev().nth(1).unwrap().to_owned();
    until("the sleep", || sleeps_in_front(&leader).then_some(())).await;
    // Ctrl-C ends the sleep and not the shell.
    stdin.write_all(b"\x03\nexit 7\n").await.unwrap();
    reader.read_to_string(&mut shown).await.unwrap();
    assert_eq!(shell.wait().await.unwrap().code(), Some(7), "{shown}");
    // The line is echoed as well.
    let pid = shown.split("pid=").find_map(|rest| rest.split_whitespace().next()?.parse().ok());
    assert!(!alive(pid.expect("no number")), "{shown}");
}

/// Whether `sleep 100` of this shell has the terminal.
fn sleeps_in_front(shell: &str) -> bool {
    let shown = std::process::Command::new("ps").args(["-o", "stat=,args=", "--ppid", shell]).output();
    text(&shown.unwrap().stdout).lines().any(|line| line.ends_with("sleep 100") && line.contains('+'))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_learns_how_the_command_ended() {
    let world = keeping().await;
    for (signal, told) in [("TERM", "TERM"), ("PIPE", "PIPE"), ("KILL", "KILL"), ("SEGV", "SEGV")] {
        let before = world.events(&Code::SessionEnd).len();
        let ended = output(world.ssh(&[], &[format!("ulimit -c 0; kill -{signal} $$; sleep 5")])).await;
        assert_eq!(ended.status.code(), Some(255), "{signal}");
        until("the end", || (world.events(&Code::SessionEnd).len() > before).then_some(())).await;
        let end = world.events(&Code::SessionEnd).pop().unwrap();
        assert_eq!(end.fields["exit_signal"], told, "{:?}", end.fields);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_leaves_no_zombies() {
    let world = keeping().await;
    // Thirty that lose their parents and end; then what the keeper, which is the shell's parent, has for children: of the
    // thirty none, or after ten seconds those that it leaves as zombies.
    let script = "for i in $(seq 30); do (setsid true &); done; \
                  for i in $(seq 200); do ps -o comm= --ppid $PPID | grep -qwe setsid -e true || break; sleep 0.05; done; \
                  ps -o stat=,comm= --ppid $PPID; \
                  grep -h Sig.nored /proc/self/status; grep -h SigBlk /proc/self/status";
    let shown = ok(&output(world.ssh(&[], &[script])).await);
    assert!(!shown.contains('Z'), "{shown}");
    let held = shown.lines().find(|line| line.starts_with("SigBlk")).unwrap();
    assert!(held.ends_with("0000000000000000"), "the session inherits held signals: {shown}");
    world.event(&Code::SessionEnd).await;
    let own = std::process::id().to_string();
    until("the end of the keeper", || {
        let seen = std::process::Command::new("ps").args(["-o", "stat=,comm=", "--ppid", &own]).output();
        let seen = text(&seen.unwrap().stdout);
        (!seen.lines().any(|line| line.starts_with('Z'))).then_some(())
    })
    .await;
}

/// A client that sends signals, as OpenSSH's does not: the command hears the one and ends by the other.
pub(crate) async fn signals_arrive(world: &World, login: &str) {
    let script = format!(
        "import asyncio, asyncssh\n\
         async def main():\n\
         \x20 async with asyncssh.connect('127.0.0.1', {}, username='{}', known_hosts=None, \
         client_keys=[('{key}', '{key}-cert.pub')], agent_path=None, config=None) as c:\n\
         \x20   p = await c.create_process('trap \"echo got\" HUP; echo ready; while :; do sleep 0.1; done')\n\
         \x20   print((await p.stdout.readline()).strip())\n\
         \x20   p.send_signal('HUP')\n\
         \x20   print((await p.stdout.readline()).strip())\n\
         \x20   p.send_signal('KILL')\n\
         \x20   r = await p.wait()\n\
         \x20   print(r.exit_signal[0])\n\
         asyncio.run(main())\n",
        world.address.port(),
        login,
        key = world.path("alice").display()
    );
    // Debian's own: the package is not for others that may come first in the path.
    let mut command = tokio::process::Command::new("/usr/bin/python3");
    command.args(["-c", &script]).kill_on_drop(true);
    assert_eq!(ok(&output(command).await), "ready\ngot\nKILL\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_of_the_client_reach_the_command() {
    let world = keeping().await;
    signals_arrive(&world, &world.own.name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_takes_everything_along() {
    let own = World::new().await.own.name.clone();
    // A shell stands for the node.
    let script = format!(
        "spec='{{\"login\":\"{own}\",\"work\":\"exec\",\"terminal\":false,\"environment\":[],\"keeper_for\":'$$'}}'; \
         env -i SALLYPORT_SESSION_SPEC=\"$spec\" {} __session \"$0\" & wait",
        env!("CARGO_BIN_EXE_sallyport-session-helper")
    );
    let mut node = tokio::process::Command::new("sh");
    node.args(["-c", &script, &format!("{RUNAWAYS} trap '' HUP; while :; do sleep 0.1; done")]);
    let mut node = started(node);
    let pids = numbers(&lines(&mut node, 4).await);
    assert!(pids.iter().all(|pid| alive(*pid)));
    node.kill().await.unwrap();
    until("their end", || pids.iter().all(|pid| !alive(*pid)).then_some(())).await;
}

#[test]
fn a_keeper_serves_the_node_that_started_it() {
    let mut helper = std::process::Command::new(env!("CARGO_BIN_EXE_sallyport-session-helper"));
    let spec = r#"{"login":"root","work":"exec","terminal":false,"environment":[],"keeper_for":1}"#;
    helper.env_clear().env("SALLYPORT_SESSION_SPEC", spec).args(["__session", "id"]);
    let refused = helper.output().unwrap();
    assert_eq!((refused.status.code(), refused.status.signal()), (Some(255), None));
    assert_eq!(text(&refused.stderr), "sallyport: the node has gone\n");
}
