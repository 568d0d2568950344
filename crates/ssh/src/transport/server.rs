//! A server up to the login (RFC 4252), as bytes in and bytes out.
//!
//! [`Server`] checks that a client holds the key that it shows, and decides nothing: whether a key is tried, and whether its holder is
//! let in, is the caller's to say, one question at a time. Nothing that comes is looked at while a question waits. A client that holds
//! its key may be asked one thing more (`interactive`).

mod interactive;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sallyport_ca::CaError;
use sallyport_ca::keys::{read_certificate, verify_user_signature};
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, Certificate, PublicKey};

use super::exchange::is_signed_by;
use super::login::CONNECTION;
use super::message::{
    Draft, Fields, SERVICE_ACCEPT, SERVICE_REQUEST, USERAUTH_BANNER, USERAUTH_FAILURE,
    USERAUTH_INFO_RESPONSE, USERAUTH_PK_OK, USERAUTH_REQUEST, USERAUTH_SUCCESS, put_string,
};
use super::prompt::INTERACTIVE;
pub use super::prompt::{Prompt, Typed};
use super::proposal::CERTIFICATE;
use super::{Breach, Host, Opening, Step, Transport, USERAUTH};

/// Names of methods.
const PUBLIC_KEY: &[u8] = b"publickey";
const HOST_BOUND: &[u8] = b"publickey-hostbound-v00@openssh.com";
const NO_METHOD: &[u8] = b"none";
/// SSH_DISCONNECT_SERVICE_NOT_AVAILABLE and SSH_DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE (RFC 4253 §11.1).
const NO_SUCH_SERVICE: u32 = 7;
const NO_MORE_METHODS: u32 = 14;
/// Requests for each refusal that is allowed: a client asks about a key and then signs, and an agent offers all that it has.
const REQUESTS_PER_ATTEMPT: usize = 8;
/// Longest name of an account that is read, in bytes.
const USER_BYTES: usize = 256;

/// A key that a client shows.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Whom it wants to log in as.
    pub user: String,
    /// What it signs by.
    pub algorithm: Algorithm,
    /// The key.
    pub key: KeyData,
    /// The certificate over the key, of which nothing is checked.
    pub certificate: Option<Certificate>,
}

/// What the caller has to answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Question {
    /// The client wants to log in. [`Server::begin`] answers.
    Begins,
    /// The client wants to log in without a proof. [`Server::answer`] says whether it may.
    Unproven {
        /// The account.
        user: String,
    },
    /// The client shows a key. [`Server::answer`] says whether it may try the key; the server has looked at no signature.
    Offered(Box<Offer>),
    /// The client holds the key. [`Server::answer`] says whether it may log in, [`Server::go_on`] that it has to prove more.
    Proven(Box<Offer>),
    /// The client has proven its key, and the server is to ask the client for a further proof. [`Server::prompt`] asks.
    Interactive,
    /// The user has answered. [`Server::answer`] says whether the client may log in, or [`Server::prompt`] asks again.
    Typed(Typed),
}

/// What was asked about a key, as it waits for the answer.
enum Asked {
    Unproven,
    /// Whether it would do; with what the client hears then.
    Query {
        algorithm: Bytes,
        key: Bytes,
    },
    /// A login: what is signed, and the signature.
    Signed {
        offer: Box<Offer>,
        message: Vec<u8>,
        signature: Bytes,
    },
    Proven(Box<Offer>),
    Interactive,
}

enum Stage {
    /// No service was asked for.
    Exchanging,
    /// Whether the client reads a banner has to be said.
    Beginning,
    /// A request may come.
    Open,
    Waiting(Asked),
    /// The signature is good.
    Holds(Box<Offer>),
    /// A prompt is out.
    Prompted,
    In,
    Over,
}

/// The server's side of a connection up to the login.
///
/// The first error is final: everything after it says the same.
pub struct Server {
    transport: Transport,
    stage: Stage,
    failures: usize,
    requests: usize,
    most_failures: usize,
    failed: Option<Breach>,
    user: String,
    /// Whose key is proven, where the client has to prove more.
    partial: Option<String>,
    /// Prompts that the client was shown.
    prompts: usize,
    /// A security key that signed and did not do what is demanded of it, and what it did not.
    unfit: Option<(Box<Offer>, String)>,
    /// What the client said at its end.
    farewell: Option<String>,
}

impl Server {
    /// Begins to speak: version and KEXINIT wait in [`Server::output`]. After `most_failures` refusals there is no other attempt.
    ///
    /// # Errors
    /// [`Breach::Unavailable`] when there is no randomness.
    pub fn new(opening: Opening, host: Arc<Host>, most_failures: usize) -> Result<Self, Breach> {
        Ok(Self {
            transport: Transport::server(opening, host)?,
            stage: Stage::Exchanging,
            failures: 0,
            requests: 0,
            most_failures,
            failed: None,
            user: String::new(),
            partial: None,
            prompts: 0,
            unfit: None,
            farewell: None,
        })
    }

    /// What is to be sent. The caller takes out what it sends.
    pub fn output(&mut self) -> &mut BytesMut {
        self.transport.output()
    }

    /// Where the client's bytes go, in pieces of any size, before [`Server::question`].
    pub fn input(&mut self) -> &mut BytesMut {
        self.transport.input()
    }

    /// The client's first line, once it has come.
    #[must_use]
    pub fn client(&self) -> &str {
        self.transport.peer()
    }

    /// The account that was let in; none before.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        matches!(self.stage, Stage::In).then_some(&*self.user)
    }

    /// What the client said when it left, if it did.
    #[must_use]
    pub fn farewell(&self) -> Option<&str> {
        self.farewell.as_deref()
    }

    /// The next question that follows from what has come.
    ///
    /// # Errors
    /// [`Breach`]. What is in [`Server::output`] then is to be sent, as far as that is possible.
    pub fn question(&mut self) -> Result<Option<Question>, Breach> {
        self.attempt(Self::advance)
    }

    /// Serves the login, with words for the user.
    ///
    /// # Errors
    /// [`Breach::Order`] when that was not the question.
    pub fn begin(&mut self, banner: Option<&str>) -> Result<(), Breach> {
        self.attempt(|server| {
            if !matches!(server.stage, Stage::Beginning) {
                return Err(Breach::Order("nothing begins"));
            }
            server.stage = Stage::Open;
            server.send(Draft::new(SERVICE_ACCEPT).string(USERAUTH))?;
            match banner {
                Some(words) => server.send(Draft::new(USERAUTH_BANNER).string(words.as_bytes()).string(b"")),
                None => Ok(()),
            }
        })
    }

    /// Answers the question.
    ///
    /// # Errors
    /// [`Breach::Order`] when there is none.
    pub fn answer(&mut self, yes: bool) -> Result<(), Breach> {
        self.attempt(|server| {
            let Stage::Waiting(asked) = std::mem::replace(&mut server.stage, Stage::Open) else {
                return Err(Breach::Order("nothing is asked"));
            };
            match (asked, yes) {
                (_, false) => server.refuse(),
                (Asked::Unproven | Asked::Proven(_) | Asked::Interactive, true) => {
                    server.stage = Stage::In;
                    server.transport.let_in();
                    server.send(Draft::new(USERAUTH_SUCCESS))
                }
                (Asked::Query { algorithm, key }, true) => {
                    server.send(Draft::new(USERAUTH_PK_OK).string(&algorithm).string(&key))
                }
                (Asked::Signed { offer, message, signature }, true) => {
                    let named = is_signed_by(&signature, offer.algorithm.as_str());
                    let certificate = offer.certificate.as_ref();
                    match verify_user_signature(&offer.key, certificate, &message, &signature) {
                        Ok(()) if named => {
                            server.stage = Stage::Holds(offer);
                            return Ok(());
                        }
                        Err(error @ CaError::Refused { .. }) => {
                            server.unfit = Some((offer, error.to_string()));
                        }
                        _ => {}
                    }
                    server.refuse()
                }
            }
        })
    }

    /// The security key whose signature was refused last for what the key did not do, such as wait for a touch, and the reason; told once.
    /// The signature is the key's. Who signed the certificate was not looked at.
    pub fn take_unfit(&mut self) -> Option<(Box<Offer>, String)> {
        self.unfit.take()
    }

    /// Ends the connection, in words that the client shows its user.
    pub fn disconnect(&mut self, words: &str) {
        self.transport.farewell(super::BY_APPLICATION, words);
        self.stage = Stage::Over;
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// The transport of a client that is in.
    pub(crate) fn into_transport(self) -> Option<Transport> {
        matches!(self.stage, Stage::In).then_some(self.transport)
    }

    fn attempt<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Breach>) -> Result<T, Breach> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let done = act(self);
        if let Err(breach) = &done {
            self.failed = Some(breach.clone());
            self.transport.break_off(breach);
            self.stage = Stage::Over;
        }
        done
    }

    fn send(&mut self, draft: Draft) -> Result<(), Breach> {
        self.transport.send(&draft.0)
    }

    fn advance(&mut self) -> Result<Option<Question>, Breach> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Open) {
                Stage::Holds(offer) => {
                    self.stage = Stage::Waiting(Asked::Proven(offer.clone()));
                    return Ok(Some(Question::Proven(offer)));
                }
                stage @ (Stage::Exchanging | Stage::Open | Stage::Prompted) => self.stage = stage,
                stage => {
                    self.stage = stage;
                    return Ok(None);
                }
            }
            match self.transport.next()? {
                None => return Ok(None),
                Some(Step::Host(_)) => return Err(Breach::Order("a server judges no host")),
                Some(Step::Farewell(payload)) => {
                    let mut fields = Fields(payload.slice(1..));
                    let words = fields.u32().and_then(|_| fields.words());
                    self.farewell = Some(words.unwrap_or_default());
                    self.stage = Stage::Over;
                    return Ok(None);
                }
                Some(Step::Message(payload)) => {
                    if let Some(question) = self.take(&payload)? {
                        return Ok(Some(question));
                    }
                }
            }
        }
    }

    fn take(&mut self, payload: &Bytes) -> Result<Option<Question>, Breach> {
        let number = payload.first().copied().unwrap_or_default();
        match (&self.stage, number) {
            (Stage::Exchanging, SERVICE_REQUEST) => {
                let service = Fields(payload.slice(1..)).string();
                if service.ok_or(Breach::Malformed("SERVICE_REQUEST"))? != USERAUTH {
                    self.transport.farewell(NO_SUCH_SERVICE, "only ssh-userauth is served before the login");
                    return Err(Breach::Unexpected { message: number, expected: "a login" });
                }
                self.stage = Stage::Beginning;
                Ok(Some(Question::Begins))
            }
            // A prompt is given up by another request (RFC 4256 §3.1).
            (Stage::Open | Stage::Prompted, USERAUTH_REQUEST) => {
                self.stage = Stage::Open;
                self.request(payload)
            }
            (Stage::Prompted, USERAUTH_INFO_RESPONSE) => {
                self.stage = Stage::Open;
                self.typed(payload)
            }
            // Paramiko asks for it before each of its attempts.
            (Stage::Open, SERVICE_REQUEST) if is_userauth(payload) => {
                self.count_request()?;
                self.send(Draft::new(SERVICE_ACCEPT).string(USERAUTH)).map(|()| None)
            }
            // RFC 4253 §11.4, for what is not known; what is has no place before the login.
            (_, SERVICE_REQUEST | USERAUTH_REQUEST | 80..) => {
                Err(Breach::Unexpected { message: number, expected: "a login" })
            }
            _ => {
                self.count_request()?;
                self.transport.unimplemented()?;
                Ok(None)
            }
        }
    }

    fn count_request(&mut self) -> Result<(), Breach> {
        self.requests += 1;
        let most = self.most_failures.saturating_mul(REQUESTS_PER_ATTEMPT);
        if self.failures >= self.most_failures || self.requests > most { self.too_often() } else { Ok(()) }
    }

    fn too_often(&mut self) -> Result<(), Breach> {
        self.transport.farewell(NO_MORE_METHODS, "Too many authentication attempts");
        Err(Breach::Attempts)
    }

    fn request(&mut self, payload: &Bytes) -> Result<Option<Question>, Breach> {
        self.count_request()?;
        let mut fields = Fields(payload.slice(1..));
        let malformed = Breach::Malformed("USERAUTH_REQUEST");
        let read = (fields.string(), fields.string(), fields.string());
        let (Some(user), Some(service), Some(method)) = read else { return Err(malformed) };
        let user = std::str::from_utf8(&user).ok().filter(|user| user.len() <= USER_BYTES);
        let Some(user) = user.filter(|_| service == CONNECTION) else {
            return self.refuse().map(|()| None);
        };
        if let Some(partial) = &self.partial {
            // What is proven is proven for one account (RFC 4252 §5).
            if partial != user {
                return Err(Breach::Account);
            }
            return self.go_further(&method, &mut fields);
        }
        user.clone_into(&mut self.user);
        if method == NO_METHOD {
            self.stage = Stage::Waiting(Asked::Unproven);
            return Ok(Some(Question::Unproven { user: self.user.clone() }));
        }
        if method != PUBLIC_KEY && method != HOST_BOUND {
            return self.refuse().map(|()| None);
        }
        let read = (fields.flag(), fields.string(), fields.string());
        let (Some(is_login), Some(algorithm), Some(key)) = read else { return Err(malformed) };
        if method == HOST_BOUND {
            // The host that the client means to log in to has to be this one.
            let meant = fields.string().ok_or(malformed.clone())?;
            if !self.transport.own_host().is_some_and(|host| host.is_shown_as(&meant)) {
                return self.refuse().map(|()| None);
            }
        }
        let unsigned = payload.len() - fields.0.len();
        let signature = if is_login { Some(fields.string().ok_or(malformed.clone())?) } else { None };
        if !fields.0.is_empty() {
            return Err(malformed);
        }
        let Some(offer) = Offer::read(&self.user, &algorithm, &key) else {
            return self.refuse().map(|()| None);
        };
        let asked = match signature {
            None => Asked::Query { algorithm, key },
            Some(signature) => {
                let session = self.transport.session().ok_or(Breach::Order("there is no session"))?;
                let mut message = Vec::with_capacity(session.len() + 4 + unsigned);
                put_string(&mut message, session);
                message.extend_from_slice(payload.get(..unsigned).unwrap_or_default());
                Asked::Signed { offer: Box::new(offer.clone()), message, signature }
            }
        };
        self.stage = Stage::Waiting(asked);
        Ok(Some(Question::Offered(Box::new(offer))))
    }

    fn refuse(&mut self) -> Result<(), Breach> {
        self.failures += 1;
        let method = if self.partial.is_some() { INTERACTIVE } else { PUBLIC_KEY };
        self.send(Draft::new(USERAUTH_FAILURE).string(method).flag(false))
    }
}

/// Whether a service request is for logins.
fn is_userauth(payload: &Bytes) -> bool {
    Fields(payload.slice(1..)).string().is_some_and(|service| service == USERAUTH)
}

impl Offer {
    /// A key on the wire, under the name of an algorithm. None for keys that are not known here, or that are not of the type that they
    /// are offered as.
    #[must_use]
    pub fn read(user: &str, algorithm: &[u8], blob: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(algorithm).ok()?;
        let of =
            |algorithm, key, certificate| Some(Self { user: user.to_owned(), algorithm, key, certificate });
        if name.ends_with(CERTIFICATE) {
            let algorithm = Algorithm::new_certificate(name).ok().filter(is_known)?;
            let certificate = read_certificate(blob).ok()?;
            let key = certificate.public_key().clone();
            return is_of(&key, &algorithm).then(|| of(algorithm, key, Some(certificate)))?;
        }
        let algorithm = Algorithm::new(name).ok().filter(is_known)?;
        let kind = if matches!(algorithm, Algorithm::Rsa { .. }) { "ssh-rsa" } else { name };
        let mut named = Vec::with_capacity(kind.len() + 4);
        put_string(&mut named, kind.as_bytes());
        let blob = Some(blob).filter(|blob| blob.starts_with(&named))?;
        let key = PublicKey::from_bytes(blob).ok()?.key_data().clone();
        is_of(&key, &algorithm).then(|| of(algorithm, key, None))?
    }
}

fn is_known(algorithm: &Algorithm) -> bool {
    !matches!(algorithm, Algorithm::Other(_) | Algorithm::Dsa)
}

/// Whether a key signs by an algorithm (RFC 8332 §3 for RSA).
fn is_of(key: &KeyData, algorithm: &Algorithm) -> bool {
    match (key.algorithm(), algorithm) {
        (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
        (own, algorithm) => own == *algorithm,
    }
}
