//! Security keys at this machine, asked by libfido2's programs: fido2-token says which keys there are and how they verify their person,
//! fido2-assert has one sign. Nothing of libfido2 is linked, and the PIN is typed to its program.

mod error;
mod output;
mod programs;

use std::time::Duration;

use sallyport_access::text::Foreign;
use sallyport_client::key_login::{Asked, Signed};
use tokio::time::Instant;

use self::error::{KeyError, failure};
use self::output::{ASSERT, About, Device, Verifies};
use crate::error::{CliError, CliResult, Exit};
use crate::ui;

/// How long a person at a terminal has to plug a key in,
const PLUGGING: Duration = Duration::from_secs(60);
/// and how often it is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Wrong PINs of one command: the third in a row has a key take none until it is unplugged (CTAP 2.1 §6.5.5.7).
const TRIES: usize = 3;

/// A security key that can verify its person.
#[derive(Debug)]
pub(crate) struct SecurityKey {
    path: String,
    name: String,
    verifies: Verifies,
}

/// What a person and their key have come to.
#[derive(Debug)]
pub(crate) enum Proven {
    Signed(Vec<Signed>),
    /// The person has ended the program that asked them by a signal, such as Ctrl-C.
    Interrupted(i32),
}

/// The security key at a path, or the one that is plugged in. A person at a terminal is waited for, and asked where there are several.
pub(crate) async fn find(path: Option<&str>) -> CliResult<SecurityKey> {
    let device = match path {
        Some(path) if path.starts_with('-') => {
            return Err(CliError::new(format!("{path:?} is no path of a security key"))
                .hint("fido2-token -L")
                .exit(Exit::Usage));
        }
        Some(path) => Device { path: path.to_owned(), name: String::new() },
        None => choose(plugged_in().await?)?,
    };
    let about = programs::about(&device.path).await?;
    Ok(usable(device, about)?)
}

/// What a key says of itself decides before anything is asked of its person.
fn usable(device: Device, about: About) -> Result<SecurityKey, KeyError> {
    let Device { path, name } = device;
    let by_pin = matches!(about.verifies, Verifies::ByPin);
    match about {
        About { verifies: Verifies::Not, .. } => Err(KeyError::NoVerification { device: path }),
        About { verifies: Verifies::PinNotSet, .. } => Err(KeyError::PinNotSet { device: path }),
        About { pins_left: Some(0), .. } if by_pin => Err(KeyError::PinBlocked { device: path }),
        About { pin_to_change: true, .. } if by_pin => Err(KeyError::PinToChange { device: path }),
        About { verifies, .. } => Ok(SecurityKey { path, name, verifies }),
    }
}

async fn plugged_in() -> Result<Vec<Device>, KeyError> {
    let until = Instant::now() + PLUGGING;
    let mut told = false;
    loop {
        let devices = programs::devices().await?;
        if !devices.is_empty() {
            return Ok(devices);
        }
        if !ui::can_ask() || Instant::now() >= until {
            return Err(KeyError::NoKey);
        }
        if !told {
            ui::say(format!("No security key is plugged in. Plug it in within {} s.", PLUGGING.as_secs()));
            told = true;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn choose(mut devices: Vec<Device>) -> CliResult<Device> {
    if devices.len() == 1 {
        return Ok(devices.remove(0));
    }
    if !ui::can_ask() {
        return Err(KeyError::Several(devices.into_iter().map(|device| device.path).collect()).into());
    }
    ui::say("Several security keys are plugged in:");
    for (number, Device { path, name }) in (1..).zip(&devices) {
        ui::say(format!("  {number}  {}  ({})", Foreign::new(name), Foreign::new(path)));
    }
    let chosen = ui::ask("Which one? ")?;
    let index = chosen.trim().parse().ok().and_then(|number: usize| number.checked_sub(1));
    match index.filter(|index| *index < devices.len()) {
        Some(index) => Ok(devices.swap_remove(index)),
        None => Err(KeyError::NoSuchChoice(chosen.trim().to_owned()).into()),
    }
}

impl SecurityKey {
    /// Has the person verified and the key sign, with any passkey of the relying party. When this is dropped, the program that asks them
    /// is ended.
    pub(crate) async fn sign(&self, asked: &Asked) -> CliResult<Proven> {
        let mut by_itself = matches!(self.verifies, Verifies::ByItself { .. });
        let mut tries = 0;
        loop {
            if !by_itself && !programs::has_terminal() {
                return Err(KeyError::NoTerminal.into());
            }
            let said = match self.ask(asked, by_itself).await? {
                programs::Asked::Answered(said) => return Ok(Proven::Signed(output::answers(&said, asked)?)),
                programs::Asked::Ended(signal) => return Ok(Proven::Interrupted(signal)),
                programs::Asked::Failed(said) => said,
            };
            match KeyError::of(ASSERT, &self.path, &asked.rp_id, failure(&said), &said) {
                KeyError::Unrecognised
                    if by_itself && self.verifies == (Verifies::ByItself { pin: true }) =>
                {
                    ui::say("It did not recognise you. Its PIN works, too.");
                    by_itself = false;
                }
                KeyError::WrongPin { .. } => {
                    tries += 1;
                    let wrong = KeyError::WrongPin { left: self.pins_left().await };
                    if tries >= TRIES {
                        return Err(wrong.into());
                    }
                    ui::say(Foreign::new(format!("{wrong}.")).as_str());
                }
                KeyError::Unplug { .. } => {
                    return Err(KeyError::Unplug { left: self.pins_left().await }.into());
                }
                error => return Err(error.into()),
            }
        }
    }

    async fn ask(&self, asked: &Asked, by_itself: bool) -> Result<programs::Asked, KeyError> {
        let name = if self.name.is_empty() { &self.path } else { &self.name };
        let name = Foreign::new(name);
        let verifying: &[&str] = if by_itself {
            ui::say(format!(
                "Touch the security key {name} with the finger that it knows, or type its PIN on it."
            ));
            &["-t", "uv=true"]
        } else {
            ui::say(format!("Type the PIN of the security key {name}, then touch it when it blinks."));
            &["-v"]
        };
        let arguments = [&["-G", "-r"], verifying, &[self.path.as_str()]].concat();
        programs::assert(&arguments, &output::question(asked)).await
    }

    /// How many wrong PINs block the key, as it says now.
    async fn pins_left(&self) -> Option<u32> {
        programs::about(&self.path).await.ok().and_then(|about| about.pins_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_verify_its_person_is_refused_before_they_are_asked() {
        let key = |verifies, pins_left, pin_to_change| {
            let device = Device { path: "/dev/hidraw5".to_owned(), name: String::new() };
            usable(device, About { verifies, pins_left, pin_to_change }).map(|key| key.verifies)
        };
        assert_eq!(key(Verifies::ByPin, Some(8), false), Ok(Verifies::ByPin));
        let finger = Verifies::ByItself { pin: true };
        assert_eq!(key(finger, Some(0), false), Ok(finger), "its PIN is blocked, and its finger is not");
        let told = |refused: Result<Verifies, KeyError>| CliError::from(refused.unwrap_err()).to_string();
        assert_eq!(
            told(key(Verifies::PinNotSet, Some(8), false)),
            "error: the security key at /dev/hidraw5 has no PIN, and a login wants its person verified\n  try: set one: fido2-token -S \
             /dev/hidraw5"
        );
        assert!(told(key(Verifies::ByPin, Some(0), false)).contains("is blocked after too many wrong ones"));
        assert!(told(key(Verifies::ByPin, Some(8), true)).contains("fido2-token -C /dev/hidraw5"));
        assert!(told(key(Verifies::Not, None, false)).contains("sallyport login --password"));
    }
}
