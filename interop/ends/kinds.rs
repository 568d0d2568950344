//! The kinds of session, and what a program in one does.

use std::fmt;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::Place;
use super::seen::{self, Process, Thing};
use super::world::{Owner, World};
use crate::support::{CLUSTER, free_port, ssh_command, wait_for};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `sallyport ssh -tt`, which goes by the native protocol, with a shell.
    Shell,
    /// Stock `ssh` by ProxyCommand.
    Exec,
    /// `sallyport ssh`.
    Native,
    /// Stock `ssh -J`.
    Jump,
    /// Stock `ssh -A`.
    Lent,
    /// Stock `sftp`, with a download under way.
    Files,
    /// `ssh -L`, with a connection.
    Outward,
    /// `ssh -R`, with a connection.
    Inward,
    /// `psql`, straight to the public address.
    Statement,
    /// `sallyport db connect`, whose TLS ends at the agent.
    Connect,
    /// Stock `ssh` to a stock `sshd`, by a proxy that records.
    Recorded,
    /// The same with a terminal and a shell.
    RecordedShell,
    /// Stock `sftp` to the same.
    RecordedFiles,
    /// `ssh -L` by the same.
    RecordedOutward,
}

pub(super) const KINDS: [Kind; 14] = [
    Kind::Shell,
    Kind::Exec,
    Kind::Native,
    Kind::Jump,
    Kind::Lent,
    Kind::Files,
    Kind::Outward,
    Kind::Inward,
    Kind::Statement,
    Kind::Connect,
    Kind::Recorded,
    Kind::RecordedShell,
    Kind::RecordedFiles,
    Kind::RecordedOutward,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Behaviour {
    /// Waits for something that does not come.
    Waits,
    /// Ignores the signals that can be ignored; a statement catches its cancellation.
    Ignores,
    /// The same in children, of which it waits for the last; it does not ignore them itself.
    Forks,
    /// Leaves something behind that has a session of its own, as a daemon does.
    Leaves,
    /// Writes on and on, and is read.
    Floods,
    /// Writes on and on, and its client does not read.
    Unread,
}

const PROGRAMS: &[Behaviour] = &[
    Behaviour::Waits,
    Behaviour::Ignores,
    Behaviour::Forks,
    Behaviour::Leaves,
    Behaviour::Floods,
    Behaviour::Unread,
];

/// How many a kind may have.
pub(super) const MOST_BEHAVIOURS: usize = PROGRAMS.len();

impl Kind {
    pub(super) fn behaviours(self) -> &'static [Behaviour] {
        match self.place() {
            Place::Database => &[Behaviour::Waits, Behaviour::Ignores, Behaviour::Floods, Behaviour::Unread],
            _ if self.is_files() => &[Behaviour::Waits, Behaviour::Unread],
            _ if self.is_forward() => &[Behaviour::Waits, Behaviour::Floods, Behaviour::Unread],
            _ => PROGRAMS,
        }
    }

    pub(super) fn place(self) -> Place {
        match self {
            Self::Statement | Self::Connect => Place::Database,
            Self::Recorded | Self::RecordedShell | Self::RecordedFiles | Self::RecordedOutward => {
                Place::Registered
            }
            _ => Place::Node,
        }
    }

    pub(super) fn is_files(self) -> bool {
        matches!(self, Self::Files | Self::RecordedFiles)
    }

    pub(super) fn is_forward(self) -> bool {
        matches!(self, Self::Outward | Self::Inward | Self::RecordedOutward)
    }

    pub(super) fn runs_programs(self) -> bool {
        self.place() != Place::Database && !self.is_files() && !self.is_forward()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shell => "shell, native",
            Self::Exec => "command",
            Self::Native => "command, native",
            Self::Jump => "command, -J",
            Self::Lent => "command, -A",
            Self::Files => "sftp",
            Self::Outward => "-L",
            Self::Inward => "-R",
            Self::Statement => "psql",
            Self::Connect => "db connect",
            Self::Recorded => "command, recorded",
            Self::RecordedShell => "shell, recorded",
            Self::RecordedFiles => "sftp, recorded",
            Self::RecordedOutward => "-L, recorded",
        })
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waits => "waits",
            Self::Ignores => "ignores",
            Self::Forks => "forks",
            Self::Leaves => "leaves",
            Self::Floods => "floods",
            Self::Unread => "is not read",
        })
    }
}

/// A session under way.
pub(super) struct Begun {
    client: Child,
    _input: Option<ChildStdin>,
    /// Of connections, the client's end.
    _held: Option<TcpStream>,
    /// What has to go with it.
    pub(super) things: Vec<Thing>,
    /// What has left the session, and may stay.
    pub(super) left: Vec<Process>,
    /// The session's id, where its processes know it.
    pub(super) session: Option<String>,
}

impl Begun {
    /// Signals the client's processes, which may be stopped.
    pub(super) fn signal(&self, name: &str) {
        let group = format!("-{}", self.client.id());
        for name in [name, "CONT"] {
            let _ = Command::new("kill").args(["-s", name, "--", &group]).output();
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.signal("KILL");
        let _ = self.client.kill();
        let _ = self.client.wait();
        self.left.iter().for_each(|process| process.kill());
    }
}

/// A session that is asked for.
pub(super) struct Cell {
    pub(super) kind: Kind,
    pub(super) behaviour: Behaviour,
    /// The number of what it runs; the next one is that of what leaves it.
    pub(super) number: u32,
}

/// A client that was started.
pub(super) struct Started {
    client: Child,
    input: Option<ChildStdin>,
    forward: Option<Forward>,
}

struct Forward {
    target: TcpListener,
    port: u16,
}

impl Cell {
    /// What a shell is to run.
    fn script(&self, world: &World) -> String {
        let (own, left) = (world.mark(self.number), world.mark(self.number + 1));
        let ignoring = "trap \"\" HUP TERM INT QUIT PIPE";
        match self.behaviour {
            Behaviour::Waits => format!("exec sleep {own}"),
            Behaviour::Ignores => format!("{ignoring}; exec sleep {own}"),
            Behaviour::Forks => {
                format!("sh -c '{ignoring}; exec sleep {own}' & sh -c '{ignoring}; exec sleep {own}' & wait")
            }
            Behaviour::Leaves => format!(
                "setsid sh -c '{ignoring}; exec sleep {left}' </dev/null >/dev/null 2>&1 & exec sleep {own}"
            ),
            Behaviour::Floods => {
                format!(": {own}; while :; do head -c 16384 /dev/zero; sleep 0.05; done")
            }
            Behaviour::Unread => format!("exec yes {own}"),
        }
    }

    fn statement(&self) -> &'static str {
        match self.behaviour {
            Behaviour::Ignores => {
                "do $$ begin loop begin perform pg_sleep(0.1); exception when query_canceled then null; end; end loop; end $$"
            }
            Behaviour::Floods => {
                "copy (select repeat('x', 10000), pg_sleep(0.02), generate_series(1, 100000000)) to stdout"
            }
            Behaviour::Unread => "copy (select repeat('x', 10000), generate_series(1, 100000000)) to stdout",
            _ => "select pg_sleep(100000)",
        }
    }

    fn file(&self, world: &World) -> PathBuf {
        world.room().join(format!("file-{}", self.number))
    }

    fn ssh(&self, owner: &Owner, jump: bool) -> Command {
        let mut command = ssh_command(if jump { &owner.jump } else { &owner.config });
        command.args(["-o", "LogLevel=ERROR"]);
        command
    }

    /// Starts a client, and does not wait for it.
    pub(super) fn start(&self, world: &World, owner: &Owner) -> Started {
        let (node, server) = (owner.target.node.as_str(), owner.target.server.as_str());
        let login = &owner.login;
        let stock = format!("{login}@{node}.{CLUSTER}");
        let registered = format!("{login}@{server}.{CLUSTER}");
        let mut forward = None;
        let mut typed = None;
        // From a file whose name says whose it is: what a shell does by itself has no arguments.
        let types = || {
            let file = world.room().join(world.mark(self.number));
            fs::write(&file, self.script(world)).unwrap();
            Some(format!("sh {}", file.display()))
        };
        let mut command = match self.kind {
            Kind::Shell => {
                typed = types();
                owner.user.command(&["ssh", "-tt", &format!("{login}@{node}")])
            }
            Kind::RecordedShell => {
                typed = types();
                let mut command = self.ssh(owner, false);
                command.args(["-tt", &registered]);
                command
            }
            Kind::Native => owner.user.command(&["ssh", &format!("{login}@{node}"), &self.script(world)]),
            Kind::Exec | Kind::Jump | Kind::Lent | Kind::Recorded => {
                let mut command = self.ssh(owner, self.kind == Kind::Jump);
                if self.kind == Kind::Lent {
                    command.arg("-A").env("SSH_AUTH_SOCK", world.agent());
                }
                command.arg(if self.kind == Kind::Recorded { &registered } else { &stock });
                command.arg(self.script(world));
                command
            }
            Kind::Files | Kind::RecordedFiles => {
                let file = self.file(world);
                fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
                let mut command = Command::new("sftp");
                command.arg("-q").arg("-F").arg(&owner.config).args(["-o", "BatchMode=yes", "-b", "-"]);
                // In kbit/s; in blocks that come soon.
                command.args(["-l", "256", "-B", "1024", "-R", "1"]);
                command.arg(if self.kind == Kind::Files { stock } else { registered });
                typed = Some(format!("get {} /dev/null", file.display()));
                command
            }
            Kind::Outward | Kind::Inward | Kind::RecordedOutward => {
                let target = TcpListener::bind("127.0.0.1:0").unwrap();
                let (port, to) = (free_port(), target.local_addr().unwrap());
                forward = Some(Forward { target, port });
                let mut command = self.ssh(owner, false);
                command.args(["-N", "-o", "ExitOnForwardFailure=yes"]);
                command.args([if self.kind == Kind::Inward { "-R" } else { "-L" }, &format!("{port}:{to}")]);
                command.arg(if self.kind == Kind::RecordedOutward { registered } else { stock });
                command
            }
            Kind::Statement => {
                let mut command = Command::new("psql");
                command.args(["-X", "-q", &format!("service={}", owner.target.database)]);
                command.args(["-c", self.statement()]).env("PGSERVICEFILE", owner.services());
                command
            }
            Kind::Connect => {
                let mut command = owner.user.command(&["db", "connect", &owner.target.database]);
                command.args(["--", "-X", "-q", "-c", self.statement()]);
                command.env("PGSERVICEFILE", owner.services());
                command
            }
        };
        command.env("PGAPPNAME", world.mark(self.number)).process_group(0);
        let log = fs::File::create(world.room().join(format!("client-{}.log", self.number))).unwrap();
        command.stdin(if typed.is_some() { Stdio::piped() } else { Stdio::null() });
        // What is not read is kept until the end.
        let unread = self.behaviour == Behaviour::Unread && !self.kind.is_files();
        command.stdout(if unread { Stdio::piped() } else { Stdio::null() }).stderr(log);
        let mut client = command.spawn().unwrap();
        let mut input = client.stdin.take();
        if let (Some(text), Some(input)) = (typed, input.as_mut()) {
            input.write_all(format!("{text}\n").as_bytes()).unwrap();
        }
        Started { client, input, forward }
    }

    /// Waits until it does what it is to do.
    pub(super) fn begun(&self, world: &World, started: Started) -> Begun {
        let Started { mut client, input, forward } = started;
        let what = format!("{}, which {}", self.kind, self.behaviour);
        let mut wait = |what: &str, ready: &mut dyn FnMut() -> Option<Vec<Thing>>| {
            wait_for(what, || {
                if let Some(status) = client.try_wait().unwrap() {
                    let log = world.room().join(format!("client-{}.log", self.number));
                    panic!("{what}: its client has ended: {status}\n{}", fs::read_to_string(log).unwrap());
                }
                ready()
            })
        };
        let processes = |found: Vec<Process>| found.into_iter().map(Thing::Process).collect::<Vec<_>>();
        let (mut held, mut left) = (None, Vec::new());
        let mut things = match &forward {
            Some(Forward { target, port }) => {
                let mut ends = None;
                target.set_nonblocking(true).unwrap();
                let inward = self.kind == Kind::Inward;
                wait(&what, &mut || {
                    if held.is_none() && (!inward || world.watch().listens(*port)) {
                        held = TcpStream::connect(("127.0.0.1", *port)).ok();
                    }
                    held.as_ref()?;
                    ends = Some(target.accept().ok()?.0);
                    Some(Vec::new())
                });
                let far = ends.unwrap();
                far.set_nonblocking(false).unwrap();
                let near = held.take().unwrap();
                // The node's side of the connection is that whose end is waited for.
                let (inside, outside) = if inward { (near, far) } else { (far, near) };
                let (reads, writes) = match self.behaviour {
                    Behaviour::Floods => (true, true),
                    Behaviour::Unread => (false, true),
                    _ => (true, false),
                };
                if self.behaviour == Behaviour::Floods {
                    seen::follow(outside.try_clone().unwrap(), true, false);
                }
                held = Some(outside);
                let mut things = vec![seen::follow(inside, reads, writes)];
                if inward {
                    things.push(Thing::Port(*port));
                }
                things
            }
            None if self.kind.is_files() => {
                let file = self.file(world);
                wait(&what, &mut || {
                    let found = seen::holders(&file);
                    (!found.is_empty()).then(|| processes(found))
                })
            }
            None if self.kind.place() == Place::Database => {
                wait(&what, &mut || world.backend(self.number).map(|one| vec![Thing::Process(one)]))
            }
            None => {
                let count = if self.behaviour == Behaviour::Forks { 2 } else { 1 };
                wait(&what, &mut || {
                    left = world.watch().marked(self.number + 1);
                    let wants = if self.behaviour == Behaviour::Leaves { 1 } else { 0 };
                    let found = world.watch().marked(self.number);
                    (found.len() >= count && left.len() >= wants).then(|| processes(found))
                })
            }
        };
        if self.behaviour == Behaviour::Unread {
            let writers: Vec<Process> = things
                .iter()
                .filter_map(|thing| match thing {
                    Thing::Process(process) => Some(*process),
                    _ => None,
                })
                .collect();
            if self.kind.is_files() {
                // A client that is stopped takes nothing.
                let _ = Command::new("kill").args(["-STOP", "--", &format!("-{}", client.id())]).output();
            } else if self.kind.runs_programs() {
                let mut before = 0;
                let mut looks = 0;
                wait_for("its output to stand still", || {
                    let now: u64 = writers.iter().map(|one| one.written()).sum();
                    looks = if now > 0 && now == before { looks + 1 } else { 0 };
                    before = now;
                    (looks >= 10).then_some(())
                });
            }
        }
        if self.kind == Kind::Lent {
            let Some(Thing::Process(process)) = things.first() else { panic!("no process") };
            let socket = process.variable("SSH_AUTH_SOCK").expect("an agent");
            things.push(Thing::File(PathBuf::from(socket)));
        }
        let session = things.iter().find_map(|thing| match thing {
            Thing::Process(process) => process.variable("SALLYPORT_SESSION"),
            _ => None,
        });
        Begun { client, _input: input, _held: held, things, left, session }
    }
}
