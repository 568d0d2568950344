//! The same lies told to stock `scp`: what it keeps out, our client keeps out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use sallyport_ssh::copy::{Links, Options};

use crate::attacks::copy::{Ground, PRECIOUS};
use crate::hostile::files::{
    Answer, Asked, DIRECTORY, END, FILE, FileServer, Kind, LINK, about, name, names,
};
use crate::openssh::rig::ssh_program;

/// What is on the user's machine after a copy that was not there to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Harm {
    /// A file outside the directory was written, or its directory changed.
    outside: bool,
    /// A link lies in the directory.
    link: bool,
    /// A file has setuid, setgid or sticky bits.
    bits: bool,
    /// The command said that all went well.
    silent: bool,
}

impl Harm {
    fn of(ground: &Ground, silent: bool) -> Self {
        let outside = ground.path("outside");
        let count = fs::read_dir(&outside).unwrap().count();
        let kept = fs::read_to_string(outside.join("precious")).unwrap() == PRECIOUS;
        let mode = fs::metadata(&outside).unwrap().permissions().mode() & 0o7777;
        let found: Vec<_> =
            super::below(&ground.here()).iter().map(|path| fs::symlink_metadata(path).unwrap()).collect();
        Self {
            outside: count != 1 || !kept || mode != 0o700,
            link: found.iter().any(fs::Metadata::is_symlink),
            bits: found
                .iter()
                .any(|metadata| !metadata.is_symlink() && metadata.permissions().mode() & 0o7000 != 0),
            silent,
        }
    }

    /// Whether this is no worse in anything.
    fn no_worse_than(self, other: Self) -> bool {
        self.outside <= other.outside
            && self.link <= other.link
            && self.bits <= other.bits
            && (!self.silent || other.silent)
    }
}

/// A way to lie, by a server that tells its lies anew to each client.
type Lie = (&'static str, &'static str, fn() -> FileServer);

/// What a copy is told, what is asked for, and the server.
const LIES: [Lie; 5] = [
    ("a link from STAT, then a file", "lure", || {
        FileServer::start(&[("lure", FILE | 0o644, "evil")], |asked| {
            match (asked.kind, asked.path.as_str()) {
                (Kind::Stat | Kind::Lstat, "lure") if asked.before == 0 => {
                    Some(Answer::Attributes(about(LINK | 0o777, 4)))
                }
                (Kind::Readlink, "lure") => Some(name("../outside/precious")),
                _ => None,
            }
        })
    }),
    ("a name that leads out of the directory", "d", || {
        FileServer::start(
            &[("d", DIRECTORY | 0o755, ""), ("d/good", FILE | 0o644, "good")],
            |asked: &Asked| match asked.kind {
                Kind::Readdir if asked.before == 0 => {
                    Some(names(&[("../../outside/planted", FILE | 0o644), ("good", FILE | 0o644)]))
                }
                Kind::Readdir => Some(Answer::Status(END)),
                _ => None,
            },
        )
    }),
    ("a link and a file of one name", "d", || {
        let files = [("d", DIRECTORY | 0o755, ""), ("d/lure", FILE | 0o644, "evil")];
        FileServer::start(&files, |asked: &Asked| match asked.kind {
            Kind::Readdir if asked.before == 0 => {
                Some(names(&[("lure", LINK | 0o777), ("lure", FILE | 0o644)]))
            }
            Kind::Readdir => Some(Answer::Status(END)),
            Kind::Readlink => Some(name("../../outside/precious")),
            _ => None,
        })
    }),
    ("setuid, setgid and sticky bits", "program", || {
        FileServer::tame(&[("program", FILE | 0o7755, "#!/bin/sh")])
    }),
    ("more bytes than were asked for", "f", || {
        FileServer::start(&[("f", FILE | 0o644, "01234567")], |asked| match asked.kind {
            Kind::Read => Some(Answer::Data(vec![b'x'; asked.length as usize + 1])),
            _ => None,
        })
    }),
];

#[tokio::test]
async fn no_lie_does_more_to_us_than_to_stock_scp() {
    for (lie, source, server) in LIES {
        let (theirs, ours) = (Ground::new(), Ground::new());
        let program = server().program(theirs.work.path());
        let status = Command::new(ssh_program("scp"))
            .args(["-q", "-r", "-p", "-s", "-D"])
            .arg(&program)
            .arg(format!("server:{source}"))
            .arg(theirs.here())
            .output()
            .unwrap();
        let stock = Harm::of(&theirs, status.status.success());
        let options = Options { recursive: true, preserve: true, links: Links::Follow, ..Options::default() };
        let outcome = ours.fetch(&server(), &[source], options).await;
        let own = Harm::of(&ours, outcome.failures.is_empty());
        assert!(own.no_worse_than(stock), "{lie}: own {own:?}, stock {stock:?}");
        let none = Harm { silent: own.silent, ..Harm::default() };
        assert_eq!(own, none, "{lie}");
        println!("{lie}: stock {stock:?}, own {own:?}");
    }
}
