//! A WebAuthn Level 3 relying party, for passkeys and security keys at the login page.
//!
//! Pure: bytes, options and the time go in, a verdict comes out. A [`RelyingParty`] begins a ceremony with options for the
//! browser and a [`Pending`] for the server, and finishes it with what the browser sent:
//!
//! ```
//! use sallyport_webauthn::{AuthenticationChoice, Purpose, RelyingParty, Who};
//! use time::OffsetDateTime;
//!
//! let relying_party = RelyingParty::new("Example", "example.org", ["https://login.example.org"])?;
//! let now = OffsetDateTime::now_utc();
//! let (options, pending) = relying_party.begin_authentication(
//!     Purpose::Login,
//!     Who::Anyone,
//!     &AuthenticationChoice::default(),
//!     now,
//! )?;
//! // To the browser, for PublicKeyCredential.parseRequestOptionsFromJSON():
//! let json = serde_json::to_string(&options)?;
//! // Into a store that gives it out once:
//! let kept = serde_json::to_string(&pending)?;
//! # assert!(json.contains("example.org") && kept.contains("login"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The procedures are those of WebAuthn Level 3 §7.1 (`registration`) and §7.2 (`authentication`), with the number of each
//! step beside the code, in [`WebAuthnError::steps`] and in the table of the tests. Signatures are verified by the abstraction
//! layer; CBOR is read in the one form that CTAP2 allows.
//!
//! Attestation statements are checked for `none`, `packed` and `fido-u2f`. Those of `tpm`, `android-key` and `apple` are
//! not: [`AttestationPolicy::None`] keeps them as unchecked, and [`AttestationPolicy::AllowList`] refuses them. Certificates
//! are not asked for revocation; the metadata's reports about models are heeded.
//!
//! Why not webauthn-rs-core: as of 0.5.4 its Cargo metadata has openssl and openssl-sys as dependencies that no feature takes
//! away, and nothing of Sallyport's links OpenSSL.

mod attestation;
mod authentication;
mod authenticator_data;
mod binary;
mod cbor;
mod client_data;
mod cose;
mod credential;
mod error;
mod options;
mod origin;
mod pending;
mod purpose;
mod registration;
mod relying_party;
mod response;

pub use attestation::{Attestation, AttestationError, Format, Metadata, Proof};
pub use authentication::{Authentication, AuthenticationChoice, Who};
pub use authenticator_data::{AuthenticatorDataError, MAX_CREDENTIAL_ID_BYTES};
pub use binary::Binary;
pub use cbor::{CborError, MAX_CBOR_BYTES};
pub use client_data::MAX_CLIENT_DATA_BYTES;
pub use cose::{Algorithm, CoseError, UnknownAlgorithm};
pub use credential::{Credential, UserHandle};
pub use error::{Steps, WebAuthnError};
pub use options::{
    Account, Attachment, CreationOptions, Hint, RegistrationChoice, RequestOptions, ResidentKey,
};
pub use origin::Origin;
pub use pending::{CHALLENGE_BYTES, Pending, TIMEOUT};
pub use purpose::Purpose;
pub use registration::Registration;
pub use relying_party::{
    AttestationPolicy, BackupPolicy, CounterPolicy, CrossOrigin, RelyingParty, UserVerification,
};
pub use response::{Assertion, AuthenticationResponse, MAX_RESPONSE_BYTES, RegistrationResponse};
