//! The person in front of this program, where a session demands a second factor: at the terminal, at the desktop, or by the program
//! that SSH_ASKPASS names, as ssh has it.

mod terminal;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::Stdio;

use futures::future::BoxFuture;
use sallyport_access::text::{self, Foreign};
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::{Asker, Asking, Question};
use sallyport_wire::v1::SessionTarget;
use tokio::process::Command;
use tracing::debug;

use crate::browser;
use crate::error::CliResult;
use crate::ui;
use terminal::Terminal;

/// `never`: nothing is asked, as where there is no person.
const SETTING: &str = "SALLYPORT_MFA_PROMPT";

/// Tries something, and once more when a second factor was missing and was proven. `wanted` is what is about to be tried besides, so
/// that the person is asked once.
pub(crate) async fn proven<T>(
    stored: &Stored,
    asking: &Asking,
    wanted: &[SessionTarget],
    mut attempt: impl AsyncFnMut() -> CliResult<T>,
) -> CliResult<T> {
    let error = match attempt().await {
        Err(error) => error,
        done => return done,
    };
    let Some(demanded) = error.demanded() else { return Err(error) };
    asking.prove(stored, demanded, wanted, &Here).await?;
    attempt().await
}

/// The person in front of this program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Here;

impl Here {
    fn may_ask() -> bool {
        std::env::var_os(SETTING).is_none_or(|value| value != "never")
    }
}

impl Asker for Here {
    fn can_ask(&self) -> bool {
        Self::may_ask() && (Terminal::is_here() || browser::is_here() || askpass().is_some())
    }

    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, String> {
        Box::pin(async move {
            let terminal = Terminal::open();
            let by_program = askpass().filter(|(_, first)| *first || terminal.is_none());
            if question.passkeys && !question.joined && question.wrong.is_none() && browser::is_here() {
                browser::show(&question.address);
            }
            let words = words(question, terminal.is_some() && by_program.is_none());
            say(&words, terminal.as_ref());
            let typed = match (by_program, terminal) {
                (Some((program, _)), _) => ask_program(program, &words).await,
                (None, Some(terminal)) if question.codes => terminal.line().await,
                (None, _) => None,
            };
            match typed.map(|typed| typed.trim().to_owned()).filter(|typed| !typed.is_empty()) {
                Some(typed) => typed,
                // The page is the other way.
                None => std::future::pending().await,
            }
        })
    }
}

/// What the person reads.
fn words(question: &Question, types_here: bool) -> String {
    let Question { what, address, code, codes, wrong, .. } = question;
    let mut words = match wrong {
        Some(wrong) => format!(
            "Not taken: {}\nA second factor is demanded for {}.\n",
            Foreign::new(wrong),
            Foreign::new(what)
        ),
        None => format!("A second factor is demanded for {}.\n", Foreign::new(what)),
    };
    words.push_str(&format!("Open this address to prove it:\n  {}\n", Foreign::new(address)));
    if !code.is_empty() {
        words.push_str(&format!("and type this code there: {}\n", Foreign::new(code)));
    }
    if *codes && types_here {
        words.push_str("Or type a one-time or recovery code here: ");
    }
    words
}

/// Tells the person, where standard error is not what they see on the terminal, too.
fn say(words: &str, terminal: Option<&Terminal>) {
    let words = text::lines(words);
    if !std::io::stderr().is_terminal()
        && let Some(terminal) = terminal
    {
        terminal.write(&words);
    }
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(words.as_bytes()).and_then(|()| stderr.flush());
}

/// The program that SSH_ASKPASS names, and whether it comes before the terminal, by the rules of ssh(1).
fn askpass() -> Option<(OsString, bool)> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let program = set("SSH_ASKPASS")?;
    let desktop = ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(|name| set(name).is_some());
    match set("SSH_ASKPASS_REQUIRE").as_deref().and_then(|value| value.to_str()) {
        Some("never") => None,
        Some("force") => Some((program, true)),
        Some("prefer") => desktop.then_some((program, true)),
        _ => desktop.then_some((program, false)),
    }
}

/// What the person types into another program's window; it goes away with the question.
async fn ask_program(program: OsString, words: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let answered = match command.output().await {
        Ok(answered) => answered,
        Err(error) => {
            ui::say(format!("note: SSH_ASKPASS cannot be run: {error}"));
            return None;
        }
    };
    debug!(status = %answered.status, "the program of SSH_ASKPASS has ended");
    answered.status.success().then(|| String::from_utf8_lossy(&answered.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_a_question_says_what_to_do_and_steers_nothing() {
        let mut question = Question {
            what: "root@web-1\u{1b}[2J\nerror: forged".to_owned(),
            address: "https://a.example/approve#x".to_owned(),
            code: "BCDF-GHJK".to_owned(),
            codes: true,
            passkeys: true,
            joined: false,
            wrong: None,
        };
        let said = words(&question, true);
        assert!(!said.contains('\u{1b}') && !said.lines().any(|line| line.starts_with("error")), "{said:?}");
        assert!(
            said.contains("\n  https://a.example/approve#x\nand type this code there: BCDF-GHJK\n"),
            "{said}"
        );
        assert!(said.ends_with("Or type a one-time or recovery code here: "), "{said}");
        question.code.clear();
        question.wrong = Some("the code is wrong".to_owned());
        let said = words(&question, false);
        assert_eq!(
            said,
            "Not taken: the code is wrong\nA second factor is demanded for root@web-1\u{fffd}[2J error: forged.\nOpen this address to prove \
             it:\n  https://a.example/approve#x\n"
        );
    }
}
