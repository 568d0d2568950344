//! Why a connection ends, in the words of SSH.

use sallyport_session::Stop;
use sallyport_session::limits::Limit;

/// What the person on a connection reads when it ends.
pub(super) fn told(stop: &Stop) -> String {
    match stop {
        Stop::Limit(limit) => words(*limit),
        stop => stop.to_string(),
    }
}

/// A limit of a connection.
pub(super) fn words(limit: Limit) -> String {
    match limit {
        Limit::Idle(limit) => format!("nothing was typed or sent for {} s", limit.as_secs()),
        Limit::Lasted(limit) => {
            format!("it has lasted {} s, the longest that your roles allow", limit.as_secs())
        }
        Limit::Certificate => limit.to_string(),
    }
}
