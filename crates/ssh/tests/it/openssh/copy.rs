use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sallyport_access::HostRole;
use sallyport_ssh::client::{ClientError, Connection};
use sallyport_ssh::copy::{CopyError, Links, Options, Progress, Remote};

use crate::openssh::pipelined;
use crate::openssh::rig::{Cluster, NODE, Sshd, SshdOptions, connected, noise, ready, settings};

/// Which client.
#[derive(Debug, Clone, Copy)]
enum By {
    Steps,
    Flights,
}

const BOTH: [By; 2] = [By::Steps, By::Flights];

async fn connection(cluster: &Cluster, sshd: &Sshd, by: By) -> Connection {
    let (user, settings) = (cluster.user(), settings(cluster));
    let connected = match by {
        By::Steps => connected(sshd, &user, settings).await,
        By::Flights => pipelined::reach(sshd, &user, settings).await,
    };
    connected.unwrap()
}

async fn files_by(cluster: &Cluster, sshd: &Sshd, by: By) -> Remote {
    Remote::open(connection(cluster, sshd, by).await.sftp().await.unwrap()).await.unwrap()
}

async fn files(cluster: &Cluster, sshd: &Sshd) -> Remote {
    files_by(cluster, sshd, By::Steps).await
}

/// Everything below a directory: its kind, mode and content.
fn tree(root: &Path) -> BTreeMap<PathBuf, (String, u32)> {
    fn walk(root: &Path, at: &Path, out: &mut BTreeMap<PathBuf, (String, u32)>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_owned();
            let mode = metadata.permissions().mode() & 0o7777;
            if metadata.is_symlink() {
                out.insert(name, (format!("-> {}", fs::read_link(&path).unwrap().display()), 0));
            } else if metadata.is_dir() {
                out.insert(name, ("directory".to_owned(), mode));
                walk(root, &path, out);
            } else {
                let content = fs::read(&path).unwrap();
                let sum: u64 = content.iter().enumerate().map(|(i, b)| (i as u64 + 1) * u64::from(*b)).sum();
                out.insert(name, (format!("{} bytes {sum:x}", content.len()), mode));
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(root, root, &mut out);
    out
}

fn plant(root: &Path) {
    fs::create_dir_all(root.join("deep/er/dir")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for (name, length, mode) in [
        ("empty file", 0, 0o644),
        ("one", 1, 0o600),
        ("script.sh", 100, 0o755),
        ("deep/er/exactly a piece", 131_072, 0o640),
        ("deep/er/dir/piece and a bit", 131_073, 0o444),
        ("deep/日本語", 300_000, 0o644),
    ] {
        fs::write(root.join(name), noise(length)).unwrap();
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for i in 0..60 {
        fs::write(root.join("deep").join(format!("small {i}")), noise(i * 100)).unwrap();
    }
    symlink("script.sh", root.join("link")).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o750)).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(root.join("one")).unwrap().set_modified(old).unwrap();
    fs::File::open(root.join("empty")).unwrap().set_modified(old).unwrap();
}

fn options() -> Options {
    Options { recursive: true, preserve: true, links: Links::Keep, progress: None }
}

#[tokio::test]
async fn trees_go_up_and_come_back_the_same() {
    for by in BOTH {
        trees_go_up_and_come_back_the_same_by(by).await;
    }
}

async fn trees_go_up_and_come_back_the_same_by(by: By) {
    let (cluster, sshd, _) = ready().await;
    let files = files_by(&cluster, &sshd, by).await;
    let work = tempfile::tempdir().unwrap();
    let (here, there, back) = (work.path().join("here"), work.path().join("there"), work.path().join("back"));
    plant(&here);

    let up = files.upload(std::slice::from_ref(&here), there.to_str().unwrap(), options()).await.unwrap();
    assert_eq!(up.failures, []);
    assert_eq!((up.files, up.directories, up.links), (66, 5, 1));
    assert_eq!(tree(&here), tree(&there));

    let down = files.download(&[there.display().to_string()], &back, options()).await.unwrap();
    assert_eq!(down.failures, []);
    assert_eq!((down.files, down.directories, down.links, down.bytes), (66, 5, 1, up.bytes));
    assert_eq!(tree(&here), tree(&back));
    for name in ["one", "empty"] {
        assert_eq!(fs::metadata(back.join(name)).unwrap().mtime(), 1_000_000_000, "{name}");
    }

    // Into a directory that exists, a source keeps its name; links are followed unless told otherwise.
    fs::create_dir(work.path().join("into")).unwrap();
    let into = work.path().join("into");
    let follow = Options { recursive: true, ..Options::default() };
    let up = files.upload(std::slice::from_ref(&here), into.to_str().unwrap(), follow.clone()).await.unwrap();
    assert_eq!((up.files, up.links, up.failures.len()), (67, 0, 0));
    assert_eq!(fs::read(into.join("here/link")).unwrap(), fs::read(here.join("script.sh")).unwrap());
    assert!(fs::metadata(into.join("here/one")).unwrap().mtime() > 1_600_000_000);
    let second = work.path().join("second");
    let down = files.download(&[format!("{}/here", into.display())], &second, follow).await.unwrap();
    assert_eq!((down.files, down.failures.len()), (67, 0));
}

#[tokio::test]
async fn big_files_arrive_whole_and_progress_adds_up() {
    for by in BOTH {
        big_files_arrive_whole_and_progress_adds_up_by(by).await;
    }
}

async fn big_files_arrive_whole_and_progress_adds_up_by(by: By) {
    let (cluster, sshd, _) = ready().await;
    let files = files_by(&cluster, &sshd, by).await;
    let work = tempfile::tempdir().unwrap();
    let content = noise((24 << 20) + 12_345);
    let (here, there, back) = (work.path().join("here"), work.path().join("there"), work.path().join("back"));
    fs::write(&here, &content).unwrap();
    let heard = Arc::new(Mutex::new((0_u64, 0_u64, 0_u32)));
    let into = Arc::clone(&heard);
    let listening = Options {
        progress: Some(Arc::new(move |progress: Progress<'_>| {
            let mut heard = into.lock();
            match progress {
                Progress::Begun { bytes, .. } => heard.0 += bytes,
                Progress::Moved { bytes, .. } => heard.1 += bytes,
                Progress::Ended { complete, .. } => heard.2 += u32::from(complete),
            }
        })),
        ..Options::default()
    };
    let up = files.upload(&[here], there.to_str().unwrap(), listening.clone()).await.unwrap();
    assert_eq!((up.files, up.bytes), (1, content.len() as u64));
    assert!(fs::read(&there).unwrap() == content);
    let down = files.download(&[there.display().to_string()], &back, listening).await.unwrap();
    assert_eq!((down.files, down.bytes), (1, content.len() as u64));
    assert!(fs::read(&back).unwrap() == content);
    assert_eq!(*heard.lock(), (2 * content.len() as u64, 2 * content.len() as u64, 2));
}

#[tokio::test]
async fn files_whose_size_is_a_lie_are_read_to_their_end() {
    let (cluster, sshd, _) = ready().await;
    let files = files(&cluster, &sshd).await;
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("version");
    let down = files.download(&["/proc/version".to_owned()], &to, Options::default()).await.unwrap();
    assert_eq!(down.failures, []);
    assert_eq!(fs::read(&to).unwrap(), fs::read("/proc/version").unwrap());
}

#[tokio::test]
async fn patterns_name_what_fits() {
    let (cluster, sshd, _) = ready().await;
    let files = files(&cluster, &sshd).await;
    let work = tempfile::tempdir().unwrap();
    let there = work.path().join("there");
    for name in ["a/1.log", "b/2.log", "b/3.txt", "b/.hidden.log", "b/star*.log"] {
        fs::create_dir_all(there.join(name).parent().unwrap()).unwrap();
        fs::write(there.join(name), name).unwrap();
    }
    let fetch = async |pattern: &str| {
        let to = tempfile::tempdir().unwrap();
        let source = format!("{}/{pattern}", there.display());
        let outcome = files.download(&[source], to.path(), Options::default()).await.unwrap();
        let mut names: Vec<String> = fs::read_dir(to.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        (names.join(" "), outcome.failures)
    };
    assert_eq!(fetch("*/*.log").await.0, "1.log 2.log star*.log");
    assert_eq!(fetch("[!a]/[0-9]*").await.0, "2.log 3.txt");
    assert_eq!(fetch(r"b/star\*.log").await.0, "star*.log");
    let (_, failures) = fetch("*.none").await;
    assert_eq!(failures.len(), 1);
    assert!(failures[0].reason.contains("no file fits"), "{failures:?}");
}

#[tokio::test]
async fn what_fails_is_told_and_the_rest_is_copied() {
    let (cluster, sshd, _) = ready().await;
    let files = files(&cluster, &sshd).await;
    let work = tempfile::tempdir().unwrap();
    let (here, there) = (work.path().join("here"), work.path().join("there"));
    fs::create_dir_all(here.join("sub")).unwrap();
    fs::create_dir(&there).unwrap();
    fs::write(here.join("good"), "good").unwrap();
    let target = there.to_str().unwrap();

    let sources = [here.join("good"), here.join("missing"), here.join("sub")];
    let up = files.upload(&sources, target, Options::default()).await.unwrap();
    assert_eq!(up.files, 1);
    let said: Vec<String> =
        up.failures.iter().map(|failure| format!("{}: {}", failure.path, failure.reason)).collect();
    let said = said.join("\n");
    assert!(
        said.contains("missing: no such file or directory") && said.contains("sub: is a directory"),
        "{said}"
    );

    let sources: Vec<String> = ["good", "missing"].iter().map(|name| format!("{target}/{name}")).collect();
    let to = work.path().join("to");
    fs::create_dir(&to).unwrap();
    let down = files.download(&sources, &to, Options::default()).await.unwrap();
    assert_eq!((down.files, down.failures.len()), (1, 1));
    assert_eq!(down.failures[0].reason, "no such file or directory");

    // A directory in the way of a file, and of the whole destination.
    fs::create_dir(there.join("blocked")).unwrap();
    fs::create_dir(there.join("blocked/good")).unwrap();
    let blocked = there.join("blocked");
    let up = files.upload(&[here.join("good")], blocked.to_str().unwrap(), Options::default()).await.unwrap();
    assert_eq!((up.files, up.failures.len()), (0, 1));
    let nowhere = format!("{target}/no/such/dir/");
    let error = files.upload(&[here.join("good")], &nowhere, Options::default()).await.unwrap_err();
    assert!(matches!(&error, CopyError::Destination { .. }), "{error:?}");
    let two = [here.join("good"), here.join("good")];
    let error = files.upload(&two, &format!("{target}/good"), Options::default()).await.unwrap_err();
    assert!(error.to_string().contains("must be a directory"), "{error}");

    // Links that lead in a circle end.
    fs::create_dir(here.join("circle")).unwrap();
    symlink("..", here.join("circle/up")).unwrap();
    let follow = Options { recursive: true, ..Options::default() };
    let up = files.upload(&[here.join("circle")], &format!("{target}/circle"), follow).await.unwrap();
    assert!(!up.failures.is_empty());
}

#[tokio::test]
async fn a_connection_lost_in_the_middle_fails_every_file_and_ends() {
    for by in BOTH {
        a_connection_lost_in_the_middle_fails_every_file_and_ends_by(by).await;
    }
}

async fn a_connection_lost_in_the_middle_fails_every_file_and_ends_by(by: By) {
    let (cluster, sshd, _) = ready().await;
    let files = files_by(&cluster, &sshd, by).await;
    let work = tempfile::tempdir().unwrap();
    let here = work.path().join("here");
    fs::write(&here, noise(64 << 20)).unwrap();
    let moved = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&moved);
    let listening = Options {
        progress: Some(Arc::new(move |progress: Progress<'_>| {
            if matches!(progress, Progress::Moved { .. }) {
                told.notify_one();
            }
        })),
        ..Options::default()
    };
    let there = work.path().join("there").display().to_string();
    let copying = files.upload(std::slice::from_ref(&here), &there, listening);
    let killing = async {
        moved.notified().await;
        sshd.kill_connections();
    };
    let both = async { tokio::join!(copying, killing).0.unwrap() };
    let outcome = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
    assert_eq!(outcome.files, 0);
    assert_eq!(outcome.failures.len(), 1);
    assert!(outcome.failures[0].reason.contains("connection was lost"), "{:?}", outcome.failures);
}

#[tokio::test]
async fn a_node_without_file_transfer_says_so() {
    for by in BOTH {
        a_node_without_file_transfer_says_so_by(by).await;
    }
}

async fn a_node_without_file_transfer_says_so_by(by: By) {
    let cluster = Cluster::new();
    let options = SshdOptions {
        extra: "Match User *\n ForceCommand echo no files here >&2; false",
        ..SshdOptions::default()
    };
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &options);
    let connection = connection(&cluster, &sshd, by).await;
    let outcome = match connection.sftp().await {
        Err(ClientError::Refused { .. }) => return,
        Ok(stream) => tokio::time::timeout(Duration::from_secs(10), Remote::open(stream)).await.unwrap(),
        Err(other) => panic!("{other:?}"),
    };
    assert!(matches!(outcome, Err(CopyError::Service(_))), "{outcome:?}");
}

/// Not a test of right or wrong: prints how fast this is next to scp. Run it alone, with --ignored --nocapture.
#[tokio::test]
#[ignore = "a measurement"]
async fn measure_against_scp() {
    let (cluster, sshd, _) = ready().await;
    let work = tempfile::tempdir().unwrap();
    let big = work.path().join("big");
    fs::write(&big, noise(256 << 20)).unwrap();
    let small = work.path().join("small");
    fs::create_dir(&small).unwrap();
    for i in 0..1000 {
        fs::write(small.join(i.to_string()), noise(4096)).unwrap();
    }
    let host =
        format!("Host {NODE}\n HostName 127.0.0.1\n Port {}\n HostKeyAlias {NODE}\n", sshd.address.port());
    let config = crate::openssh::rig::openssh_config(&cluster, &cluster.user(), &host);
    let files = files(&cluster, &sshd).await;
    for (what, source) in [("256 MiB in one file", &big), ("1000 files of 4 KiB", &small)] {
        let began = std::time::Instant::now();
        let target = work.path().join("ours").display().to_string();
        let up = files.upload(
            std::slice::from_ref(source),
            &target,
            Options { recursive: true, ..Options::default() },
        );
        assert_eq!(up.await.unwrap().failures, []);
        let ours_up = began.elapsed();
        let began = std::time::Instant::now();
        let (sources, back) = ([target], work.path().join("back"));
        let down = files.download(&sources, &back, Options { recursive: true, ..Options::default() });
        assert_eq!(down.await.unwrap().failures, []);
        let ours_down = began.elapsed();
        let began = std::time::Instant::now();
        let scp = |from: String, to: String| {
            let status = std::process::Command::new(crate::openssh::rig::ssh_program("scp"))
                .args(["-q", "-r", "-F"])
                .arg(&config)
                .args([from, to])
                .status();
            assert!(status.unwrap().success());
        };
        let theirs = work.path().join("theirs").display().to_string();
        scp(source.display().to_string(), format!("{NODE}:{theirs}"));
        let theirs_up = began.elapsed();
        let began = std::time::Instant::now();
        scp(format!("{NODE}:{theirs}"), work.path().join("theirs-back").display().to_string());
        let theirs_down = began.elapsed();
        println!(
            "{what}: up {ours_up:.2?} (scp {theirs_up:.2?}), down {ours_down:.2?} (scp {theirs_down:.2?})"
        );
        for name in ["ours", "back", "theirs", "theirs-back"] {
            let path = work.path().join(name);
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir_all(&path);
        }
    }
}
