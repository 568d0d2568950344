//! Devices and their tokens, as they are stored.

use sallyport_access::{Device, DeviceCustody, DeviceId, UserName};
use sallyport_audit::Event;
use sallyport_store::Kind;
use sallyport_wire::{convert, v1};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

/// Longest text that a machine says of itself, in characters.
const SAID: usize = 64;

/// What a machine says of itself, short and without characters that would change what a person reads.
pub(crate) fn said(text: &str) -> String {
    let kept = text.chars().filter(|letter| letter.is_ascii_graphic() || *letter == ' ');
    kept.take(SAID).collect::<String>().trim().to_owned()
}

/// A device, under its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceRecord {
    pub(crate) id: DeviceId,
    /// `SubjectPublicKeyInfo`, DER in base64.
    pub(crate) public_key: String,
    /// As the program said that enrolled it.
    pub(crate) custody: DeviceCustody,
    /// Who may log in from it.
    pub(crate) users: Vec<UserName>,
    pub(crate) state: DeviceState,
    /// What the machine says of itself.
    pub(crate) name: String,
    pub(crate) os: String,
    pub(crate) serial: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) enrolled: OffsetDateTime,
    pub(crate) enrolled_by: UserName,
    /// The login that asked for it; none of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) login: Option<Uuid>,
    #[serde(default)]
    pub(crate) last: Option<Seen>,
}

impl Kind for DeviceRecord {
    const KIND: &'static str = "device";
}

/// Whether logins from a device are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeviceState {
    /// An administrator has not admitted it yet.
    Pending,
    Enrolled,
}

impl DeviceState {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Enrolled => "enrolled",
        }
    }
}

/// The last login from a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    pub(crate) user: UserName,
}

impl DeviceRecord {
    /// What certificates say of it.
    pub(crate) fn device(&self) -> Device {
        Device { id: self.id, custody: self.custody }
    }

    pub(crate) fn belongs_to(&self, user: &UserName) -> bool {
        self.users.contains(user)
    }

    /// SHA-256 of its `SubjectPublicKeyInfo`, in hexadecimal.
    pub(crate) fn key_sha256(&self) -> String {
        let key = data_encoding::BASE64.decode(self.public_key.as_bytes()).unwrap_or_default();
        data_encoding::HEXLOWER.encode(&sallyport_sal::hash::sha256(&key))
    }

    pub(crate) fn shown(&self) -> v1::Device {
        v1::Device {
            id: self.id.to_string(),
            name: self.name.clone(),
            custody: self.custody.as_str().to_owned(),
            users: self.users.iter().map(ToString::to_string).collect(),
            state: self.state.word().to_owned(),
            os: self.os.clone(),
            serial: self.serial.clone(),
            enrolled: Some(convert::time_to_proto(self.enrolled)),
            enrolled_by: self.enrolled_by.to_string(),
            last_seen: self.last.as_ref().map(|last| convert::time_to_proto(last.at)),
            last_user: self.last.as_ref().map(|last| last.user.to_string()).unwrap_or_default(),
            key: self.key_sha256(),
        }
    }
}

/// An event with what is known of a device. What its machine says of itself is called so.
pub(crate) fn told(event: Event, record: &DeviceRecord) -> Event {
    let users: Vec<&str> = record.users.iter().map(UserName::as_str).collect();
    event
        .message(format!("device/{}", record.id))
        .field("device", record.id.to_string())
        .field("custody", record.custody.as_str())
        .field("users", users.join(", "))
        .field("state", record.state.word())
        .field("said_name", record.name.clone())
        .field("said_os", record.os.clone())
        .field("said_serial", record.serial.clone())
}

/// A token with which one device is enrolled, under the beginning of its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceTokenRecord {
    pub(crate) hash: String,
    /// Who may use it; none: every user.
    pub(crate) users: Vec<UserName>,
    /// The key has to be in hardware.
    pub(crate) hardware: bool,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires: OffsetDateTime,
}

impl Kind for DeviceTokenRecord {
    const KIND: &'static str = "device_token";
}

/// A challenge that a device's signature was taken for, under the challenge's hash, until it is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SpentChallengeRecord {}

impl Kind for SpentChallengeRecord {
    const KIND: &'static str = "device_challenge";
}
