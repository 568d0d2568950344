//! Names of hosts.

use std::fmt;
use std::str::FromStr;

use crate::TestbedError;

/// Longest name of a host or region: with the number of the WAN before it, it still is a name for a device.
const NAME_LONGEST: usize = 10;

/// The name of a host or region: lower-case letters and digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = TestbedError;

    fn from_str(text: &str) -> Result<Self, TestbedError> {
        let fits = (1..=NAME_LONGEST).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(TestbedError::Input(format!(
                "{text:?} is no name of a host or region: expected 1 to {NAME_LONGEST} lower-case letters and digits"
            )))
        }
    }
}
