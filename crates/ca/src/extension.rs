//! The identity inside a certificate, as JSON.

use sallyport_access::{Identity, Principal};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{CaError, CaKind};

/// Content octets of the OID of the X.509 identity extension, [`IDENTITY_OID_TEXT`] (X.690 §8.19).
pub const IDENTITY_OID: &[u8] = &[
    0x69, 0x83, 0xcf, 0xff, 0xa8, 0xb8, 0xd7, 0x84, 0xba, 0xbc, 0x93, 0x96, 0x99, 0xb6, 0xfd, 0x9f, 0x94,
    0xbe, 0xe0, 0x46,
];

/// The OID of the X.509 identity extension: the arc of UUID `e7ff50e2-b847-4f09-9632-dbe9f28fb046`, which needs no
/// registration (ITU-T X.667 §6.3).
pub const IDENTITY_OID_TEXT: &str = "2.25.308377343280606416827544848744236167238";

/// The version of the JSON. A reader refuses versions it does not know: an identity half understood is a wrong one.
const VERSION: u32 = 1;

/// The content of the X.509 identity extension.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    v: u32,
    cluster: String,
    login_id: Uuid,
    #[serde(flatten)]
    principal: Principal,
}

/// What both kinds of certificate say.
#[derive(Debug)]
pub(crate) struct Claims {
    pub(crate) cluster: String,
    pub(crate) login_id: Uuid,
    pub(crate) principal: Principal,
}

impl Claims {
    pub(crate) fn kind(&self) -> CaKind {
        kind_of(&self.principal)
    }

    /// The identity, once the signature, the issuer and the time were checked.
    pub(crate) fn into_identity(self, valid_after: OffsetDateTime, valid_before: OffsetDateTime) -> Identity {
        Identity { principal: self.principal, login_id: self.login_id, valid_after, valid_before }
    }
}

pub(crate) fn kind_of(principal: &Principal) -> CaKind {
    match principal {
        Principal::User { .. } => CaKind::User,
        Principal::Host { .. } => CaKind::Host,
    }
}

pub(crate) fn to_json(cluster: &str, login_id: Uuid, principal: &Principal) -> Result<Vec<u8>, CaError> {
    let content = Content { v: VERSION, cluster: cluster.to_owned(), login_id, principal: principal.clone() };
    serde_json::to_vec(&content)
        .map_err(|error| CaError::Encode { what: "the identity extension", reason: error.to_string() })
}

pub(crate) fn from_json(json: &[u8]) -> Result<Claims, CaError> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let malformed =
        |error: serde_json::Error| CaError::Malformed { reason: format!("identity extension: {error}") };
    let Versioned { v } = serde_json::from_slice(json).map_err(malformed)?;
    if v != VERSION {
        return Err(CaError::Malformed {
            reason: format!("its identity extension has version {v}, this build understands {VERSION}"),
        });
    }
    let Content { cluster, login_id, principal, .. } = serde_json::from_slice(json).map_err(malformed)?;
    Ok(Claims { cluster, login_id, principal })
}
