//! Answers without an end, longer or shorter than they should be, and a connection that ends in the middle.

use std::fs;

use sallyport_ssh::copy::Options;

use crate::attacks::copy::{Ground, recursive, said};
use crate::hostile::files::{Answer, DIRECTORY, FILE, FileServer, Kind, LINK, about};

/// A listing that goes on for ever, with names as long as they can be.
fn endless() -> FileServer {
    let mut count = 0_u64;
    FileServer::start(&[("d", DIRECTORY | 0o755, "")], move |asked| match asked.kind {
        Kind::Readdir => {
            let batch = (0..400).map(|_| {
                count += 1;
                (format!("{count:0>250}").into_bytes(), about(FILE | 0o644, 0))
            });
            Some(Answer::Names(batch.collect()))
        }
        _ => None,
    })
}

#[tokio::test]
async fn a_listing_without_an_end_is_left_and_told() {
    let ground = Ground::new();
    for (source, options) in [("d", recursive()), ("*", Options::default())] {
        let outcome = ground.fetch(&endless(), &[source], options).await;
        assert_eq!((outcome.files, outcome.failures.len()), (0, 1), "{}", said(&outcome));
        assert!(said(&outcome).contains("lists more than"), "{}", said(&outcome));
    }
}

#[tokio::test]
async fn a_listing_of_nothing_over_and_over_ends() {
    let ground = Ground::new();
    let server = FileServer::start(&[("d", DIRECTORY | 0o755, "")], |asked| match asked.kind {
        Kind::Readdir => Some(Answer::Names(Vec::new())),
        _ => None,
    });
    let outcome = ground.fetch(&server, &["d"], recursive()).await;
    assert_eq!((outcome.directories, said(&outcome).as_str()), (1, ""));
}

#[tokio::test]
async fn a_tree_without_a_bottom_ends() {
    let ground = Ground::new();
    let server = FileServer::start(&[], |asked| match asked.kind {
        Kind::Stat | Kind::Lstat => Some(Answer::Attributes(about(DIRECTORY | 0o755, 0))),
        Kind::Opendir => Some(Answer::Status(crate::hostile::files::OK)),
        Kind::Readdir if asked.before == 0 => {
            Some(Answer::Names(vec![(b"d".to_vec(), about(DIRECTORY | 0o755, 0))]))
        }
        _ => None,
    });
    let outcome = ground.fetch(&server, &["d"], recursive()).await;
    assert!(said(&outcome).contains("directories deep"), "{}", said(&outcome));
}

/// One file `f` of 8 bytes as it is said to be, whose reads are answered like this.
fn reading(mut answer: impl FnMut(u64, u32) -> Option<Answer> + Send + 'static) -> FileServer {
    FileServer::start(&[("f", FILE | 0o644, "01234567")], move |asked| match asked.kind {
        Kind::Read => answer(asked.offset, asked.length),
        _ => None,
    })
}

#[tokio::test]
async fn more_than_was_asked_for_is_not_written() {
    let ground = Ground::new();
    let server = reading(|_, length| Some(Answer::Data(vec![b'x'; length as usize + 1])));
    let outcome = ground.fetch(&server, &["f"], Options::default()).await;
    assert!(said(&outcome).contains("were asked for"), "{}", said(&outcome));
    assert_eq!(fs::metadata(ground.here().join("f")).unwrap().len(), 0);
}

#[tokio::test]
async fn a_file_that_goes_on_past_its_size_is_left_and_told() {
    let ground = Ground::new();
    let server = reading(|_, length| Some(Answer::Data(vec![b'x'; length as usize])));
    let outcome = ground.fetch(&server, &["f"], Options::default()).await;
    assert!(said(&outcome).contains("more than the 8 bytes"), "{}", said(&outcome));
    assert_eq!(outcome.files, 0);
}

#[tokio::test]
async fn a_file_that_ends_before_its_size_is_told() {
    let ground = Ground::new();
    let server = reading(|offset, _| {
        Some(if offset == 0 {
            Answer::Data(b"0123".to_vec())
        } else {
            Answer::Status(crate::hostile::files::END)
        })
    });
    let outcome = ground.fetch(&server, &["f"], Options::default()).await;
    assert!(said(&outcome).contains("ended after 4 of the 8 bytes"), "{}", said(&outcome));
    assert_eq!(outcome.files, 0);
}

/// A log that is written to while it is copied is no lie.
#[tokio::test]
async fn a_file_that_has_grown_meanwhile_is_copied_whole() {
    let ground = Ground::new();
    let server = FileServer::start(&[("f", FILE | 0o644, "01234567")], |asked| match asked.kind {
        Kind::Stat => Some(Answer::Attributes(about(FILE | 0o644, 4))),
        _ => None,
    });
    let outcome = ground.fetch(&server, &["f"], Options::default()).await;
    assert_eq!(said(&outcome), "");
    assert_eq!(fs::read_to_string(ground.here().join("f")).unwrap(), "01234567");
}

#[tokio::test]
async fn a_connection_lost_during_a_pattern_is_told_as_that() {
    let ground = Ground::new();
    for lost in [Kind::Opendir, Kind::Readdir] {
        let server =
            FileServer::start(&[("a.txt", FILE | 0o644, "x"), ("l", LINK | 0o777, "a.txt")], move |asked| {
                (asked.kind == lost).then_some(Answer::Cut)
            });
        let outcome = ground.fetch(&server, &["*.txt"], Options::default()).await;
        assert!(said(&outcome).contains("the connection was lost"), "{lost:?}: {}", said(&outcome));
    }
}
