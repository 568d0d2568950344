//! Why a session has to end, and how it is told.

use sallyport_access::Refusal;
use tokio::sync::watch;

use crate::limits::Limit;
use crate::record::Unrecordable;

/// Why a session has to end. Its text is what the client reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The roles and locks of now say no.
    #[error("{0}")]
    Denied(#[from] Denied),
    /// It has come to a limit of its permit.
    #[error("{0}")]
    Limit(Limit),
    /// It has to be recorded, and cannot be any more.
    #[error("{0}")]
    Unrecordable(#[from] Unrecordable),
    /// An administrator ends it, or a part of the host does, with these words.
    #[error("{0}")]
    Ended(String),
    /// The service is being stopped, in these words.
    #[error("{0}")]
    Draining(&'static str),
}

/// A decision that is no longer what it was when the session began.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{told}")]
pub struct Denied {
    /// What the user reads.
    pub told: String,
    /// What the log and the record say: the rule, without what the user could do.
    pub logged: String,
}

impl Denied {
    /// With the same words for the user and the log.
    #[must_use]
    pub fn new(words: impl Into<String>) -> Self {
        let told = words.into();
        Self { logged: told.clone(), told }
    }
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self { told: refusal.public_message(), logged: refusal.to_string() }
    }
}

/// Ends one session from outside. Clones are one. The first reason counts.
#[derive(Debug, Clone, Default)]
pub struct Ending(watch::Sender<Option<Stop>>);

impl Ending {
    /// Ends it; false when something has ended it already.
    pub fn end(&self, stop: Stop) -> bool {
        self.0.send_if_modified(|reason| {
            let first = reason.is_none();
            if first {
                *reason = Some(stop);
            }
            first
        })
    }

    /// Why it ends, if it does.
    #[must_use]
    pub fn reason(&self) -> Option<Stop> {
        self.0.borrow().clone()
    }

    /// Waits until it ends.
    pub async fn ended(&self) -> Stop {
        let mut reason = self.0.subscribe();
        // The borrow of the value ends here: it may not be held while waiting below.
        let found = reason.wait_for(Option::is_some).await.map(|stop| stop.clone());
        match found {
            Ok(Some(stop)) => stop,
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_counts() {
        let ending = Ending::default();
        assert_eq!(ending.reason(), None);
        let waiting = tokio::spawn({
            let ending = ending.clone();
            async move { ending.ended().await }
        });
        assert!(ending.end(Stop::Ended("enough".to_owned())));
        assert!(!ending.end(Stop::Draining("late")));
        assert_eq!(waiting.await.unwrap().to_string(), "enough");
        assert_eq!(ending.ended().await, Stop::Ended("enough".to_owned()));
    }
}
