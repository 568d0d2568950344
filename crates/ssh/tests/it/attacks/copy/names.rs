//! Names from a server that lead elsewhere than into the directory that is filled.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use sallyport_ssh::copy::{Links, Options};

use crate::attacks::copy::{Ground, below, recursive, said};
use crate::hostile::files::{Answer, DIRECTORY, END, FILE, FileServer, Kind, LINK, OK, about, name, names};

const LONG: &str = "a name that is longer than any directory of this machine takes, which is 255 bytes of them, and so this goes on \
                    for a while: a name that is longer than any directory of this machine takes, which is 255 bytes of them, and so \
                    this goes on for a while, until it is enough";

/// Names that lead elsewhere, or can be none.
const BAD: [&str; 10] = [
    "../outside/precious",
    "../../outside/precious",
    "/tmp/planted",
    "sub/planted",
    "sub/../../../outside/precious",
    "",
    "nul\0",
    "outside\0/precious",
    "/",
    LONG,
];

/// A server whose directory `d` and root list these names, and has something wherever they lead.
fn listing(listed: Vec<&'static str>, mode: u32) -> FileServer {
    let mut files = vec![("d", DIRECTORY | 0o755, "")];
    files.push(("d/good", FILE | 0o644, "good"));
    FileServer::start(&files, move |asked| match asked.kind {
        Kind::Readdir if asked.before == 0 => {
            let bad = listed.iter().map(|name| (*name, mode));
            Some(names(&bad.chain([("good", FILE | 0o644)]).collect::<Vec<_>>()))
        }
        Kind::Readdir => Some(Answer::Status(END)),
        Kind::Stat if asked.path.is_empty() || asked.path == "d" => None,
        Kind::Stat | Kind::Lstat => Some(Answer::Attributes(about(mode, 4))),
        Kind::Open => Some(Answer::Status(OK)),
        Kind::Readlink => Some(name("../../outside/precious")),
        Kind::Read if asked.offset == 0 => Some(Answer::Data(b"evil".to_vec())),
        _ => None,
    })
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_told_and_left_out() {
    for mode in [FILE | 0o644, DIRECTORY | 0o755, LINK | 0o777] {
        let ground = Ground::new();
        let server = listing(BAD.to_vec(), mode);
        let options = Options { links: Links::Keep, ..recursive() };
        let outcome = ground.fetch(&server, &["d"], options).await;
        ground.assert_untouched();
        assert_eq!(outcome.failures.len(), BAD.len(), "{}", said(&outcome));
        let here = ground.here();
        assert_eq!(below(&here), [here.join("d"), here.join("d/good")]);
    }
}

#[tokio::test]
async fn a_pattern_takes_no_name_that_leads_elsewhere() {
    let ground = Ground::new();
    let server = listing(BAD.to_vec(), FILE | 0o644);
    let outcome = ground.fetch(&server, &["*"], recursive()).await;
    ground.assert_untouched();
    let here = ground.here();
    assert_eq!(below(&here), [here.join("good")], "{}", said(&outcome));
}

#[tokio::test]
async fn a_directory_is_not_its_own_content() {
    let ground = Ground::new();
    let server = listing(vec![".", ".."], DIRECTORY | 0o755);
    let outcome = ground.fetch(&server, &["d"], recursive()).await;
    assert_eq!((outcome.files, outcome.directories, said(&outcome).as_str()), (1, 1, ""));
    ground.assert_untouched();
}

/// Two sources, or two directories that a pattern fits, may have files of one name: the second does not overwrite the first.
#[tokio::test]
async fn a_name_is_taken_once_for_all_sources_of_a_copy() {
    let files = [
        ("a", DIRECTORY | 0o755, ""),
        ("a/file", FILE | 0o644, "first"),
        ("b", DIRECTORY | 0o755, ""),
        ("b/file", FILE | 0o644, "second"),
    ];
    for sources in [&["*/file"][..], &["a/file", "b/file"]] {
        let ground = Ground::new();
        let outcome = ground.fetch(&FileServer::tame(&files), sources, Options::default()).await;
        assert_eq!((outcome.files, outcome.failures.len()), (1, 1), "{}", said(&outcome));
        assert!(said(&outcome).contains("twice"), "{}", said(&outcome));
        assert_eq!(fs::read_to_string(ground.here().join("file")).unwrap(), "first");
    }
}

/// What cannot be text is asked for by the same bytes, or told as what cannot be copied; never is another file taken for it.
#[tokio::test]
async fn names_that_are_no_text_become_no_other_name() {
    let ground = Ground::new();
    let mut listed = false;
    let server = FileServer::start(&[("d", DIRECTORY | 0o755, "")], move |asked| match asked.kind {
        Kind::Readdir if !std::mem::replace(&mut listed, true) => {
            Some(Answer::Names(vec![(b"caf\xe9".to_vec(), about(FILE | 0o644, 4))]))
        }
        _ => None,
    });
    let outcome = ground.fetch(&server, &["d"], recursive()).await;
    assert_eq!(outcome.failures.len(), 1, "{}", said(&outcome));
    let names: Vec<_> =
        below(&ground.here()).iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}
