//! What a client is asked once it has proven its key: one prompt at a time, by keyboard-interactive (RFC 4256).

use bytes::Bytes;

use super::{Asked, Question, Server, Stage};
use crate::transport::Breach;
use crate::transport::message::{Draft, Fields, USERAUTH_FAILURE, USERAUTH_INFO_REQUEST};
use crate::transport::prompt::{INTERACTIVE, Prompt, Typed};

/// Prompts that a client is shown on one connection, whatever the caller says.
const MOST_PROMPTS: usize = 16;
/// Longest answer that is read, in bytes. What is asked for is short: a code.
const ANSWER_BYTES: usize = 256;

impl Server {
    /// Says to a client that holds its key that it has to prove more, by keyboard-interactive (RFC 4252 §5.1).
    ///
    /// # Errors
    /// [`Breach::Order`] when [`Question::Proven`] was not the question.
    pub fn go_on(&mut self) -> Result<(), Breach> {
        self.attempt(|server| {
            let Stage::Waiting(Asked::Proven(offer)) = std::mem::replace(&mut server.stage, Stage::Open)
            else {
                return Err(Breach::Order("no key is proven"));
            };
            server.partial = Some(offer.user);
            server.send(Draft::new(USERAUTH_FAILURE).string(INTERACTIVE).flag(true))
        })
    }

    /// Asks the user.
    ///
    /// # Errors
    /// [`Breach::Order`] when neither [`Question::Interactive`] nor [`Question::Typed`] was the question; [`Breach::Attempts`] when the
    /// user was asked too often.
    pub fn prompt(&mut self, prompt: &Prompt) -> Result<(), Breach> {
        self.attempt(|server| {
            if !matches!(server.stage, Stage::Waiting(Asked::Interactive)) {
                return Err(Breach::Order("no prompt is asked for"));
            }
            server.prompts += 1;
            if server.prompts > MOST_PROMPTS {
                return server.too_often();
            }
            server.stage = Stage::Prompted;
            let draft = Draft::new(USERAUTH_INFO_REQUEST).string(b"").string(prompt.words.as_bytes());
            server.send(draft.string(b"").u32(1).string(prompt.label.as_bytes()).flag(true))
        })
    }

    /// A request of a client that has proven its key, and has to prove more.
    pub(super) fn go_further(
        &mut self,
        method: &[u8],
        fields: &mut Fields,
    ) -> Result<Option<Question>, Breach> {
        if method != INTERACTIVE {
            return self.refuse().map(|()| None);
        }
        // The user's language and the kinds of questions that the client would like: there is one kind.
        let read = (fields.string(), fields.string());
        if !matches!(read, (Some(_), Some(_))) || !fields.0.is_empty() {
            return Err(Breach::Malformed("USERAUTH_REQUEST"));
        }
        self.stage = Stage::Waiting(Asked::Interactive);
        Ok(Some(Question::Interactive))
    }

    /// An answer to the prompt.
    pub(super) fn typed(&mut self, payload: &Bytes) -> Result<Option<Question>, Breach> {
        self.count_request()?;
        let mut fields = Fields(payload.slice(1..));
        let malformed = Breach::Malformed("USERAUTH_INFO_RESPONSE");
        // RFC 4256 §3.4: as many as there are prompts.
        if fields.u32().ok_or(malformed.clone())? != 1 {
            return self.refuse().map(|()| None);
        }
        let answer = fields.string().ok_or(malformed.clone())?;
        if !fields.0.is_empty() {
            return Err(malformed);
        }
        match std::str::from_utf8(&answer) {
            Ok(typed) if typed.len() <= ANSWER_BYTES => {
                self.stage = Stage::Waiting(Asked::Interactive);
                Ok(Some(Question::Typed(Typed::from(typed.to_owned()))))
            }
            _ => self.refuse().map(|()| None),
        }
    }
}
