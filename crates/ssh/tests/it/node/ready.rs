//! The session process that waits for its session.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::Path;

use crate::world::{World, ok, output, output_of, text, until, waits_for_session};

/// This process's children that wait for a session: those of every node of these tests.
fn waiting() -> BTreeSet<u32> {
    let own = std::process::id();
    let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let number: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        let waits = waits_for_session(Path::new(&format!("/proc/{number}")));
        (parent.trim().parse() == Ok(own) && waits).then_some(number)
    });
    numbers.collect()
}

/// Runs a command again until a process that waited has run it, and gives that one's output without its first line,
/// which says its number.
async fn by_one_that_waited(world: &World, options: &[&str], script: &str) -> std::process::Output {
    for _ in 0..50 {
        let before = waiting();
        let mut output = output(world.ssh(options, &[&format!("echo $$; {script}")])).await;
        let said = text(&output.stdout);
        let (number, rest) = said.split_once('\n').unwrap();
        if before.contains(&number.trim().parse().unwrap()) {
            output.stdout = rest.as_bytes().to_vec();
            return output;
        }
        until("one that waits", || (!waiting().is_empty()).then_some(())).await;
    }
    panic!("no session ran in a process that waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_a_process_that_waited_is_as_any_other() {
    let world = World::new().await;
    let script = "cat; pwd; umask; echo $USER ${SALLYPORT_SESSION_SPEC-none}; ulimit -n; ps -o sid= -p $$ | tr -d ' '; \
                  echo $$; ls /proc/self/fd; echo err >&2; exit 7";
    let output = by_one_that_waited(&world, &[], script).await;
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(7), "err\n"));
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], [world.own.home.to_str().unwrap(), "0022", &format!("{} none", world.own.name)]);
    assert_eq!(lines[4], lines[5], "it leads a session");
    // Its limits and descriptors are those of one that was started with a command line too long for others.
    let long = format!("ulimit -n; ls /proc/self/fd # {}", "x".repeat(100_000));
    let other = ok(&crate::world::output(world.ssh(&[], &[&long])).await);
    let other: Vec<&str> = other.lines().collect();
    assert_eq!((lines[3], &lines[6..]), (other[0], &other[1..]));
    // How it ended is told.
    let killed = by_one_that_waited(&world, &["-v"], "kill -TERM $$; sleep 5").await;
    assert!(text(&killed.stderr).contains("exit-signal"), "{}", text(&killed.stderr));
    // It has the terminal, with job control.
    let terminal = by_one_that_waited(&world, &["-tt"], "tty; ps -o tpgid=,pgid= -p $$; stty size").await;
    let said = text(&terminal.stdout);
    assert!(said.starts_with("/dev/pts/"), "{said}");
    let groups: Vec<&str> = said.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(groups[0], groups[1], "the shell is in the foreground");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_waited_takes_input_and_hears_the_end_of_it() {
    let world = World::new().await;
    ok(&output(world.ssh(&[], &["true"])).await);
    let whole = vec![b'x'; 3_000_000];
    for _ in 0..3 {
        let counted = output_of(world.ssh(&[], &["wc -c"]), whole.clone()).await;
        assert_eq!(ok(&counted).trim(), "3000000");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_begin_without_it_when_it_is_gone_or_they_are_many_or_long() {
    let world = std::sync::Arc::new(World::new().await);
    by_one_that_waited(&world, &[], "true").await;
    // Killed, while it waits: whichever of these it is, all nodes of these tests go on.
    until("one that waits", || (!waiting().is_empty()).then_some(())).await;
    for number in waiting() {
        let pid = rustix::process::Pid::from_raw(i32::try_from(number).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        // It leaves nothing, though no session has begun since.
        let place = std::path::PathBuf::from("/proc").join(number.to_string());
        until("the end of one that waited", || (!place.exists()).then_some(())).await;
    }
    ok(&output(world.ssh(&[], &["true"])).await);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..20 {
        let world = world.clone();
        clients.spawn(async move {
            let shown =
                ok(&output(world.ssh(&[], &[format!("echo {number}; sleep 0.1; echo {number}")])).await);
            assert_eq!(shown, format!("{number}\n{number}\n"));
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    // A command line that does not fit is an argument, as before.
    let long = format!("echo {} | wc -c", "x".repeat(100_000));
    assert_eq!(ok(&output(world.ssh(&[], &[&long])).await).trim(), "100001");
    // A signal that reaches the session's group reaches it.
    let interrupted =
        by_one_that_waited(&world, &["-tt"], "trap 'echo trapped; exit 9' INT; kill -INT 0; sleep 5").await;
    assert_eq!(interrupted.status.code(), Some(9), "{}", text(&interrupted.stdout));
}

/// Says that this test is to be the node that is killed.
const NODE: &str = "SALLYPORT_TEST_NODE";

#[test]
fn none_waits_for_a_node_that_is_gone() {
    if std::env::var_os(NODE).is_some() {
        return node();
    }
    let mut node = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "node::ready::none_waits_for_a_node_that_is_gone", "--nocapture"])
        .env(NODE, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = std::io::BufReader::new(node.stdout.take().unwrap());
    let number = said.lines().find_map(|line| line.unwrap().strip_prefix(WAITS).map(ToOwned::to_owned));
    let place = std::path::PathBuf::from("/proc").join(number.unwrap());
    assert!(place.exists());
    node.kill().unwrap();
    node.wait().unwrap();
    let killed = std::time::Instant::now();
    while place.exists() {
        assert!(killed.elapsed() < std::time::Duration::from_secs(60), "it waits for a node that was killed");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

const WAITS: &str = "it waits: ";

#[allow(clippy::print_stdout, reason = "what it says to the test")]
#[tokio::main]
async fn node() {
    let world = World::new().await;
    ok(&output(world.ssh(&[], &["true"])).await);
    let number = until("one that waits", || waiting().pop_first()).await;
    println!("\n{WAITS}{number}");
    std::future::pending().await
}
