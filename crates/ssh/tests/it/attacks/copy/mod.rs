//! File servers that lie to who copies from them: about links, names, modes and sizes. Nothing of the user's is written but
//! what the user named, nothing is sent on but what the server sent, and every lie ends with an error.

mod bounds;
mod links;
mod names;
mod stock;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sallyport_ssh::copy::{Options, Outcome, Remote};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::hostile::files::FileServer;

/// What is in the user's files that no server may reach.
const PRECIOUS: &str = "the user's own";

/// A user's machine: a directory that is copied to, and beside it what must stay as it is.
struct Ground {
    work: TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { work: tempfile::tempdir().unwrap() };
        fs::create_dir(ground.here()).unwrap();
        fs::create_dir(ground.path("outside")).unwrap();
        fs::set_permissions(ground.path("outside"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(ground.path("outside/precious"), PRECIOUS).unwrap();
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Where copies go.
    fn here(&self) -> PathBuf {
        self.path("here")
    }

    /// `sallyport scp server:SOURCE... here/`
    async fn fetch(&self, server: &FileServer, sources: &[&str], options: Options) -> Outcome {
        fetch(server, sources, &self.here(), options).await
    }

    /// Nothing outside the directory is other than it was.
    #[track_caller]
    fn assert_untouched(&self) {
        let outside = self.path("outside");
        let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["precious"], "the server has put files outside the directory");
        let precious = fs::read_to_string(outside.join("precious")).unwrap();
        assert_eq!(precious, PRECIOUS, "the server has written a file outside the directory");
        let mode = fs::metadata(&outside).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o700, "the server has changed the mode of a directory outside");
    }

    /// No link is in the directory that is copied to.
    #[track_caller]
    fn assert_no_links(&self) {
        for path in below(&self.here()) {
            let link = fs::read_link(&path).unwrap_or_default();
            assert_eq!(link, PathBuf::new(), "{} is a link", path.display());
        }
    }
}

async fn fetch(server: &FileServer, sources: &[&str], to: &Path, options: Options) -> Outcome {
    let files = Remote::open(TcpStream::connect(server.address()).await.unwrap()).await.unwrap();
    let sources: Vec<String> = sources.iter().map(|source| (*source).to_owned()).collect();
    files.download(&sources, to, options).await.unwrap()
}

/// `-r`.
fn recursive() -> Options {
    Options { recursive: true, ..Options::default() }
}

/// Everything below a directory, without following links.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

/// What was said, in one text.
fn said(outcome: &Outcome) -> String {
    let lines: Vec<String> =
        outcome.failures.iter().map(|failure| format!("{}: {}", failure.path, failure.reason)).collect();
    lines.join("\n")
}
