//! Trusted devices: what a certificate says of the device that its login came from, and what roles ask of it.

use serde::{Deserialize, Serialize};

use crate::DeviceId;

/// Where a device has its private key. It is the word of the program that enrolled the device, unless an administrator knows better:
/// nothing attests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceCustody {
    /// In a file, which can be copied.
    File,
    /// In hardware that does not give it out.
    Hardware,
}

impl DeviceCustody {
    /// Both, the weaker first.
    pub const ALL: [Self; 2] = [Self::File, Self::Hardware];

    /// The name in certificates, events and commands.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Hardware => "hardware",
        }
    }
}

/// The device that a login came from, as the authority has it on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Which one.
    pub id: DeviceId,
    /// Where its key is.
    pub custody: DeviceCustody,
}

/// What a role asks of the device that a login comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DeviceTrust {
    /// Nothing.
    #[default]
    Optional,
    /// That it is enrolled.
    Required,
    /// That it is enrolled with a key in hardware.
    RequiredHardware,
}

impl DeviceTrust {
    /// All, the weakest first.
    pub const ALL: [Self; 3] = [Self::Optional, Self::Required, Self::RequiredHardware];

    /// How roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Optional => "optional",
            Self::Required => "required",
            Self::RequiredHardware => "required-hardware",
        }
    }

    /// Why a login from this device, or from none, is not enough, and what to do about it.
    pub(crate) fn refuses(self, device: Option<&Device>) -> Option<(&'static str, &'static str)> {
        match (self, device.map(|device| device.custody)) {
            (Self::Optional, _) | (_, Some(DeviceCustody::Hardware)) => None,
            (Self::Required, Some(DeviceCustody::File)) => None,
            (Self::Required, None) => Some((
                "it needs a login from a trusted device (device_trust: required), and this login is from none",
                "enroll this device with sallyport device enroll, then log in again: sallyport login",
            )),
            (Self::RequiredHardware, None) => Some((
                "it needs a login from a trusted device with its key in hardware (device_trust: required-hardware), and this login is from \
                 no trusted device",
                "enroll this device with sallyport device enroll --module PATH, then log in again: sallyport login",
            )),
            (Self::RequiredHardware, Some(DeviceCustody::File)) => Some((
                "it needs a login from a trusted device with its key in hardware (device_trust: required-hardware), and the key of this \
                 one is in a file",
                "enroll this device anew with sallyport device enroll --module PATH, then log in again: sallyport login",
            )),
        }
    }
}
