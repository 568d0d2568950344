//! A session under way on a server elsewhere: input there, output back, and what the recording is told of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::again::again;
use crate::client::{self, Connection, Request, Requests, Session, SessionInput, SessionOutput};
use crate::node::endpoint::REFUSED_STATUS;
use crate::session::{
    Channel, Early, Ended, Ends, Exit, Happening, Incoming, Input, Observer, Output, QUEUED_PIECES, Signal,
    Stop, hand_on,
};
use crate::sftp::observe::{self, Seen, Unreadable};
use crate::sftp::passing::Passed;

/// What the server is asked to send to the process of a session that was cut, one after the other. sshd sends it to the process
/// group; what has left that, as by setsid(1), is out of its reach.
const CUT_SIGNALS: [&str; 3] = ["HUP", "TERM", "KILL"];
/// How long each of them has before the next.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// RFC 4254 §6.10's name.
fn signal_name(signal: Signal) -> Option<String> {
    let signal = nix::sys::signal::Signal::try_from(signal.as_raw()).ok()?;
    Some(signal.as_str().trim_start_matches("SIG").to_owned())
}

/// Hangs up on the session on the server when it is no longer carried.
struct HangUp {
    input: Option<SessionInput>,
    /// The process has been told already.
    told: bool,
    ends: Ends,
}

impl Drop for HangUp {
    fn drop(&mut self) {
        if let (Some(input), Ok(runtime)) = (self.input.take(), tokio::runtime::Handle::try_current()) {
            let told = self.told;
            self.ends.tasks.spawn_on(
                async move {
                    let hang_up = async {
                        if !told {
                            let _ = input.signal("HUP").await;
                        }
                        let _ = input.close().await;
                    };
                    // A server that takes nothing is not waited for.
                    let _ = timeout(CUT_GRACE * 2, hang_up).await;
                },
                &runtime,
            );
        }
    }
}

/// A file transfer.
#[derive(Clone, Copy)]
pub(super) struct Files {
    /// The role wants the hashes of files.
    pub(super) hashes: bool,
}

/// A session under way.
struct Carrying<'a> {
    connection: &'a Connection,
    name: &'a str,
    output: &'a dyn Output,
    observer: &'a dyn Observer,
    /// Where files are transferred: the content is not part of a recording, the operations are.
    files: Option<Mutex<observe::Observer>>,
    exit: OnceLock<Exit>,
    /// The server runs nothing, and has said so.
    refused: AtomicBool,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// The server that a session is carried to.
#[derive(Clone, Copy)]
pub(super) struct Server<'a> {
    pub(super) connection: &'a Connection,
    /// What people call it.
    pub(super) name: &'a str,
    /// What ends sessions that were cut.
    pub(super) ends: &'a Ends,
}

/// Carries a session to its end.
pub(super) async fn carry(
    session: Session,
    server: Server<'_>,
    files: Option<Files>,
    input: Box<dyn Input>,
    output: Arc<dyn Output>,
    observer: Arc<dyn Observer>,
) -> Ended {
    let Server { connection, name, ends } = server;
    let (to_server, mut from_server) = session.split();
    let mut hang_up = HangUp { input: Some(to_server.clone()), told: false, ends: ends.clone() };
    let told = Arc::clone(&observer);
    let carrying = Carrying {
        connection,
        name,
        output: output.as_ref(),
        observer: observer.as_ref(),
        files: files.map(|files| Mutex::new(observe::Observer::new(files.hashes))),
        exit: OnceLock::new(),
        refused: AtomicBool::new(false),
        bytes_in: AtomicU64::new(0),
        bytes_out: AtomicU64::new(0),
    };
    let (queue, queued) = mpsc::channel(QUEUED_PIECES);
    let requests = Requests::default();
    let early = {
        let inbound = carrying.read_client(input, queue, &requests);
        let asking = ask_server(&requests, &to_server);
        let feed = carrying.feed_server(queued, &to_server);
        let outbound = carrying.read_server(&mut from_server);
        tokio::pin!(inbound, asking, feed, outbound);
        let mut fed = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut outbound => break ended.err(),
                early = &mut inbound => break Some(early),
                // Before the input: a line that is typed after the terminal has got another size is read at that size.
                () = &mut asking => {}
                () = &mut feed, if !fed => fed = true,
            }
        }
    };
    let mut runs = carrying.exit.get().is_none() && !carrying.refused.load(Ordering::Relaxed);
    let mut cut = match early {
        Some(Early::Cut(reason)) => Some(reason),
        Some(Early::Gone) if runs => {
            let cut_off = output.cut_off();
            tokio::pin!(cut_off);
            tokio::select! {
                reason = &mut cut_off => reason,
                ended = hung_up(&to_server, &requests, &mut from_server, &mut hang_up.told) => {
                    runs = !ended;
                    cut_off.await
                }
            }
        }
        Some(Early::Gone) => output.cut_off().await,
        None => {
            // It has ended there.
            hang_up.input = None;
            None
        }
    };
    if cut.is_some() && runs && !connection.is_native() {
        hang_up.input = None;
        // The client is told at once.
        ends.tasks.spawn(end(to_server, from_server, told));
    }
    for operation in carrying.unclosed() {
        if let Err(stop) = carrying.file(operation).await {
            cut.get_or_insert(stop.to_string());
        }
    }
    Ended {
        bytes_in: carrying.bytes_in.load(Ordering::Relaxed),
        bytes_out: carrying.bytes_out.load(Ordering::Relaxed),
        exit: carrying.exit.into_inner(),
        cut,
    }
}

/// Sends sizes and signals at the pace the server takes them, apart from what reads the client: its cut is heard meanwhile.
async fn ask_server(requests: &Requests, to_server: &SessionInput) {
    loop {
        requests.news().await;
        pass_on(requests, to_server).await;
    }
}

/// Sends the sizes and signals that wait.
async fn pass_on(requests: &Requests, to_server: &SessionInput) {
    while let Some(request) = requests.next() {
        let _ = match request {
            Request::Resize(size) => to_server.resize(size).await,
            Request::Signal(name) => to_server.signal(&name).await,
        };
    }
}

/// Tells what the session runs that its client has gone. Whether the server says that it has ended.
async fn hung_up(
    to_server: &SessionInput,
    requests: &Requests,
    from_server: &mut SessionOutput,
    told: &mut bool,
) -> bool {
    let tell = async {
        pass_on(requests, to_server).await;
        *told = to_server.signal("HUP").await.is_ok();
    };
    tokio::join!(tell, exit_of(from_server)).1
}

/// Reads to the end what the server sends: output that is not read keeps the connection from sending anything. Whether
/// the server says how the process has ended.
async fn exit_of(from_server: &mut SessionOutput) -> bool {
    while let Some(output) = from_server.next().await {
        if let client::Output::Exit(exit) = output {
            return matches!(exit, client::Exit::Status(_) | client::Exit::Signal { .. });
        }
    }
    false
}

/// Ends what a session that was cut runs: closing the channel ends nothing that does not read or write.
async fn end(to_server: SessionInput, mut from_server: SessionOutput, observer: Arc<dyn Observer>) {
    let signals = async {
        // What reads ends by this, also where sshd passes on no signals: to subsystems and forced commands.
        let _ = to_server.eof().await;
        for signal in CUT_SIGNALS {
            let _ = to_server.signal(signal).await;
            sleep(CUT_GRACE).await;
        }
        false
    };
    let ended = async {
        tokio::select! {
            said = exit_of(&mut from_server) => said,
            said = signals => said,
        }
    };
    // A server that takes nothing is not waited for.
    let ended = timeout(CUT_GRACE * 4, ended).await.unwrap_or(false);
    drop(from_server);
    let _ = timeout(CUT_GRACE, to_server.close()).await;
    if !ended {
        let _ = observer.happened(Happening::Outlived).await;
    }
}

impl Carrying<'_> {
    fn observe<T>(
        &self,
        read: impl FnOnce(&mut observe::Observer) -> Result<T, Unreadable>,
    ) -> Result<Option<T>, Early> {
        let Some(files) = &self.files else { return Ok(None) };
        let mut files = files.lock();
        read(&mut files)
            .map(Some)
            .map_err(|problem| Early::Cut(format!("this file transfer cannot be recorded: {problem}")))
    }

    async fn file(&self, seen: Seen) -> Result<(), Stop> {
        let Seen { mut operation, content } = seen;
        match content {
            Some(Passed::Whole { sha256, size }) => {
                (operation.sha256, operation.size) = (Some(sha256), Some(size));
            }
            Some(Passed::Look { path, beginning }) => {
                // The client hears of the end when it is known what the file is.
                let found =
                    again(self.connection, &path, beginning, (operation.read, operation.written)).await;
                (operation.size, operation.sha256, operation.unhashed) =
                    (found.size, found.sha256, found.unhashed.map(str::to_owned));
            }
            None => {}
        }
        self.observer.happened(Happening::File(operation)).await
    }

    fn unclosed(&self) -> Vec<Seen> {
        self.observe(|files| Ok(files.finish())).ok().flatten().unwrap_or_default()
    }

    /// Takes what comes from the client as it comes; returns when the client has gone or the session is to end.
    async fn read_client(
        &self,
        mut input: Box<dyn Input>,
        queue: mpsc::Sender<Bytes>,
        requests: &Requests,
    ) -> Early {
        let mut queue = Some(queue);
        loop {
            match input.next().await {
                None => return Early::Gone,
                Some(Incoming::Data(bytes)) => {
                    if let Err(stop) = self.observer.happened(Happening::Input(bytes.clone())).await {
                        return stop.into();
                    }
                    if let Err(early) = self.observe(|files| files.client(&bytes)) {
                        return early;
                    }
                    if let Some(queue) = &queue
                        && let Err(early) = hand_on(queue, bytes)
                    {
                        return early;
                    }
                }
                Some(Incoming::Eof) => queue = None,
                Some(Incoming::Resize(size)) => {
                    requests.resize(size);
                    if let Err(stop) = self.observer.happened(Happening::Resize(size)).await {
                        return stop.into();
                    }
                }
                Some(Incoming::Signal(signal)) => {
                    if let Some(name) = signal_name(signal) {
                        requests.signal(&name);
                    }
                }
                Some(Incoming::Cut(reason)) => return Early::Cut(reason),
            }
        }
    }

    async fn feed_server(&self, mut queued: mpsc::Receiver<Bytes>, to_server: &SessionInput) {
        while let Some(bytes) = queued.recv().await {
            let length = bytes.len();
            if to_server.data(bytes).await.is_ok() {
                self.bytes_in.fetch_add(length as u64, Ordering::Relaxed);
            }
            self.output.consumed(length);
        }
        let _ = to_server.eof().await;
    }

    async fn read_server(&self, from_server: &mut SessionOutput) -> Result<(), Early> {
        while let Some(output) = from_server.next().await {
            match output {
                client::Output::Stdout(bytes) => {
                    match self.observe(|files| files.server(&bytes))? {
                        Some(operations) => {
                            for operation in operations {
                                self.file(operation).await?;
                            }
                        }
                        None => self.observer.happened(Happening::Output(bytes.clone())).await?,
                    }
                    self.send(Channel::Stdout, bytes).await?;
                }
                client::Output::Stderr(bytes) => {
                    self.observer.happened(Happening::Output(bytes.clone())).await?;
                    self.send(Channel::Stderr, bytes).await?;
                }
                client::Output::Started => {}
                client::Output::DisplayRefused => {
                    self.say("the server forwards no X11; going on without it").await?;
                }
                client::Output::TerminalRefused => {
                    self.say("the server gives no terminal; going on without one").await?;
                }
                // A stock client does not ask whether it was taken, so a node that goes by it says nothing either.
                client::Output::AgentRefused if self.connection.is_native() => {}
                client::Output::AgentRefused => {
                    self.say("the server takes no agent; going on without one").await?;
                }
                client::Output::Exit(exit) => return self.ended(exit).await,
            }
        }
        Ok(())
    }

    async fn send(&self, channel: Channel, bytes: Bytes) -> Result<(), Early> {
        let length = bytes.len() as u64;
        self.output.data(channel, bytes).await?;
        self.bytes_out.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// Tells the person something that is not their program's output.
    async fn say(&self, text: &str) -> Result<(), Early> {
        Ok(self.output.data(Channel::Stderr, Bytes::from(format!("sallyport: {text}\r\n"))).await?)
    }

    async fn ended(&self, exit: client::Exit) -> Result<(), Early> {
        let exit = match exit {
            client::Exit::Status(status) => Exit::Status(status),
            client::Exit::Signal { name, core_dumped, .. } => Exit::Signal { name, core: core_dumped },
            client::Exit::Unknown => return Ok(()),
            // Natively its words have come as output.
            client::Exit::Refused { .. } if self.connection.is_native() => Exit::Status(REFUSED_STATUS),
            client::Exit::Refused { .. } => {
                self.refused.store(true, Ordering::Relaxed);
                return Err(Early::Cut(format!("{} refused to run this", self.name)));
            }
            client::Exit::Lost { reason } => {
                let more = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                return Err(Early::Cut(format!("the connection to {} was lost{more}", self.name)));
            }
        };
        let _ = self.exit.set(exit.clone());
        self.observer.happened(Happening::Exit(exit.clone())).await?;
        self.output.exited(&exit).await?;
        self.output.finished().await?;
        Ok(())
    }
}
