//! What the fields of calls may hold: short, and of the right characters, before the authority is asked.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use sallyport_wire::convert::time_from_proto;
use sallyport_wire::v1;

/// The id of a challenge, or the token of an invitation: base64url and dots.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Word(String);

/// Longest id or token; they are 22 and 43 characters.
const WORD_BYTES: usize = 256;

impl TryFrom<String> for Word {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fine = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        if text.is_empty() || text.len() > WORD_BYTES || !text.bytes().all(fine) {
            return Err("the id or token is not one that this cluster gives out; open the whole link again");
        }
        Ok(Self(text))
    }
}

impl Word {
    /// Whether this is one.
    pub(super) fn is(text: &str) -> bool {
        Self::try_from(text.to_owned()).is_ok()
    }

    pub(super) fn into_inner(self) -> String {
        self.0
    }
}

/// What a person has typed, of at most `MOST` bytes. It may be a secret: nothing prints it, and it is wiped.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Typed<const MOST: usize>(Zeroizing<String>);

impl<const MOST: usize> TryFrom<String> for Typed<MOST> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let text = Zeroizing::new(text);
        if text.len() > MOST {
            return Err(format!("a field has {} bytes, and {MOST} at most are read", text.len()));
        }
        Ok(Self(text))
    }
}

impl<const MOST: usize> Default for Typed<MOST> {
    fn default() -> Self {
        Self(Zeroizing::default())
    }
}

impl<const MOST: usize> Typed<MOST> {
    pub(super) fn into_inner(mut self) -> String {
        std::mem::take(&mut *self.0)
    }
}

/// A browser's answer to a ceremony (WebAuthn Level 3 §5.1): an object, which the authority reads.
#[derive(Debug, Deserialize)]
pub(super) struct Response(serde_json::Map<String, Value>);

impl Response {
    pub(super) fn into_json(self) -> String {
        Value::Object(self.0).to_string()
    }
}

/// A call about a challenge, with the code that the terminal shows where the page asks for it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WithCode {
    id: Word,
    #[serde(default)]
    code: Typed<64>,
}

impl WithCode {
    pub(super) fn of(self, address: String) -> v1::WebBeginPasskeyRequest {
        v1::WebBeginPasskeyRequest { id: self.id.into_inner(), address, code: self.code.into_inner() }
    }
}

/// A call about a challenge, and no more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ById {
    pub(super) id: Word,
}

impl ById {
    pub(super) fn of(self, address: String) -> v1::WebRequest {
        v1::WebRequest { id: self.id.into_inner(), address }
    }
}

/// A challenge with the browser's answer to its ceremony.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proof {
    pub(super) id: Word,
    pub(super) response: Response,
}

/// The options of a ceremony.
#[derive(Debug, Serialize)]
pub(super) struct Begun {
    public_key: Value,
}

impl TryFrom<v1::WebPublicKey> for Begun {
    type Error = serde_json::Error;

    fn try_from(answer: v1::WebPublicKey) -> Result<Self, Self::Error> {
        Ok(Self { public_key: serde_json::from_str(&answer.options_json)? })
    }
}

/// The program that has asked.
#[derive(Debug, Serialize)]
pub(super) struct Client {
    host_name: String,
    address: String,
    time: String,
}

/// An identity provider that people are sent to.
#[derive(Debug, Serialize)]
pub(super) struct Connector {
    name: String,
    title: String,
}

pub(super) fn connectors(shown: Vec<v1::WebConnector>) -> Vec<Connector> {
    shown.into_iter().map(|v1::WebConnector { name, title }| Connector { name, title }).collect()
}

impl From<Option<v1::WebClient>> for Client {
    fn from(client: Option<v1::WebClient>) -> Self {
        let v1::WebClient { host_name, address, time } = client.unwrap_or_default();
        let time = time.as_ref().and_then(time_from_proto).and_then(|time| time.format(&Rfc3339).ok());
        Self { host_name, address, time: time.unwrap_or_default() }
    }
}

/// An answer without a word.
#[derive(Debug, Serialize)]
pub(super) struct Nothing {}

/// Seconds until then, none for what is over: the clock of the browser's machine may be wrong.
pub(super) fn expires_in(expires: Option<&prost_types::Timestamp>, now: OffsetDateTime) -> u64 {
    let left = expires.and_then(time_from_proto).map(|expires| (expires - now).whole_seconds());
    left.and_then(|left| u64::try_from(left).ok()).unwrap_or_default()
}
