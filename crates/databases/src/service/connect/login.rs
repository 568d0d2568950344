//! The login at a server, up to its first `ReadyForQuery`.

use bytes::BytesMut;
use data_encoding::BASE64;
use tokio::io::{AsyncRead, AsyncWrite};
use zeroize::Zeroizing;

use super::error::ConnectError;
use super::upstream::LONGEST_GREETING;
use super::wire::Wire;
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::Told;
use crate::postgres::message::{Fields, encode};
use crate::postgres::scram::{self, Binding, Channel, ScramError};
use crate::postgres::startup::{CancelKey, Startup};

/// The longest message of a server that has not proven itself yet. libpq takes no longer ones either.
const LONGEST_UNPROVEN: usize = 30_000;
/// The longest cancel key of a server (§53.7, `BackendKeyData`).
const LONGEST_KEY: usize = 256;

/// What the agent shows a server, and wants of it.
pub(in crate::service) enum Secret {
    /// A certificate, in the TLS that is there already: no password is asked for.
    Certificate,
    /// A password, which the server has to prove that it knows; none where the agent has none.
    Password(Option<Zeroizing<String>>),
}

pub(in crate::service) struct Login<S> {
    wire: Wire<S>,
    channel: Channel,
    greeting: Vec<u8>,
    key: Option<CancelKey>,
    /// SCRAM came to its end: the server knows the password.
    proven: bool,
    authenticated: bool,
}

/// A login that is done.
pub(in crate::service) struct LoggedIn<S> {
    pub(in crate::service) stream: S,
    /// What the client reads first.
    pub(in crate::service) greeting: Vec<u8>,
    /// What the server has said after it.
    pub(in crate::service) rest: BytesMut,
    /// What the server cancels by.
    pub(in crate::service) key: Option<CancelKey>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Login<S> {
    /// Over a stream that is this.
    pub(in crate::service) fn new(stream: S, channel: Channel, address: &str) -> Self {
        let wire = Wire::new(stream, BytesMut::new(), address);
        let greeting = Vec::with_capacity(512);
        Self { wire, channel, greeting, key: None, proven: false, authenticated: false }
    }

    /// Says who comes, and goes on until the server is ready. `client_key` is what the client is told to cancel with.
    pub(in crate::service) async fn run(
        mut self,
        startup: &Startup,
        mut secret: Secret,
        client_key: &CancelKey,
    ) -> Result<LoggedIn<S>, ConnectError> {
        self.wire.send(&startup.to_bytes()).await?;
        loop {
            let longest = if self.authenticated { LONGEST_GREETING } else { LONGEST_UNPROVEN };
            let (kind, content) = self.wire.message_within(longest).await?;
            match kind {
                b'R' if !self.authenticated => self.authenticate(&content, &mut secret).await?,
                b'E' => return Err(refused(&content)),
                // §53.2.1: before all else.
                b'v' if self.greeting.is_empty() && !self.proven => self.greet(kind, &content)?,
                b'K' if self.authenticated && self.key.is_none() => {
                    let mut fields = Fields::new(&content);
                    let process = fields.u32().filter(|_| content.len() <= 4 + LONGEST_KEY);
                    let process =
                        process.ok_or_else(|| self.wire.wrong("a cancel key of an impossible length"))?;
                    self.key = Some(CancelKey { process, secret: fields.rest().to_vec() });
                    let ours = [&client_key.process.to_be_bytes()[..], &client_key.secret].concat();
                    self.greet(kind, &ours)?;
                }
                b'Z' if self.authenticated => {
                    self.greet(kind, &content)?;
                    let (stream, rest) = self.wire.into_parts();
                    return Ok(LoggedIn { stream, greeting: self.greeting, rest, key: self.key });
                }
                b'S' | b'N' if self.authenticated => self.greet(kind, &content)?,
                other => {
                    let what = format!("a message of kind {:?} during the login", char::from(other));
                    return Err(self.wire.wrong(&what));
                }
            }
        }
    }

    async fn authenticate(&mut self, content: &[u8], secret: &mut Secret) -> Result<(), ConnectError> {
        let mut fields = Fields::new(content);
        // §53.7, Authentication*.
        match fields.u32() {
            Some(0) if !fields.is_empty() => Err(self.wire.wrong("an AuthenticationOk with something in it")),
            // RFC 5802 §1.1: who the server is counts as much as who the client is.
            Some(0) if matches!(secret, Secret::Password(_)) && !self.proven => Err(ConnectError::Unproven),
            Some(0) => {
                self.authenticated = true;
                self.greet(b'R', content)
            }
            Some(10) if self.proven => Err(self.wire.wrong("it asks for the password again")),
            Some(10) => {
                let password = match secret {
                    Secret::Certificate => Err("this database is logged in to by certificate"),
                    Secret::Password(password) => {
                        password.take().ok_or("the agent's password file has none for this user and database")
                    }
                };
                let password = password.map_err(ConnectError::NoPassword)?;
                let offers = std::iter::from_fn(|| fields.text().filter(|name| !name.is_empty()));
                let binding = Binding::choose(offers, self.channel.clone())?;
                self.scram(password, binding).await
            }
            Some(3) => Err(ConnectError::Method("the password in plain text")),
            Some(5) => Err(ConnectError::Method("an MD5 of the password")),
            Some(7 | 8) => Err(ConnectError::Method("GSSAPI")),
            Some(9) => Err(ConnectError::Method("SSPI")),
            Some(2 | 6) => Err(ConnectError::Method("a login of long ago")),
            _ => Err(self.wire.wrong("a way to log in that the agent does not know")),
        }
    }

    async fn scram(&mut self, password: Zeroizing<String>, binding: Binding) -> Result<(), ConnectError> {
        let nonce = sallyport_sal::random::bytes::<24>().map_err(|_| ScramError::Unavailable)?;
        let mechanism = binding.mechanism();
        let first = scram::First::new(BASE64.encode(&nonce), binding);
        let said = first.message();
        let mut content = Vec::with_capacity(96);
        content.extend_from_slice(mechanism.as_bytes());
        content.push(0);
        content.extend_from_slice(&u32::try_from(said.len()).unwrap_or(u32::MAX).to_be_bytes());
        content.extend_from_slice(said.as_bytes());
        self.wire.send(&encode(b'p', &content)).await?;
        let server = self.sasl(11).await?;
        let work = move || first.answer(&server, password.as_bytes());
        let answered = tokio::task::spawn_blocking(work).await.map_err(|_| ScramError::Unavailable)?;
        let (answer, last) = answered?;
        self.wire.send(&encode(b'p', answer.as_bytes())).await?;
        let server = self.sasl(12).await?;
        last.check(&server)?;
        self.proven = true;
        Ok(())
    }

    /// The next message of SASL's, which has this number.
    async fn sasl(&mut self, number: u32) -> Result<Vec<u8>, ConnectError> {
        let (kind, content) = self.wire.message_within(LONGEST_UNPROVEN).await?;
        let mut fields = Fields::new(&content);
        match (kind, fields.u32()) {
            (b'R', Some(got)) if got == number => Ok(fields.rest().to_vec()),
            (b'E', _) => Err(refused(&content)),
            _ => Err(self.wire.wrong("something else in the middle of SCRAM")),
        }
    }

    fn greet(&mut self, kind: u8, content: &[u8]) -> Result<(), ConnectError> {
        if self.greeting.len() + content.len() > LONGEST_GREETING {
            return Err(self.wire.wrong("its greeting does not end"));
        }
        self.greeting.extend_from_slice(&encode(kind, content));
        Ok(())
    }
}

/// The server's own refusal.
fn refused(content: &[u8]) -> ConnectError {
    let Told { code, message, .. } = Told::read(content, Encoding::Utf8);
    ConnectError::Server { code, message, bytes: encode(b'E', content) }
}
