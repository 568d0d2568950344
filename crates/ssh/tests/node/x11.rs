//! X11, with stock `ssh -Y` and `xauth`, and a display that only looks at who comes.

use std::process::Command;

use sallyport_audit::Code;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::world::{World, ok, output, text, until};

const TRUE_COOKIE: &str = "00112233445566778899aabbccddeeff";

/// A program of the session: finds its cookie as X programs do, and shows it to the display.
const PROGRAM: &str = r#"
import os, socket, struct, subprocess
name = os.environ["DISPLAY"]
shown = subprocess.run(["xauth", "list", name], capture_output=True, text=True, check=True).stdout.split()
cookie = bytes.fromhex(shown[-1])
assert shown[-1] != "TRUE", "the true cookie left the client"
host, number = name.split(":")
line = socket.create_connection((host, 6000 + int(number.split(".")[0])))
proto = b"MIT-MAGIC-COOKIE-1"
line.sendall(struct.pack("<BxHHHHxx", 0x6c, 11, 0, len(proto), len(cookie)) + proto + bytes(-len(proto) % 4) + cookie)
print(name, os.stat(os.environ["XAUTHORITY"]).st_mode & 0o777, line.recv(100).decode())
"#;

/// A display of the client's and the file of its cookie.
async fn display(world: &World) -> (TcpListener, String) {
    for number in 200..400 {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", 6000 + number)).await {
            let name = format!("127.0.0.1:{number}");
            let added = Command::new("xauth")
                .arg("-f")
                .arg(world.path("xauthority"))
                .args(["add", &name, "MIT-MAGIC-COOKIE-1", TRUE_COOKIE])
                .output();
            assert!(added.unwrap().status.success());
            return (listener, name);
        }
    }
    panic!("no display is free");
}

fn client(world: &World, name: &str, words: &[&str]) -> tokio::process::Command {
    let mut ssh = world.ssh(words, &[format!("python3 -c '{}'", PROGRAM.replace("TRUE", TRUE_COOKIE))]);
    ssh.env("DISPLAY", name).env("XAUTHORITY", world.path("xauthority"));
    ssh
}

#[tokio::test(flavor = "multi_thread")]
async fn a_display_is_reached_by_the_true_cookie_and_gone_with_the_session() {
    if Command::new("xauth").arg("version").output().is_err() {
        eprintln!("left out: there is no xauth here");
        return;
    }
    let world = World::with("permit_x11_forwarding: true", |_| {}).await;
    let (listener, name) = display(&world).await;
    let shown = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut setup = vec![0; 12 + 20 + 16];
        stream.read_exact(&mut setup).await.unwrap();
        stream.write_all(b"welcome").await.unwrap();
        setup.split_off(32)
    });
    let said = ok(&output(client(&world, &name, &["-Y"])).await);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!((words[1], words[2]), ("384", "welcome"), "{said}");
    let cookie: String = shown.await.unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(cookie, TRUE_COOKIE);
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
    let (_listener, name) = display(&world).await;
    let mut ssh = world.ssh(&["-Y"], &["echo [$DISPLAY]"]);
    ssh.env("DISPLAY", name).env("XAUTHORITY", world.path("xauthority"));
    let outcome = output(ssh).await;
    assert_eq!(text(&outcome.stdout), "[]\n");
    assert!(world.event(&Code::SessionRefused).await.message.contains("options.permit_x11_forwarding"));
}
