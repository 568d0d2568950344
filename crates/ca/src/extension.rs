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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const GUIDE: &str = include_str!("../../../docs/certificates.md");

    #[test]
    fn the_examples_in_the_guide_are_read() {
        let examples: Vec<&str> =
            GUIDE.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        let [user, host] = examples.as_slice() else { panic!("{} examples", examples.len()) };
        assert_eq!(from_json(user.as_bytes()).unwrap().kind(), CaKind::User);
        assert_eq!(from_json(host.as_bytes()).unwrap().kind(), CaKind::Host);
        assert!(GUIDE.contains(IDENTITY_OID_TEXT));
        for example in examples {
            // What is written has the same keys.
            let claims = from_json(example.as_bytes()).unwrap();
            let written = to_json(&claims.cluster, claims.login_id, &claims.principal).unwrap();
            let keys = |json: &[u8]| -> Vec<String> {
                let value: serde_json::Value = serde_json::from_slice(json).unwrap();
                value.as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(keys(&written), keys(example.as_bytes()));
            let grown = example.replacen('{', "{\"later\": 1,", 1);
            assert!(from_json(grown.as_bytes()).is_ok());
            let next = example.replace("\"v\": 1", "\"v\": 2");
            let error = from_json(next.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("version 2, this build understands 1"), "{error}");
        }
    }

    #[test]
    fn the_oid_is_the_arc_of_its_uuid() {
        let uuid = Uuid::parse_str("e7ff50e2-b847-4f09-9632-dbe9f28fb046").unwrap();
        assert_eq!(IDENTITY_OID_TEXT, format!("2.25.{}", uuid.as_u128()));
        // First octet: 40 * 2 + 25; the rest is the number in base 128 (X.690 §8.19).
        let (first, rest) = IDENTITY_OID.split_first().unwrap();
        assert_eq!(*first, 105);
        assert_eq!(
            rest.iter().fold(0, |number: u128, octet| (number << 7) | u128::from(octet & 0x7f)),
            uuid.as_u128()
        );
    }

    #[test]
    fn names_inside_are_checked() {
        for (good, bad) in [("alice", "alice smith"), ("dev", "../dev"), ("root", "root;rm")] {
            let json = |text: &str| {
                serde_json::json!({"v": 1, "cluster": "prod", "login_id": Uuid::nil(), "kind": "user", "name": "alice",
                    "roles": ["dev"], "logins": ["root"], "traits": {}})
                .to_string()
                .replace(good, text)
            };
            assert!(from_json(json(good).as_bytes()).is_ok());
            assert!(from_json(json(bad).as_bytes()).is_err(), "{bad}");
        }
    }
}
