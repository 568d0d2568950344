//! Whether a program uses the helper.

use std::ffi::OsStr;
use std::time::Duration;

use sallyport_client::times;

/// Whether to use a helper, and for how long one stays: `off`, or a duration such as `30m`.
const VARIABLE: &str = "SALLYPORT_CONNECT";
/// A user at work comes back within this.
const DEFAULT_IDLE: Duration = Duration::from_secs(10 * 60);

/// What `SALLYPORT_CONNECT` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// It does not.
    Off,
    /// It does.
    On {
        /// How long a helper that it starts stays while no program needs it.
        idle: Duration,
    },
}

impl Setting {
    /// What the environment asks for.
    pub fn here() -> Self {
        Self::of(std::env::var_os(VARIABLE).as_deref())
    }

    fn of(text: Option<&OsStr>) -> Self {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Self::On { idle: DEFAULT_IDLE } };
        match text.to_str() {
            Some("on") => Self::On { idle: DEFAULT_IDLE },
            // Something that is not understood asks for something special; the plain way is always right.
            Some(text) => times::parse_duration(text).map_or(Self::Off, |idle| Self::On { idle }),
            None => Self::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_switches_and_sets_the_time() {
        let of = |text: &str| Setting::of(Some(OsStr::new(text)));
        assert_eq!(Setting::of(None), Setting::On { idle: DEFAULT_IDLE });
        assert_eq!(of(""), Setting::On { idle: DEFAULT_IDLE });
        assert_eq!(of("on"), Setting::On { idle: DEFAULT_IDLE });
        assert_eq!(of("30m"), Setting::On { idle: Duration::from_secs(1800) });
        for off in ["off", "no", "0"] {
            assert_eq!(of(off), Setting::Off, "{off}");
        }
    }
}
