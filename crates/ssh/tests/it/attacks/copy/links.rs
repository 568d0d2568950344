//! Links that a server has made where it wants to write next, and modes by which a file would run as its owner.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use sallyport_ssh::copy::{Links, Options};

use crate::attacks::copy::{Ground, PRECIOUS, fetch, recursive, said};
use crate::hostile::files::{
    Answer, Asked, DIRECTORY, END, FILE, FileServer, Kind, LINK, about, name, names,
};

/// A server whose `lure` is a link to a place outside at the first look, and what `then` says at every other.
fn changing(then: u32, outside: &str) -> FileServer {
    let outside = outside.to_owned();
    let files = [("lure", then, "evil"), ("lure/planted", FILE | 0o644, "evil")];
    FileServer::start(&files, move |asked| match (asked.kind, asked.path.as_str()) {
        (Kind::Stat, "lure") if asked.before == 0 => Some(Answer::Attributes(about(LINK | 0o777, 4))),
        (Kind::Readlink, "lure") => Some(name(&outside)),
        _ => None,
    })
}

#[tokio::test]
async fn a_pattern_writes_nothing_outside_by_a_link_that_stat_has_told_of() {
    let ground = Ground::new();
    let files = [("a.txt", FILE | 0o644, "evil")];
    let mut listed = false;
    let server = FileServer::start(&files, move |asked| match (asked.kind, asked.path.as_str()) {
        (Kind::Readdir, "") if !std::mem::replace(&mut listed, true) => {
            Some(names(&[("a.txt", FILE | 0o644), ("a.txt", FILE | 0o644)]))
        }
        (Kind::Stat, "a.txt") if asked.before == 0 => Some(Answer::Attributes(about(LINK | 0o777, 4))),
        (Kind::Readlink, "a.txt") => Some(name("../outside/precious")),
        _ => None,
    });
    let outcome = ground.fetch(&server, &["*.txt"], Options::default()).await;
    ground.assert_untouched();
    ground.assert_no_links();
    assert!(!outcome.failures.is_empty());
}

#[tokio::test]
async fn a_command_run_twice_writes_nothing_outside() {
    let ground = Ground::new();
    let server = changing(FILE | 0o644, "../outside/precious");
    let first = ground.fetch(&server, &["lure"], Options::default()).await;
    ground.assert_no_links();
    assert!(said(&first).contains("link"), "{}", said(&first));
    ground.fetch(&server, &["lure"], Options::default()).await;
    ground.assert_untouched();
    assert_eq!(fs::read_to_string(ground.here().join("lure")).unwrap(), "evil");
}

#[tokio::test]
async fn a_directory_at_the_second_look_takes_nothing_outside() {
    for preserve in [false, true] {
        let ground = Ground::new();
        let server = changing(DIRECTORY | 0o777, "../outside");
        let options = Options { preserve, ..recursive() };
        ground.fetch(&server, &["lure", "lure"], options.clone()).await;
        ground.fetch(&server, &["lure"], options).await;
        ground.assert_untouched();
        ground.assert_no_links();
    }
}

#[tokio::test]
async fn a_name_listed_twice_within_a_tree_takes_nothing_outside() {
    for kind in [FILE, DIRECTORY] {
        for links in [Links::Follow, Links::Keep] {
            let ground = Ground::new();
            let target = if kind == FILE { "../../outside/precious" } else { "../../outside" };
            let script = move |asked: &Asked| match (asked.kind, asked.path.as_str()) {
                // The walk takes the last name first.
                (Kind::Readdir, "d") if asked.before == 0 => {
                    Some(names(&[("lure", kind | 0o777), ("lure", LINK | 0o777)]))
                }
                (Kind::Readdir, _) if asked.before > 0 => Some(Answer::Status(END)),
                (Kind::Stat, "d/lure") => Some(Answer::Attributes(about(LINK | 0o777, 4))),
                (Kind::Readlink, "d/lure") => Some(name(target)),
                _ => None,
            };
            let files = [
                ("d", DIRECTORY | 0o755, ""),
                ("d/lure", kind | 0o777, "evil"),
                ("d/lure/planted", FILE | 0o644, "evil"),
            ];
            let server = FileServer::start(&files, script);
            let options = Options { links, preserve: true, ..recursive() };
            let outcome = ground.fetch(&server, &["d"], options).await;
            ground.assert_untouched();
            assert!(said(&outcome).contains("twice"), "{}", said(&outcome));
            if links == Links::Follow {
                ground.assert_no_links();
            }
        }
    }
}

#[tokio::test]
async fn links_that_lie_in_a_directory_that_is_filled_are_not_followed() {
    let ground = Ground::new();
    let files = [
        ("d", DIRECTORY | 0o777, ""),
        ("d/file", FILE | 0o777, "evil"),
        ("d/sub", DIRECTORY | 0o777, ""),
        ("d/sub/planted", FILE | 0o777, "evil"),
        ("d/good", FILE | 0o644, "good"),
        ("file", FILE | 0o777, "evil"),
    ];
    let server = FileServer::tame(&files);
    let here = ground.here();
    fs::create_dir(here.join("d")).unwrap();
    symlink("../../outside/precious", here.join("d/file")).unwrap();
    symlink("../../outside", here.join("d/sub")).unwrap();
    symlink("../outside/precious", here.join("file")).unwrap();
    let options = Options { preserve: true, ..recursive() };
    for sources in [&["d"][..], &["fil*"], &["file"]] {
        let outcome = ground.fetch(&server, sources, options.clone()).await;
        ground.assert_untouched();
        assert!(said(&outcome).contains("a link of this name"), "{sources:?} {}", said(&outcome));
    }
    // What has no link in its way is there.
    assert_eq!(fs::read_to_string(here.join("d/good")).unwrap(), "good");
}

#[tokio::test]
async fn links_that_are_kept_are_made_last_and_written_through_by_nothing() {
    let ground = Ground::new();
    let files = [
        ("d", DIRECTORY | 0o755, ""),
        ("d/one", LINK | 0o777, "../../outside/precious"),
        ("d/two", LINK | 0o777, "../../outside"),
    ];
    let server = FileServer::tame(&files);
    let keep = Options { links: Links::Keep, preserve: true, ..recursive() };
    let outcome = ground.fetch(&server, &["d"], keep.clone()).await;
    assert_eq!((outcome.links, said(&outcome).as_str()), (2, ""));
    // The same names again, as what writes.
    let files = [
        ("d", DIRECTORY | 0o755, ""),
        ("d/one", FILE | 0o666, "evil"),
        ("d/two", DIRECTORY | 0o777, ""),
        ("d/two/planted", FILE | 0o666, "evil"),
    ];
    let outcome = ground.fetch(&FileServer::tame(&files), &["d"], keep).await;
    ground.assert_untouched();
    assert_eq!((outcome.files, outcome.failures.len()), (0, 2), "{}", said(&outcome));
}

/// What the user typed is the user's, as with stock `scp`: a link there leads where the user wants it.
#[tokio::test]
async fn a_link_that_the_user_names_as_the_destination_is_followed() {
    let ground = Ground::new();
    let server = FileServer::tame(&[
        ("file", FILE | 0o644, "fetched"),
        ("d", DIRECTORY | 0o755, ""),
        ("d/in", FILE | 0o644, "fetched"),
    ]);
    symlink("real", ground.path("mine")).unwrap();
    fs::write(ground.path("real"), PRECIOUS.repeat(2)).unwrap();
    let outcome = fetch(&server, &["file"], &ground.path("mine"), Options::default()).await;
    assert_eq!(said(&outcome), "");
    assert_eq!(fs::read_to_string(ground.path("real")).unwrap(), "fetched");
    assert!(fs::symlink_metadata(ground.path("mine")).unwrap().is_symlink());
    symlink("here", ground.path("there")).unwrap();
    let outcome = fetch(&server, &["d"], &ground.path("there"), recursive()).await;
    assert_eq!(said(&outcome), "");
    assert_eq!(fs::read_to_string(ground.here().join("d/in")).unwrap(), "fetched");
    ground.assert_untouched();
}

#[tokio::test]
async fn modes_from_a_server_have_no_setuid_setgid_or_sticky_bit() {
    let files = [
        ("d", DIRECTORY | 0o7755, ""),
        ("d/program", FILE | 0o7755, "#!/bin/sh"),
        ("d/sub", DIRECTORY | 0o3777, ""),
    ];
    for preserve in [false, true] {
        let ground = Ground::new();
        let options = Options { preserve, ..recursive() };
        let outcome = ground.fetch(&FileServer::tame(&files), &["d", "d/program"], options).await;
        assert_eq!(said(&outcome), "");
        for name in ["d", "d/program", "d/sub", "program"] {
            let mode = fs::metadata(ground.here().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7000, 0, "{name} has mode {mode:o}");
        }
    }
}

/// The directory that the user named, and that was there, keeps its mode: `scp -rp host:. .` in a home directory would
/// otherwise open it to others.
#[tokio::test]
async fn the_directory_that_the_user_named_keeps_its_mode() {
    let ground = Ground::new();
    let server = FileServer::start(&[("file", FILE | 0o600, "x")], |asked| match asked.kind {
        Kind::Stat if asked.path.is_empty() => Some(Answer::Attributes(about(DIRECTORY | 0o777, 0))),
        _ => None,
    });
    fs::set_permissions(ground.here(), fs::Permissions::from_mode(0o700)).unwrap();
    let outcome = ground.fetch(&server, &["."], Options { preserve: true, ..recursive() }).await;
    assert_eq!((outcome.files, said(&outcome).as_str()), (1, ""));
    assert_eq!(fs::metadata(ground.here()).unwrap().permissions().mode() & 0o7777, 0o700);
}

/// `scp server:SOURCE other:`
#[tokio::test]
async fn between_two_nodes_no_file_of_the_user_is_sent_on() {
    let precious = |ground: &Ground| ground.path("outside/precious").display().to_string();
    for links in [Links::Follow, Links::Keep] {
        let ground = Ground::new();
        let from = changing(LINK | 0o777, &precious(&ground));
        ground.fetch(&from, &["lure", "lure"], Options { links, ..recursive() }).await;
        // As if one had come into being all the same, next to what was fetched.
        symlink(precious(&ground), ground.here().join("planted")).unwrap();
        symlink(ground.path("outside"), ground.here().join("directory")).unwrap();
        fs::create_dir(ground.here().join("d")).unwrap();
        symlink(precious(&ground), ground.here().join("d/within")).unwrap();
        fs::write(ground.here().join("good"), "good").unwrap();
        let other = FileServer::tame(&[("there", DIRECTORY | 0o755, "")]);
        let to =
            sallyport_ssh::copy::Remote::open(tokio::net::TcpStream::connect(other.address()).await.unwrap());
        let options = Options { links, ..recursive() };
        let outcome = to.await.unwrap().hand_on(&ground.here(), "there", options).await.unwrap();
        let tree = other.tree();
        assert!(tree.values().all(|node| node.content != PRECIOUS.as_bytes()), "{tree:?}");
        assert_eq!(tree.get("there/good").map(|node| node.content.clone()), Some(b"good".to_vec()));
        let (kept, failed) = if links == Links::Keep { (1, 2) } else { (0, 3) };
        assert_eq!((outcome.links, outcome.failures.len()), (kept, failed), "{}", said(&outcome));
    }
}
