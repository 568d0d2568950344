//! An authenticator in software, and the browser in front of it. Everything that a response says can be changed before it is
//! signed, and after.

use std::sync::LazyLock;

use data_encoding::BASE64URL_NOPAD;
use sallyport_sal::{KeyAlgorithm, MemoryKey, PublicKey, SignatureScheme, Signer, hash};
use sallyport_webauthn::*;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

pub const NOW: OffsetDateTime = datetime!(2026-11-26 12:00 UTC);
pub const RP_ID: &str = "example.org";
pub const ORIGIN: &str = "https://login.example.org";

pub const UP: u8 = 0x01;
pub const UV: u8 = 0x04;
pub const BE: u8 = 0x08;
pub const BS: u8 = 0x10;
const AT: u8 = 0x40;
const ED: u8 = 0x80;

/// CBOR, as authenticators write it.
pub mod cbor {
    fn head(major: u8, number: u64) -> Vec<u8> {
        let major = major << 5;
        let bytes = number.to_be_bytes();
        match number {
            0..=0x17 => vec![major | bytes[7]],
            0x18..=0xff => vec![major | 24, bytes[7]],
            0x100..=0xffff => [&[major | 25][..], &bytes[6..]].concat(),
            0x1_0000..=0xffff_ffff => [&[major | 26][..], &bytes[4..]].concat(),
            _ => [&[major | 27][..], &bytes].concat(),
        }
    }

    pub fn int(number: i64) -> Vec<u8> {
        if number < 0 { head(1, number.unsigned_abs() - 1) } else { head(0, number.unsigned_abs()) }
    }

    pub fn bytes(bytes: &[u8]) -> Vec<u8> {
        [head(2, bytes.len() as u64), bytes.to_vec()].concat()
    }

    pub fn text(text: &str) -> Vec<u8> {
        [head(3, text.len() as u64), text.as_bytes().to_vec()].concat()
    }

    pub fn array(items: &[Vec<u8>]) -> Vec<u8> {
        [head(4, items.len() as u64), items.concat()].concat()
    }

    /// In the order given.
    pub fn map(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut out = head(5, entries.len() as u64);
        for (key, value) in entries {
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        out
    }
}

pub fn cose(key: &PublicKey, algorithm: Algorithm) -> Vec<u8> {
    use cbor::{bytes, int, map};
    let raw = key.raw();
    match algorithm {
        Algorithm::EdDsa => {
            map(&[(int(1), int(1)), (int(3), int(-8)), (int(-1), int(6)), (int(-2), bytes(raw))])
        }
        Algorithm::Rs256 => {
            let (n, e) = key.rsa_numbers().unwrap();
            map(&[(int(1), int(3)), (int(3), int(-257)), (int(-1), bytes(n)), (int(-2), bytes(e))])
        }
        other => {
            let (x, y) = raw[1..].split_at(raw.len() / 2);
            map(&[
                (int(1), int(2)),
                (int(3), int(other.number())),
                (int(-1), int(if other == Algorithm::Es256 { 1 } else { 2 })),
                (int(-2), bytes(x)),
                (int(-3), bytes(y)),
            ])
        }
    }
}

pub fn scheme(algorithm: Algorithm) -> SignatureScheme {
    match algorithm {
        Algorithm::Es256 => SignatureScheme::EcdsaP256Sha256,
        Algorithm::EdDsa => SignatureScheme::Ed25519,
        Algorithm::Es384 => SignatureScheme::EcdsaP384Sha384,
        _ => SignatureScheme::RsaPkcs1Sha256,
    }
}

/// Keys of RSA take long to make, so there is one for all tests.
static RSA: LazyLock<Vec<u8>> =
    LazyLock::new(|| MemoryKey::generate(KeyAlgorithm::Rsa2048).unwrap().to_pkcs8().unwrap().to_vec());

pub struct Authenticator {
    pub algorithm: Algorithm,
    pub key: MemoryKey,
    pub id: Vec<u8>,
    pub aaguid: Uuid,
    pub counter: u32,
    pub user: UserHandle,
}

impl Authenticator {
    pub fn new(algorithm: Algorithm) -> Self {
        let key = match algorithm {
            Algorithm::Es256 => MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap(),
            Algorithm::EdDsa => MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap(),
            Algorithm::Es384 => MemoryKey::generate(KeyAlgorithm::EcdsaP384).unwrap(),
            _ => MemoryKey::from_pkcs8(&RSA).unwrap(),
        };
        Self {
            algorithm,
            key,
            id: sallyport_sal::random::bytes::<32>().unwrap().to_vec(),
            aaguid: Uuid::from_u128(0xfeed),
            counter: 0,
            user: UserHandle::random().unwrap(),
        }
    }

    pub fn account(&self) -> Account {
        Account { handle: self.user.clone(), name: "alice".to_owned(), display_name: "Alice".to_owned() }
    }

    pub fn sign(&self, parts: &[&[u8]]) -> Vec<u8> {
        self.key.sign_with(scheme(self.algorithm), &parts.concat()).unwrap()
    }

    /// What the authenticator and the browser would answer to these options.
    pub fn create(&self, options: &CreationOptions) -> Making<'_> {
        let options = serde_json::to_value(options).unwrap();
        Making {
            authenticator: self,
            client: Client::new("webauthn.create", &options),
            data: Data {
                rp_id: options["rp"]["id"].as_str().unwrap().to_owned(),
                flags: UP | UV,
                counter: self.counter,
                id: self.id.clone(),
                cose: cose(&self.key.public_key(), self.algorithm),
                aaguid: self.aaguid,
                attested: true,
                extensions: None,
                trailing: Vec::new(),
            },
            statement: Statement::None,
            response_id: self.id.clone(),
            extension_results: json!({ "credProps": { "rk": true } }),
        }
    }

    /// The same for a login. The counter grows by one.
    pub fn get(&mut self, options: &RequestOptions) -> Using<'_> {
        let options = serde_json::to_value(options).unwrap();
        self.counter += 1;
        Using {
            client: Client::new("webauthn.get", &options),
            data: Data {
                rp_id: options["rpId"].as_str().unwrap().to_owned(),
                flags: UP | UV,
                counter: self.counter,
                id: Vec::new(),
                cose: Vec::new(),
                aaguid: Uuid::nil(),
                attested: false,
                extensions: None,
                trailing: Vec::new(),
            },
            response_id: self.id.clone(),
            user: Some(self.user.as_bytes().to_vec()),
            damage: 0,
            authenticator: self,
        }
    }
}

/// What the browser says.
pub struct Client {
    pub json: Value,
    /// In place of the JSON, if it is given.
    pub raw: Option<Vec<u8>>,
}

impl Client {
    fn new(ceremony: &str, options: &Value) -> Self {
        let json = json!({
            "type": ceremony,
            "challenge": options["challenge"],
            "origin": ORIGIN,
            "crossOrigin": false,
        });
        Self { json, raw: None }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.raw.clone().unwrap_or_else(|| serde_json::to_vec(&self.json).unwrap())
    }
}

/// What the authenticator says.
pub struct Data {
    pub rp_id: String,
    pub flags: u8,
    pub counter: u32,
    pub id: Vec<u8>,
    pub cose: Vec<u8>,
    pub aaguid: Uuid,
    pub attested: bool,
    pub extensions: Option<Vec<u8>>,
    pub trailing: Vec<u8>,
}

impl Data {
    pub fn bytes(&self) -> Vec<u8> {
        let mut flags = self.flags;
        flags |= if self.attested { AT } else { 0 };
        flags |= if self.extensions.is_some() { ED } else { 0 };
        let mut out = hash::sha256(self.rp_id.as_bytes()).to_vec();
        out.push(flags);
        out.extend(self.counter.to_be_bytes());
        if self.attested {
            out.extend(self.aaguid.as_bytes());
            out.extend(u16::try_from(self.id.len()).unwrap().to_be_bytes());
            out.extend(&self.id);
            out.extend(&self.cose);
        }
        out.extend(self.extensions.iter().flatten());
        out.extend(&self.trailing);
        out
    }
}

/// Who signs the statement, and how it says so.
pub enum Statement<'a> {
    None,
    /// By the credential's key, naming this algorithm.
    PackedSelf(Algorithm),
    /// By another key, with its certificates.
    Packed(&'a MemoryKey, Vec<Vec<u8>>),
    U2f(&'a MemoryKey, Vec<Vec<u8>>),
    /// A format and its map.
    Raw(&'static str, Vec<u8>),
}

/// A passkey in the making.
pub struct Making<'a> {
    authenticator: &'a Authenticator,
    pub client: Client,
    pub data: Data,
    pub statement: Statement<'a>,
    pub response_id: Vec<u8>,
    pub extension_results: Value,
}

impl Making<'_> {
    pub fn object(&self) -> Vec<u8> {
        use cbor::{array, bytes, int, map, text};
        let data = self.data.bytes();
        let client_hash = hash::sha256(&self.client.bytes());
        let chain =
            |certificates: &[Vec<u8>]| array(&certificates.iter().map(|der| bytes(der)).collect::<Vec<_>>());
        let (format, statement) = match &self.statement {
            Statement::None => ("none", map(&[])),
            Statement::PackedSelf(algorithm) => {
                let signature = self.authenticator.sign(&[&data, &client_hash]);
                let alg = int(algorithm.number());
                ("packed", map(&[(text("alg"), alg), (text("sig"), bytes(&signature))]))
            }
            Statement::Packed(key, certificates) => {
                let signature = key.sign(&[&data[..], &client_hash].concat()).unwrap();
                let statement = map(&[
                    (text("alg"), int(-7)),
                    (text("sig"), bytes(&signature)),
                    (text("x5c"), chain(certificates)),
                ]);
                ("packed", statement)
            }
            Statement::U2f(key, certificates) => {
                let rp_id_hash = hash::sha256(self.data.rp_id.as_bytes());
                let public = self.authenticator.key.public_key();
                let signed = [&[0][..], &rp_id_hash, &client_hash, &self.data.id, public.raw()].concat();
                let signature = key.sign(&signed).unwrap();
                ("fido-u2f", map(&[(text("sig"), bytes(&signature)), (text("x5c"), chain(certificates))]))
            }
            Statement::Raw(format, statement) => (*format, statement.clone()),
        };
        map(&[(text("fmt"), text(format)), (text("attStmt"), statement), (text("authData"), bytes(&data))])
    }

    pub fn json(&self) -> Vec<u8> {
        self.json_with(&self.object())
    }

    /// With another attestation object.
    pub fn json_with(&self, object: &[u8]) -> Vec<u8> {
        let id = BASE64URL_NOPAD.encode(&self.response_id);
        let json = json!({
            "id": id,
            "rawId": id,
            "type": "public-key",
            "authenticatorAttachment": "cross-platform",
            "clientExtensionResults": self.extension_results,
            "response": {
                "clientDataJSON": BASE64URL_NOPAD.encode(&self.client.bytes()),
                "attestationObject": BASE64URL_NOPAD.encode(object),
                "transports": ["usb", "nfc", "usb", "NOT PLAIN"],
                "publicKeyAlgorithm": -7,
            },
        });
        serde_json::to_vec(&json).unwrap()
    }

    pub fn response(&self) -> RegistrationResponse {
        RegistrationResponse::parse(&self.json()).unwrap()
    }
}

/// A passkey in use.
pub struct Using<'a> {
    authenticator: &'a Authenticator,
    pub client: Client,
    pub data: Data,
    pub response_id: Vec<u8>,
    pub user: Option<Vec<u8>>,
    /// Flipped in the last byte of the signature.
    pub damage: u8,
}

impl Using<'_> {
    pub fn json(&self) -> Vec<u8> {
        let data = self.data.bytes();
        let mut signature = self.authenticator.sign(&[&data, &hash::sha256(&self.client.bytes())]);
        *signature.last_mut().unwrap() ^= self.damage;
        self.json_of(&data, &signature)
    }

    /// With other data and signature.
    pub fn json_of(&self, data: &[u8], signature: &[u8]) -> Vec<u8> {
        let id = BASE64URL_NOPAD.encode(&self.response_id);
        let json = json!({
            "id": id,
            "rawId": id,
            "type": "public-key",
            "authenticatorAttachment": null,
            "clientExtensionResults": {},
            "response": {
                "clientDataJSON": BASE64URL_NOPAD.encode(&self.client.bytes()),
                "authenticatorData": BASE64URL_NOPAD.encode(data),
                "signature": BASE64URL_NOPAD.encode(signature),
                "userHandle": self.user.as_ref().map(|user| BASE64URL_NOPAD.encode(user)),
            },
        });
        serde_json::to_vec(&json).unwrap()
    }

    pub fn response(&self) -> AuthenticationResponse {
        AuthenticationResponse::parse(&self.json()).unwrap()
    }
}

pub fn relying_party() -> RelyingParty {
    RelyingParty::new("Example", RP_ID, [ORIGIN, "https://example.org"]).unwrap()
}

/// Begins a registration, has the response changed, and finishes it.
pub fn register(
    party: &RelyingParty,
    authenticator: &Authenticator,
    change: impl FnOnce(&mut Making<'_>),
) -> Result<Registration, WebAuthnError> {
    let account = authenticator.account();
    let (options, pending) =
        party.begin_registration(&account, &[], &RegistrationChoice::default(), NOW).unwrap();
    let mut making = authenticator.create(&options);
    change(&mut making);
    let response = RegistrationResponse::parse(&making.json())?;
    party.finish_registration(pending, &account.handle, &response, None, "key", NOW)
}

/// A credential that was registered.
pub fn registered(authenticator: &Authenticator) -> Credential {
    register(&relying_party(), authenticator, |_| ()).unwrap().credential
}

/// Begins a login of the user, has the response changed, and finishes it.
pub fn login(
    party: &RelyingParty,
    authenticator: &mut Authenticator,
    record: &Credential,
    change: impl FnOnce(&mut Using<'_>),
) -> Result<Authentication, WebAuthnError> {
    let who = Who::User { handle: &record.user, credentials: std::slice::from_ref(record) };
    let (options, pending) =
        party.begin_authentication(Purpose::Login, who, &AuthenticationChoice::default(), NOW).unwrap();
    let mut using = authenticator.get(&options);
    change(&mut using);
    let response = AuthenticationResponse::parse(&using.json())?;
    party.finish_authentication(pending, Purpose::Login, None, &response, Some(record), NOW)
}

/// The same without a user name.
pub fn login_by_passkey(
    party: &RelyingParty,
    authenticator: &mut Authenticator,
    record: Option<&Credential>,
    change: impl FnOnce(&mut Using<'_>),
) -> Result<Authentication, WebAuthnError> {
    let (options, pending) = party
        .begin_authentication(Purpose::Login, Who::Anyone, &AuthenticationChoice::default(), NOW)
        .unwrap();
    let mut using = authenticator.get(&options);
    change(&mut using);
    let response = AuthenticationResponse::parse(&using.json())?;
    party.finish_authentication(pending, Purpose::Login, None, &response, record, NOW)
}
