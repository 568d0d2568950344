//! X11, with stock `ssh -Y` and `xauth`, and a display that only looks at who comes.

use std::process::Command;

use sallyport_audit::Code;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::timeout;

use crate::display::{TRUE_COOKIE, display, program, program_that_stays, welcome, welcomed};
use crate::world::{PATIENCE, World, ok, output, started, text, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_display_is_reached_by_the_true_cookie_and_gone_with_the_session() {
    if Command::new("xauth").arg("version").output().is_err() {
        eprintln!("left out: there is no xauth here");
        return;
    }
    let world = World::with("permit_x11_forwarding: true", |_| {}).await;
    let (listener, name) = display(&world.path("xauthority")).await;
    let shown = welcome(listener);
    let mut ssh = world.ssh(&["-Y"], &[program()]);
    ssh.env("DISPLAY", &name).env("XAUTHORITY", world.path("xauthority"));
    let said = ok(&output(ssh).await);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!((words[1], words[2]), ("384", "welcome"), "{said}");
    assert_eq!(shown.await.unwrap(), TRUE_COOKIE);
    world.event(&Code::SessionX11Forward).await;
    let event = world.event(&Code::SessionPortForward).await;
    assert_eq!((&event.fields["direction"], &event.fields["target"]), (&"x11".into(), &words[0].into()));
    assert_eq!(world.event(&Code::SessionPortForwardEnd).await.fields["bytes_in"], 7);
    let number: u16 = words[0].split([':', '.']).nth(1).unwrap().parse().unwrap();
    until("the end of the display", || std::net::TcpListener::bind(("127.0.0.1", 6000 + number)).ok()).await;
}

/// A program that has left the session is not ended by a lock, and sees and types nothing any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_ends_what_a_display_is_shown() {
    const LOCK: &str =
        "{kind: lock, version: v1, metadata: {name: l}, spec: {target: {user: alice}, message: enough}}";
    if Command::new("xauth").arg("version").output().is_err() {
        eprintln!("left out: there is no xauth here");
        return;
    }
    let world = World::with("permit_x11_forwarding: true", |_| {}).await;
    let (listener, name) = display(&world.path("xauthority")).await;
    let over = world.path("over");
    let line = format!("setsid {} & wait; exec sleep 600", program_that_stays(&over));
    let mut ssh = world.ssh(&["-Y"], &[line]);
    ssh.env("DISPLAY", &name).env("XAUTHORITY", world.path("xauthority"));
    let mut client = started(ssh);
    let (mut connection, cookie) = timeout(PATIENCE, welcomed(listener)).await.unwrap();
    assert_eq!(cookie, TRUE_COOKIE);
    let mut said = BufReader::new(client.stdout.take().unwrap()).lines();
    let shown = said.next_line().await.unwrap().unwrap();
    world.set_locks(&[LOCK]);
    let mut rest = Vec::new();
    // Its end or a reset.
    let _ = timeout(PATIENCE, connection.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
    until("the program's end of it", || over.exists().then_some(())).await;
    world.event(&Code::SessionPortForwardEnd).await;
    let number: u16 = shown.split([':', '.']).nth(1).unwrap().parse().unwrap();
    until("the end of the display", || std::net::TcpListener::bind(("127.0.0.1", 6000 + number)).ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_display_is_not_reached_unless_a_role_allows_it() {
    let world = World::new().await;
    let (_listener, name) = display(&world.path("xauthority")).await;
    let mut ssh = world.ssh(&["-Y"], &["echo [$DISPLAY]"]);
    ssh.env("DISPLAY", name).env("XAUTHORITY", world.path("xauthority"));
    let outcome = output(ssh).await;
    assert_eq!(text(&outcome.stdout), "[]\n");
    assert!(world.event(&Code::SessionRefused).await.message.contains("options.permit_x11_forwarding"));
}
