//! Keys as objects in a token.

use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use cryptoki::types::Ulong;

use super::encoding;
use super::error::{self, TokenError};
use super::link::{Connection, Fault};
use super::mechanism;
use super::module::Entered;
use crate::algorithm::KeyKind;
use crate::{KeyAlgorithm, PublicKey};

/// Length of the `CKA_ID` of our keys, in bytes. Random ids of this length never meet.
pub(super) const ID_BYTES: usize = 16;
/// The public exponent of RSA keys, 65537 (FIPS 186-5 §5.1).
const RSA_EXPONENT: &[u8] = &[0x01, 0x00, 0x01];

/// What names a key in its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyId(pub(super) [u8; ID_BYTES]);

impl KeyId {
    pub(super) fn hex(self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }
}

/// Makes a key pair that cannot leave the token, and gives its public half. Nothing stays behind when it fails.
pub(super) fn generate(
    connection: &Connection,
    entered: &Entered<'_>,
    id: KeyId,
    label: &str,
    algorithm: KeyAlgorithm,
) -> Result<PublicKey, Fault> {
    let lease = connection.writing_lease(entered)?;
    let session = lease.session()?;
    let (public, private) = generate_pair(connection, session, id, label, algorithm)?;
    let made = check_private(connection, session, private, label, algorithm)
        .and_then(|()| read_public(connection, session, public, label, algorithm));
    if made.is_err() {
        // A key of which there is no record would stay for ever. If this fails too there is nothing more to try.
        let _ = session.destroy_object(private);
        let _ = session.destroy_object(public);
    }
    made
}

fn generate_pair(
    connection: &Connection,
    session: &Session,
    id: KeyId,
    label: &str,
    algorithm: KeyAlgorithm,
) -> Result<(ObjectHandle, ObjectHandle), Fault> {
    let generator = mechanism::generator(algorithm).ok_or(TokenError::Unsupported { algorithm })?;
    let named =
        [Attribute::Token(true), Attribute::Id(id.0.to_vec()), Attribute::Label(label.as_bytes().to_vec())];
    let mut private = named.to_vec();
    private.extend([
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
    ]);
    // Where nothing is said, some tokens allow everything: an RSA key that signs must not decrypt or unwrap as well.
    match algorithm.kind() {
        KeyKind::Rsa => private.extend([Attribute::Decrypt(false), Attribute::Unwrap(false)]),
        _ => private.push(Attribute::Derive(false)),
    }
    let publics = |special: Vec<Attribute>| {
        let mut public = named.to_vec();
        public.push(Attribute::Verify(true));
        public.extend(special);
        public
    };
    let made = if let Some(bits) = algorithm.modulus_bits() {
        let bits = Ulong::try_from(bits).map_err(|error| connection.fault("make a key pair", &error))?;
        let public =
            publics(vec![Attribute::ModulusBits(bits), Attribute::PublicExponent(RSA_EXPONENT.to_vec())]);
        session.generate_key_pair(&generator, &public, &private)
    } else {
        let mut forms = encoding::curve_parameters(algorithm).iter();
        let first = forms.next().ok_or(TokenError::Unsupported { algorithm })?;
        let attempt = |form: &[u8]| {
            session.generate_key_pair(
                &generator,
                &publics(vec![Attribute::EcParams(form.to_vec())]),
                &private,
            )
        };
        // Tokens that know a curve by another name have no common word for it: try each name, keep the first refusal.
        attempt(first).or_else(|refusal| match error::is_loss(&refusal) {
            true => Err(refusal),
            false => forms.find_map(|form| attempt(form).ok()).ok_or(refusal),
        })
    };
    made.map_err(|error| connection.fault("make a key pair", &error))
}

/// The private key with an id; none when it is not there.
pub(super) fn find_private(
    connection: &Connection,
    session: &Session,
    id: KeyId,
    label: &str,
) -> Result<Option<ObjectHandle>, Fault> {
    find(connection, session, ObjectClass::PRIVATE_KEY, id, label)
}

/// The public half of the key with an id, as the token has it; none when the token keeps none.
pub(super) fn find_public(
    connection: &Connection,
    session: &Session,
    id: KeyId,
    label: &str,
    algorithm: KeyAlgorithm,
) -> Result<Option<PublicKey>, Fault> {
    match find(connection, session, ObjectClass::PUBLIC_KEY, id, label)? {
        Some(handle) => read_public(connection, session, handle, label, algorithm).map(Some),
        None => Ok(None),
    }
}

fn find(
    connection: &Connection,
    session: &Session,
    class: ObjectClass,
    id: KeyId,
    label: &str,
) -> Result<Option<ObjectHandle>, Fault> {
    let found = session
        .find_objects(&[Attribute::Class(class), Attribute::Token(true), Attribute::Id(id.0.to_vec())])
        .map_err(|error| connection.fault("look for a key", &error))?;
    match found.as_slice() {
        [] => Ok(None),
        [handle] => Ok(Some(*handle)),
        several => Err(other_key(connection, label, format!("{} keys have its id", several.len()))),
    }
}

/// Removes both halves of every key pair of ours with this label; gives how many private keys there were.
pub(super) fn discard(connection: &Connection, entered: &Entered<'_>, label: &str) -> Result<usize, Fault> {
    let lease = connection.writing_lease(entered)?;
    let session = lease.session()?;
    let failed = |error| connection.fault("remove a key", &error);
    let mut keys = 0;
    // The private half last: while it is there, a second attempt finds what is left of the pair.
    for class in [ObjectClass::PUBLIC_KEY, ObjectClass::PRIVATE_KEY] {
        let wanted =
            [Attribute::Class(class), Attribute::Token(true), Attribute::Label(label.as_bytes().to_vec())];
        for handle in session.find_objects(&wanted).map_err(failed)? {
            session.destroy_object(handle).map_err(failed)?;
            keys += usize::from(class == ObjectClass::PRIVATE_KEY);
        }
    }
    Ok(keys)
}

/// Checks that a private key is the kind that we asked for: of this label and type, able to sign, unable to leave.
pub(super) fn check_private(
    connection: &Connection,
    session: &Session,
    handle: ObjectHandle,
    label: &str,
    algorithm: KeyAlgorithm,
) -> Result<(), Fault> {
    let attributes = read(
        connection,
        session,
        handle,
        &[
            AttributeType::Label,
            AttributeType::KeyType,
            AttributeType::Sign,
            AttributeType::Sensitive,
            AttributeType::Extractable,
        ],
    )?;
    let has = |wanted: &Attribute| attributes.contains(wanted);
    if !has(&Attribute::Label(label.as_bytes().to_vec())) {
        let found = attributes.iter().find_map(|attribute| match attribute {
            Attribute::Label(label) => Some(String::from_utf8_lossy(label)),
            _ => None,
        });
        return Err(other_key(
            connection,
            label,
            format!("its label there is {:?}", found.unwrap_or_default()),
        ));
    }
    if !has(&Attribute::KeyType(key_type(algorithm))) {
        return Err(other_key(connection, label, format!("it is not of type {algorithm}")));
    }
    if !has(&Attribute::Sign(true)) {
        return Err(other_key(connection, label, "it may not sign (CKA_SIGN)".to_owned()));
    }
    // An attribute that the token does not tell is not taken for granted.
    for (wanted, attribute) in [
        (Attribute::Sensitive(true), "CKA_SENSITIVE is not true"),
        (Attribute::Extractable(false), "CKA_EXTRACTABLE is not false"),
    ] {
        if !has(&wanted) {
            let token = connection.name.clone();
            return Err(TokenError::Exportable { token, label: label.to_owned(), attribute }.into());
        }
    }
    Ok(())
}

fn read_public(
    connection: &Connection,
    session: &Session,
    handle: ObjectHandle,
    label: &str,
    algorithm: KeyAlgorithm,
) -> Result<PublicKey, Fault> {
    let wanted: &[AttributeType] = match algorithm.kind() {
        KeyKind::Rsa => &[AttributeType::Modulus, AttributeType::PublicExponent],
        _ => &[AttributeType::EcParams, AttributeType::EcPoint],
    };
    let read = read(connection, session, handle, wanted)?;
    // The layer checks the point or the modulus.
    let key = match read.as_slice() {
        [Attribute::Modulus(modulus), Attribute::PublicExponent(exponent)] => {
            PublicKey::from_rsa_numbers(modulus, exponent).ok()
        }
        [Attribute::EcParams(curve), Attribute::EcPoint(point)]
            if encoding::curve_parameters(algorithm).contains(&curve.as_slice()) =>
        {
            encoding::point(algorithm, point).and_then(|raw| PublicKey::from_raw(algorithm, raw).ok())
        }
        _ => None,
    };
    key.filter(|key| key.algorithm() == algorithm).ok_or_else(|| {
        other_key(connection, label, format!("its public half there is not of type {algorithm}"))
    })
}

fn read(
    connection: &Connection,
    session: &Session,
    handle: ObjectHandle,
    wanted: &[AttributeType],
) -> Result<Vec<Attribute>, Fault> {
    session.get_attributes(handle, wanted).map_err(|error| connection.fault("describe a key", &error))
}

fn other_key(connection: &Connection, label: &str, difference: String) -> Fault {
    TokenError::OtherKey { token: connection.name.clone(), label: label.to_owned(), difference }.into()
}

fn key_type(algorithm: KeyAlgorithm) -> KeyType {
    match algorithm.kind() {
        KeyKind::Ed25519 => KeyType::EC_EDWARDS,
        KeyKind::Ecdsa => KeyType::EC,
        KeyKind::Rsa => KeyType::RSA,
        KeyKind::MlDsa => KeyType::ML_DSA,
    }
}
