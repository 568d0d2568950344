//! A passkey in software, with the browser in front of it: JSON in, JSON out, as `navigator.credentials` has them. What it says can be
//! changed, for tests of what is refused.

use data_encoding::BASE64URL_NOPAD;
use sallyport_sal::{KeyAlgorithm, MemoryKey, SignatureScheme, Signer, hash, random};
use serde_json::{Value, json};

const USER_PRESENT: u8 = 0x01;
const USER_VERIFIED: u8 = 0x04;
const BACKUP_ELIGIBLE: u8 = 0x08;
const BACKED_UP: u8 = 0x10;
const ATTESTED: u8 = 0x40;
/// COSE's number of ECDSA with P-256 (RFC 9053 §2.1).
const ES256: i64 = -7;

/// An authenticator with one passkey.
#[derive(Debug)]
pub struct Authenticator {
    key: MemoryKey,
    id: Vec<u8>,
    /// The user's handle, once the passkey is made.
    user: Option<Vec<u8>>,
    /// Grows with each use.
    pub counter: u32,
    /// The page that the browser is at.
    pub origin: String,
    /// Whether it verifies its user.
    pub verifies: bool,
    /// Whether it copies its passkeys to other devices of its user, and says so.
    pub copies: bool,
}

fn head(major: u8, number: usize) -> Vec<u8> {
    let major = major << 5;
    let bytes = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    match number {
        0..=23 => vec![major | bytes[3]],
        24..=255 => vec![major | 24, bytes[3]],
        256..=65_535 => vec![major | 25, bytes[2], bytes[3]],
        _ => [&[major | 26][..], &bytes].concat(),
    }
}

fn int(number: i64) -> Vec<u8> {
    let plain = usize::try_from(if number < 0 { -1 - number } else { number }).unwrap_or_default();
    head(u8::from(number < 0), plain)
}

fn bytes(bytes: &[u8]) -> Vec<u8> {
    [head(2, bytes.len()), bytes.to_vec()].concat()
}

fn text(text: &str) -> Vec<u8> {
    [head(3, text.len()), text.as_bytes().to_vec()].concat()
}

fn map(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = head(5, entries.len());
    for (key, value) in entries {
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    out
}

/// A text of the options; without it the relying party refuses what comes of them.
fn member<'v>(options: &'v Value, pointer: &str) -> &'v str {
    options.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Authenticator {
    /// A fresh one, in a browser at this page.
    ///
    /// # Panics
    /// There is no randomness.
    #[must_use]
    #[allow(clippy::expect_used, reason = "a testbed")]
    pub fn at(origin: &str) -> Self {
        Self {
            key: MemoryKey::generate(KeyAlgorithm::EcdsaP256).expect("randomness"),
            id: random::bytes::<32>().expect("randomness").to_vec(),
            user: None,
            counter: 0,
            origin: origin.to_owned(),
            verifies: true,
            copies: false,
        }
    }

    fn client_data(&self, ceremony: &str, options: &Value) -> Vec<u8> {
        let said = json!({
            "type": ceremony, "challenge": member(options, "/challenge"), "origin": self.origin, "crossOrigin": false,
        });
        said.to_string().into_bytes()
    }

    fn data(&self, rp_id: &str, attested: &[u8]) -> Vec<u8> {
        let mut flags = USER_PRESENT;
        flags |= if self.verifies { USER_VERIFIED } else { 0 };
        flags |= if self.copies { BACKUP_ELIGIBLE | BACKED_UP } else { 0 };
        flags |= if attested.is_empty() { 0 } else { ATTESTED };
        let mut out = hash::sha256(rp_id.as_bytes()).to_vec();
        out.push(flags);
        out.extend(self.counter.to_be_bytes());
        out.extend_from_slice(attested);
        out
    }

    fn cose(&self) -> Vec<u8> {
        let public = self.key.public_key();
        let point = public.raw().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        map(&[
            (int(1), int(2)),
            (int(3), int(ES256)),
            (int(-1), int(1)),
            (int(-2), bytes(x)),
            (int(-3), bytes(y)),
        ])
    }

    /// Makes the passkey for `PublicKeyCredentialCreationOptionsJSON`; gives `RegistrationResponseJSON`.
    ///
    /// # Panics
    /// The options are none.
    #[allow(clippy::expect_used, reason = "a testbed")]
    pub fn create(&mut self, options: &str) -> String {
        let options: Value = serde_json::from_str(options).expect("options");
        self.user = BASE64URL_NOPAD.decode(member(&options, "/user/id").as_bytes()).ok();
        let mut attested = vec![0; 16];
        attested.extend(u16::try_from(self.id.len()).unwrap_or_default().to_be_bytes());
        attested.extend_from_slice(&self.id);
        attested.extend(self.cose());
        let data = self.data(member(&options, "/rp/id"), &attested);
        let object = map(&[
            (text("fmt"), text("none")),
            (text("attStmt"), map(&[])),
            (text("authData"), bytes(&data)),
        ]);
        let id = BASE64URL_NOPAD.encode(&self.id);
        let response = json!({
            "id": id, "rawId": id, "type": "public-key", "authenticatorAttachment": "platform",
            "clientExtensionResults": { "credProps": { "rk": true } },
            "response": {
                "clientDataJSON": BASE64URL_NOPAD.encode(&self.client_data("webauthn.create", &options)),
                "attestationObject": BASE64URL_NOPAD.encode(&object),
                "transports": ["internal"],
            },
        });
        response.to_string()
    }

    /// Uses the passkey as programs do that have no browser: authenticator data, and the signature over it and the client data's hash.
    ///
    /// # Panics
    /// It cannot sign.
    #[allow(clippy::expect_used, reason = "a testbed")]
    pub fn assertion(&mut self, rp_id: &str, client_data_hash: &[u8]) -> (Vec<u8>, Vec<u8>) {
        self.counter = self.counter.wrapping_add(1);
        let data = self.data(rp_id, &[]);
        let signed = [&data[..], client_data_hash].concat();
        let signature = self.key.sign_with(SignatureScheme::EcdsaP256Sha256, &signed).expect("a signature");
        (data, signature)
    }

    /// The handle of the user whose the passkey is.
    pub fn user(&self) -> &[u8] {
        self.user.as_deref().unwrap_or_default()
    }

    /// Uses the passkey for `PublicKeyCredentialRequestOptionsJSON`; gives `AuthenticationResponseJSON`.
    ///
    /// # Panics
    /// The options are none.
    #[allow(clippy::expect_used, reason = "a testbed")]
    pub fn get(&mut self, options: &str) -> String {
        let options: Value = serde_json::from_str(options).expect("options");
        let client = self.client_data("webauthn.get", &options);
        let (data, signature) = self.assertion(member(&options, "/rpId"), &hash::sha256(&client));
        let id = BASE64URL_NOPAD.encode(&self.id);
        let response = json!({
            "id": id, "rawId": id, "type": "public-key", "clientExtensionResults": {},
            "response": {
                "clientDataJSON": BASE64URL_NOPAD.encode(&client),
                "authenticatorData": BASE64URL_NOPAD.encode(&data),
                "signature": BASE64URL_NOPAD.encode(&signature),
                "userHandle": Some(self.user()).filter(|user| !user.is_empty()).map(|user| BASE64URL_NOPAD.encode(user)),
            },
        });
        response.to_string()
    }
}
