//! Bytes as WebAuthn's JSON has them: base64url without padding (WebAuthn L3 §5.1.10, `Base64URLString`).

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes that are base64url without padding in JSON. Only the canonical encoding is read.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Binary(pub Vec<u8>);

impl Binary {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The text that stands for them in JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        BASE64URL_NOPAD.encode(&self.0)
    }
}

impl fmt::Debug for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl Serialize for Binary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Binary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64url without padding")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Binary, E> {
                BASE64URL_NOPAD
                    .decode(text.as_bytes())
                    .map(Binary)
                    .map_err(|_| E::invalid_value(de::Unexpected::Other("other text"), &self))
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}
