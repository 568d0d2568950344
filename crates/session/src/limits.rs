//! How long a session may last, by its permit.

use std::fmt;
use std::time::Duration;

use sallyport_access::Limits;
use time::OffsetDateTime;

/// How long before its end a session that has run long is told of it.
const WARNING: Duration = Duration::from_secs(60);
/// Clocks are looked at again at least this often: the system's may be set while a certificate's end is waited for.
const LOOK: Duration = Duration::from_secs(60);

/// What is known of a session when its limits are asked about.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Since it began.
    pub lasted: Duration,
    /// Since its client did something.
    pub idle: Duration,
    /// By the clock that certificates go by.
    pub now: OffsetDateTime,
    /// Its user was told already that the end is near, or is not to be told.
    pub warned: bool,
}

/// The limits of a permit that a session can come to. Its text suits sessions of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// The client did nothing for so long.
    Idle(Duration),
    /// It has lasted so long.
    Lasted(Duration),
    /// The certificate that it began with has expired.
    Certificate,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(limit) => write!(f, "the client was silent for {}", words(*limit)),
            Self::Lasted(limit) => {
                write!(f, "the session has lasted {}, which is as long as it may", words(*limit))
            }
            Self::Certificate => f.write_str("your certificate has expired; log in again: sallyport login"),
        }
    }
}

/// What the limits say at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It ends.
    Over(Limit),
    /// It ends after so long, by this limit: its user is to be told.
    Warn(Duration, Limit),
    /// Nothing; ask again then.
    Fine(Duration),
}

impl Verdict {
    /// Of what has no limits.
    pub const UNLIMITED: Self = Self::Fine(LOOK);
}

/// Asks the limits of a permit, whose certificate is good until `valid_until`.
#[must_use]
pub fn judge(limits: &Limits, valid_until: OffsetDateTime, moment: Moment) -> Verdict {
    let mut ask_again = LOOK;
    if let Some(limit) = limits.client_idle_timeout {
        let left = limit.saturating_sub(moment.idle);
        if left.is_zero() {
            return Verdict::Over(Limit::Idle(limit));
        }
        ask_again = ask_again.min(left);
    }
    let certificate = limits.disconnect_expired_cert.then(|| {
        let left = Duration::try_from(valid_until - moment.now).unwrap_or(Duration::ZERO);
        (left, Limit::Certificate)
    });
    let duration =
        limits.max_session_duration.map(|limit| (limit.saturating_sub(moment.lasted), Limit::Lasted(limit)));
    let Some((left, limit)) = [certificate, duration].into_iter().flatten().min() else {
        return Verdict::Fine(ask_again);
    };
    if left.is_zero() {
        return Verdict::Over(limit);
    }
    if !moment.warned {
        match left.checked_sub(WARNING) {
            Some(before) if !before.is_zero() => return Verdict::Fine(ask_again.min(before)),
            // What was never to last longer than the warning is told nothing.
            _ if moment.lasted > WARNING => return Verdict::Warn(left, limit),
            _ => {}
        }
    }
    Verdict::Fine(ask_again.min(left))
}

/// The time as of which a session that goes on is decided about again: one that may outlive its certificate is judged as if
/// that were still good.
#[must_use]
pub fn decided_as_of(limits: &Limits, valid_until: OffsetDateTime, now: OffsetDateTime) -> OffsetDateTime {
    match limits.disconnect_expired_cert {
        true => now,
        false => now.min(valid_until - time::Duration::seconds(1)),
    }
}

/// A time as people say it.
#[must_use]
pub fn words(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 3600 && seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
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
        judge(limits, NOW + Duration::from_secs(3600), moment)
    }

    #[test]
    fn without_limits_a_session_outlives_its_certificate() {
        assert_eq!(ask(&Limits::default(), at(100_000, 100_000)), Verdict::UNLIMITED);
        let (until, late) = (NOW + Duration::from_secs(3600), NOW + Duration::from_secs(9000));
        assert!(decided_as_of(&Limits::default(), until, late) < until);
        let strict = Limits { disconnect_expired_cert: true, ..Limits::default() };
        assert_eq!(decided_as_of(&strict, until, late), late);
    }

    #[test]
    fn silence_ends_it_and_only_silence() {
        let limit = Duration::from_secs(300);
        let limited = Limits { client_idle_timeout: Some(limit), ..Limits::default() };
        assert_eq!(ask(&limited, at(9000, 299)), Verdict::Fine(Duration::from_secs(1)));
        assert_eq!(ask(&limited, at(9000, 300)), Verdict::Over(Limit::Idle(limit)));
        assert_eq!(Limit::Idle(limit).to_string(), "the client was silent for 5 min");
    }

    #[test]
    fn the_end_is_told_a_minute_before_and_once() {
        let longest = Duration::from_secs(600);
        let limited = Limits { max_session_duration: Some(longest), ..Limits::default() };
        assert_eq!(ask(&limited, at(500, 0)), Verdict::Fine(Duration::from_secs(40)));
        let near = Verdict::Warn(Duration::from_secs(60), Limit::Lasted(longest));
        assert_eq!(ask(&limited, at(540, 0)), near);
        let warned = Moment { warned: true, ..at(541, 0) };
        assert_eq!(ask(&limited, warned), Verdict::Fine(Duration::from_secs(59)));
        let over = Verdict::Over(Limit::Lasted(longest));
        assert_eq!(ask(&limited, Moment { warned: true, ..at(600, 0) }), over);
    }

    #[test]
    fn the_certificates_end_counts_where_the_policy_says_so() {
        let limited = Limits { disconnect_expired_cert: true, ..Limits::default() };
        assert!(matches!(ask(&limited, at(3599, 0)), Verdict::Warn(_, Limit::Certificate)));
        assert_eq!(ask(&limited, at(3600, 0)), Verdict::Over(Limit::Certificate));
        // Whichever comes first.
        let longest = Duration::from_secs(100);
        let both = Limits { max_session_duration: Some(longest), ..limited };
        assert_eq!(ask(&both, at(100, 0)), Verdict::Over(Limit::Lasted(longest)));
    }

    #[test]
    fn a_short_session_is_not_warned() {
        let limited = Limits { max_session_duration: Some(Duration::from_secs(2)), ..Limits::default() };
        assert_eq!(ask(&limited, at(1, 0)), Verdict::Fine(Duration::from_secs(1)));
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        for (seconds, said) in [(1, "1 s"), (90, "90 s"), (120, "2 min"), (7200, "2 h"), (3660, "61 min")] {
            assert_eq!(words(Duration::from_secs(seconds)), said);
        }
    }
}
