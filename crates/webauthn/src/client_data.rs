//! Client data: what the browser says of the ceremony, and the authenticator signs (WebAuthn L3 §5.8.1).

use data_encoding::BASE64URL_NOPAD;
use sallyport_sal::{constant_time_eq, hash};
use serde::Deserialize;

use crate::error::WebAuthnError;
use crate::origin::Origin;
use crate::relying_party::{CrossOrigin, RelyingParty};

/// Longest client data, in bytes. Browsers write a few hundred.
pub const MAX_CLIENT_DATA_BYTES: usize = 8 * 1024;

/// The two types of §5.8.1 that are ours.
pub(crate) const CREATE: &str = "webauthn.create";
pub(crate) const GET: &str = "webauthn.get";

/// Who has had an authenticator sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AskedBy {
    /// A browser, for the page that it shows.
    Browser,
    /// A program of the cluster, which has reached one of these certificate authorities. They are named by their pins.
    Program { authorities: Vec<String> },
}

/// The members that are looked at. Others are ignored, as §5.8.1 asks for: `tokenBinding` of Level 2 is one of them.
#[derive(Debug, Deserialize)]
pub(crate) struct ClientData {
    r#type: String,
    challenge: String,
    origin: String,
    #[serde(default, rename = "crossOrigin")]
    cross_origin: Option<bool>,
    #[serde(default, rename = "topOrigin")]
    top_origin: Option<String>,
    /// The pin of the certificate authority that the asking program has reached. The program writes it behind the members of §5.8.1, which
    /// allows more of them; no browser writes it, and no page has one do so.
    #[serde(default, rename = "sallyportAuthority")]
    authority: Option<String>,
}

/// What step it is in either procedure stands at each check as §7.1/§7.2.
pub(crate) fn check(
    bytes: &[u8],
    expected_type: &'static str,
    challenge: &[u8],
    relying_party: &RelyingParty,
    asked_by: &AskedBy,
) -> Result<[u8; 32], WebAuthnError> {
    let bad = |reason: String| WebAuthnError::BadClientData { reason };
    if bytes.len() > MAX_CLIENT_DATA_BYTES {
        return Err(bad(format!("it has {} bytes, at most {MAX_CLIENT_DATA_BYTES} are read", bytes.len())));
    }
    // Steps 5/8: UTF-8, without a byte order mark. What is not UTF-8 is refused, where the standard would replace it.
    let text = std::str::from_utf8(bytes).map_err(|_| bad("it is not UTF-8".to_owned()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Steps 6/9.
    let data: ClientData = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    // Steps 7/10.
    if data.r#type != expected_type {
        return Err(WebAuthnError::WrongType { got: shortened(&data.r#type), expected: expected_type });
    }
    // Steps 8/11.
    if !constant_time_eq(data.challenge.as_bytes(), BASE64URL_NOPAD.encode(challenge).as_bytes()) {
        return Err(WebAuthnError::ChallengeMismatch);
    }
    // Steps 9/12: compared as text, since both sides write origins in one form.
    if !relying_party.origins().iter().any(|origin| origin.as_str() == data.origin) {
        let expected: Vec<&str> = relying_party.origins().iter().map(Origin::as_str).collect();
        return Err(WebAuthnError::WrongOrigin {
            got: shortened(&data.origin),
            expected: expected.join(", "),
        });
    }
    match relying_party.cross_origin() {
        // Steps 10/13 and 11/14: no page of ours is framed.
        CrossOrigin::Refused => {
            if data.cross_origin == Some(true) || data.top_origin.is_some() {
                return Err(WebAuthnError::CrossOrigin);
            }
        }
        CrossOrigin::Within(allowed) => {
            if let Some(top) = data.top_origin
                && !allowed.iter().chain(relying_party.origins()).any(|origin| origin.as_str() == top)
            {
                return Err(WebAuthnError::WrongTopOrigin { got: shortened(&top) });
            }
        }
    }
    check_asked_by(asked_by, data.authority)?;
    // Steps 12/20.
    Ok(hash::sha256(bytes))
}

/// A rule of ours beside the procedures. What a browser has had signed proves nothing that a program proves, so that a page steals no
/// login of a terminal. What a program has had signed proves nothing at a page, and nothing to an authority that the program has not
/// reached, so that a false authority gets no answer to what the cluster has asked.
fn check_asked_by(asked_by: &AskedBy, authority: Option<String>) -> Result<(), WebAuthnError> {
    match (asked_by, authority) {
        (AskedBy::Browser, None) => Ok(()),
        (AskedBy::Browser, Some(_)) => Err(WebAuthnError::AskedByProgram),
        (AskedBy::Program { .. }, None) => Err(WebAuthnError::AskedByBrowser),
        (AskedBy::Program { authorities }, Some(got)) if authorities.contains(&got) => Ok(()),
        (AskedBy::Program { .. }, Some(got)) => Err(WebAuthnError::OtherAuthority { got: shortened(&got) }),
    }
}

/// The start of what a stranger sent, for a message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(128).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let relying_party = RelyingParty::new("Test", "example.org", ["https://example.org"]).unwrap();
            for asked_by in [AskedBy::Browser, AskedBy::Program { authorities: vec![String::new()] }] {
                prop_assert!(check(&bytes, GET, &[7; 32], &relying_party, &asked_by).is_err());
            }
        }
    }
}
