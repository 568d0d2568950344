//! Passkeys of this cluster: by which rules, and with which words they are refused.

use sallyport_access::ClusterName;
use sallyport_webauthn::{AttestationPolicy, Metadata, RelyingParty, WebAuthnError};
use tonic::Status;

use crate::ServerError;
use crate::authority::errors::doing;
use crate::config::{Models, WebauthnSection};

/// The cluster as a relying party.
///
/// # Errors
/// The file with the models' metadata cannot be read.
pub(crate) fn relying_party(
    cluster: &ClusterName,
    section: &WebauthnSection,
) -> Result<RelyingParty, ServerError> {
    let origins = section.origins.iter().map(String::as_str);
    let party = RelyingParty::new(&format!("Sallyport {cluster}"), &section.rp_id, origins)
        .map_err(doing("use auth.authentication.webauthn"))?
        .with_user_verification(section.user_verification)
        .with_counter(section.counter)
        .with_backup(section.backup);
    let Some(Models { models, metadata }) = &section.attestation else { return Ok(party) };
    let file = std::fs::read(metadata)
        .map_err(doing("read the file at auth.authentication.webauthn.attestation.metadata"))?;
    let metadata = Metadata::parse(&file)
        .map_err(doing("read the file at auth.authentication.webauthn.attestation.metadata"))?;
    Ok(party.with_attestation(AttestationPolicy::AllowList { models: models.clone(), metadata }))
}

/// What people read where passkeys are off.
pub(crate) fn passkeys_off() -> Status {
    Status::failed_precondition(
        "passkeys are off in this cluster: an administrator turns them on with auth.authentication.webauthn.rp_id",
    )
}

/// What the person reads, at a browser or at a terminal with a security key. Of a passkey that is not registered they learn no more than of
/// a wrong signature (WebAuthn L3 §14.6.2).
pub(crate) fn refusal(error: &WebAuthnError) -> Status {
    match error {
        WebAuthnError::UnknownCredential
        | WebAuthnError::OtherUsersCredential
        | WebAuthnError::NotAllowed
        | WebAuthnError::UserHandleMismatch
        | WebAuthnError::NoUserHandle
        | WebAuthnError::BadSignature => Status::unauthenticated(
            "this passkey is not one that is registered here for this, or its answer is wrong; use another passkey or another way",
        ),
        WebAuthnError::TooLarge { .. } | WebAuthnError::BadResponse { .. } | WebAuthnError::IdMismatch => {
            Status::invalid_argument(format!("the passkey's answer cannot be read: {error}"))
        }
        WebAuthnError::Challenge(_) | WebAuthnError::BadRecord { .. } => {
            tracing::error!(%error, "a passkey cannot be checked");
            Status::internal("the passkey cannot be checked; the authority's log says why")
        }
        WebAuthnError::AlreadyRegistered => Status::already_exists(error.to_string()),
        other => Status::permission_denied(other.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_webauthn::{Assertion, MAX_RESPONSE_BYTES};

    use super::*;

    #[test]
    fn a_person_at_a_terminal_reads_of_no_browser_and_no_page() {
        let late = time::OffsetDateTime::UNIX_EPOCH;
        for error in [
            Assertion::new(&vec![b' '; MAX_RESPONSE_BYTES], &[7], &[7], b"alice").unwrap_err(),
            WebAuthnError::Expired { expired: late, now: late },
            WebAuthnError::ChallengeMismatch,
            WebAuthnError::UnknownCredential,
            WebAuthnError::UserNotVerified,
        ] {
            let told = refusal(&error);
            let told = told.message();
            assert!(!told.contains("browser") && !told.contains("page"), "{told}");
        }
    }
}
