//! The connection: greeting, key exchange, login and the messages of the one channel.

mod messages;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::Breach;
use super::channel::{Asked, Channel};
use super::message::{Draft, GLOBAL_REQUEST, SERVICE_REQUEST, Told};
use crate::algorithms::widest_window;
use crate::request::SessionRequest;
use crate::session::Size;
use crate::transport::{BY_APPLICATION, HostKey, Login, Opening, Step, Transport};

/// What happens.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The host has proven that it holds this key. Nothing goes on before [`Machine::accept_host`].
    Host(Box<HostKey>),
    /// Words for the user.
    Banner(String),
    /// The login is good.
    LoggedIn,
    /// The login is refused. With `partial`, something else is asked for besides.
    LoginRefused {
        /// What the server would take.
        methods: String,
        /// The certificate is good, and not enough.
        partial: bool,
    },
    /// The channel is open.
    Opened,
    /// The channel is not opened, and why.
    NotOpened(String),
    /// The answer to a question.
    Answered(Asked, bool),
    /// Output; of standard error with `errors`.
    Data {
        /// Standard error's.
        errors: bool,
        /// The output.
        bytes: Bytes,
    },
    /// No more output.
    Eof,
    /// How the program ended.
    Told(Told),
    /// The channel is closed.
    Closed,
    /// The server ends the connection, and why.
    Disconnected(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The first keys are exchanged.
    Exchanging,
    /// The host's key is being judged. What comes waits.
    Judging,
    /// The host is who it should be.
    Proven,
    /// The login and the session have gone.
    LoggingIn,
    /// The server believes the login.
    In,
    /// The end.
    Over,
}

/// The client's side of one connection with one session.
///
/// The first error is final: everything after it says the same.
pub struct Machine {
    stage: Stage,
    transport: Transport,
    events: VecDeque<Event>,
    failed: Option<Breach>,
    channel: Option<Channel>,
}

impl Machine {
    /// Begins to speak: version and KEXINIT wait in [`Machine::output`].
    ///
    /// # Errors
    /// [`Breach::Unavailable`] when there is no randomness.
    pub fn new(opening: Opening) -> Result<Self, Breach> {
        Ok(Self {
            stage: Stage::Exchanging,
            transport: Transport::client(opening)?,
            events: VecDeque::new(),
            failed: None,
            channel: None,
        })
    }

    /// What is to be sent. The sender takes it out.
    pub fn output(&mut self) -> &mut BytesMut {
        self.transport.output()
    }

    /// The next thing that happened.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether nothing has happened that [`Machine::event`] has not given.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.events.is_empty()
    }

    /// The server's first line, once it has come.
    #[must_use]
    pub fn server(&self) -> &str {
        self.transport.peer()
    }

    /// Whether algorithms are agreed on: from here on no other client is needed.
    #[must_use]
    pub fn has_agreed(&self) -> bool {
        self.transport.has_agreed()
    }

    /// Takes bytes of the server's, in pieces of any size.
    ///
    /// # Errors
    /// [`Breach`]. What is in [`Machine::output`] then is to be sent, as far as that is possible.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Breach> {
        self.attempt(|machine| {
            machine.transport.input().extend_from_slice(bytes);
            machine.advance()
        })
    }

    /// The host is who it should be. What has come meanwhile is looked at.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn accept_host(&mut self) -> Result<(), Breach> {
        self.attempt(|machine| {
            machine.transport.accept_host()?;
            machine.stage = Stage::Proven;
            machine.advance()
        })
    }

    /// What is to be signed to log in with a public key or certificate (RFC 4252 §7).
    ///
    /// # Errors
    /// [`Breach::Order`] before [`Machine::accept_host`].
    pub fn to_sign(&self, login: &Login<'_>) -> Result<Vec<u8>, Breach> {
        login.to_sign(self.transport.session())
    }

    /// Sends keys, login and session in one flight.
    ///
    /// # Errors
    /// [`Breach::Order`] before [`Machine::accept_host`], and the second time.
    pub fn log_in<D>(
        &mut self,
        login: &Login<'_>,
        signature: &[u8],
        wanted: &SessionRequest<D>,
    ) -> Result<(), Breach> {
        self.attempt(|machine| {
            if machine.stage != Stage::Proven {
                return Err(Breach::Order("a login has its place after the host's proof"));
            }
            machine.stage = Stage::LoggingIn;
            machine.transport.new_keys()?;
            machine.send(Draft::new(SERVICE_REQUEST).string(b"ssh-userauth"))?;
            machine.send(login.draft().string(signature))?;
            let (channel, drafts) = Channel::open(
                wanted,
                machine.is_openssh(),
                widest_window(machine.transport.peer().as_bytes()),
            );
            machine.channel = Some(channel);
            drafts.into_iter().try_for_each(|draft| machine.send(draft))
        })
    }

    /// Whether standard input is taken now.
    #[must_use]
    pub fn takes_input(&self) -> bool {
        !self.transport.is_exchanging() && self.channel.as_ref().is_some_and(Channel::takes_input)
    }

    /// Whether nothing goes on the channel any more.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.stage == Stage::Over || self.channel.as_ref().is_some_and(Channel::is_closing)
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Sends standard input. Only when [`Machine::takes_input`]; it goes as far as the server lets it, and the rest later.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn input(&mut self, bytes: Bytes) -> Result<(), Breach> {
        self.on_channel(|channel| {
            channel.input(bytes);
            None
        })
    }

    /// Ends standard input, behind what is still to go.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn end_input(&mut self) -> Result<(), Breach> {
        self.on_channel(|channel| {
            channel.end_input();
            None
        })
    }

    /// So many bytes of output have been taken: as many more may come.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn took(&mut self, bytes: usize) -> Result<(), Breach> {
        self.on_channel(|channel| channel.took(bytes))
    }

    /// Tells the terminal's new size.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn resize(&mut self, size: Size) -> Result<(), Breach> {
        self.on_channel(|channel| channel.resize(size))
    }

    /// Sends a signal to the program, by its name without `SIG`.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn signal(&mut self, name: &str) -> Result<(), Breach> {
        self.on_channel(|channel| channel.signal(name))
    }

    /// Ends the session from this side.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn close(&mut self) -> Result<(), Breach> {
        self.on_channel(Channel::close)
    }

    /// Ends a session whose program was refused, and what was to go there. OpenSSH closes such a channel after the end of
    /// its input.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn give_up(&mut self) -> Result<(), Breach> {
        self.on_channel(|channel| {
            channel.drop_input();
            None
        })?;
        self.close()
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn ask_for_life(&mut self) -> Result<(), Breach> {
        self.attempt(|machine| {
            if machine.stage != Stage::In {
                return Ok(());
            }
            machine.send(Draft::new(GLOBAL_REQUEST).string(b"keepalive@openssh.com").flag(true))
        })
    }

    /// Asks for new keys, as is done by itself at the limits.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn renew_keys(&mut self) -> Result<(), Breach> {
        self.attempt(|machine| machine.transport.renew_keys())
    }

    /// Says farewell.
    pub fn disconnect(&mut self) {
        self.transport.farewell(BY_APPLICATION, "");
        self.stage = Stage::Over;
    }

    /// Runs something whose first error is the last.
    fn attempt(&mut self, act: impl FnOnce(&mut Self) -> Result<(), Breach>) -> Result<(), Breach> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let done = act(self).and_then(|()| self.after());
        if let Err(breach) = &done {
            self.failed = Some(breach.clone());
            self.transport.break_off(breach);
            self.stage = Stage::Over;
        }
        done
    }

    fn on_channel(&mut self, act: impl FnOnce(&mut Channel) -> Option<Draft>) -> Result<(), Breach> {
        self.attempt(|machine| match machine.channel.as_mut().and_then(act) {
            Some(draft) => machine.send(draft),
            None => Ok(()),
        })
    }

    /// What follows from what was done: input that may go.
    fn after(&mut self) -> Result<(), Breach> {
        while !self.transport.is_exchanging()
            && let Some(draft) = self.channel.as_mut().and_then(Channel::next_input)
        {
            self.send(draft)?;
        }
        Ok(())
    }

    fn is_openssh(&self) -> bool {
        self.server().strip_prefix("SSH-2.0-").is_some_and(|software| software.starts_with("OpenSSH_"))
    }

    fn send(&mut self, draft: Draft) -> Result<(), Breach> {
        self.transport.send(&draft.0)
    }

    fn advance(&mut self) -> Result<(), Breach> {
        while !matches!(self.stage, Stage::Judging | Stage::Over) {
            match self.transport.next()? {
                Some(Step::Host(shown)) => {
                    self.events.push_back(Event::Host(shown));
                    self.stage = Stage::Judging;
                }
                Some(Step::Message(payload) | Step::Farewell(payload)) => self.take(&payload)?,
                None => break,
            }
        }
        Ok(())
    }
}
