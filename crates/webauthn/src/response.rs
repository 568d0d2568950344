//! Responses, as `PublicKeyCredential.toJSON()` gives them (WebAuthn L3 §5.1.7).
//!
//! Parsing is steps 3 and 4 of both procedures. A caller parses first, looks up the credential that the response names, and
//! then finishes the ceremony with both.

use sallyport_sal::hash;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::binary::Binary;
use crate::client_data::{AskedBy, shortened};
use crate::credential::{Credential, UserHandle};
use crate::error::WebAuthnError;
use crate::options::{Attachment, PUBLIC_KEY};

/// Longest response, in bytes. An attestation with a chain of certificates has fewer than 16 KiB as JSON.
pub const MAX_RESPONSE_BYTES: usize = 128 * 1024;

/// Most transports that are kept, and the longest name of one.
const MAX_TRANSPORTS: usize = 8;
const MAX_TRANSPORT_BYTES: usize = 32;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json<R> {
    id: Binary,
    raw_id: Binary,
    r#type: String,
    response: R,
    #[serde(default)]
    authenticator_attachment: Option<String>,
    #[serde(default)]
    client_extension_results: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attested {
    #[serde(rename = "clientDataJSON")]
    client_data: Binary,
    attestation_object: Binary,
    #[serde(default)]
    transports: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asserted {
    #[serde(rename = "clientDataJSON")]
    client_data: Binary,
    authenticator_data: Binary,
    signature: Binary,
    #[serde(default)]
    user_handle: Option<Binary>,
}

fn read<'a, R: Deserialize<'a>>(json: &'a [u8]) -> Result<Json<R>, WebAuthnError> {
    if json.len() > MAX_RESPONSE_BYTES {
        return Err(WebAuthnError::TooLarge { got: json.len(), limit: MAX_RESPONSE_BYTES });
    }
    let bad = |reason: String| WebAuthnError::BadResponse { reason };
    let read: Json<R> = serde_json::from_slice(json).map_err(|error| bad(error.to_string()))?;
    if read.r#type != PUBLIC_KEY {
        return Err(bad(format!("its type is {:?}, expected {PUBLIC_KEY:?}", shortened(&read.r#type))));
    }
    // §5.1: id is the base64url encoding of rawId. Two names for one credential would be looked up and verified apart.
    if read.id != read.raw_id {
        return Err(WebAuthnError::IdMismatch);
    }
    Ok(read)
}

fn attachment(name: Option<&str>) -> Option<Attachment> {
    match name {
        Some("platform") => Some(Attachment::Platform),
        Some("cross-platform") => Some(Attachment::CrossPlatform),
        // §5.1: values that are not known are as none.
        _ => None,
    }
}

/// The answer to [`CreationOptions`](crate::CreationOptions), not yet verified.
#[derive(Debug)]
pub struct RegistrationResponse {
    pub(crate) id: Binary,
    pub(crate) client_data: Binary,
    pub(crate) attestation_object: Binary,
    pub(crate) transports: Vec<String>,
    pub(crate) attachment: Option<Attachment>,
    pub(crate) extensions: Map<String, Value>,
}

impl RegistrationResponse {
    /// Reads what the browser sent.
    ///
    /// # Errors
    /// [`WebAuthnError::TooLarge`], [`WebAuthnError::BadResponse`] and [`WebAuthnError::IdMismatch`].
    pub fn parse(json: &[u8]) -> Result<Self, WebAuthnError> {
        let Json { id, response, authenticator_attachment, client_extension_results, .. } =
            read::<Attested>(json)?;
        let mut transports: Vec<String> = Vec::new();
        for name in response.transports {
            let plain = (1..=MAX_TRANSPORT_BYTES).contains(&name.len())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            if plain && transports.len() < MAX_TRANSPORTS && !transports.contains(&name) {
                transports.push(name);
            }
        }
        Ok(Self {
            id,
            client_data: response.client_data,
            attestation_object: response.attestation_object,
            transports,
            attachment: attachment(authenticator_attachment.as_deref()),
            extensions: client_extension_results,
        })
    }

    /// The credential that it says to have made, to look up whether it is registered already.
    #[must_use]
    pub fn credential_id(&self) -> &Binary {
        &self.id
    }
}

/// The answer to [`RequestOptions`](crate::RequestOptions), not yet verified.
#[derive(Debug)]
pub struct AuthenticationResponse {
    pub(crate) id: Binary,
    pub(crate) client_data: Binary,
    pub(crate) authenticator_data: Binary,
    pub(crate) signature: Binary,
    pub(crate) user: Option<UserHandle>,
    pub(crate) asked_by: AskedBy,
}

impl AuthenticationResponse {
    /// Reads what the browser sent.
    ///
    /// # Errors
    /// [`WebAuthnError::TooLarge`], [`WebAuthnError::BadResponse`] and [`WebAuthnError::IdMismatch`].
    pub fn parse(json: &[u8]) -> Result<Self, WebAuthnError> {
        let Json { id, response, .. } = read::<Asserted>(json)?;
        // A handle has a byte at least; browsers that have none to give leave it out, write null or write nothing in it.
        let user = match response.user_handle {
            Some(handle) if !handle.0.is_empty() => Some(
                UserHandle::new(handle.0)
                    .map_err(|error| WebAuthnError::BadResponse { reason: error.to_string() })?,
            ),
            _ => None,
        };
        Ok(Self {
            id,
            client_data: response.client_data,
            authenticator_data: response.authenticator_data,
            signature: response.signature,
            user,
            asked_by: AskedBy::Browser,
        })
    }

    /// The credential that it says to be by, to look up.
    #[must_use]
    pub fn credential_id(&self) -> &Binary {
        &self.id
    }

    /// The user that it says to be, which nothing has proven yet.
    #[must_use]
    pub fn user(&self) -> Option<&UserHandle> {
        self.user.as_ref()
    }
}

/// What an authenticator has signed that was asked without a browser, for any passkey of this relying party. Programs such as
/// fido2-assert do not say by which one; that it is the user's who is named in it, nothing has proven yet.
#[derive(Debug)]
pub struct Assertion {
    client_data: Binary,
    authenticator_data: Binary,
    signature: Binary,
    user: UserHandle,
}

impl Assertion {
    /// Takes it as bytes.
    ///
    /// # Errors
    /// [`WebAuthnError::TooLarge`], and [`WebAuthnError::NoUserHandle`] or [`WebAuthnError::BadUserHandle`] where it names no user.
    pub fn new(
        client_data: &[u8],
        authenticator_data: &[u8],
        signature: &[u8],
        user: &[u8],
    ) -> Result<Self, WebAuthnError> {
        let got = client_data.len() + authenticator_data.len() + signature.len();
        if got > MAX_RESPONSE_BYTES {
            return Err(WebAuthnError::TooLarge { got, limit: MAX_RESPONSE_BYTES });
        }
        if user.is_empty() {
            return Err(WebAuthnError::NoUserHandle);
        }
        Ok(Self {
            client_data: Binary(client_data.to_vec()),
            authenticator_data: Binary(authenticator_data.to_vec()),
            signature: Binary(signature.to_vec()),
            user: UserHandle::new(user.to_vec())?,
        })
    }

    /// The user that it says to be.
    #[must_use]
    pub fn user(&self) -> &UserHandle {
        &self.user
    }

    /// Names the credential by whose key it is signed (WebAuthn L3 §7.2, step 21, for each). Nothing else of it is checked here:
    /// [`finish_authentication`](crate::RelyingParty::finish_authentication) does all of §7.2 with what this gives, and demands that the
    /// client data has the member `sallyportAuthority`, by which the program that asked says which certificate authority it has reached.
    /// `authorities` are the pins of those that it may have reached.
    ///
    /// # Errors
    /// [`WebAuthnError::UnknownCredential`] when it is by none of them.
    pub fn by_one_of(
        self,
        credentials: &[Credential],
        authorities: Vec<String>,
    ) -> Result<AuthenticationResponse, WebAuthnError> {
        let hash = hash::sha256(self.client_data.as_slice());
        let signed = [self.authenticator_data.as_slice(), &hash];
        let signs = |credential: &&Credential| {
            credential.key().is_ok_and(|key| key.verifies(&signed, self.signature.as_slice()))
        };
        let credential = credentials.iter().find(signs).ok_or(WebAuthnError::UnknownCredential)?;
        Ok(AuthenticationResponse {
            id: credential.id.clone(),
            client_data: self.client_data,
            authenticator_data: self.authenticator_data,
            signature: self.signature,
            user: Some(self.user),
            asked_by: AskedBy::Program { authorities },
        })
    }
}
