//! What an SFTP server answers to a client that copies: however wrong it is, the copy ends, and here nothing changes beside the
//! directory that is filled.
//!
//! The first byte says what is copied. Of the rest each answer takes a byte that says how wrong it is, and what it is made of.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use sallyport_ssh::copy::{Links, Options, Remote};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Bytes under way between the two.
const ROOM_BYTES: usize = 64 * 1024;
/// Longest request that is read; what a client writes into files is among them.
const LONGEST_REQUEST_BYTES: usize = 256 * 1024;
/// Bytes of answers to one client. Each byte of an input could ask for more.
const MOST_SAID_BYTES: usize = 1024 * 1024;

/// Names of draft-ietf-secsh-filexfer-02 §3.
const INIT: u8 = 1;
const OPEN: u8 = 3;
const READ: u8 = 5;
const LSTAT: u8 = 7;
const FSTAT: u8 = 8;
const OPENDIR: u8 = 11;
const READDIR: u8 = 12;
const REALPATH: u8 = 16;
const STAT: u8 = 17;
const READLINK: u8 = 19;
const VERSION: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRIBUTES: u8 = 105;
const EXTENDED: u8 = 200;
const EXTENDED_REPLY: u8 = 201;

/// Names that a server may like to give. `link` and `up` lead out of the directory that is filled.
const NAMES: [&str; 12] =
    ["a", "b", "d", "link", "up", ".", "..", "../out", "up/out", "/etc/passwd", "x\0y", "\u{202e}\u{1b}[2J"];
const KINDS: [u32; 6] = [0o100_000, 0o100_000, 0o040_000, 0o040_000, 0o120_000, 0o010_000];
const SOURCES: [&[&str]; 6] = [&["*"], &["d/*", "*"], &["a"], &["a", "b", "a"], &["d"], &["*/*"]];

thread_local! {
    static RUNTIME: RefCell<tokio::runtime::Runtime> =
        RefCell::new(tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());
}

/// What is left of the input; zeros behind its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    fn name(&mut self) -> Vec<u8> {
        match usize::from(self.byte()) {
            known if known < 192 => NAMES[known % NAMES.len()].as_bytes().to_vec(),
            length => self.bytes(length - 192),
        }
    }

    /// Attributes as of §5.
    fn attributes(&mut self) -> Vec<u8> {
        let flags = self.byte();
        if flags & 0x40 != 0 {
            return self.bytes(usize::from(flags & 0x3f));
        }
        let mut wire = vec![flags & 0x80, 0, 0, flags & 0xf];
        if flags & 1 != 0 {
            let size = self.byte();
            let long = if size & 0x80 != 0 { u64::MAX << (size & 0x3f) } else { u64::from(size) << 4 };
            wire.extend(long.to_be_bytes());
        }
        if flags & 2 != 0 {
            wire.extend([self.byte(); 8]);
        }
        if flags & 4 != 0 {
            let mode = self.one_of(&KINDS) | u32::from(self.byte()) << 4;
            wire.extend(mode.to_be_bytes());
        }
        if flags & 8 != 0 {
            wire.extend([self.byte(); 8]);
        }
        if flags & 0x80 != 0 {
            let count = self.byte();
            wire.extend(u32::from(count).to_be_bytes());
            for _ in 0..count & 3 {
                wire.extend(string(b"x@y"));
                wire.extend(string(&[count]));
            }
        }
        wire
    }

    fn names(&mut self) -> Vec<u8> {
        let count = self.byte();
        // A few are there, whatever number is said.
        let mut wire =
            (if count & 0x80 != 0 { u32::MAX } else { u32::from(count & 7) }).to_be_bytes().to_vec();
        for _ in 0..count & 7 {
            let name = self.name();
            wire.extend(string(&name));
            wire.extend(string(&name));
            wire.extend(self.attributes());
        }
        wire
    }

    /// The kind of the answer that belongs to a request, and what follows its number.
    fn fitting(&mut self, request: &[u8]) -> (u8, Vec<u8>) {
        match request.first().copied().unwrap_or_default() {
            EXTENDED => {
                let limits: Vec<u8> =
                    (0..4).flat_map(|_| (u64::from(self.byte()) << 8).to_be_bytes()).collect();
                (EXTENDED_REPLY, limits)
            }
            OPEN | OPENDIR => {
                let length = usize::from(self.byte() & 15);
                (HANDLE, string(&self.bytes(length)))
            }
            READ => {
                let asked = request.last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes)) as usize;
                let length = match self.byte() {
                    0 => asked,
                    1 => asked + 1,
                    other => usize::from(other).pow(2).min(asked),
                };
                (DATA, string(&vec![b'x'; length]))
            }
            READDIR | READLINK | REALPATH => (NAME, self.names()),
            STAT | LSTAT | FSTAT => (ATTRIBUTES, self.attributes()),
            _ => self.status(0),
        }
    }

    fn status(&mut self, code: u8) -> (u8, Vec<u8>) {
        let length = usize::from(self.byte() & 31);
        let words = self.bytes(length);
        (STATUS, [&u32::from(code).to_be_bytes()[..], &string(&words), &string(b"en")].concat())
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn packet(kind: u8, id: &[u8], body: &[u8]) -> Vec<u8> {
    string(&[&[kind][..], id, body].concat())
}

/// Answers until the input has no more, or the client goes.
async fn serve(mut script: Script<'_>, mut stream: DuplexStream) -> std::io::Result<()> {
    let mut said = 0;
    while !script.0.is_empty() {
        let length = stream.read_u32().await? as usize;
        assert!(length <= LONGEST_REQUEST_BYTES, "a request of {length} bytes");
        let mut request = vec![0; length];
        stream.read_exact(&mut request).await?;
        let id = request.get(1..5).unwrap_or_default();
        if request.first() == Some(&INIT) {
            let extension = [string(b"limits@openssh.com"), string(b"1")].concat();
            let extensions = if script.byte() & 1 == 0 { extension } else { Vec::new() };
            stream.write_all(&packet(VERSION, &3_u32.to_be_bytes(), &extensions)).await?;
            continue;
        }
        // What answers nothing may come before what does.
        loop {
            let how = script.byte();
            let answer = match how {
                0 if script.0.is_empty() => return Ok(()),
                240..=243 => {
                    let rest = script.0.to_vec();
                    return stream.write_all(&rest).await;
                }
                244..=246 => return Ok(()),
                200..=207 => string(&script.bytes(usize::from(how - 200) * 8)),
                208..=211 => {
                    let (kind, body) = script.fitting(&request);
                    packet(kind, &[0, 0, 0, how - 208], &body)
                }
                _ => {
                    let (kind, body) = match how {
                        160..=175 => script.status(how - 160),
                        176..=190 => script.status(1),
                        191..=199 => {
                            let length = usize::from(script.byte());
                            (script.one_of(&[STATUS, HANDLE, DATA, NAME, ATTRIBUTES]), script.bytes(length))
                        }
                        _ => script.fitting(&request),
                    };
                    let answer = packet(kind, id, &body);
                    said += answer.len();
                    stream.write_all(&answer).await?;
                    if how == 239 {
                        stream.write_all(&answer).await?;
                    }
                    break;
                }
            };
            said += answer.len();
            stream.write_all(&answer).await?;
        }
        if said > MOST_SAID_BYTES {
            break;
        }
    }
    Ok(())
}

/// A directory to fill, beside what must stay as it is.
struct Ground {
    work: TempDir,
}

impl Ground {
    fn new() -> Self {
        let work = tempfile::tempdir().unwrap();
        let inside = work.path().join("in");
        fs::create_dir(&inside).unwrap();
        fs::write(work.path().join("out"), "kept").unwrap();
        fs::set_permissions(work.path().join("out"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("../out", inside.join("link")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        Self { work }
    }

    fn inside(&self) -> PathBuf {
        self.work.path().join("in")
    }

    fn assert_untouched(&self, links: Links) {
        let mut names: Vec<_> =
            fs::read_dir(self.work.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["in", "out"]);
        let out = self.work.path().join("out");
        assert_eq!(fs::read(&out).unwrap(), b"kept");
        assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_link(self.inside().join("link")).unwrap(), Path::new("../out"));
        assert_eq!(fs::read_link(self.inside().join("up")).unwrap(), Path::new(".."));
        let mut open = vec![self.inside()];
        while let Some(directory) = open.pop() {
            // One without the right to be listed has been filled all the same.
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for path in entries.map(|entry| entry.unwrap().path()) {
                let metadata = fs::symlink_metadata(&path).unwrap();
                let ours = directory == self.inside() && (path.ends_with("link") || path.ends_with("up"));
                if metadata.is_symlink() {
                    assert!(ours || links == Links::Keep, "{} is a link", path.display());
                } else {
                    let mode = metadata.permissions().mode();
                    assert_eq!(mode & 0o6000, 0, "{} has mode {mode:o}", path.display());
                }
                if metadata.is_dir() {
                    open.push(path);
                }
            }
        }
    }
}

/// One copy, from the server or to it.
async fn copy(how: u8, ground: &Ground, stream: DuplexStream, options: Options) {
    let Ok(remote) = Remote::open(stream).await else { return };
    if how & 0xc0 == 0xc0 {
        let sources = [ground.work.path().join("out"), ground.inside()];
        let _ = remote.upload(&sources, "to", options).await;
        return;
    }
    let sources: Vec<String> =
        SOURCES[usize::from(how >> 3 & 7) % SOURCES.len()].iter().map(|&name| name.to_owned()).collect();
    let inside = ground.inside();
    let to = if how & 0xc0 == 0x80 { inside.join("new") } else { inside };
    let _ = remote.download(&sources, &to, options).await;
}

fuzz_target!(|data: (u8, &[u8])| {
    let (how, script) = data;
    let ground = Ground::new();
    let links = if how & 4 == 0 { Links::Follow } else { Links::Keep };
    let options = Options { recursive: how & 1 != 0, preserve: how & 2 != 0, links, progress: None };
    RUNTIME.with_borrow_mut(|runtime| {
        runtime.block_on(async {
            let (ours, theirs) = tokio::io::duplex(ROOM_BYTES);
            let _ = tokio::join!(serve(Script(script), theirs), copy(how, &ground, ours, options));
        });
    });
    ground.assert_untouched(links);
});
