//! New keys under bulk data: clients that ask for them again and again while a session's input and output are both full.
//!
//! By hand: `cargo test -p sallyport-ssh --test it rekeys -- --ignored --nocapture`. `REKEYS` says how many (default 1,000), `PYTHON`
//! which Python has paramiko 3.5 or newer, the first with AES-GCM, and AsyncSSH: 2.10.1, as Debian 12 has it, goes on to send data
//! during a key exchange that it has asked for (RFC 4253 §7.1) and does not survive one.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::world::{World, ok, text};

/// Bytes after which a client asks.
const EACH: u64 = 256 * 1024;
/// Longest time for one rekey and its data, on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(1);

fn wanted() -> u64 {
    std::env::var("REKEYS").map_or(1_000, |count| count.parse().unwrap())
}

fn source(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/rekeys").join(name)
}

fn python() -> Command {
    Command::new(std::env::var("PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned()))
}

/// Runs a client that says how often it had new keys, and what it is.
async fn soak(mut client: Command, world: &World) {
    let (count, began) = (wanted(), Instant::now());
    client.arg(world.address.port().to_string()).arg(&world.own.name).arg(world.path("alice"));
    client.arg(count.to_string()).arg(EACH.to_string());
    client.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let patience = PATIENCE * u32::try_from(count).unwrap();
    let running = client.spawn().unwrap().wait_with_output();
    let said = ok(&timeout(patience, running).await.expect("it stands still").unwrap());
    let words: Vec<&str> = said.split_whitespace().collect();
    let [rekeys, bytes, name @ ..] = words.as_slice() else { panic!("{said}") };
    let mebibytes = bytes.parse::<u64>().unwrap() >> 20;
    println!("{}: {rekeys} key exchanges, {mebibytes} MiB each way, {:?}", name.join(" "), began.elapsed());
    assert!(rekeys.parse::<u64>().unwrap() >= count, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: a minute, and programs of one's own"]
async fn paramiko() {
    let world = World::new().await;
    let mut client = python();
    client.arg(source("with_paramiko.py"));
    soak(client, &world).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: a minute, and programs of one's own"]
async fn asyncssh() {
    let world = World::new().await;
    let mut client = python();
    client.arg(source("with_asyncssh.py"));
    soak(client, &world).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: a minute, and libssh-dev"]
async fn libssh() {
    let world = World::new().await;
    let program = world.path("libssh");
    let built =
        Command::new("cc").arg("-o").arg(&program).arg(source("with_libssh.c")).arg("-lssh").output().await;
    ok(&built.unwrap());
    soak(Command::new(program), &world).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: a minute"]
async fn openssh() {
    let world = World::new().await;
    let (count, began) = (wanted(), Instant::now());
    let mut input = Vec::new();
    // OpenSSH asks some eight times in so many bytes each way.
    while (input.len() as u64) < count * EACH / 6 {
        input.extend((0..=255).cycle().take(32 * 1024));
    }
    let mut client = world.client("ssh", "alice");
    client.args(["-v", &format!("-oRekeyLimit={EACH}"), &world.destination(), "cat"]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = client.spawn().unwrap();
    let (mut stdin, sent) = (running.stdin.take().unwrap(), input.clone());
    let feed = tokio::spawn(async move { stdin.write_all(&sent).await });
    let patience = PATIENCE * u32::try_from(count).unwrap();
    let output = timeout(patience, running.wait_with_output()).await.expect("it stands still").unwrap();
    feed.await.unwrap().unwrap();
    let rekeys = text(&output.stderr).matches("SSH2_MSG_NEWKEYS received").count() as u64;
    assert!(output.status.success(), "{}", output.status);
    assert!(output.stdout == input, "{} of {} bytes came back", output.stdout.len(), input.len());
    println!("OpenSSH: {rekeys} key exchanges, {} MiB each way, {:?}", input.len() >> 20, began.elapsed());
    assert!(rekeys >= count, "{rekeys}");
}
