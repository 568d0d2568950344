//! What a person at a terminal is told: what went wrong, and the next command to try.

use std::fmt;
use std::process::ExitCode;

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

impl Exit {
    /// The code of a number that another process of this program gave.
    pub fn of_number(number: u8) -> Self {
        let known = [Self::Usage, Self::NotLoggedIn, Self::Refused, Self::Connection];
        known.into_iter().find(|exit| *exit as u8 == number).unwrap_or(Self::Failed)
    }
}

/// One failure, for a person.
#[derive(Debug, Clone)]
pub struct CliError {
    what: String,
    hint: Option<String>,
    exit: Exit,
}

/// What a command comes to.
pub type CliResult<T = ()> = Result<T, CliError>;

impl CliError {
    /// A failure; `what` says what went wrong.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, exit: Exit::Failed }
    }

    /// The next command to try.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The code that the program ends with, where it is not 1.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// What the program ends with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_number())
    }

    /// The same as a number.
    pub fn exit_number(&self) -> u8 {
        self.exit as u8
    }

    /// Which of the documented codes it is.
    pub fn exit_kind(&self) -> Exit {
        self.exit
    }

    /// What went wrong, without what to try.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to try.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// There is no valid login.
    pub fn not_logged_in() -> Self {
        Self::new("you are not logged in")
            .hint("sallyport login --proxy HOST:PORT --user NAME")
            .exit(Exit::NotLoggedIn)
    }

    /// What an authority or proxy answered, in words. `doing` completes "cannot …".
    pub fn from_status(doing: &str, status: &tonic::Status) -> Self {
        use tonic::Code;
        let said = status.message();
        match status.code() {
            Code::Unauthenticated => Self::new(said.to_owned()).exit(Exit::NotLoggedIn),
            Code::PermissionDenied => Self::new(said.to_owned()).exit(Exit::Refused),
            Code::NotFound
            | Code::InvalidArgument
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange => Self::new(said.to_owned()),
            Code::ResourceExhausted if said.contains("disk is full") => Self::new(said.to_owned())
                .hint("make room on the disk of the authority's data_dir: df -h, sallyport recordings rm"),
            Code::ResourceExhausted => Self::new(said.to_owned()),
            // The authority was reached, and says itself what is the matter with it.
            Code::Unavailable if std::error::Error::source(status).is_none() && !said.is_empty() => {
                Self::new(format!("cannot {doing}: {said}")).exit(Exit::Connection)
            }
            Code::Unavailable => Self::new(format!("cannot {doing}: {}", chain(status, said)))
                .hint("sallyport status  (is the proxy up, and reachable from here?)")
                .exit(Exit::Connection),
            Code::Unimplemented => {
                Self::new(format!("cannot {doing}: the cluster does not know this request"))
                    .hint("sallyport --version  (client and cluster versions may be too far apart)")
            }
            _ => Self::new(format!("cannot {doing}: {}", chain(status, said))),
        }
    }
}

/// The text of an error and of everything behind it that adds something.
pub fn chain(error: &(dyn std::error::Error + 'static), first: &str) -> String {
    let mut text = first.to_owned();
    let mut source = error.source();
    while let Some(inner) = source {
        let said = inner.to_string();
        if !said.is_empty() && !text.contains(&said) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&said);
        }
        source = inner.source();
    }
    text
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
