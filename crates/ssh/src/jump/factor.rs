//! The second factor that a client is asked for on this hop, by keyboard-interactive (RFC 4256), where its user name asks for it.

use std::net::SocketAddr;
use std::sync::Arc;

use russh::server::{Auth, Response};
use russh::{MethodKind, MethodSet};

use super::dial::{ASKS, Answered, Dial, Question};
use super::entering::Known;

/// What stands before the answer.
const PROMPT: &str = "One-time code, or Enter when it is proven at the page: ";

/// Of a code that is typed, in bytes.
const LONGEST_CODE: usize = 64;

/// Answers of one client: whoever has typed so many has to connect anew, so that no client keeps the authority busy.
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
    pub(super) async fn begin(&mut self, name: &str, known: &Known) -> Auth {
        self.question = match known.identity.get().filter(|_| name == ASKS) {
            Some((identity, certificate)) => self.dial.question(identity, certificate, self.client).await,
            None => None,
        };
        match &self.question {
            Some(_) => Auth::Reject {
                proceed_with_methods: Some(MethodSet::from(&[MethodKind::KeyboardInteractive][..])),
                partial_success: true,
            },
            None => Auth::Accept,
        }
    }

    /// Asks, or takes an answer. Nobody is let in by it who has not proven who they are.
    pub(super) async fn ask(&mut self, response: Option<Response<'_>>, known: &Known) -> Auth {
        let (Some(question), Some((_, certificate))) = (&self.question, known.identity.get()) else {
            return Auth::reject();
        };
        if self.rounds >= MOST_ROUNDS {
            return Auth::reject();
        }
        let Some(mut response) = response else { return asked(&question.words) };
        self.rounds += 1;
        let typed = response.next().unwrap_or_default();
        let typed = String::from_utf8_lossy(typed.get(..typed.len().min(LONGEST_CODE)).unwrap_or_default());
        match self.dial.answer(question, typed.trim(), certificate, self.client).await {
            Answered::Done => Auth::Accept,
            Answered::Again(why) if self.rounds < MOST_ROUNDS => asked(&why),
            Answered::Again(_) => Auth::reject(),
        }
    }
}

/// A question with one answer, which is shown as it is typed (RFC 4256 §3.2): a code is good once.
fn asked(words: &str) -> Auth {
    let prompts = vec![(PROMPT.into(), true)];
    Auth::Partial { name: "".into(), instructions: words.to_owned().into(), prompts: prompts.into() }
}
