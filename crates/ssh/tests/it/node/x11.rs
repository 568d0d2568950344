//! X11, with stock `ssh -Y` and `xauth`, and a display that only looks at who comes.

use std::process::Command;

use sallyport_audit::Code;

use crate::display::{TRUE_COOKIE, display, program, welcome};
use crate::world::{World, ok, output, text, until};

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
