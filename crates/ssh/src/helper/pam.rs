//! Account management by the system's own rules (PAM): has the account expired, do these people come in from there, at this
//! hour, does the machine take logins at all.
//!
//! Only that part of PAM: who the user is, the certificate has said. Runs in a process of its own, as what the node is,
//! because PAM's modules are libraries of the machine's that read its shadow file.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::error::HelperError;

/// Most of what modules say that a person reads.
#[cfg(feature = "pam")]
const MOST_TEXT: usize = 512;

/// What to ask, besides the account.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    /// The file in `/etc/pam.d`.
    pub(crate) service: String,
    /// Where the person is.
    pub(crate) from: Option<String>,
}

/// Succeeds when PAM lets the account in; else says in a sentence why not.
#[cfg(feature = "pam")]
pub(super) fn ask(login: &str, question: &Question) -> Result<ExitCode, HelperError> {
    use std::cell::RefCell;
    use std::ffi::OsStr;
    use std::rc::Rc;

    use nonstick::conv::{Exchange, conversation_func};
    use nonstick::items::ItemsMut;
    use nonstick::{AuthnFlags, ErrorCode, PamShared, Transaction, TransactionBuilder};

    let service = question.service.as_str();
    let unasked = |error: ErrorCode| HelperError::PamUnasked { login: login.to_owned(), error };
    if login.contains('\0') || service.contains('\0') {
        return Err(unasked(ErrorCode::SystemError));
    }
    let said = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&said);
    let conversation = conversation_func(move |messages| {
        for message in messages {
            match message {
                Exchange::Info(info) => {
                    heard.borrow_mut().push(info.question().to_string_lossy().into_owned());
                    info.set_answer(Ok(()));
                }
                Exchange::Error(error) => {
                    heard.borrow_mut().push(error.question().to_string_lossy().into_owned());
                    error.set_answer(Ok(()));
                }
                // No person is there to answer.
                other => other.set_error(ErrorCode::ConversationError),
            }
        }
    });
    let builder = TransactionBuilder::new_with_service(service).username(login);
    let mut transaction = builder.build(conversation).map_err(unasked)?;
    {
        let mut items = transaction.items_mut();
        // As sshd names it: there is no terminal yet, and there may be none.
        items.set_tty_name(Some(OsStr::new("ssh"))).map_err(unasked)?;
        if let Some(from) = &question.from {
            items.set_remote_host(Some(OsStr::new(from))).map_err(unasked)?;
        }
    }
    let outcome = transaction.account_management(AuthnFlags::empty());
    drop(transaction);
    let Err(error) = outcome else { return Ok(ExitCode::SUCCESS) };
    let reason = match error {
        ErrorCode::AccountExpired => "it has expired".to_owned(),
        ErrorCode::NewAuthTokRequired => {
            "its password has expired and has to be changed on the machine first (passwd)".to_owned()
        }
        ErrorCode::UserUnknown => "it is unknown".to_owned(),
        other => other.to_string(),
    };
    let said = said.borrow().join(" ");
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_TEXT).collect();
    let said = match said.split_whitespace().collect::<Vec<_>>().join(" ") {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    };
    let (login, service, reason) = (login.to_owned(), service.to_owned(), format!("{reason}{said}"));
    Err(HelperError::PamRefused { login, service, reason })
}

/// A check that was asked for and cannot be made is a refusal.
#[cfg(not(feature = "pam"))]
pub(super) fn ask(login: &str, question: &Question) -> Result<ExitCode, HelperError> {
    let Question { service, from } = question;
    tracing::debug!(login, service, from, "PAM is to be asked");
    Err(HelperError::NoPam)
}
