//! What the front door before a stock sshd does as a node does it itself: X11, and the hashes of files.

use std::fs;
use std::process::{Output, Stdio};

use sallyport_audit::Event;

use crate::display::{TRUE_COOKIE, display, program, welcome};
use crate::openssh::recorded::{World, ok, text};
use crate::openssh::rig::{NODE, SshdOptions, noise};

/// An sshd that forwards X11, with its cookies in a file of its own.
fn with_x11(bench: &tempfile::TempDir) -> SshdOptions {
    let cookies = bench.path().join("cookies");
    let extra = format!("X11Forwarding yes\nX11UseLocalhost yes\nSetEnv XAUTHORITY={}\n", cookies.display());
    SshdOptions { extra: extra.leak(), ..SshdOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_display_is_reached_by_the_true_cookie() {
    let bench = tempfile::tempdir().unwrap();
    let world = World::with("permit_x11_forwarding: true", &with_x11(&bench), |_| {}).await;
    let (listener, name) = display(&world.path("xauthority")).await;
    let shown = welcome(listener);
    let mut ssh = world.program("ssh");
    ssh.args(["-Y", NODE, &program()]).env("DISPLAY", &name).env("XAUTHORITY", world.path("xauthority"));
    let output = ok(world.run(ssh).await);
    let said = text(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!((words[1], words[2]), ("384", "welcome"), "{said}");
    assert_eq!(shown.await.unwrap(), TRUE_COOKIE);
    world.event("session.x11_forward", |_| true).await;
    let event = world.event("session.port_forward", |event| event.fields["direction"] == "x11").await;
    assert_eq!(event.fields["target"], format!("X11 on {NODE}").as_str());
    let ended = world.event("session.port_forward_end", |event| event.fields["direction"] == "x11").await;
    assert_eq!(ended.fields["bytes_in"], 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_display_is_not_reached_unless_a_role_and_the_server_allow_it() {
    let bench = tempfile::tempdir().unwrap();
    let world = World::with("", &with_x11(&bench), |_| {}).await;
    let (_listener, name) = display(&world.path("xauthority")).await;
    let ask = |world: &World, name: &str| {
        let mut ssh = world.program("ssh");
        ssh.args(["-Y", NODE, "echo [$DISPLAY]"]).env("DISPLAY", name);
        ssh.env("XAUTHORITY", world.path("xauthority"));
        ssh
    };
    let output = ok(world.run(ask(&world, &name)).await);
    assert_eq!(text(&output.stdout), "[]\n");
    world.event("session.refused", |event| event.message.contains("options.permit_x11_forwarding")).await;

    let world = World::new("permit_x11_forwarding: true").await;
    let (_listener, name) = display(&world.path("xauthority")).await;
    let output = ok(world.run(ask(&world, &name)).await);
    assert_eq!(text(&output.stdout), "[]\n");
    assert!(text(&output.stderr).contains("the server forwards no X11"), "{}", text(&output.stderr));
}

async fn sftp(world: &World, batch: &str) -> Output {
    sftp_with(world, &[], batch).await
}

async fn sftp_with(world: &World, options: &[&str], batch: &str) -> Output {
    let lines = world.path("batch");
    fs::write(&lines, batch).unwrap();
    let mut command = world.program("sftp");
    command.args(options).arg("-b").arg(&lines).arg(NODE).stdin(Stdio::null());
    ok(world.run(command).await)
}

/// The end of a file of which so many bytes have moved in this direction.
async fn closed(world: &World, path: &std::path::Path, field: &str, bytes: u64) -> Event {
    let path = path.display().to_string();
    world
        .event("session.sftp", |event| {
            event.fields["operation"] == "close"
                && event.fields["path"] == path.as_str()
                && event.fields.get(field) == Some(&bytes.into())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn hashes_of_files_are_on_record_where_a_role_wants_them() {
    const BYTES: u64 = 5_000_000;
    let world = World::new("hash_files: true").await;
    let (source, there, back) = (world.path("source"), world.path("there"), world.path("back"));
    fs::write(&source, noise(5_000_000)).unwrap();
    let own = std::process::Command::new("sha256sum").arg(&source).output().unwrap();
    let hex = text(&own.stdout[..64]);
    let (from, to, home) = (source.display(), there.display(), back.display());
    sftp(&world, &format!("put {from} {to}\n")).await;
    let put = closed(&world, &there, "bytes_written", BYTES).await;
    assert_eq!((&put.fields["sha256"], &put.fields["size"]), (&hex.as_str().into(), &BYTES.into()));
    sftp(&world, &format!("get {to} {home}\n")).await;
    let got = closed(&world, &there, "bytes_read", BYTES).await;
    assert_eq!((&got.fields["sha256"], &got.fields["size"]), (&hex.as_str().into(), &BYTES.into()));
    // Carried on from the middle: the file is read once more.
    fs::write(&there, &fs::read(&source).unwrap()[..2_000_000]).unwrap();
    sftp(&world, &format!("reput {from} {to}\n")).await;
    let put = closed(&world, &there, "bytes_written", 3_000_000).await;
    assert_eq!((&put.fields["sha256"], &put.fields["size"]), (&hex.as_str().into(), &BYTES.into()));
    // The end of a file alone says nothing of the whole.
    fs::write(&back, &fs::read(&source).unwrap()[..2_000_000]).unwrap();
    sftp(&world, &format!("reget {to} {home}\n")).await;
    let got = closed(&world, &there, "bytes_read", 3_000_000).await;
    assert_eq!(got.fields["sha256_unknown"], "only a part was read");
    assert_eq!(got.fields.get("sha256"), None);

    // The same where the server's own program is asked for by its path.
    let by_path = world.path("by-path");
    let batch = format!("put {from} {}\n", by_path.display());
    sftp_with(&world, &["-s", "/usr/lib/openssh/sftp-server"], &batch).await;
    let put = closed(&world, &by_path, "bytes_written", BYTES).await;
    assert_eq!((&put.fields["sha256"], &put.fields["size"]), (&hex.as_str().into(), &BYTES.into()));

    let plain = World::new("").await;
    let there = plain.path("there");
    sftp(&plain, &format!("put {from} {}\n", there.display())).await;
    let put = closed(&plain, &there, "bytes_written", BYTES).await;
    assert_eq!((put.fields.get("sha256"), put.fields.get("sha256_unknown")), (None, None));
}
