//! Files: SFTP, scp in both modes, rsync.

use sallyport_audit::Code;
use sallyport_audit::recording::Body;

use crate::world::{World, file_sum, ok, output, output_of, text, until};

/// A file of `bytes` bytes that do not repeat soon.
fn big_file(world: &World, name: &str, bytes: u32) -> std::path::PathBuf {
    let path = world.path(name);
    let content: Vec<u8> = (0..bytes / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    std::fs::write(&path, content).unwrap();
    path
}

async fn sftp(world: &World, batch: &str) -> std::process::Output {
    sftp_with(world, &[], batch).await
}

async fn sftp_with(world: &World, options: &[&str], batch: &str) -> std::process::Output {
    let mut sftp = world.client("sftp", "alice");
    sftp.args(options).args(["-b", "-", &world.destination()]);
    output_of(sftp, batch.as_bytes().to_vec()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sftp_does_what_people_do() {
    let world = World::new().await;
    let base = world.path("base");
    std::fs::create_dir(&base).unwrap();
    let source = big_file(&world, "source", 5_000_000);
    let dir = base.display();
    let back = world.path("back");
    let shown = ok(&sftp(
        &world,
        &format!(
            "cd {dir}\npwd\nmkdir sub\nput {source} sub/one\nchmod 640 sub/one\nrename sub/one sub/two\n\
             symlink two sub/link\nln sub/two sub/hard\nls -la sub\nget sub/link {back}\nrm sub/hard\n\
             df {dir}\nreget sub/two {back}\n",
            source = source.display(),
            back = back.display()
        ),
    )
    .await);
    assert!(shown.contains(&format!("Remote working directory: {dir}")), "{shown}");
    assert!(shown.contains("-rw-r-----"), "{shown}");
    assert!(shown.contains("%"), "df: {shown}");
    assert_eq!(file_sum(&back), file_sum(&source));
    let mut names: Vec<_> = std::fs::read_dir(base.join("sub"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["link", "two"]);
    assert_eq!(std::fs::read_link(base.join("sub/link")).unwrap().to_str(), Some("two"));

    let frames = world.recording().await;
    let done: Vec<String> = frames
        .iter()
        .filter_map(|frame| match &frame.body {
            Body::Sftp { operation, path, success: true, .. } => Some(format!("{operation} {path}")),
            _ => None,
        })
        .collect();
    for wanted in ["mkdir", "rename", "symlink", "link", "setstat", "remove", "open", "close"] {
        assert!(
            done.iter().any(|line| line.starts_with(&format!("{wanted} {dir}/sub"))),
            "{wanted}: {done:?}"
        );
    }
    // What was in the files is not recorded.
    assert!(!frames.iter().any(|frame| matches!(frame.body, Body::Output(_))));
    let closed = world.events(&Code::SessionSftp);
    let written = closed
        .iter()
        .find(|event| event.fields.get("bytes_written").is_some_and(|count| *count == 5_000_000));
    assert!(written.is_some(), "{closed:?}");
}

/// Clients may ask for a file server by its path, in place of the subsystem: what it does is on record all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_server_that_is_asked_for_by_its_path_is_told_of() {
    let world = World::new().await;
    let wanted = world.path("made");
    let server = "exec /usr/lib/openssh/sftp-server";
    ok(&sftp_with(&world, &["-s", server], &format!("mkdir {}\n", wanted.display())).await);
    assert!(wanted.is_dir());
    let frames = world.recording().await;
    let path = wanted.display().to_string();
    let made = frames.iter().any(|frame| {
        matches!(&frame.body, Body::Sftp { operation, path: of, success: true, .. } if operation == "mkdir" && *of == path)
    });
    assert!(made, "{frames:?}");
    assert_eq!(world.event(&Code::SessionStart).await.fields["kind"], "sftp");
}

/// What a shell is given on its input has no name in a command: its length and hash are on record.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_without_a_terminal_is_given_is_counted_and_hashed() {
    let world = World::new().await;
    let commands = format!("echo one\n#{}\n", "x".repeat(300_000)).into_bytes();
    let given = world.path("given");
    std::fs::write(&given, &commands).unwrap();
    let sum = std::process::Command::new("sha256sum").arg(&given).output().unwrap();
    let shell = world.ssh(&[], &["bash"]);
    assert_eq!(ok(&output_of(shell, commands.clone()).await), "one\n");
    let end = world.event(&Code::SessionEnd).await;
    assert_eq!(end.fields["input_bytes"], commands.len());
    assert_eq!(end.fields["input_sha256"], text(&sum.stdout[..64]));
    // What a person types is theirs, passwords among it.
    let typed = World::new().await;
    ok(&output_of(typed.ssh(&["-tt"], &["head -n 1"]), b"secret\n".to_vec()).await);
    let end = typed.event(&Code::SessionEnd).await;
    assert!(!end.fields.contains_key("input_sha256"), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sftp_errors_are_the_systems() {
    let world = World::new().await;
    let dir = world.path("d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("a"), "a").unwrap();
    std::fs::write(dir.join("b"), "b").unwrap();
    let d = dir.display();
    let outcome = sftp(
        &world,
        &format!("-get {d}/none /dev/null\n-rmdir {d}\n-mkdir {d}\n-rm {d}/none\n-ls {d}/none\n"),
    )
    .await;
    let said = text(&outcome.stderr);
    assert!(said.contains("not found") || said.contains("No such file"), "{said}");
    assert!(outcome.status.success(), "{said}");
    let failures: Vec<String> = world
        .events(&Code::SessionSftp)
        .iter()
        .filter(|event| event.fields["success"] == false)
        .map(|event| event.message.clone())
        .collect();
    assert!(failures.iter().any(|line| line.contains("rmdir") && line.contains("not empty")), "{failures:?}");
    assert!(failures.iter().any(|line| line.contains("mkdir") && line.contains("exists")), "{failures:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new().await;
    let dir = world.path("odd");
    std::fs::create_dir(&dir).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9 \xf0\x9f\x9a\xaa");
    std::fs::write(dir.join(name), "odd").unwrap();
    let back = world.path("copied");
    std::fs::create_dir(&back).unwrap();
    ok(&sftp(&world, &format!("get {}/* {}\n", dir.display(), back.display())).await);
    assert_eq!(std::fs::read(back.join(name)).unwrap(), b"odd");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_directory_is_listed_whole() {
    let world = World::new().await;
    let dir = world.path("many");
    std::fs::create_dir(&dir).unwrap();
    for number in 0..1000 {
        std::fs::write(dir.join(format!("file-{number:04}")), "").unwrap();
    }
    let shown = ok(&sftp(&world, &format!("ls -1 {}\n", dir.display())).await);
    assert_eq!(shown.lines().filter(|line| line.contains("file-")).count(), 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn scp_copies_in_both_modes_and_directions() {
    let world = World::new().await;
    let source = big_file(&world, "source", 8_000_000);
    for mode in ["-O", "-s"] {
        let there = world.path(&format!("there{mode}"));
        let back = world.path(&format!("back{mode}"));
        let remote = format!("{}:{}", world.destination(), there.display());
        let mut up = world.client("scp", "alice");
        up.arg(mode).arg("-p").arg(&source).arg(&remote);
        ok(&output(up).await);
        assert_eq!(file_sum(&there), file_sum(&source), "{mode} up");
        let mut down = world.client("scp", "alice");
        down.arg(mode).arg(&remote).arg(&back);
        ok(&output(down).await);
        assert_eq!(file_sum(&back), file_sum(&source), "{mode} down");
        let modified = |path| std::fs::metadata(path).unwrap().modified().unwrap();
        let (one, two) = (modified(&source), modified(&there));
        let apart = one.duration_since(two).unwrap_or_else(|error| error.duration());
        assert!(apart.as_secs() < 2, "{mode} -p: {apart:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rsync_copies_a_tree_and_its_changes() {
    let world = World::new().await;
    let tree = world.path("tree");
    std::fs::create_dir_all(tree.join("deep/er")).unwrap();
    std::fs::write(tree.join("deep/er/file"), "one").unwrap();
    std::os::unix::fs::symlink("deep", tree.join("link")).unwrap();
    std::fs::rename(big_file(&world, "blob", 10_000_000), tree.join("blob")).unwrap();
    let remote = format!("{}:{}", world.destination(), world.path("mirror").display());
    let rsync = || {
        let mut rsync = tokio::process::Command::new("rsync");
        rsync.args(["-a", "--delete", "-e", &world.remote_shell()]).kill_on_drop(true);
        rsync
    };
    let mut up = rsync();
    up.arg(format!("{}/", tree.display())).arg(&remote);
    ok(&output(up).await);
    std::fs::write(tree.join("deep/er/file"), "another").unwrap();
    std::fs::remove_file(tree.join("link")).unwrap();
    let mut up = rsync();
    up.arg(format!("{}/", tree.display())).arg(&remote);
    ok(&output(up).await);
    assert_eq!(std::fs::read_to_string(world.path("mirror").join("deep/er/file")).unwrap(), "another");
    assert!(!world.path("mirror").join("link").exists());
    assert_eq!(file_sum(&world.path("mirror").join("blob")), file_sum(&tree.join("blob")));
}

/// What the events of closed files say of this path.
async fn closed(world: &World, path: &std::path::Path) -> sallyport_audit::Event {
    until("the end of a file", || {
        let name = path.to_str().unwrap();
        let events = world.events(&Code::SessionSftp);
        events.into_iter().rfind(|event| event.fields["operation"] == "close" && event.fields["path"] == name)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn hashes_of_files_are_in_the_recording_where_a_role_wants_them() {
    let world = World::with("hash_files: true", |_| {}).await;
    let source = big_file(&world, "source", 5_000_000);
    let hex: String = file_sum(&source).iter().map(|byte| format!("{byte:02x}")).collect();
    let (there, back) = (world.path("there"), world.path("back"));
    ok(&sftp(&world, &format!("put {} {}\n", source.display(), there.display())).await);
    let put = closed(&world, &there).await;
    assert_eq!((&put.fields["sha256"], &put.fields["size"]), (&hex.as_str().into(), &5_000_000.into()));
    let frames = world.recording().await;
    let told = frames.iter().any(|frame| match &frame.body {
        Body::Sftp { operation, detail, .. } => {
            operation == "close" && detail.as_ref().unwrap().ends_with(&format!("sha256 {hex}"))
        }
        _ => false,
    });
    assert!(told, "{frames:?}");
    ok(&sftp(&world, &format!("get {} {}\n", there.display(), back.display())).await);
    until("the hash of what was read", || {
        let mut events = world.events(&Code::SessionSftp).into_iter();
        events.find(|event| event.fields.get("bytes_read") == Some(&5_000_000.into()))
    })
    .await;
    assert_eq!(closed(&world, &there).await.fields["sha256"], hex.as_str());
    // Carried on from the middle: the file is read once more.
    std::fs::write(&there, &std::fs::read(&source).unwrap()[..2_000_000]).unwrap();
    ok(&sftp(&world, &format!("reput {} {}\n", source.display(), there.display())).await);
    let put = closed(&world, &there).await;
    assert_eq!(
        (&put.fields["sha256"], &put.fields["bytes_written"]),
        (&hex.as_str().into(), &3_000_000.into())
    );
    // The end of a file alone says nothing of the whole.
    std::fs::write(&back, &std::fs::read(&source).unwrap()[..2_000_000]).unwrap();
    ok(&sftp(&world, &format!("reget {} {}\n", there.display(), back.display())).await);
    until("the part that was read", || {
        let mut events = world.events(&Code::SessionSftp).into_iter();
        events.find(|event| event.fields.get("sha256_unknown") == Some(&"only a part was read".into()))
    })
    .await;

    let plain = World::new().await;
    let there = plain.path("there");
    ok(&sftp(&plain, &format!("put {} {}\n", source.display(), there.display())).await);
    let put = closed(&plain, &there).await;
    assert_eq!((put.fields.get("sha256"), &put.fields["size"]), (None, &5_000_000.into()));
}
