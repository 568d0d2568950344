//! The line of a native connection: what is asked of the host on it, and what the host asks for.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::{Instrument, debug, debug_span, warn};

use super::lane::{Arriving, HostRefused, Lane};
use super::queue::Queue;
use crate::BoxedStream;
use crate::client::endpoint::Endpoint;
use crate::client::events::Said;
use crate::client::remotes::{Remotes, Wanted, handed};
use crate::client::settings::{AgentSource, KEEPALIVES_UNANSWERED, Settings};
use crate::client::x11::Display;
use crate::inbound::Pressure;
use crate::native::frame::{FIRST_WINDOW, Farewell, Frame, Hello, Open, VERSION};
use crate::native::mux::{self, Breach, Channel, Keepalive, Mux, NotOpened, Role, Side, Taker};
use crate::request::SessionRequest;

/// What the host may send on a new channel before it hears from here: a client has few channels, and reads them.
const WINDOW_BYTES: u32 = 2 << 20;
/// How long the goodbye may take to be written.
const GOODBYE: Duration = Duration::from_secs(1);
/// Channels of the host's that may be open at once.
const MAX_CHANNELS: usize = 1024;
/// How long something that the host connects to here may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The port where the host listens, or why it does not.
type Answer = Result<u16, HostRefused>;
/// Who waits for an answer, by the number of the question.
type Askers = HashMap<u32, oneshot::Sender<Answer>>;

/// Questions to the host that wait for an answer.
#[derive(Default)]
struct Questions {
    next: AtomicU32,
    waiting: Mutex<Askers>,
}

impl Questions {
    fn waiting(&self) -> MutexGuard<'_, Askers> {
        self.waiting.lock()
    }

    fn answer(&self, request: u32, answer: Answer) -> Result<(), Breach> {
        let asker = self.waiting().remove(&request);
        let asker =
            asker.ok_or_else(|| Breach::rule("an answer to a question that the client has not asked"))?;
        // Who does not wait any more need not know.
        let _ = asker.send(answer);
        Ok(())
    }
}

/// The line of a native connection.
pub(in crate::client) struct Line {
    pub(in crate::client) mux: Mux,
    questions: Arc<Questions>,
    welcomed: watch::Receiver<bool>,
    pressure: Arc<Pressure>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.mux.finish(Farewell::Done, "");
    }
}

/// What a program between a user and a node needs besides [`Settings`].
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// The agent.
    pub(crate) agent: Option<Arc<dyn AgentSource>>,
    /// Many connections are held at once, so that one keeps no more for its readers than SSH would.
    pub(crate) one_of_many: bool,
}

/// Begins to speak. Nothing is waited for.
pub(in crate::client) fn begin(
    stream: BoxedStream,
    settings: &Settings,
    extras: Extras,
    said: &Arc<Said>,
    remotes: &Arc<Remotes>,
) -> Line {
    let Extras { agent, one_of_many } = extras;
    let mux = Mux::new(Side::Client, WINDOW_BYTES, FIRST_WINDOW, true);
    if one_of_many {
        mux.keep_windows();
    }
    let login = settings.login.clone();
    // The first of all, and a login that is too long for a frame is none: the host then says so.
    if let Err(error) =
        mux.answer(&Frame::Hello(Hello { version: VERSION, least: VERSION, window: WINDOW_BYTES, login }))
    {
        mux.finish(Farewell::Protocol, &error.to_string());
    }
    let (welcome, welcomed) = watch::channel(false);
    let questions = Arc::<Questions>::default();
    let pressure = Arc::<Pressure>::default();
    let host = Host {
        mux: mux.clone(),
        name: settings.host.clone(),
        agent,
        said: Arc::clone(said),
        remotes: Arc::clone(remotes),
        questions: questions.clone(),
        welcome,
        pressure: pressure.clone(),
    };
    let keepalive = settings.keepalive.map(|interval| Keepalive { interval, most: KEEPALIVES_UNANSWERED });
    let span = debug_span!("native", host = %settings.host, login = %settings.login);
    let (running, asked, ended) = (mux.clone(), questions.clone(), pressure.clone());
    let run = async move {
        let end = mux::run(running, stream, BytesMut::new(), host, keepalive).await;
        debug!(?end, "the connection has ended");
        asked.waiting().clear();
        ended.end();
    };
    tokio::spawn(run.instrument(span));
    Line { mux, questions, welcomed, pressure }
}

impl Line {
    /// Why the connection ended, as far as either side said.
    pub(in crate::client) fn end(&self) -> String {
        self.mux.end().map(|end| end.reason).unwrap_or_default()
    }

    /// Waits until the connection has ended, and says why as far as either side did.
    pub(in crate::client) async fn ended(&self) -> String {
        self.mux.ended().await.reason
    }

    /// The host wants this login by SSH.
    pub(in crate::client) fn wants_ssh(&self) -> bool {
        self.mux.end().is_some_and(|end| end.told == Some(Farewell::UseSsh))
    }

    /// Waits for the host's first word. False when the connection has ended without it.
    pub(in crate::client) async fn welcomed(&self) -> bool {
        let mut welcomed = self.welcomed.clone();
        let come = welcomed.wait_for(|come| *come).await;
        come.is_ok()
    }

    pub(in crate::client) async fn disconnect(&self) {
        self.mux.finish(Farewell::Done, "");
        let _ = timeout(GOODBYE, self.mux.all_said()).await;
    }

    pub(super) fn queue(&self, what: Open) -> Result<(Channel, Arc<Queue>), NotOpened> {
        self.mux.open_with(what, |id| {
            let queue = Queue::new(self.mux.weak(), id);
            (queue.clone() as Arc<dyn Taker>, queue)
        })
    }

    pub(in crate::client) fn session(
        &self,
        session: SessionRequest,
    ) -> Result<(Channel, Arc<Queue>), NotOpened> {
        self.queue(Open::Session(Box::new(session)))
    }

    /// A connection of the host's, for its carrier. The host's answer is not waited for.
    pub(super) fn lane(&self, to: &Endpoint, origin: SocketAddr) -> Result<Lane, NotOpened> {
        let (channel, arriving) = self.mux.open_with(direct(to, origin), |id| {
            let arriving = Arriving::new(&self.mux, &self.pressure, id);
            (arriving.clone() as Arc<dyn Taker>, arriving)
        })?;
        Ok(Lane::new(channel, arriving))
    }

    /// Has the host listen; gives the port.
    pub(in crate::client) async fn listen(&self, at: Endpoint) -> Result<u16, ListenError> {
        let request = self.questions.next.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = oneshot::channel();
        self.questions.waiting().insert(request, asker);
        if self.mux.end().is_some() || self.mux.answer(&Frame::Listen { request, at }).is_err() {
            self.questions.waiting().remove(&request);
            return Err(ListenError::Gone);
        }
        answer
            .await
            .map_err(|_| ListenError::Gone)?
            .map_err(|HostRefused(reason)| ListenError::Refused(reason))
    }
}

/// Why the host does not listen.
pub(in crate::client) enum ListenError {
    Gone,
    Refused(String),
}

pub(super) fn direct(to: &Endpoint, origin: SocketAddr) -> Open {
    Open::Direct { to: to.clone(), from: (origin.ip().to_string(), origin.port()) }
}

/// What the host asks for and answers.
struct Host {
    mux: Mux,
    name: String,
    agent: Option<Arc<dyn AgentSource>>,
    said: Arc<Said>,
    remotes: Arc<Remotes>,
    questions: Arc<Questions>,
    welcome: watch::Sender<bool>,
    pressure: Arc<Pressure>,
}

impl Role for Host {
    fn frame(&mut self, frame: Frame) -> Result<(), Breach> {
        match frame {
            Frame::Welcome { version: VERSION } => {
                self.welcome.send_replace(true);
                Ok(())
            }
            Frame::Welcome { version } => {
                Err(Breach::rule(format!("version {version}, which was not offered")))
            }
            Frame::Listening { request, port } => self.questions.answer(request, Ok(port)),
            Frame::NotListening { request, reason } => {
                self.questions.answer(request, Err(HostRefused(reason)))
            }
            Frame::Open(id, what) => self.opened(id, what),
            _ => Err(Breach::rule("a frame that a node does not send")),
        }
    }
}

impl Host {
    fn opened(&self, id: u32, what: Open) -> Result<(), Breach> {
        if self.mux.channels() >= MAX_CHANNELS {
            return self.refuse(id, "too many channels are open");
        }
        match what {
            Open::Forwarded { at, .. } => self.forwarded(id, &at),
            Open::Agent => self.agent(id),
            Open::X11 { from: (host, port) } => {
                self.display(id, (host.chars().take(64).collect(), u32::from(port)))
            }
            // A client of ours never asks for these, so a host that opens them is up to something.
            Open::Session(_) | Open::Direct { .. } => self.refuse(id, "a client takes no such channel"),
        }
    }

    fn refuse(&self, id: u32, reason: &str) -> Result<(), Breach> {
        self.mux.answer(&Frame::Refused(id, reason.to_owned()))
    }

    fn admit(&self, id: u32) -> Lane {
        let arriving = Arriving::new(&self.mux, &self.pressure, id);
        Lane::new(self.mux.admit(id, arriving.clone()), arriving)
    }

    fn forwarded(&self, id: u32, at: &Endpoint) -> Result<(), Breach> {
        match self.remotes.find(at) {
            Some(Wanted::Forwarded { to, report }) => {
                let lane = self.admit(id);
                // Apart from the connection's own loop: who does not answer must not stop it.
                tokio::spawn(async move {
                    let problem = match timeout(CONNECT_TIMEOUT, to.connect()).await {
                        Ok(Ok(stream)) => {
                            let _ = lane.carry(stream).await;
                            return;
                        }
                        Ok(Err(error)) => format!("cannot connect to {to}: {error}"),
                        Err(_) => format!("{to} does not answer"),
                    };
                    report(&problem);
                    lane.refuse("nothing answers there");
                });
                Ok(())
            }
            Some(Wanted::Handed(taker)) => match handed(&taker) {
                Some(far) => {
                    let lane = self.admit(id);
                    tokio::spawn(async move { lane.carry(Box::new(far)).await });
                    Ok(())
                }
                None => self.refuse(id, "too many connections wait here"),
            },
            None => {
                debug!(from = %at, "the host opened a connection that this client has not asked for");
                self.refuse(id, "the client has not asked for that")
            }
        }
    }

    fn agent(&self, id: u32) -> Result<(), Breach> {
        let Some(source) = self.agent.clone().filter(|_| self.said.agent_wanted.load(Ordering::Acquire))
        else {
            warn!(host = %self.name, "the host asked for the SSH agent, which was not offered to it");
            return self.refuse(id, "no agent is forwarded");
        };
        let lane = self.admit(id);
        tokio::spawn(async move {
            match source.open().await {
                Ok(agent) => {
                    let _ = lane.carry(agent).await;
                }
                Err(error) => {
                    debug!(?source, %error, "no SSH agent to forward");
                    lane.refuse("the agent does not answer");
                }
            }
        });
        Ok(())
    }

    fn display(&self, id: u32, from: (String, u32)) -> Result<(), Breach> {
        let Some(display) = self.said.display() else {
            warn!(host = %self.name, "the host asked for the display, which was not offered to it");
            return self.refuse(id, "no display is forwarded");
        };
        let lane = self.admit(id);
        tokio::spawn(async move {
            let (near, far) = Display::pipe();
            let serve = async {
                if let Err(reason) = display.serve(from, far).await {
                    warn!(%reason, "a program of the host was not let through to the display");
                }
            };
            let (_, ()) = tokio::join!(lane.carry(Box::new(near)), serve);
        });
        Ok(())
    }
}
