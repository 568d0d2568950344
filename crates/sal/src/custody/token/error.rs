//! What can go wrong with a token, sorted by who has to act.

use std::path::PathBuf;
use std::time::Duration;

use cryptoki::context::Function;
use cryptoki::error::{Error as Pkcs11Error, RvError};

use super::choice::TokenChoice;
use crate::KeyAlgorithm;

/// What a token, or the way to it, refuses or fails at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    // The operator.
    /// There is no file where the module should be.
    #[error(
        "there is no PKCS#11 module at {path}: install the vendor's package, or correct `module` (SoftHSM: `apt-get install softhsm2` brings /usr/lib/softhsm/libsofthsm2.so)",
        path = path.display()
    )]
    NoModule {
        /// The path in the configuration.
        path: PathBuf,
    },
    /// The file is there, but it is not a PKCS#11 module for this machine.
    #[error("{path} is not a PKCS#11 module that can be loaded here: {reason}", path = path.display())]
    NotAModule {
        /// The file.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// Another user can put code into our process.
    #[error(
        "{path} can be changed by others than root and this process (owner uid {owner}, mode {mode:04o}), and it would run with our keys: run `chown root {path} && chmod 755 {path}` after making sure that it is the vendor's",
        path = path.display()
    )]
    UnsafeModule {
        /// The file.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// The module was loaded and would not start.
    #[error(
        "the PKCS#11 module {path} does not start: {reason}; look at the module's own configuration and log (SoftHSM: SOFTHSM2_CONF, and the directory it names)",
        path = path.display()
    )]
    ModuleFailed {
        /// The file.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// None of the module's tokens is the one asked for.
    #[error("no token with {wanted} in {module}; {present}", module = module.display())]
    NoToken {
        /// What was asked for.
        wanted: TokenChoice,
        /// The module.
        module: PathBuf,
        /// The tokens that are there, in words.
        present: String,
    },
    /// Several tokens have the label asked for.
    #[error("several tokens have {wanted}, with the serial numbers {serials}: choose one by `serial`")]
    Ambiguous {
        /// What was asked for.
        wanted: TokenChoice,
        /// Their serial numbers.
        serials: String,
    },
    /// The token has never been initialised.
    #[error(
        "the token in slot {slot} is not initialised: do it with the vendor's tool, or `pkcs11-tool --module {module} --slot {slot} --init-token --label NAME` (SoftHSM: `softhsm2-util --init-token --free --label NAME`)",
        module = module.display()
    )]
    Uninitialised {
        /// Its slot.
        slot: u64,
        /// The module.
        module: PathBuf,
    },
    /// The token has no user PIN yet.
    #[error("{token} has no user PIN yet: set one with the vendor's tool, or `pkcs11-tool --init-pin`")]
    NoUserPin {
        /// The token.
        token: String,
    },
    /// The configuration names a PIN that is not there.
    #[error("there is no PIN for the token: {reason}")]
    NoPin {
        /// Where it should have been.
        reason: String,
    },
    /// The token refused the PIN.
    #[error("{token} refused {source_of_pin}: {tries}. Correct it before the next start")]
    WrongPin {
        /// The token.
        token: String,
        /// Where the PIN came from.
        source_of_pin: String,
        /// How many tries are left, as far as the token says.
        tries: PinTries,
    },
    /// The same PIN was refused before, and trying it again would only bring the lock closer.
    #[error(
        "{token} refused {source_of_pin} before, and it is still the same: it was not tried again, so as not to lock the token"
    )]
    PinStillWrong {
        /// The token.
        token: String,
        /// Where the PIN came from.
        source_of_pin: String,
    },
    /// One try is left, and it should be a person's.
    #[error(
        "{token} has one try left before its PIN locks, and it was not used: log in by hand once with the right PIN (`pkcs11-tool --login --list-objects`), which resets the count, then start again"
    )]
    LastPinTry {
        /// The token.
        token: String,
    },
    /// Too many wrong PINs.
    #[error(
        "the user PIN of {token} is locked after too many wrong ones: the security officer resets it (`pkcs11-tool --init-pin --login --login-type so`)"
    )]
    PinLocked {
        /// The token.
        token: String,
    },
    /// The token wants its PIN changed first.
    #[error(
        "the user PIN of {token} has expired: change it with the vendor's tool, or `pkcs11-tool --change-pin`"
    )]
    PinExpired {
        /// The token.
        token: String,
    },
    /// Two parts of this process open one token with two PINs; a login holds for the whole process, so that the second
    /// would never be checked.
    #[error(
        "{token} is already open in this process with another PIN than {source_of_pin}: give the same one everywhere"
    )]
    OtherPin {
        /// The token.
        token: String,
        /// Where the PIN came from.
        source_of_pin: String,
    },
    /// The token cannot do what the algorithm needs.
    #[error(
        "{token} cannot {operation} with {algorithm}: it lacks {needed}; of those that make keys and signatures it has {has}"
    )]
    NoMechanism {
        /// The token.
        token: String,
        /// `make keys` or `sign`.
        operation: &'static str,
        /// The algorithm asked for.
        algorithm: KeyAlgorithm,
        /// The mechanisms that would have done.
        needed: String,
        /// Those that it has.
        has: String,
    },
    /// The token was pulled out, lost its power or its network, or its service went down.
    #[error(
        "{token} is gone ({reason}): put it back, or restart what leads to it; the next signature looks for it again, without a restart"
    )]
    Gone {
        /// The token.
        token: String,
        /// What it said last.
        reason: String,
    },
    /// The token is there and the key is not.
    #[error(
        "{token} has no key {label:?} with the id {id}: it was deleted, or the token was replaced by one without it; restore it from the token's backup, or rotate to a new key"
    )]
    NoKey {
        /// The token.
        token: String,
        /// What the key is for.
        label: String,
        /// Its `CKA_ID`, in hexadecimal.
        id: String,
    },
    /// The key in the token is not what the record says.
    #[error("the key {label:?} in {token} is not the one in our records: {difference}")]
    OtherKey {
        /// The token.
        token: String,
        /// What the key is for.
        label: String,
        /// What differs.
        difference: String,
    },
    /// The token keeps the key in a way that lets it out.
    #[error(
        "the key {label:?} in {token} could leave it ({attribute}), which defeats the token: it is not used"
    )]
    Exportable {
        /// The token.
        token: String,
        /// What the key is for.
        label: String,
        /// The attribute that says so.
        attribute: &'static str,
    },
    /// All sessions were busy for too long.
    #[error("all {sessions} sessions to the token were busy for {} s: it hangs, or is too slow for this load; raise `sessions` if it works in parallel", waited.as_secs())]
    Busy {
        /// How many there are.
        sessions: usize,
        /// How long we waited.
        waited: Duration,
    },
    /// A signature came out that the public key refuses.
    #[error(
        "{token} made a signature with the key {label:?} that does not verify: the token is failing, or it or the module is tampered with; the signature was thrown away"
    )]
    BadSignature {
        /// The token.
        token: String,
        /// What the key is for.
        label: String,
    },

    // The caller.
    /// Tokens are not used for this type of key.
    #[error("keys of type {algorithm} are not made in tokens here")]
    Unsupported {
        /// The type.
        algorithm: KeyAlgorithm,
    },
    /// A stored key that was damaged.
    #[error("the record of the key {label:?} was damaged: {reason}")]
    BadRecord {
        /// What the key is for.
        label: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    // Ourselves, or the token.
    /// Anything else that the token refused.
    #[error("{token} could not {operation}: {reason}")]
    Failed {
        /// The token.
        token: String,
        /// What was asked of it.
        operation: &'static str,
        /// What it said.
        reason: String,
    },
}

/// How many wrong PINs a token will still take. PKCS#11 has no number for it, only three flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinTries {
    /// None was wrong since the last right one, or the token does not say.
    Unknown,
    /// At least one was wrong since the last right one (`CKF_USER_PIN_COUNT_LOW`).
    Low,
    /// The next wrong one locks it (`CKF_USER_PIN_FINAL_TRY`).
    Last,
    /// It is locked (`CKF_USER_PIN_LOCKED`).
    Locked,
}

impl PinTries {
    /// What the flags of a token mean together.
    #[must_use]
    pub(super) fn from_flags(count_low: bool, final_try: bool, locked: bool) -> Self {
        match (count_low, final_try, locked) {
            (_, _, true) => Self::Locked,
            (_, true, false) => Self::Last,
            (true, false, false) => Self::Low,
            (false, false, false) => Self::Unknown,
        }
    }
}

impl std::fmt::Display for PinTries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "the token does not say how many tries are left",
            Self::Low => "more than one try is left, the token does not say how many",
            Self::Last => "one try is left, and the next wrong one locks the PIN",
            Self::Locked => "no try is left, the PIN is locked",
        })
    }
}

/// What a module said, as the standard names it: `CKR_PIN_INCORRECT from C_Login`.
pub(super) fn words(error: &Pkcs11Error) -> String {
    match error {
        Pkcs11Error::Pkcs11(code, function) => {
            format!("{} from {}", code_name(*code), function_name(*function))
        }
        other => other.to_string(),
    }
}

fn code_name(code: RvError) -> String {
    match code {
        RvError::VendorDefined(number) | RvError::UnknownErrorCode(number) => {
            format!("return code {number:#010x}")
        }
        known => {
            let mut name = "CKR".to_owned();
            for letter in format!("{known:?}").chars() {
                if letter.is_ascii_uppercase() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            name
        }
    }
}

fn function_name(function: Function) -> String {
    format!("C_{function:?}")
}

/// The code behind an error, if the module gave one.
pub(super) fn code(error: &Pkcs11Error) -> Option<RvError> {
    match error {
        Pkcs11Error::Pkcs11(code, _) => Some(*code),
        _ => None,
    }
}

/// Whether an error may mean that the token, the way to it or our login is lost, so that starting over can help. Some of
/// them say nothing at all; modules give them for a token that was torn away.
pub(super) fn is_loss(error: &Pkcs11Error) -> bool {
    matches!(
        code(error),
        Some(
            RvError::TokenNotPresent
                | RvError::TokenNotRecognized
                | RvError::DeviceRemoved
                | RvError::DeviceError
                | RvError::SessionHandleInvalid
                | RvError::SessionClosed
                | RvError::SlotIdInvalid
                | RvError::CryptokiNotInitialized
                | RvError::UserNotLoggedIn
                | RvError::GeneralError
                | RvError::FunctionFailed
        )
    ) || is_stale_handle(error)
}

/// Whether an object that was there a moment ago is not.
pub(super) fn is_stale_handle(error: &Pkcs11Error) -> bool {
    matches!(code(error), Some(RvError::KeyHandleInvalid | RvError::ObjectHandleInvalid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_names_of_the_standard() {
        let error = Pkcs11Error::Pkcs11(RvError::PinIncorrect, Function::Login);
        assert_eq!(words(&error), "CKR_PIN_INCORRECT from C_Login");
        let error = Pkcs11Error::Pkcs11(RvError::VendorDefined(0x8000_0042), Function::Sign);
        assert_eq!(words(&error), "return code 0x80000042 from C_Sign");
    }

    #[test]
    fn the_worst_flag_counts() {
        assert_eq!(PinTries::from_flags(true, true, true), PinTries::Locked);
        assert_eq!(PinTries::from_flags(true, true, false), PinTries::Last);
        assert_eq!(PinTries::from_flags(true, false, false), PinTries::Low);
        assert_eq!(PinTries::from_flags(false, false, false), PinTries::Unknown);
    }
}
