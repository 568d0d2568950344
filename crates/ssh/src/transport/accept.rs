//! Drives a [`Server`] over a stream, to the login.

use std::fmt;
use std::future::pending;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use sallyport_sal::HybridKeyExchange;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::clear::ClearStream;
use super::server::{Offer, Prompt, Question, Server, Typed};
use super::{Breach, Host, Limits, Opening};
use crate::BoxedStream;
use crate::capabilities::IDENTIFICATION;

/// Room for what is read at once before the login, in bytes.
const BLOCK_BYTES: usize = 8 * 1024;
/// How long a farewell may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// That a client of this process has authenticated, and as which account. [`accept`] makes these and nothing else does: a handler of
/// the SSH library that holds such a value speaks with a client that is in; without it, a handler lets no client in without a proof.
pub(crate) struct Proven {
    user: String,
}

impl Proven {
    /// Whether it is this account that was let in.
    pub(crate) fn is_for(&self, user: &str) -> bool {
        self.user == user
    }
}

impl fmt::Debug for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proven").field(&self.user).finish()
    }
}

/// A decision about a client.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The server lets the client in.
    In,
    /// The server refuses this proof; the client may have another key yet.
    Refused,
    /// The server sends the client away, in these words.
    Away(String),
    /// The client holds its key, and has to prove more: [`Authenticator::interactive`] asks for it.
    GoOn,
    /// The user is asked this.
    Ask(Prompt),
}

impl From<bool> for Verdict {
    fn from(is_in: bool) -> Self {
        if is_in { Self::In } else { Self::Refused }
    }
}

/// Who decides whom to let in.
#[async_trait]
pub(crate) trait Authenticator: Send {
    /// The client has greeted.
    fn greeted(&mut self) {}

    /// Words for the user, before the login.
    fn banner(&mut self) -> Option<String>;

    /// Whether a key is tried, before its signature is looked at.
    fn offered(&mut self, offer: &Offer) -> bool;

    /// The client holds this key, which is a security key's, and it did not do what is demanded: why, for the record. The client may
    /// have another one yet.
    fn unfit(&mut self, offer: &Offer, reason: &str);

    /// Whether a client without a proof is let in.
    fn unproven(&mut self, user: &str) -> bool;

    /// Whether a client that holds this key is let in, or has to prove more ([`Verdict::GoOn`]).
    async fn proven(&mut self, offer: &Offer) -> Verdict;

    /// A client that has to prove more wants to be asked, or its user has typed this. Default: there is nothing more to prove, so that
    /// it was not asked to.
    async fn interactive(&mut self, _: Option<&Typed>) -> Verdict {
        Verdict::Refused
    }
}

/// Why a client did not get to the login.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotIn {
    /// The client did what SSH does not allow, or has no algorithm in common with the server.
    #[error("the client {0}")]
    Breach(Breach),
    /// The stream failed.
    #[error("the stream failed: {0}")]
    Stream(#[from] io::Error),
    /// The client left, with these words or none.
    #[error("the client left: {0}")]
    Left(String),
    /// The server sent the client away.
    #[error("the client was sent away: {0}")]
    Away(String),
}

/// Ends a login from outside, with words for the client.
#[derive(Debug, Default)]
pub(crate) struct Farewell {
    words: OnceLock<String>,
    said: CancellationToken,
}

impl Farewell {
    /// The client is sent away. What was said first counts.
    pub(crate) fn say(&self, words: &str) {
        let _ = self.words.set(words.to_owned());
        self.said.cancel();
    }

    async fn wait(&self) -> &str {
        self.said.cancelled().await;
        match self.words.get() {
            Some(words) => words,
            None => pending().await,
        }
    }
}

/// What a server says of itself, and how often a client may try.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) host: Arc<Host>,
    pub(crate) demand: HybridKeyExchange,
    pub(crate) limits: Limits,
    pub(crate) most_failures: usize,
}

/// Speaks with a client until it is in. The caller bounds the time.
///
/// # Errors
/// [`NotIn`]; the client was told what it may hear.
pub(crate) async fn accept(
    mut stream: BoxedStream,
    terms: &Terms,
    authenticator: &mut dyn Authenticator,
    farewell: &Farewell,
) -> Result<(ClearStream, Proven), NotIn> {
    let opening = Opening { identification: IDENTIFICATION, demand: terms.demand, limits: terms.limits };
    let server = Server::new(opening, Arc::clone(&terms.host), terms.most_failures);
    let mut server = server.map_err(NotIn::Breach)?;
    let ended = tokio::select! {
        ended = converse(&mut stream, &mut server, authenticator) => ended,
        words = farewell.wait() => {
            server.disconnect(words);
            Err(NotIn::Away(words.to_owned()))
        }
    };
    let user = server.user().map(str::to_owned);
    match (ended, user) {
        (Ok(()), Some(user)) => {
            let transport = server.into_transport().ok_or(NotIn::Left(String::new()))?;
            Ok((ClearStream::of_client(stream, transport, &user), Proven { user }))
        }
        (ended, _) => {
            // It is told why, where it still listens.
            let last = async {
                send(&mut stream, &mut server).await?;
                stream.shutdown().await
            };
            let _ = timeout(LAST_WORDS, last).await;
            Err(ended.err().unwrap_or_else(|| NotIn::Left(String::new())))
        }
    }
}

async fn send(stream: &mut BoxedStream, server: &mut Server) -> io::Result<()> {
    if !server.output().is_empty() {
        stream.write_all_buf(server.output()).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// Until the client is in.
async fn converse(
    stream: &mut BoxedStream,
    server: &mut Server,
    authenticator: &mut dyn Authenticator,
) -> Result<(), NotIn> {
    let mut has_greeted = false;
    loop {
        let question = server.question().map_err(NotIn::Breach)?;
        if !has_greeted && !server.client().is_empty() {
            has_greeted = true;
            authenticator.greeted();
        }
        let verdict = match question {
            Some(Question::Begins) => {
                server.begin(authenticator.banner().as_deref()).map_err(NotIn::Breach)?;
                continue;
            }
            Some(Question::Unproven { user }) => authenticator.unproven(&user).into(),
            Some(Question::Offered(offer)) => authenticator.offered(&offer).into(),
            Some(Question::Proven(offer)) => authenticator.proven(&offer).await,
            Some(Question::Interactive) => authenticator.interactive(None).await,
            Some(Question::Typed(typed)) => authenticator.interactive(Some(&typed)).await,
            None => {
                // The answers to all that has come go together. The last of them, the login's, goes with what the client is told
                // then.
                if server.user().is_some() {
                    return Ok(());
                }
                send(stream, server).await?;
                if let Some(words) = server.farewell() {
                    return Err(NotIn::Left(words.to_owned()));
                }
                server.input().reserve(BLOCK_BYTES);
                if stream.read_buf(server.input()).await? == 0 {
                    return Err(NotIn::Left(String::new()));
                }
                continue;
            }
        };
        let answered = match verdict {
            Verdict::In => server.answer(true),
            Verdict::Refused => server.answer(false),
            Verdict::GoOn => server.go_on(),
            Verdict::Ask(prompt) => server.prompt(&prompt),
            Verdict::Away(words) => {
                server.disconnect(&words);
                return Err(NotIn::Away(words));
            }
        };
        answered.map_err(NotIn::Breach)?;
        if let Some((offer, reason)) = server.take_unfit() {
            authenticator.unfit(&offer, &reason);
        }
    }
}
