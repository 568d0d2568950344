//! The identity inside a certificate, as JSON.

use std::net::IpAddr;

use sallyport_access::{Device, HostId, Identity, Principal, SessionProof};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{CaError, CaKind};

/// Content octets of the OID of the X.509 identity extension, [`IDENTITY_OID_TEXT`] (X.690 §8.19).
pub const IDENTITY_OID: &[u8] = &[
    0x2a, 0x86, 0x48, 0x86, 0xf7, 0x14, 0x01, 0xbe, 0x40, 0x93, 0x7a, 0x83, 0xcf, 0x7f, 0x81, 0xa1, 0x62,
    0x82, 0xf0, 0x47, 0x81, 0x9e, 0x09, 0x82, 0xac, 0x32, 0x86, 0xef, 0xd3, 0x72, 0x84, 0xbe, 0xe0, 0x46,
];

/// The OID of the X.509 identity extension: the UUID `e7ff50e2-b847-4f09-9632-dbe9f28fb046` under Microsoft's arc for
/// extensions that are not registered, which cuts it into arcs of 16 and 24 bits. The arc of UUIDs itself (2.25) has one
/// number of 128 bits instead, and Go refuses to read a certificate in which any arc has more than 31.
pub const IDENTITY_OID_TEXT: &str =
    "1.2.840.113556.1.8000.2554.59391.20706.47175.20233.38450.14412274.9416774";

/// The OID under the arc of UUIDs, which certificates had once. They are read until they end.
const EARLIER_OID: &[u8] = &[
    0x69, 0x83, 0xcf, 0xff, 0xa8, 0xb8, 0xd7, 0x84, 0xba, 0xbc, 0x93, 0x96, 0x99, 0xb6, 0xfd, 0x9f, 0x94,
    0xbe, 0xe0, 0x46,
];

/// Whether these are the content octets of an OID of the identity extension.
pub(crate) fn is_identity(oid: &[u8]) -> bool {
    oid == IDENTITY_OID || oid == EARLIER_OID
}

/// The version of the JSON. A reader refuses versions it does not know: an identity half understood is a wrong one.
const VERSION: u32 = 1;
/// The version of certificates that are good for one agent only, which readers of the first version must not take for
/// the user's own.
const VERSION_VIA: u32 = 2;

/// The content of the X.509 identity extension.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    v: u32,
    cluster: String,
    login_id: Uuid,
    #[serde(flatten)]
    principal: Principal,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    renewable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    via: Option<Via>,
    /// Readers that do not know it take the certificate for the login's own, which its holder has anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionProof>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<Device>,
    /// The one address that it counts from. Hosts of earlier releases pass it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pinned_to: Option<IpAddr>,
}

/// Who speaks for a user, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Via {
    /// The proxy that holds the key.
    pub(crate) proxy: HostId,
    /// The only one who may believe it.
    pub(crate) agent: HostId,
}

/// What a certificate says besides who holds it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mark {
    /// Its holder may ask for the next one.
    pub(crate) renewable: bool,
    pub(crate) via: Option<Via>,
    /// What was proven for sessions.
    pub(crate) session: Option<SessionProof>,
    /// The trusted device that the login came from.
    pub(crate) device: Option<Device>,
    /// The one address that it counts from.
    pub(crate) pinned_to: Option<IpAddr>,
}

/// What both kinds of certificate say.
#[derive(Debug)]
pub(crate) struct Claims {
    pub(crate) cluster: String,
    pub(crate) login_id: Uuid,
    pub(crate) principal: Principal,
    pub(crate) mark: Mark,
}

impl Claims {
    pub(crate) fn kind(&self) -> CaKind {
        kind_of(&self.principal)
    }

    /// The identity, once the signature, the issuer and the time were checked.
    pub(crate) fn into_identity(self, valid_after: OffsetDateTime, valid_before: OffsetDateTime) -> Identity {
        let Self { principal, login_id, mark, .. } = self;
        let (device, pinned_to) = (mark.device, mark.pinned_to);
        Identity { principal, login_id, device, pinned_to, valid_after, valid_before }
    }
}

pub(crate) fn kind_of(principal: &Principal) -> CaKind {
    match principal {
        Principal::User { .. } => CaKind::User,
        Principal::Host { .. } => CaKind::Host,
    }
}

pub(crate) fn to_json(
    cluster: &str,
    login_id: Uuid,
    principal: &Principal,
    mark: Mark,
) -> Result<Vec<u8>, CaError> {
    let content = Content {
        v: if mark.via.is_some() { VERSION_VIA } else { VERSION },
        cluster: cluster.to_owned(),
        login_id,
        principal: principal.clone(),
        renewable: mark.renewable,
        via: mark.via,
        session: mark.session,
        device: mark.device,
        pinned_to: mark.pinned_to,
    };
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
    if ![VERSION, VERSION_VIA].contains(&v) {
        return Err(CaError::Malformed {
            reason: format!(
                "its identity extension has version {v}, this build understands {VERSION} and {VERSION_VIA}"
            ),
        });
    }
    let Content { cluster, login_id, principal, renewable, via, session, device, pinned_to, .. } =
        serde_json::from_slice(json).map_err(malformed)?;
    let is_host = matches!(principal, Principal::Host { .. });
    if (v == VERSION_VIA) != via.is_some()
        || (is_host
            && (via.is_some() || renewable || session.is_some() || device.is_some() || pinned_to.is_some()))
        // In another form it would be compared with what it is not.
        || pinned_to.is_some_and(|address| address != address.to_canonical())
    {
        return Err(CaError::Malformed { reason: "its identity extension contradicts itself".to_owned() });
    }
    Ok(Claims { cluster, login_id, principal, mark: Mark { renewable, via, session, device, pinned_to } })
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
            let written =
                to_json(&claims.cluster, claims.login_id, &claims.principal, Mark::default()).unwrap();
            let keys = |json: &[u8]| -> Vec<String> {
                let value: serde_json::Value = serde_json::from_slice(json).unwrap();
                value.as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(keys(&written), keys(example.as_bytes()));
            let grown = example.replacen('{', "{\"later\": 1,", 1);
            assert!(from_json(grown.as_bytes()).is_ok());
            let next = example.replace("\"v\": 1", "\"v\": 3");
            let error = from_json(next.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("version 3, this build understands 1 and 2"), "{error}");
        }
    }

    #[test]
    fn what_is_good_for_one_agent_has_a_version_of_its_own() {
        let json = |v: u32, kind: &str, more: &str| {
            let who = match kind {
                "user" => r#""name": "alice", "roles": [], "logins": [], "traits": {}"#.to_owned(),
                _ => format!(r#""id": "{}", "name": "web-1", "role": "proxy""#, HostId::new()),
            };
            let login = Uuid::nil();
            format!(r#"{{"v": {v}, "cluster": "c", "login_id": "{login}", "kind": "{kind}", {who}{more}}}"#)
        };
        let via = format!(r#", "via": {{"proxy": "{}", "agent": "{}"}}"#, HostId::new(), HostId::new());
        let renewable = r#", "renewable": true"#;
        assert!(from_json(json(2, "user", &via).as_bytes()).unwrap().mark.via.is_some());
        assert!(from_json(json(1, "user", renewable).as_bytes()).unwrap().mark.renewable);
        for (v, kind, more) in [
            (1, "user", via.as_str()),
            (2, "user", ""),
            (2, "user", renewable),
            (2, "host", &via),
            (1, "host", renewable),
        ] {
            let error = from_json(json(v, kind, more).as_bytes()).unwrap_err().to_string();
            assert!(error.contains("contradicts itself"), "{v} {kind} {more}: {error}");
        }
    }

    #[test]
    fn the_oid_is_made_of_its_uuid() {
        let uuid = Uuid::parse_str("e7ff50e2-b847-4f09-9632-dbe9f28fb046").unwrap().simple().to_string();
        let parts = [0..4, 4..8, 8..12, 12..16, 16..20, 20..26, 26..32];
        let arcs = parts.map(|part| u32::from_str_radix(uuid.get(part).unwrap(), 16).unwrap().to_string());
        assert_eq!(IDENTITY_OID_TEXT, format!("1.2.840.113556.1.8000.2554.{}", arcs.join(".")));
        // Each arc is a number in base 128 (X.690 §8.19), the first octet stands for two of them.
        let read = |octets: &[u8]| {
            let mut arcs = vec![0_u128];
            for octet in octets {
                *arcs.last_mut().unwrap() = (*arcs.last().unwrap() << 7) | u128::from(octet & 0x7f);
                if octet & 0x80 == 0 {
                    arcs.push(0);
                }
            }
            arcs.pop();
            arcs.iter().map(ToString::to_string).collect::<Vec<_>>().join(".")
        };
        assert_eq!(read(IDENTITY_OID).replacen("42.", "1.2.", 1), IDENTITY_OID_TEXT);
        assert_eq!(read(EARLIER_OID), format!("105.{}", u128::from_str_radix(&uuid, 16).unwrap()));
        assert!(is_identity(IDENTITY_OID) && is_identity(EARLIER_OID) && !is_identity(&[0x2a]));
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
