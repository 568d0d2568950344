//! The user's SSH agent, for a proxy that logs in to a server as the user without having the user's key: the questions that
//! are let through to it ([`UserAgent`]), and the one that answers on the user's side ([`LoginSigner`]). A program of the user's own
//! asks the agent of its machine the same, where the key of the login is the user's ([`UserAgent::connect`]).
//!
//! Messages are those of the SSH agent protocol (draft-miller-ssh-agent), without their length in front. Three are ever
//! asked: which identities there are, which server a login is for (OpenSSH's `session-bind@openssh.com`), and for the
//! signature of that login.

mod error;
mod forwarded;
mod messages;
mod signer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use russh::keys::agent::AgentSessionBinding;
use ssh_key::Certificate;
use ssh_key::public::KeyData;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

pub use error::AgentError;
pub(crate) use forwarded::connect as connect_forwarded;
pub use signer::{LoginSigner, NotSigned};

use crate::BoxedStream;
use messages::{Answer, Question as Message};

/// Longest message, in bytes: an agent of many identities answers with all of them.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Questions that one connection may ask: a login takes three.
const MAX_QUESTIONS: usize = 16;

/// A question on its way to the user's agent.
#[derive(Debug)]
pub struct Question {
    /// The message.
    pub message: Bytes,
    /// Where the answer is waited for. Dropped: there is none.
    pub answer: oneshot::Sender<Bytes>,
}

/// The user's agent, from afar. Clones share it and its bounds.
#[derive(Debug, Clone)]
pub struct UserAgent {
    questions: mpsc::Sender<Question>,
    asked: Arc<AtomicUsize>,
}

impl UserAgent {
    /// An agent, and where its questions come out, one at a time.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Question>) {
        let (questions, receiver) = mpsc::channel(1);
        (Self { questions, asked: Arc::default() }, receiver)
    }

    /// The agent that listens on a socket of this machine.
    ///
    /// # Errors
    /// The socket's.
    pub async fn connect(socket: &Path) -> std::io::Result<Self> {
        Ok(Self::over(Box::new(UnixStream::connect(socket).await?)))
    }

    /// An agent at the other end of a stream.
    pub(crate) fn over(stream: BoxedStream) -> Self {
        let (agent, questions) = Self::new();
        tokio::spawn(async move {
            // A question learns of the end by getting no answer.
            let _ = converse(stream, questions).await;
        });
        agent
    }

    async fn ask(&self, message: Vec<u8>) -> Result<Answer, AgentError> {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= MAX_QUESTIONS {
            return Err(AgentError::TooMany { most: MAX_QUESTIONS });
        }
        let (answer, answered) = oneshot::channel();
        let question = Question { message: message.into(), answer };
        self.questions.send(question).await.map_err(|_| AgentError::Silent)?;
        let answer = answered.await.map_err(|_| AgentError::Silent)?;
        Answer::read(&answer).ok_or(AgentError::NoMessage)
    }

    /// The signature of a login: two `string`, the scheme and the signature (RFC 4253 §6.6). `message` is what RFC 4252
    /// §7 has signed.
    ///
    /// # Errors
    /// [`AgentError`], why there is none.
    pub(crate) async fn sign(
        &self,
        certificate: &Certificate,
        binding: Option<&Binding>,
        message: &[u8],
    ) -> Result<Vec<u8>, AgentError> {
        if let Some(binding) = binding {
            let message = Message::Bind {
                host_key: &binding.host_key,
                session: &binding.session,
                signature: &binding.signature,
                forwarding: false,
            };
            // An agent that knows nothing of it decides by what it knows.
            self.ask(message.encode()).await?;
        }
        let key = self.held(certificate).await?;
        let rsa = matches!(certificate.public_key(), KeyData::Rsa(_));
        match self.ask(Message::Sign { key: &key, data: message, rsa }.encode()).await? {
            Answer::Signature(signature) => Ok(signature),
            _ => Err(AgentError::Refused),
        }
    }

    /// As what the agent holds the key of a certificate: with the certificate, or alone.
    ///
    /// # Errors
    /// [`AgentError::NotHeld`], or why the agent does not say.
    pub async fn held(&self, certificate: &Certificate) -> Result<Vec<u8>, AgentError> {
        let alone = ssh_key::PublicKey::from(certificate.public_key().clone());
        let forms = [certificate.to_bytes()?, alone.to_bytes()?];
        match self.ask(Message::Identities.encode()).await? {
            Answer::Identities(keys) => {
                forms.into_iter().find(|form| keys.contains(form)).ok_or(AgentError::NotHeld)
            }
            _ => Err(AgentError::NoIdentities),
        }
    }
}

/// How a host has proven a session of SSH, for an agent that is told of it (OpenSSH's PROTOCOL.agent §1).
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    /// The key or certificate, as it was shown.
    pub(crate) host_key: Vec<u8>,
    /// The exchange hash of the first exchange.
    pub(crate) session: Vec<u8>,
    /// The host's, over that.
    pub(crate) signature: Vec<u8>,
}

impl From<&AgentSessionBinding> for Binding {
    fn from(binding: &AgentSessionBinding) -> Self {
        Self {
            host_key: binding.host_key().to_vec(),
            session: binding.session_id().to_vec(),
            signature: binding.signature().to_vec(),
        }
    }
}

/// Carries questions and answers over a stream, where each message has its length in front.
async fn converse(mut stream: BoxedStream, mut questions: mpsc::Receiver<Question>) -> std::io::Result<()> {
    while let Some(Question { message, mut answer }) = questions.recv().await {
        tokio::select! {
            answered = exchange(&mut stream, &message) => {
                let _ = answer.send(answered?);
            }
            // The program that asked has given up, and the answer to come is for no other question.
            () = answer.closed() => return Ok(()),
        }
    }
    Ok(())
}

async fn exchange(stream: &mut BoxedStream, question: &[u8]) -> std::io::Result<Bytes> {
    let length = u32::try_from(question.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], question].concat()).await?;
    stream.flush().await?;
    let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if length == 0 || length > MAX_MESSAGE_BYTES {
        return Err(std::io::Error::other(format!("an agent's message of {length} bytes")));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_that_does_not_answer_is_let_go_with_the_question() {
        let (near, mut far) = tokio::io::duplex(64);
        let agent = UserAgent::over(Box::new(near));
        let mut heard = [0; 5];
        tokio::select! {
            answer = agent.ask(Message::Identities.encode()) => unreachable!("{answer:?}"),
            read = far.read_exact(&mut heard) => assert_eq!(read.unwrap(), 5),
        }
        assert_eq!(far.read(&mut heard).await.unwrap(), 0, "the stream is closed");
        assert!(matches!(agent.ask(Message::Identities.encode()).await, Err(AgentError::Silent)));
    }
}
