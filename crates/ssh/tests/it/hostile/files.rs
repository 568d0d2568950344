//! An SFTP server that answers what it is told to, however wrong: a tree of files that exists nowhere, and a script that is
//! asked first. Our own client talks to it by a socket, stock programs by a program that carries bytes there.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) const FILE: u32 = 0o100_000;
pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const LINK: u32 = 0o120_000;

/// Answers of draft-ietf-secsh-filexfer-02 §7.
pub(crate) const OK: u32 = 0;
pub(crate) const END: u32 = 1;
pub(crate) const NO_SUCH_FILE: u32 = 2;
pub(crate) const PERMISSION_DENIED: u32 = 3;
pub(crate) const FAILURE: u32 = 4;

/// What a client asks, by the draft's names of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Open,
    Close,
    Read,
    Write,
    Lstat,
    Fstat,
    Setstat,
    Fsetstat,
    Opendir,
    Readdir,
    Mkdir,
    Realpath,
    Stat,
    Readlink,
    Symlink,
    Other(u8),
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    /// The path, or that of the handle, from the root and without `/` before it; the root is empty.
    pub(crate) path: String,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// How often the same was asked before: of this path, by whichever connection.
    pub(crate) before: usize,
}

/// What a file is said to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    /// With the kind of file.
    pub(crate) mode: u32,
    pub(crate) size: u64,
}

pub(crate) fn about(mode: u32, size: u64) -> About {
    About { mode, size }
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Status(u32),
    Data(Vec<u8>),
    Names(Vec<(Vec<u8>, About)>),
    Attributes(About),
    /// A packet without its length: its kind, then what follows the number of the request.
    Raw(u8, Vec<u8>),
    /// No answer, and the end of the connection.
    Cut,
}

/// One name, as in answers to `READLINK`.
pub(crate) fn name(name: &str) -> Answer {
    Answer::Names(vec![(name.as_bytes().to_vec(), about(0, 0))])
}

/// Names of a listing.
pub(crate) fn names(names: &[(&str, u32)]) -> Answer {
    Answer::Names(names.iter().map(|(name, mode)| (name.as_bytes().to_vec(), about(*mode, 4))).collect())
}

type Script = Box<dyn FnMut(&Asked) -> Option<Answer> + Send>;

/// A file of the tree. The content of a link is where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
}

struct Shared {
    tree: BTreeMap<String, Node>,
    script: Script,
    counts: HashMap<(Kind, String), usize>,
    heard: Vec<Asked>,
}

/// The server.
pub(crate) struct FileServer {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

impl FileServer {
    /// Serves these files, and asks `script` for an answer first.
    pub(crate) fn start(
        files: &[(&str, u32, &str)],
        script: impl FnMut(&Asked) -> Option<Answer> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut tree =
            BTreeMap::from([(String::new(), Node { mode: DIRECTORY | 0o755, content: Vec::new() })]);
        for (path, mode, content) in files {
            tree.insert((*path).to_owned(), Node { mode: *mode, content: content.as_bytes().to_vec() });
        }
        let shared = Shared { tree, script: Box::new(script), counts: HashMap::new(), heard: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), shared) = (stream, Arc::clone(&serving)) else { return };
                std::thread::spawn(move || Connection { stream, shared, open: Vec::new() }.serve());
            }
        });
        Self { address, shared }
    }

    /// One that does as it should.
    pub(crate) fn tame(files: &[(&str, u32, &str)]) -> Self {
        Self::start(files, |_| None)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A program that is an SFTP server on its standard input and output, as stock clients (`-D`) and `sshd` start one.
    pub(crate) fn program(&self, directory: &Path) -> PathBuf {
        let path = directory.join("sftp-server");
        let port = self.address.port();
        let text = format!("#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port}\ncat <&3 &\ncat >&3\nkill $!\n");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// What is there now.
    pub(crate) fn tree(&self) -> BTreeMap<String, Node> {
        self.shared.lock().tree.clone()
    }

    /// What clients have asked so far.
    pub(crate) fn heard(&self) -> Vec<Asked> {
        self.shared.lock().heard.clone()
    }
}

/// What a handle stands for.
struct Open {
    path: String,
    listed: bool,
}

struct Connection {
    stream: TcpStream,
    shared: Arc<Mutex<Shared>>,
    open: Vec<Open>,
}

impl Connection {
    fn serve(mut self) {
        // A client that goes, and one that is no client, are the end of it.
        let _ = self.stream.set_nodelay(true);
        let _ = self.answer_all();
    }

    fn answer_all(&mut self) -> io::Result<()> {
        loop {
            let mut length = [0; 4];
            self.stream.read_exact(&mut length)?;
            let mut packet = vec![0; u32::from_be_bytes(length) as usize];
            self.stream.read_exact(&mut packet)?;
            let (kind, rest) = packet.split_at(1);
            if kind[0] == 1 {
                self.send(2, &[], &3_u32.to_be_bytes())?;
                continue;
            }
            let (id, rest) = rest.split_at(4);
            match self.answer(kind[0], rest) {
                Answer::Cut => return Ok(()),
                answer => {
                    let (kind, body) = encode(answer);
                    self.send(kind, id, &body)?;
                }
            }
        }
    }

    fn send(&mut self, kind: u8, id: &[u8], body: &[u8]) -> io::Result<()> {
        let mut packet = u32::try_from(1 + id.len() + body.len()).unwrap().to_be_bytes().to_vec();
        packet.push(kind);
        packet.extend_from_slice(id);
        packet.extend_from_slice(body);
        self.stream.write_all(&packet)
    }

    fn answer(&mut self, number: u8, rest: &[u8]) -> Answer {
        let mut fields = Fields(rest);
        let kind = kind(number);
        let by_handle = matches!(
            kind,
            Kind::Close | Kind::Read | Kind::Write | Kind::Fstat | Kind::Fsetstat | Kind::Readdir
        );
        let first = fields.string();
        let mut asked = Asked { kind, path: String::new(), offset: 0, length: 0, before: 0 };
        let mut handle = usize::MAX;
        if by_handle {
            handle = String::from_utf8_lossy(&first).parse().unwrap_or(usize::MAX);
            let Some(open) = self.open.get(handle) else { return Answer::Status(FAILURE) };
            asked.path.clone_from(&open.path);
        } else {
            asked.path = normal(&String::from_utf8_lossy(&first));
        }
        if matches!(kind, Kind::Read | Kind::Write) {
            asked.offset = fields.long();
            asked.length = fields.number();
        }
        let locked = Arc::clone(&self.shared);
        let mut shared = locked.lock();
        let count = shared.counts.entry((kind, asked.path.clone())).or_default();
        asked.before = *count;
        *count += 1;
        if shared.heard.len() < 10_000 {
            shared.heard.push(asked.clone());
        }
        if let Some(answer) = (shared.script)(&asked) {
            // The script says what is in a file, and the handle is ours.
            if !matches!((&kind, &answer), (Kind::Open | Kind::Opendir, Answer::Status(OK))) {
                return answer;
            }
            return self.handle(asked.path);
        }
        let tree = &mut shared.tree;
        let found = tree.get(&asked.path).cloned();
        match kind {
            Kind::Open => {
                let flags = fields.number();
                let (write, create, truncate, exclusive) =
                    (flags & 2 != 0, flags & 8 != 0, flags & 16 != 0, flags & 32 != 0);
                let path = leads_to(tree, &asked.path, !exclusive);
                match tree.get_mut(&path) {
                    Some(_) if exclusive => return Answer::Status(FAILURE),
                    Some(node) if node.mode & DIRECTORY == 0 => {
                        if truncate {
                            node.content.clear();
                        }
                    }
                    None if write && create => {
                        tree.insert(path.clone(), Node { mode: FILE | 0o644, content: Vec::new() });
                    }
                    Some(_) => return Answer::Status(FAILURE),
                    None => return Answer::Status(NO_SUCH_FILE),
                }
                drop(shared);
                self.handle(path)
            }
            Kind::Opendir => {
                let path = leads_to(tree, &asked.path, true);
                let directory = tree.get(&path).is_some_and(|node| node.mode & DIRECTORY != 0);
                drop(shared);
                if directory { self.handle(path) } else { Answer::Status(NO_SUCH_FILE) }
            }
            Kind::Readdir => {
                let children: Vec<_> = tree
                    .iter()
                    .filter_map(|(path, node)| Some((child(&asked.path, path)?, node)))
                    .map(|(name, node)| {
                        (name.as_bytes().to_vec(), about(node.mode, node.content.len() as u64))
                    })
                    .collect();
                drop(shared);
                match self.open.get_mut(handle) {
                    Some(open) if !open.listed => {
                        open.listed = true;
                        Answer::Names(children)
                    }
                    _ => Answer::Status(END),
                }
            }
            Kind::Read => {
                let content = found.map(|node| node.content).unwrap_or_default();
                let from = content.len().min(asked.offset as usize);
                let to = content.len().min(from + asked.length as usize);
                if from == to { Answer::Status(END) } else { Answer::Data(content[from..to].to_vec()) }
            }
            Kind::Write => {
                // The length that was read is the data's.
                let (from, data) = (asked.offset as usize, fields.0[..asked.length as usize].to_vec());
                let Some(node) = tree.get_mut(&asked.path) else { return Answer::Status(FAILURE) };
                node.content.resize(node.content.len().max(from + data.len()), 0);
                node.content[from..from + data.len()].copy_from_slice(&data);
                Answer::Status(OK)
            }
            Kind::Lstat | Kind::Stat | Kind::Fstat => {
                let path = leads_to(tree, &asked.path, kind == Kind::Stat);
                match tree.get(&path) {
                    Some(node) => Answer::Attributes(about(node.mode, node.content.len() as u64)),
                    None => Answer::Status(NO_SUCH_FILE),
                }
            }
            Kind::Setstat | Kind::Fsetstat => {
                let mode = fields.mode();
                if let (Some(node), Some(mode)) = (tree.get_mut(&asked.path), mode) {
                    node.mode = (node.mode & !0o7777) | (mode & 0o7777);
                }
                Answer::Status(OK)
            }
            Kind::Mkdir if found.is_some() => Answer::Status(FAILURE),
            Kind::Mkdir => {
                let mode = fields.mode().unwrap_or(0o755);
                tree.insert(asked.path, Node { mode: DIRECTORY | (mode & 0o7777), content: Vec::new() });
                Answer::Status(OK)
            }
            Kind::Realpath => name(&format!("/{}", asked.path)),
            Kind::Readlink => match found {
                Some(node) if node.mode & LINK == LINK => Answer::Names(vec![(node.content, about(0, 0))]),
                _ => Answer::Status(FAILURE),
            },
            // OpenSSH's order: where it leads, then the link.
            Kind::Symlink => {
                let link = normal(&String::from_utf8_lossy(&fields.string()));
                tree.insert(link, Node { mode: LINK | 0o777, content: first });
                Answer::Status(OK)
            }
            Kind::Close => Answer::Status(OK),
            Kind::Other(_) => Answer::Status(8),
        }
    }

    fn handle(&mut self, path: String) -> Answer {
        self.open.push(Open { path, listed: false });
        Answer::Raw(102, string((self.open.len() - 1).to_string().as_bytes()))
    }
}

fn kind(number: u8) -> Kind {
    match number {
        3 => Kind::Open,
        4 => Kind::Close,
        5 => Kind::Read,
        6 => Kind::Write,
        7 => Kind::Lstat,
        8 => Kind::Fstat,
        9 => Kind::Setstat,
        10 => Kind::Fsetstat,
        11 => Kind::Opendir,
        12 => Kind::Readdir,
        14 => Kind::Mkdir,
        16 => Kind::Realpath,
        17 => Kind::Stat,
        19 => Kind::Readlink,
        20 => Kind::Symlink,
        other => Kind::Other(other),
    }
}

/// A path from the root. `..` stays, as the script may want it.
fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.join("/")
}

/// The name of `path` when it is right below `base`.
fn child<'a>(base: &str, path: &'a str) -> Option<&'a str> {
    let below = if base.is_empty() { path } else { path.strip_prefix(base)?.strip_prefix('/')? };
    (!below.is_empty() && !below.contains('/')).then_some(below)
}

/// Where a path leads when its last part is a link.
fn leads_to(tree: &BTreeMap<String, Node>, path: &str, follow: bool) -> String {
    match tree.get(path) {
        Some(node) if follow && node.mode & LINK == LINK => normal(&String::from_utf8_lossy(&node.content)),
        _ => path.to_owned(),
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

/// Size and permissions (draft §5); without permissions where the mode is nothing.
fn attributes(about: About) -> Vec<u8> {
    let mut out = if about.mode == 0 { 1_u32 } else { 1 | 4 }.to_be_bytes().to_vec();
    out.extend_from_slice(&about.size.to_be_bytes());
    if about.mode != 0 {
        out.extend_from_slice(&about.mode.to_be_bytes());
    }
    out
}

fn encode(answer: Answer) -> (u8, Vec<u8>) {
    match answer {
        Answer::Status(code) => {
            (101, [&code.to_be_bytes()[..], &string(b"Failure"), &string(b"en")].concat())
        }
        Answer::Data(data) => (103, string(&data)),
        Answer::Names(names) => {
            let mut body = u32::try_from(names.len()).unwrap().to_be_bytes().to_vec();
            for (name, about) in names {
                body.extend([string(&name), string(&name), attributes(about)].concat());
            }
            (104, body)
        }
        Answer::Attributes(about) => (105, attributes(about)),
        Answer::Raw(kind, body) => (kind, body),
        Answer::Cut => (0, Vec::new()),
    }
}

/// The fields of a request; what is not there is nothing.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take(&mut self, count: usize) -> Vec<u8> {
        let (head, tail) = self.0.split_at(count.min(self.0.len()));
        self.0 = tail;
        head.to_vec()
    }

    fn number(&mut self) -> u32 {
        self.take(4).try_into().map(u32::from_be_bytes).unwrap_or(0)
    }

    fn long(&mut self) -> u64 {
        self.take(8).try_into().map(u64::from_be_bytes).unwrap_or(0)
    }

    fn string(&mut self) -> Vec<u8> {
        let length = self.number() as usize;
        self.take(length)
    }

    /// The mode among attributes.
    fn mode(&mut self) -> Option<u32> {
        let flags = self.number();
        if flags & 1 != 0 {
            self.long();
        }
        if flags & 2 != 0 {
            self.long();
        }
        (flags & 4 != 0).then(|| self.number())
    }
}
