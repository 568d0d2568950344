//! How long a connection may last, by its permit.

use std::time::Duration;

use sallyport_access::{Limits, Permit};
use time::OffsetDateTime;

/// How long before its end a connection that has run long is told of it.
const WARNING: Duration = Duration::from_secs(60);
/// Clocks are looked at again at least this often: the system's may be set while somebody waits for a certificate's
/// end.
const LOOK: Duration = Duration::from_secs(60);

/// What is known of a connection when its limits are asked about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Since it was let in.
    pub(super) lasted: Duration,
    /// Since its client did something.
    pub(super) idle: Duration,
    pub(super) now: OffsetDateTime,
    /// People were told already that the end is near.
    pub(super) warned: bool,
}

/// What the limits say at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It ends, for this reason.
    Over(String),
    /// It ends soon: this is to be told on terminals.
    Warn(String),
    /// Nothing; ask again then.
    Fine(Duration),
}

/// Asks the limits of a permit.
pub(super) fn judge(permit: &Permit, moment: Moment) -> Verdict {
    judge_limits(permit.limits(), permit.valid_until(), moment)
}

fn judge_limits(limits: &Limits, valid_until: OffsetDateTime, moment: Moment) -> Verdict {
    let mut ask_again = LOOK;
    if let Some(limit) = limits.client_idle_timeout {
        let left = limit.saturating_sub(moment.idle);
        if left.is_zero() {
            return Verdict::Over(format!("nothing was typed or sent for {} s", limit.as_secs()));
        }
        ask_again = ask_again.min(left);
    }
    let certificate = limits.disconnect_expired_cert.then(|| {
        let left = Duration::try_from(valid_until - moment.now).unwrap_or(Duration::ZERO);
        (left, "your certificate has expired; log in again: sallyport login".to_owned())
    });
    let duration = limits.max_session_duration.map(|limit| {
        let left = limit.saturating_sub(moment.lasted);
        (left, format!("it has lasted {} s, the longest that your roles allow", limit.as_secs()))
    });
    let Some((left, reason)) = [certificate, duration].into_iter().flatten().min() else {
        return Verdict::Fine(ask_again);
    };
    if left.is_zero() {
        return Verdict::Over(reason);
    }
    if !moment.warned {
        match left.checked_sub(WARNING) {
            Some(before) if !before.is_zero() => return Verdict::Fine(ask_again.min(before)),
            // What was never to last longer than the warning is told nothing.
            _ if moment.lasted > WARNING => {
                return Verdict::Warn(format!("this connection ends in {} s: {reason}", left.as_secs()));
            }
            _ => {}
        }
    }
    Verdict::Fine(ask_again.min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn at(lasted: u64, idle: u64) -> Moment {
        Moment {
            lasted: Duration::from_secs(lasted),
            idle: Duration::from_secs(idle),
            now: NOW + Duration::from_secs(lasted),
            warned: false,
        }
    }

    fn ask(limits: &Limits, moment: Moment) -> Verdict {
        judge_limits(limits, NOW + Duration::from_secs(3600), moment)
    }

    #[test]
    fn without_limits_a_connection_outlives_its_certificate() {
        assert_eq!(ask(&Limits::default(), at(100_000, 100_000)), Verdict::Fine(LOOK));
    }

    #[test]
    fn silence_ends_it_and_only_silence() {
        let limited = Limits { client_idle_timeout: Some(Duration::from_secs(300)), ..Limits::default() };
        assert_eq!(ask(&limited, at(9000, 299)), Verdict::Fine(Duration::from_secs(1)));
        assert!(matches!(ask(&limited, at(9000, 300)), Verdict::Over(reason) if reason.contains("300 s")));
    }

    #[test]
    fn the_end_is_told_a_minute_before_and_once() {
        let limited = Limits { max_session_duration: Some(Duration::from_secs(600)), ..Limits::default() };
        assert_eq!(ask(&limited, at(500, 0)), Verdict::Fine(Duration::from_secs(40)));
        assert!(matches!(ask(&limited, at(540, 0)), Verdict::Warn(told) if told.contains("60 s")));
        let warned = Moment { warned: true, ..at(541, 0) };
        assert_eq!(ask(&limited, warned), Verdict::Fine(Duration::from_secs(59)));
        assert!(matches!(ask(&limited, Moment { warned: true, ..at(600, 0) }), Verdict::Over(_)));
    }

    #[test]
    fn the_certificates_end_counts_where_the_policy_says_so() {
        let limited = Limits { disconnect_expired_cert: true, ..Limits::default() };
        assert!(matches!(ask(&limited, at(3599, 0)), Verdict::Warn(_)));
        assert!(
            matches!(ask(&limited, at(3600, 0)), Verdict::Over(reason) if reason.contains("sallyport login"))
        );
        // Whichever comes first.
        let both = Limits { max_session_duration: Some(Duration::from_secs(100)), ..limited };
        assert!(matches!(ask(&both, at(100, 0)), Verdict::Over(reason) if reason.contains("100 s")));
    }

    #[test]
    fn a_short_connection_is_not_warned() {
        let limited = Limits { max_session_duration: Some(Duration::from_secs(2)), ..Limits::default() };
        assert_eq!(ask(&limited, at(1, 0)), Verdict::Fine(Duration::from_secs(1)));
    }
}
