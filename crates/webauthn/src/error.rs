//! Why a ceremony failed.
//!
//! One variant for each step that can fail, with the step's number, a sentence for the person who has to act, and a word
//! for events that does not change.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::attestation::error::AttestationError;
use crate::attestation::format::Format;
use crate::authenticator_data::AuthenticatorDataError;
use crate::cbor::CborError;
use crate::cose::Algorithm;
use crate::purpose::Purpose;

/// Numbers of the step that a failure belongs to: in WebAuthn L3 §7.1 (registration) and in §7.2 (authentication).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The step of §7.1; none where that procedure has no such step.
    pub registration: Option<u8>,
    /// The step of §7.2; none where that procedure has no such step.
    pub authentication: Option<u8>,
}

/// Everything that this crate refuses or fails at, sorted by who has to act.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebAuthnError {
    // The operator.
    /// The RP ID is not a domain.
    #[error(
        "{rp_id:?} cannot be an RP ID ({reason}): give the domain of the login page, such as login.example.com"
    )]
    BadRpId {
        /// What was given.
        rp_id: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An origin that is malformed, not secure, or outside of the RP ID's domain.
    #[error(
        "{origin:?} cannot be an origin of RP ID {rp_id:?} ({reason}): give scheme and host of the login page, such as https://{rp_id}"
    )]
    BadOrigin {
        /// What was given.
        origin: String,
        /// The RP ID.
        rp_id: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No origin was given.
    #[error("no origin is configured for RP ID {rp_id:?}: give at least https://{rp_id}")]
    NoOrigin {
        /// The RP ID.
        rp_id: String,
    },
    /// The metadata file cannot be read.
    #[error(
        "the file of authenticator metadata: {reason}; it holds the payload of FIDO's metadata service as JSON"
    )]
    BadMetadata {
        /// What is wrong with it.
        reason: String,
    },

    // The caller.
    /// A user handle that is empty or longer than 64 bytes.
    #[error("a user handle has 1 to 64 bytes, this one has {got}")]
    BadUserHandle {
        /// Its length, in bytes.
        got: usize,
    },
    /// A ceremony that needs a known user was begun without one.
    #[error("{purpose} needs a user who is logged in")]
    UserNeeded {
        /// What it was begun for.
        purpose: Purpose,
    },
    /// A user without credentials cannot be asked for one.
    #[error("this account has no passkey: log in another way and register one")]
    NoCredentials,
    /// A stored credential that cannot be read.
    #[error(
        "the stored public key of credential {id}: {reason}; remove the credential and register the passkey again"
    )]
    BadRecord {
        /// The credential, in base64url.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No randomness for a challenge, or a source of cryptography failed.
    #[error("no challenge could be made")]
    Challenge(#[from] sallyport_sal::SalError),

    // The browser, the authenticator, or an attacker between.
    /// The pending ceremony is of the other kind.
    #[error("the answer to a {expected} came where a {got} was under way: reload the page and start again")]
    WrongCeremony {
        /// The kind that is under way.
        got: &'static str,
        /// The kind that the caller finishes.
        expected: &'static str,
    },
    /// The pending ceremony was begun for something else.
    #[error(
        "this ceremony was begun for {got} and cannot serve for {expected}: start again from the page that asked for it"
    )]
    WrongPurpose {
        /// What it was begun for.
        got: Purpose,
        /// What the caller finishes.
        expected: Purpose,
    },
    /// The pending ceremony belongs to another user.
    #[error("this ceremony was begun by another user: log in again and repeat it")]
    WrongUser,
    /// The ceremony was begun at another relying party's configuration.
    #[error("this ceremony was begun for RP ID {got:?}, and the RP ID is {expected:?} now: start again")]
    WrongRelyingParty {
        /// The RP ID that it was begun for.
        got: String,
        /// The RP ID now.
        expected: String,
    },
    /// It took too long.
    #[error("the ceremony ended at {expired} and it is now {now}: start again and answer sooner")]
    Expired {
        /// Its end.
        expired: OffsetDateTime,
        /// The clock.
        now: OffsetDateTime,
    },
    /// The response is longer than any browser's.
    #[error("the response has {got} bytes, at most {limit} are read")]
    TooLarge {
        /// Its length, in bytes.
        got: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The response is not the JSON of a `PublicKeyCredential`.
    #[error("the response is not a public key credential as JSON: {reason}")]
    BadResponse {
        /// What is wrong with it.
        reason: String,
    },
    /// `id` and `rawId` differ.
    #[error("id and rawId of the response differ")]
    IdMismatch,
    /// The credential is none of those asked for.
    #[error(
        "the passkey that answered is none of those that were asked for: choose one that is registered for this account"
    )]
    NotAllowed,
    /// No such credential is stored.
    #[error(
        "this passkey is not registered here: remove it from the device, or register it again after logging in another way"
    )]
    UnknownCredential,
    /// The credential belongs to another user.
    #[error("the passkey that answered belongs to another user")]
    OtherUsersCredential,
    /// The user was not known, and the authenticator did not say who it is.
    #[error(
        "the passkey does not say whose it is: type the user name first, or use a passkey that is stored on the device"
    )]
    NoUserHandle,
    /// The authenticator names another user.
    #[error("the passkey names another user than the one it is registered for")]
    UserHandleMismatch,
    /// The client data is not JSON in UTF-8.
    #[error("the client data is not readable: {reason}")]
    BadClientData {
        /// What is wrong with it.
        reason: String,
    },
    /// The client data is of the other ceremony.
    #[error("the client data is of type {got:?}, expected {expected:?}")]
    WrongType {
        /// What it says.
        got: String,
        /// What it should say.
        expected: &'static str,
    },
    /// The challenge is another one.
    #[error("the response answers another challenge: begin again")]
    ChallengeMismatch,
    /// The page was served by another origin.
    #[error(
        "the browser was on {got:?}, and passkeys are taken from {expected} only: check the address in the browser, or add the origin to the configuration"
    )]
    WrongOrigin {
        /// The origin of the page.
        got: String,
        /// Those that are configured.
        expected: String,
    },
    /// The page was framed by a page of another origin.
    #[error(
        "the login page was shown inside a page of another origin, which is not allowed: open it by itself"
    )]
    CrossOrigin,
    /// The page was framed by an origin that is not configured.
    #[error(
        "the login page was shown inside a page of {got:?}, which is not allowed: open it by itself, or add that origin to the configuration"
    )]
    WrongTopOrigin {
        /// The origin of the outermost page.
        got: String,
    },
    /// A program at a terminal has had it signed, where a browser at a page should have.
    #[error(
        "a program at a terminal has asked for this, and what a passkey signs there proves nothing at a page: use the passkey at the page"
    )]
    AskedByProgram,
    /// A browser at a page has had it signed, where a program should have.
    #[error(
        "the security key's answer does not say which certificate authority the program has reached: a browser has asked for it, or a \
         program of another release; update the program, and begin again"
    )]
    AskedByBrowser,
    /// The program that asked has reached another certificate authority than those of the cluster.
    #[error(
        "the security key's answer is for the certificate authority {got:?}, which is none of this cluster's: another server stands between \
         it and the program that asked; compare the pin that the program was given with the cluster's"
    )]
    OtherAuthority {
        /// Its pin, as the program says it.
        got: String,
    },
    /// The attestation object cannot be read.
    #[error("the attestation object is not readable: {reason}")]
    BadAttestationObject {
        /// What is wrong with it.
        reason: &'static str,
        /// Where CBOR ends, if it is not CBOR.
        #[source]
        source: Option<CborError>,
    },
    /// The authenticator data cannot be read.
    #[error("the authenticator data is not readable")]
    BadAuthenticatorData(#[source] AuthenticatorDataError),
    /// The authenticator data of a registration has no credential in it.
    #[error("the authenticator made no credential")]
    NoCredential,
    /// The credential was made, or used, for another RP ID.
    #[error("the passkey answered for another RP ID than {expected:?}")]
    RpIdMismatch {
        /// The RP ID.
        expected: String,
    },
    /// No user touched the authenticator.
    #[error("the authenticator says that no user was present: touch it when it asks")]
    UserNotPresent,
    /// The authenticator did not verify the user.
    #[error(
        "the authenticator did not verify the user: set a PIN or a fingerprint on it and use that, or use another authenticator"
    )]
    UserNotVerified,
    /// Backed up, but not eligible for backup: a combination that no authenticator may give.
    #[error(
        "the authenticator says that the passkey is backed up and that it cannot be: it is faulty or not genuine"
    )]
    BackupContradiction,
    /// The credential can be copied, and the policy is to take only those that cannot.
    #[error(
        "this passkey can be copied to other devices, and only device-bound ones are allowed: use a security key"
    )]
    BackupRefused,
    /// BE changed, which it never does.
    #[error("the passkey was {} when it was registered, and now says the opposite: it is faulty or not genuine", if *.registered { "eligible for backup" } else { "bound to its device" })]
    BackupEligibilityChanged {
        /// Whether it was eligible for backup when it was registered.
        registered: bool,
    },
    /// The key's algorithm was not offered.
    #[error("the passkey signs by {got}, which was not offered")]
    AlgorithmNotOffered {
        /// Its algorithm.
        got: Algorithm,
    },
    /// A format of attestation statements that is not registered, or that we have not.
    #[error("the attestation format {got:?} is not known here")]
    UnknownFormat {
        /// Its identifier, cut short.
        got: String,
    },
    /// The attestation statement is wrong.
    #[error("the attestation statement is not valid")]
    BadAttestation(#[source] AttestationError),
    /// The policy asks for attestation, and there is none that names a model.
    #[error(
        "the authenticator gave no attestation that names its model ({got}), and only listed models are allowed"
    )]
    NoAttestation {
        /// The format.
        got: Format,
    },
    /// The model is not on the list.
    #[error("authenticators of model {aaguid} are not allowed here: use one of the listed models")]
    ModelNotAllowed {
        /// The model.
        aaguid: Uuid,
    },
    /// The attestation certificate does not chain to a root of the model's.
    #[error(
        "the attestation of model {aaguid} does not lead to a root in the metadata: renew the metadata file, or the authenticator is not genuine"
    )]
    Untrusted {
        /// The model.
        aaguid: Uuid,
        /// Why.
        #[source]
        source: AttestationError,
    },
    /// The metadata reports the model as broken.
    #[error("authenticators of model {aaguid} are reported as {status}: replace the authenticator")]
    ModelCompromised {
        /// The model.
        aaguid: Uuid,
        /// The report, as the metadata has it.
        status: String,
    },
    /// The credential ID is empty or too long.
    #[error("the credential ID has {got} bytes, expected 1 to 1023")]
    BadCredentialId {
        /// Its length, in bytes.
        got: usize,
    },
    /// The credential is registered already.
    #[error("this passkey is registered already: use another one, or remove it first")]
    AlreadyRegistered,
    /// A requested extension's output has another form than the specification's.
    #[error("the output of the extension {extension} is malformed")]
    BadExtension {
        /// The extension.
        extension: &'static str,
    },
    /// The signature is wrong.
    #[error("the passkey's signature is not valid")]
    BadSignature,
    /// The counter went backwards.
    #[error(
        "the passkey's counter is {got} and was {stored} before: a copy of it may be in use; remove this passkey and register a new one"
    )]
    CounterBackwards {
        /// What it says now.
        got: u32,
        /// What it said last.
        stored: u32,
    },
}

impl WebAuthnError {
    /// The word for events and metrics. It never changes.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::BadRpId { .. } => "bad_rp_id",
            Self::BadOrigin { .. } => "bad_origin",
            Self::NoOrigin { .. } => "no_origin",
            Self::BadMetadata { .. } => "bad_metadata",
            Self::BadUserHandle { .. } => "bad_user_handle",
            Self::UserNeeded { .. } => "user_needed",
            Self::NoCredentials => "no_credentials",
            Self::BadRecord { .. } => "bad_record",
            Self::Challenge(_) => "no_challenge",
            Self::WrongCeremony { .. } => "wrong_ceremony",
            Self::WrongPurpose { .. } => "wrong_purpose",
            Self::WrongUser => "wrong_user",
            Self::WrongRelyingParty { .. } => "wrong_relying_party",
            Self::Expired { .. } => "expired",
            Self::TooLarge { .. } => "too_large",
            Self::BadResponse { .. } => "bad_response",
            Self::IdMismatch => "id_mismatch",
            Self::NotAllowed => "not_allowed",
            Self::UnknownCredential => "unknown_credential",
            Self::OtherUsersCredential => "other_users_credential",
            Self::NoUserHandle => "no_user_handle",
            Self::UserHandleMismatch => "user_handle_mismatch",
            Self::BadClientData { .. } => "bad_client_data",
            Self::WrongType { .. } => "wrong_type",
            Self::ChallengeMismatch => "challenge_mismatch",
            Self::WrongOrigin { .. } => "wrong_origin",
            Self::CrossOrigin => "cross_origin",
            Self::WrongTopOrigin { .. } => "wrong_top_origin",
            Self::AskedByProgram => "asked_by_program",
            Self::AskedByBrowser => "asked_by_browser",
            Self::OtherAuthority { .. } => "other_authority",
            Self::BadAttestationObject { .. } => "bad_attestation_object",
            Self::BadAuthenticatorData(_) => "bad_authenticator_data",
            Self::NoCredential => "no_credential",
            Self::RpIdMismatch { .. } => "rp_id_mismatch",
            Self::UserNotPresent => "user_not_present",
            Self::UserNotVerified => "user_not_verified",
            Self::BackupContradiction => "backup_contradiction",
            Self::BackupRefused => "backup_refused",
            Self::BackupEligibilityChanged { .. } => "backup_eligibility_changed",
            Self::AlgorithmNotOffered { .. } => "algorithm_not_offered",
            Self::UnknownFormat { .. } => "unknown_format",
            Self::BadAttestation(_) => "bad_attestation",
            Self::NoAttestation { .. } => "no_attestation",
            Self::ModelNotAllowed { .. } => "model_not_allowed",
            Self::Untrusted { .. } => "untrusted_attestation",
            Self::ModelCompromised { .. } => "model_compromised",
            Self::BadCredentialId { .. } => "bad_credential_id",
            Self::AlreadyRegistered => "already_registered",
            Self::BadExtension { .. } => "bad_extension",
            Self::BadSignature => "bad_signature",
            Self::CounterBackwards { .. } => "counter_backwards",
        }
    }

    /// The steps of the two procedures that it belongs to. What is wrong before or beside them has none.
    #[must_use]
    pub const fn steps(&self) -> Steps {
        let (registration, authentication) = match self {
            Self::WrongCeremony { .. }
            | Self::WrongPurpose { .. }
            | Self::WrongUser
            | Self::WrongRelyingParty { .. }
            | Self::Expired { .. } => (1, 1),
            Self::TooLarge { .. } | Self::BadResponse { .. } | Self::IdMismatch => (3, 3),
            Self::BadExtension { .. } => (28, 23),
            Self::NotAllowed => (0, 5),
            Self::UnknownCredential
            | Self::OtherUsersCredential
            | Self::NoUserHandle
            | Self::UserHandleMismatch => (0, 6),
            Self::BadClientData { .. } => (6, 9),
            Self::WrongType { .. } => (7, 10),
            Self::ChallengeMismatch => (8, 11),
            Self::WrongOrigin { .. } => (9, 12),
            Self::CrossOrigin => (10, 13),
            Self::WrongTopOrigin { .. } => (11, 14),
            Self::BadAttestationObject { .. } | Self::NoCredential => (13, 0),
            Self::BadAuthenticatorData(_) => (13, 7),
            Self::RpIdMismatch { .. } => (14, 15),
            Self::UserNotPresent => (15, 16),
            Self::UserNotVerified => (16, 17),
            Self::BackupContradiction => (17, 18),
            Self::BackupRefused => (18, 19),
            Self::BackupEligibilityChanged { .. } => (0, 19),
            Self::AlgorithmNotOffered { .. } => (20, 0),
            Self::UnknownFormat { .. } => (21, 0),
            Self::BadAttestation(_) => (22, 0),
            Self::ModelCompromised { .. } => (23, 0),
            Self::NoAttestation { .. } | Self::ModelNotAllowed { .. } | Self::Untrusted { .. } => (24, 0),
            Self::BadCredentialId { .. } => (25, 0),
            Self::AlreadyRegistered => (26, 0),
            Self::BadSignature => (0, 21),
            Self::CounterBackwards { .. } => (0, 22),
            Self::BadRpId { .. }
            | Self::BadOrigin { .. }
            | Self::NoOrigin { .. }
            | Self::BadMetadata { .. }
            | Self::BadUserHandle { .. }
            | Self::UserNeeded { .. }
            | Self::NoCredentials
            | Self::BadRecord { .. }
            | Self::Challenge(_)
            | Self::AskedByProgram
            | Self::AskedByBrowser
            | Self::OtherAuthority { .. } => (0, 0),
        };
        const fn step(number: u8) -> Option<u8> {
            if number == 0 { None } else { Some(number) }
        }
        Steps { registration: step(registration), authentication: step(authentication) }
    }
}
