//! What a person is asked.

use futures::future::BoxFuture;
use sallyport_wire::v1::{SessionFactorAsked, SessionTarget};
use serde::{Deserialize, Serialize};

use crate::browser_login::address_of;
use crate::demanded::shown;
use crate::error::{Error, Result};

/// From more than so many on, their number stands before them.
const MANY: usize = 3;

/// Each of them: a code that the person types is for what they could read.
pub(super) fn all_shown(targets: &[SessionTarget]) -> String {
    let named: Vec<String> = targets.iter().map(shown).collect();
    match named.len() {
        0..=MANY => named.join(", "),
        many => format!("{many} sessions: {}", named.join(", ")),
    }
}

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// What the sessions are with, in words.
    pub what: String,
    /// The page at which it is proven.
    pub address: String,
    /// What the person types at the page.
    pub code: String,
    /// A one-time or recovery code will do, which can be typed where this is shown.
    pub codes: bool,
    /// A passkey or security key will do, at the page.
    pub passkeys: bool,
    /// The person was shown the page before, by another program of theirs.
    pub joined: bool,
    /// Why the code that was typed last was not taken.
    pub wrong: Option<String>,
}

impl Question {
    /// The same question about these.
    pub(super) fn names(&mut self, targets: &[SessionTarget]) {
        if !targets.is_empty() {
            self.what = all_shown(targets);
        }
    }

    /// Of what the authority says; `proxy` is where its pages are.
    pub(super) fn of(asked: &SessionFactorAsked, what: String, proxy: &str) -> Result<Self> {
        let page = asked.page.as_ref().ok_or(Error::Lacking("page"))?;
        Ok(Self {
            what,
            address: address_of(page, proxy),
            code: asked.code.clone(),
            codes: asked.codes,
            passkeys: asked.passkeys,
            joined: asked.joined,
            wrong: None,
        })
    }
}

/// How a person is reached.
pub trait Asker: Send + Sync {
    /// Whether there is a person who can be asked.
    fn can_ask(&self) -> bool;

    /// Shows a question, and gives the code that the person types; where none is typed, it does not end. When this is dropped, the
    /// question is over.
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, String>;
}
