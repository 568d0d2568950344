//! The second factor that a client is asked for on this hop, by keyboard-interactive (RFC 4256), where its user name asks for it.

use std::net::SocketAddr;
use std::sync::Arc;

use super::dial::{ASKS, Answered, Dial, Question};
use super::known::Known;
use crate::transport::accept::Verdict;
use crate::transport::server::{Prompt, Typed};

/// What stands before the answer.
const PROMPT: &str = "One-time code, or Enter when it is proven at the page: ";

/// Of a code that is typed, in bytes.
const LONGEST_CODE: usize = 64;

/// Answers of one client: a user who has typed so many has to connect anew, so that no client keeps the authority busy.
const MOST_ROUNDS: u8 = 5;

/// What one client is asked. Nothing is decided by it: who may go where is asked when it opens a channel.
pub(super) struct Factor {
    dial: Arc<dyn Dial>,
    client: SocketAddr,
    question: Option<Question>,
    /// Answers that it has given.
    rounds: u8,
}

impl Factor {
    pub(super) fn new(dial: Arc<dyn Dial>, client: SocketAddr) -> Self {
        Self { dial, client, question: None, rounds: 0 }
    }

    /// A client has proven who it is: it is in, or is asked one thing more (RFC 4252 §5.1).
    pub(super) async fn begin(&mut self, name: &str, known: &Known) -> Verdict {
        self.question = match known.identity.get().filter(|_| name == ASKS) {
            Some((identity, certificate)) => self.dial.question(identity, certificate, self.client).await,
            None => None,
        };
        if self.question.is_some() { Verdict::GoOn } else { Verdict::In }
    }

    /// Asks, or takes an answer. No client is let in by it that has not proven who it is.
    pub(super) async fn ask(&mut self, typed: Option<&Typed>, known: &Known) -> Verdict {
        let (Some(question), Some((_, certificate))) = (&self.question, known.identity.get()) else {
            return Verdict::Refused;
        };
        if self.rounds >= MOST_ROUNDS {
            return Verdict::Refused;
        }
        let Some(typed) = typed else { return asked(&question.words) };
        self.rounds += 1;
        let code = typed.as_str().trim();
        // No code is longer: what is cut off could not be right.
        let code = code.get(..LONGEST_CODE).unwrap_or(code);
        match self.dial.answer(question, code, certificate, self.client).await {
            Answered::Done => Verdict::In,
            Answered::Again(why) if self.rounds < MOST_ROUNDS => asked(&why),
            Answered::Again(_) => Verdict::Refused,
        }
    }
}

/// A question with one answer, which is shown as it is typed (RFC 4256 §3.2): a code is good once.
fn asked(words: &str) -> Verdict {
    Verdict::Ask(Prompt { words: words.to_owned(), label: PROMPT.to_owned() })
}
