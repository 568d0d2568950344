//! Options, as JSON for `PublicKeyCredential.parseCreationOptionsFromJSON()` and `parseRequestOptionsFromJSON()`
//! (WebAuthn L3 §5.1.8 to §5.1.10).

use serde::{Deserialize, Serialize};

use crate::binary::Binary;
use crate::cose::Algorithm;
use crate::credential::{Credential, UserHandle};
use crate::pending::TIMEOUT;
use crate::relying_party::UserVerification;

/// The one type of credentials (§5.8.2).
pub(crate) const PUBLIC_KEY: &str = "public-key";

/// Whether a new passkey has to be usable without a user name (§5.4.6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResidentKey {
    /// It has to be.
    Required,
    /// If the authenticator can. The default.
    #[default]
    Preferred,
    /// Rather not: it takes room on a security key.
    Discouraged,
}

/// Which authenticators are asked (§5.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attachment {
    /// Those built into the device.
    Platform,
    /// Those that are carried from device to device.
    CrossPlatform,
}

/// What the user is likely to use, for the browser's questions (§5.8.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hint {
    /// A security key.
    SecurityKey,
    /// This device.
    ClientDevice,
    /// Another device nearby, such as a phone.
    Hybrid,
}

/// The user, as authenticators store it with a passkey.
#[derive(Debug, Clone)]
pub struct Account {
    /// Its handle.
    pub handle: UserHandle,
    /// The login name.
    pub name: String,
    /// The person's name; the login name where there is none.
    pub display_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Party {
    id: String,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct UserEntity {
    id: UserHandle,
    name: String,
    display_name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Parameter {
    r#type: &'static str,
    alg: Algorithm,
}

/// A credential that is asked for, or that must not be made again (§5.8.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Descriptor {
    r#type: &'static str,
    id: Binary,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transports: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selection {
    #[serde(skip_serializing_if = "Option::is_none")]
    authenticator_attachment: Option<Attachment>,
    resident_key: ResidentKey,
    // §5.4.4: what Level 1 knows instead, and only true for "required".
    require_resident_key: bool,
    user_verification: UserVerification,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CreationExtensions {
    cred_props: bool,
}

/// What the browser is given to make a passkey (`PublicKeyCredentialCreationOptionsJSON`). It is written as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreationOptions {
    rp: Party,
    user: UserEntity,
    challenge: Binary,
    pub_key_cred_params: Vec<Parameter>,
    timeout: u64,
    exclude_credentials: Vec<Descriptor>,
    authenticator_selection: Selection,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hints: Vec<Hint>,
    attestation: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    attestation_formats: &'static [&'static str],
    extensions: CreationExtensions,
}

/// What the browser is given to use a passkey (`PublicKeyCredentialRequestOptionsJSON`). It is written as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestOptions {
    challenge: Binary,
    timeout: u64,
    rp_id: String,
    allow_credentials: Vec<Descriptor>,
    user_verification: UserVerification,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hints: Vec<Hint>,
}

/// What of the options is chosen for one registration.
#[derive(Debug, Clone, Default)]
pub struct RegistrationChoice {
    /// Whether it has to be usable without a user name.
    pub resident_key: ResidentKey,
    /// Which authenticators are asked; all where none is given.
    pub attachment: Option<Attachment>,
    /// What the user is likely to use.
    pub hints: Vec<Hint>,
    /// Another rule about the user's verification than the relying party's.
    pub user_verification: Option<UserVerification>,
}

pub(crate) struct Creation<'a> {
    pub(crate) rp_id: &'a str,
    pub(crate) rp_name: &'a str,
    pub(crate) account: &'a Account,
    pub(crate) challenge: &'a Binary,
    pub(crate) algorithms: &'a [Algorithm],
    pub(crate) existing: &'a [Credential],
    pub(crate) choice: &'a RegistrationChoice,
    pub(crate) user_verification: UserVerification,
    pub(crate) direct_attestation: bool,
}

impl CreationOptions {
    pub(crate) fn of(creation: &Creation<'_>) -> Self {
        let Creation { account, choice, .. } = creation;
        let display_name =
            if account.display_name.is_empty() { &account.name } else { &account.display_name };
        Self {
            rp: Party { id: creation.rp_id.to_owned(), name: creation.rp_name.to_owned() },
            user: UserEntity {
                id: account.handle.clone(),
                name: account.name.clone(),
                display_name: display_name.clone(),
            },
            challenge: creation.challenge.clone(),
            pub_key_cred_params: creation
                .algorithms
                .iter()
                .map(|alg| Parameter { r#type: PUBLIC_KEY, alg: *alg })
                .collect(),
            timeout: timeout(),
            exclude_credentials: descriptors(creation.existing),
            authenticator_selection: Selection {
                authenticator_attachment: choice.attachment,
                resident_key: choice.resident_key,
                require_resident_key: choice.resident_key == ResidentKey::Required,
                user_verification: creation.user_verification,
            },
            hints: choice.hints.clone(),
            attestation: if creation.direct_attestation { "direct" } else { "none" },
            attestation_formats: if creation.direct_attestation { &["packed", "fido-u2f"] } else { &[] },
            extensions: CreationExtensions { cred_props: true },
        }
    }
}

impl RequestOptions {
    pub(crate) fn of(
        rp_id: &str,
        challenge: &Binary,
        allowed: &[Credential],
        user_verification: UserVerification,
        hints: &[Hint],
    ) -> Self {
        Self {
            challenge: challenge.clone(),
            timeout: timeout(),
            rp_id: rp_id.to_owned(),
            allow_credentials: descriptors(allowed),
            user_verification,
            hints: hints.to_vec(),
        }
    }
}

fn descriptors(credentials: &[Credential]) -> Vec<Descriptor> {
    credentials
        .iter()
        .map(|credential| Descriptor {
            r#type: PUBLIC_KEY,
            id: credential.id.clone(),
            transports: credential.transports.clone(),
        })
        .collect()
}

/// The timeout as browsers take it, in milliseconds.
fn timeout() -> u64 {
    TIMEOUT.as_secs() * 1000
}
