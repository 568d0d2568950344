//! Why a security key proves nothing.

use crate::error::{CliError, Exit};

/// Why a security key at this machine proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyError {
    /// The programs are not there.
    #[error("{program} is not installed, by which sallyport asks security keys")]
    NotInstalled { program: &'static str },
    /// A program of them cannot be run.
    #[error("cannot run {program}: {why}")]
    NotRun { program: &'static str, why: String },
    /// No key.
    #[error("no security key is plugged in that this account may use")]
    NoKey,
    /// Several, and no person to choose.
    #[error("{} security keys are plugged in, and there is no terminal to ask which one: {}", .0.len(), .0.join(", "))]
    Several(Vec<String>),
    /// A PIN is asked for, and there is no person.
    #[error("the security key wants its PIN, and there is no terminal to ask for it")]
    NoTerminal,
    /// It is not one of those that were shown.
    #[error("{0:?} is none of the security keys shown")]
    NoSuchChoice(String),
    /// It has no PIN, nor a fingerprint.
    #[error("the security key at {device} has no PIN, and a login wants its person verified")]
    PinNotSet { device: String },
    /// It can verify no person.
    #[error(
        "the security key at {device} cannot verify its person, neither by a PIN nor by a fingerprint, and a login wants that"
    )]
    NoVerification { device: String },
    /// Its PIN has to be changed first.
    #[error("the security key at {device} wants its PIN changed before it is used")]
    PinToChange { device: String },
    /// The PIN was wrong.
    #[error("the PIN of the security key is wrong{}", remaining(*.left))]
    WrongPin { left: Option<u32> },
    /// Too many wrong PINs for now.
    #[error("the security key takes no PIN until it was unplugged: several in a row were wrong{}", remaining(*.left))]
    Unplug { left: Option<u32> },
    /// Too many wrong PINs for good.
    #[error("the PIN of the security key at {device} is blocked after too many wrong ones")]
    PinBlocked { device: String },
    /// The finger was not known.
    #[error("the security key did not recognise its person, and takes a PIN only")]
    Unrecognised,
    /// It has no passkey here.
    #[error("the security key has no passkey for {rp_id}, or none that works without a user name")]
    NoPasskey { rp_id: String },
    /// It was not touched.
    #[error("the security key was not touched in time, or the request was declined on it")]
    NotTouched,
    /// It cannot be opened.
    #[error("the security key at {device} cannot be opened ({said})")]
    NotOpened { device: String, said: String },
    /// Anything else.
    #[error("{program} says: {said}")]
    Failed { program: &'static str, said: String },
    /// What a program of libfido2 has printed is not what its manual has.
    #[error("what {program} prints is not understood: {why}")]
    Odd { program: &'static str, why: &'static str },
}

fn remaining(left: Option<u32>) -> String {
    left.map(|left| format!("; {left} more wrong ones block it")).unwrap_or_default()
}

impl KeyError {
    /// What a program has said of a key, where it failed.
    pub(super) fn of(program: &'static str, device: &str, rp_id: &str, failure: Failure, said: &str) -> Self {
        let device = device.to_owned();
        match failure {
            Failure::WrongPin => Self::WrongPin { left: None },
            Failure::Unplug => Self::Unplug { left: None },
            Failure::PinBlocked => Self::PinBlocked { device },
            Failure::PinNotSet => Self::PinNotSet { device },
            Failure::PinToChange => Self::PinToChange { device },
            Failure::Unrecognised => Self::Unrecognised,
            Failure::NoPasskey => Self::NoPasskey { rp_id: rp_id.to_owned() },
            Failure::NotTouched => Self::NotTouched,
            Failure::NoVerification => Self::NoVerification { device },
            Failure::NotOpened => Self::NotOpened { device, said: said.to_owned() },
            Failure::Other => Self::Failed { program, said: said.to_owned() },
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::NotInstalled { .. } => {
                let install = if cfg!(target_os = "macos") {
                    "brew install libfido2"
                } else {
                    "apt install fido2-tools (Debian, Ubuntu), or dnf install fido2-tools (Fedora)"
                };
                format!("{install}; or sallyport login --browser")
            }
            Self::NoKey => "plug it in and run the command again; fido2-token -L shows the keys that this account may use, on Linux \
                            by udev's rules"
                .to_owned(),
            Self::Several(_) | Self::NoSuchChoice(_) => "--security-key-device PATH".to_owned(),
            Self::NoTerminal => "run it in a terminal; or use a security key with a fingerprint".to_owned(),
            Self::PinNotSet { device } => format!("set one: fido2-token -S {device}"),
            Self::PinToChange { device } => format!("fido2-token -C {device}"),
            Self::NoVerification { .. } => {
                "use another one, or log in with your password and a one-time code: sallyport login --password".to_owned()
            }
            Self::WrongPin { .. } | Self::NotTouched | Self::Unrecognised => "run the command again".to_owned(),
            Self::Unplug { .. } => "unplug the security key, plug it in and run the command again".to_owned(),
            Self::PinBlocked { device } => format!(
                "log in another way; only a reset opens the key again, which removes all that is on it: fido2-token -R {device}"
            ),
            Self::NoPasskey { .. } => {
                "use another one; or add this one at a page: sallyport mfa add NAME --kind passkey".to_owned()
            }
            Self::NotOpened { device, .. } => format!(
                "is it plugged in, and may this account read and write it? ls -l {device}; another program may be using it"
            ),
            Self::NotRun { .. } | Self::Failed { .. } | Self::Odd { .. } => {
                "fido2-token -L; or sallyport login --browser".to_owned()
            }
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Several(_) | Self::NoTerminal | Self::NoSuchChoice(_) => Exit::Usage,
            Self::NotInstalled { .. } | Self::NotRun { .. } | Self::Odd { .. } | Self::Failed { .. } => {
                Exit::Failed
            }
            _ => Exit::NotLoggedIn,
        }
    }
}

impl From<KeyError> for CliError {
    fn from(error: KeyError) -> Self {
        Self::new(error.to_string()).hint(error.hint()).exit(error.exit())
    }
}

/// Why a program failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    WrongPin,
    Unplug,
    PinBlocked,
    PinNotSet,
    PinToChange,
    Unrecognised,
    NoPasskey,
    NotTouched,
    NoVerification,
    NotOpened,
    Other,
}

/// What a program has written to standard error, by the name of libfido2's error.
pub(super) fn failure(said: &str) -> Failure {
    if said.contains("fido_dev_open") {
        return Failure::NotOpened;
    }
    let word = said.split_whitespace().rfind(|word| word.starts_with("FIDO_ERR_")).unwrap_or_default();
    match word {
        "FIDO_ERR_PIN_INVALID" => Failure::WrongPin,
        "FIDO_ERR_PIN_AUTH_BLOCKED" => Failure::Unplug,
        "FIDO_ERR_PIN_BLOCKED" => Failure::PinBlocked,
        "FIDO_ERR_PIN_NOT_SET" => Failure::PinNotSet,
        "FIDO_ERR_PIN_POLICY_VIOLATION" => Failure::PinToChange,
        "FIDO_ERR_UV_BLOCKED" | "FIDO_ERR_UV_INVALID" => Failure::Unrecognised,
        "FIDO_ERR_NO_CREDENTIALS" => Failure::NoPasskey,
        "FIDO_ERR_USER_ACTION_TIMEOUT"
        | "FIDO_ERR_ACTION_TIMEOUT"
        | "FIDO_ERR_TIMEOUT"
        | "FIDO_ERR_OPERATION_DENIED"
        | "FIDO_ERR_KEEPALIVE_CANCEL" => Failure::NotTouched,
        "FIDO_ERR_UNSUPPORTED_OPTION" | "FIDO_ERR_INVALID_OPTION" => Failure::NoVerification,
        _ => Failure::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart_by_libfido2s_names() {
        let of = |name: &str| failure(&format!("fido2-assert: fido_dev_get_assert: {name}\n"));
        assert_eq!(of("FIDO_ERR_PIN_INVALID"), Failure::WrongPin);
        assert_eq!(of("FIDO_ERR_PIN_AUTH_BLOCKED"), Failure::Unplug);
        assert_eq!(of("FIDO_ERR_PIN_BLOCKED"), Failure::PinBlocked);
        assert_eq!(of("FIDO_ERR_PIN_NOT_SET"), Failure::PinNotSet);
        assert_eq!(of("FIDO_ERR_NO_CREDENTIALS"), Failure::NoPasskey);
        assert_eq!(of("FIDO_ERR_USER_ACTION_TIMEOUT"), Failure::NotTouched);
        assert_eq!(of("FIDO_ERR_UNSUPPORTED_OPTION"), Failure::NoVerification);
        assert_eq!(of("FIDO_ERR_RX"), Failure::Other);
        assert_eq!(
            failure("fido2-token: fido_dev_open /dev/hidraw9: FIDO_ERR_INTERNAL\n"),
            Failure::NotOpened
        );
        assert_eq!(failure("fido2-assert: input error\n"), Failure::Other);
        assert_eq!(failure(""), Failure::Other);
    }
}
