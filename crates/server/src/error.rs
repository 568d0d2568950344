//! What may go wrong while starting or running the services.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tonic::{Code, Status};

use crate::config::{ConfigErrors, HostPort};

/// Why a service could not start or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The operator: the configuration file is wrong.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// The operator: another process has the port.
    #[error("{what} cannot listen on {address}: another process uses port {port}; stop it (find it with `ss -ltnp 'sport = :{port}'`) or choose another port", port = .address.port())]
    PortInUse {
        /// What was to listen.
        what: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// The operator: the address may not or cannot be bound.
    #[error(
        "{what} cannot listen on {address}; check that the address belongs to this machine and that ports below 1024 are permitted"
    )]
    Bind {
        /// What was to listen.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The operator: a file or directory cannot be used.
    #[error("cannot {action} {path}; check that it exists and that this user may write there", path = .path.display())]
    File {
        /// What was tried, such as `create`.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The operator: state on disk is not what it should be.
    #[error("{path}: {problem}; {fix}", path = .path.display())]
    BadState {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        fix: String,
    },
    /// The operator: this host has not joined and cannot.
    #[error("{what} has not joined the cluster: {problem}; {fix}")]
    Join {
        /// Which service.
        what: &'static str,
        /// What is missing or was refused.
        problem: String,
        /// What to do.
        fix: String,
    },
    /// The operator: the authority does not let this host join. Its own words say what to do.
    #[error("{what} has not joined the cluster: the authority refused: {message}")]
    JoinRefused {
        /// Which service.
        what: &'static str,
        /// What the authority says.
        message: String,
    },
    /// A certificate, key or trust problem.
    #[error("{context}")]
    Certificates {
        /// What was being done.
        context: String,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operator: the policy for cryptography cannot be followed.
    #[error(
        "cannot {action}; `sallyport sal report` shows what each source has, and the section crypto chooses"
    )]
    Cryptography {
        /// What was tried.
        action: &'static str,
        /// What stands against it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The authority cannot work.
    #[error("the authority cannot {action}")]
    Authority {
        /// What was tried.
        action: String,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Ourselves: a part of the process ended that must not.
    #[error("{0} stopped unexpectedly; this is a defect, please report it with the log")]
    Stopped(&'static str),
}

impl ServerError {
    /// Why a join failed to which the authority, or the way to it, gave this answer.
    pub(crate) fn of_join(what: &'static str, address: &HostPort, status: &Status) -> Self {
        // What the authority itself says has no cause here; what the connection says has one.
        let by_the_way = std::error::Error::source(status).is_some();
        match status.code() {
            Code::Unavailable if !by_the_way => {
                let problem = format!("the authority cannot let it join now: {}", status.message());
                Self::Join { what, problem, fix: "try again when its log says that it can".to_owned() }
            }
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => {
                let problem = format!("the authority cannot be asked: {}", status.message());
                Self::Join { what, problem, fix: check_way(address) }
            }
            _ => Self::JoinRefused { what, message: status.message().to_owned() },
        }
    }

    /// Why a join failed to which nothing came back.
    pub(crate) fn unanswered_join(
        what: &'static str,
        address: impl std::fmt::Display,
        waited: Duration,
    ) -> Self {
        let problem = format!("no answer within {} s", waited.as_secs());
        Self::Join { what, problem, fix: check_way(address) }
    }

    /// An error with every cause behind it, on one line.
    #[must_use]
    pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let inner_text = inner.to_string();
            if !text.contains(&inner_text) {
                text.push_str(": ");
                text.push_str(&inner_text);
            }
            cause = inner.source();
        }
        text
    }
}

fn check_way(address: impl std::fmt::Display) -> String {
    format!("check that {address} is reachable and that the authority runs, then start again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_answers_can_be_asked() {
        let address = HostPort { host: "proxy.example".to_owned(), port: 3080 };
        let own = Status::unavailable("the authority cannot use its state; its log says why");
        let said = ServerError::of_join("the node", &address, &own).to_string();
        assert!(said.contains("cannot use its state") && !said.contains("cannot be asked"), "{said}");
        let mut lost = Status::unavailable("transport error");
        lost.set_source(std::sync::Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        let said = ServerError::of_join("the node", &address, &lost).to_string();
        assert!(said.contains("cannot be asked") && said.contains("proxy.example:3080"), "{said}");
    }
}
