//! How long a service waits.

use std::time::Duration;

/// How long a service waits for what others do at the end of a session, and how often it looks.
///
/// The defaults are the product's: with shorter times, sessions that end in order lose what is on the way, and users stay
/// open that could have been closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The time between two looks at the sessions of a database user. Default 200 ms.
    pub look: Duration,
    /// How often the server is asked whether the last session of a user is gone: it ends after its connection. Default 15.
    pub looks: u32,
    /// How often sessions with other roles may be in the way before a new one is refused. Default 10.
    pub other_looks: u32,
    /// How long a database user may take to be opened or closed, with the wait for those who do the same. Default twice
    /// [`Settings::patience`](super::Settings::patience).
    pub user: Duration,
    /// The time between two tries to close a user that is in use, or that could not be closed. Default
    /// [`Settings::patience`](super::Settings::patience).
    pub again: Duration,
    /// How long the server may take to close after the client has said goodbye. Default 5 s.
    pub goodbye: Duration,
    /// How long what a server has to say may take to a client that is gone without a goodbye, before the statement is cancelled.
    /// Default 2 s.
    pub gone: Duration,
    /// How long the statement may run on in whose middle the client has said goodbye. Default 1 h.
    pub finishes: Duration,
    /// How long the server may take to close once the session is over, before its process is terminated. Default 2 s.
    pub cancelled: Duration,
    /// How long a terminated process may take to end before an event says that it has not, and it is terminated again, after
    /// twice the time each. Default 1 s.
    pub terminated: Duration,
    /// How often a session's credentials are looked after, so that they are good when its process is to be terminated. Default
    /// 4 min.
    pub renews: Duration,
    /// How long it is tried to end a process that outlives its session, and to close the user of such a one. Default 10 min.
    pub gives_up: Duration,
    /// How long a client that is cut off may take for the rest of a message and the reason. Default 2 s.
    pub last_words: Duration,
}

impl Pace {
    /// The pace of a service with this patience.
    #[must_use]
    pub fn of(patience: Duration) -> Self {
        Self {
            look: Duration::from_millis(200),
            looks: 15,
            other_looks: 10,
            user: patience.saturating_mul(2),
            again: patience,
            goodbye: Duration::from_secs(5),
            gone: Duration::from_secs(2),
            finishes: Duration::from_secs(3600),
            cancelled: Duration::from_secs(2),
            terminated: Duration::from_secs(1),
            renews: Duration::from_secs(240),
            gives_up: Duration::from_secs(600),
            last_words: Duration::from_secs(2),
        }
    }
}
