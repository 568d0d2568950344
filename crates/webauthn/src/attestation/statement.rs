//! One statement: what it is about, and its fields.

use super::error::AttestationError;
use super::format::Format;
use crate::authenticator_data::AttestedCredential;
use crate::cbor::Value;

/// A statement with what it is about.
pub(crate) struct Statement<'a> {
    pub(crate) format: Format,
    /// `attStmt`, a map.
    pub(crate) fields: &'a Value<'a>,
    pub(crate) auth_data: &'a [u8],
    pub(crate) client_data_hash: &'a [u8; 32],
    pub(crate) rp_id_hash: &'a [u8],
    pub(crate) credential: &'a AttestedCredential<'a>,
}

/// A valid statement's type, and its trust path.
#[derive(Debug)]
pub(crate) enum Verified<'a> {
    Absent,
    SelfSigned,
    /// The attestation's own certificate first.
    Certified {
        path: Vec<&'a [u8]>,
    },
    Unchecked,
}

/// Most certificates of a statement. Makers have two or three.
const MAX_CERTIFICATES: usize = 6;

impl<'a> Statement<'a> {
    /// `sig`.
    pub(super) fn signature(&self) -> Result<&'a [u8], AttestationError> {
        self.fields
            .member("sig")
            .and_then(Value::bytes)
            .ok_or(AttestationError::Syntax("it has no sig, or that is not a byte string"))
    }

    /// `x5c`, if it is there.
    pub(super) fn certificates(&self) -> Result<Option<Vec<&'a [u8]>>, AttestationError> {
        let Some(value) = self.fields.member("x5c") else { return Ok(None) };
        let syntax = AttestationError::Syntax;
        let items = value.array().ok_or(syntax("its x5c is not an array"))?;
        if items.is_empty() || items.len() > MAX_CERTIFICATES {
            return Err(syntax("its x5c has no certificate, or more than 6"));
        }
        let certificates: Option<Vec<_>> = items.iter().map(Value::bytes).collect();
        certificates.map(Some).ok_or(syntax("a certificate of its x5c is not a byte string"))
    }

    /// Refuses fields beside those of the format's syntax.
    pub(super) fn only(&self, names: &[&str]) -> Result<(), AttestationError> {
        let known = |key: &Value<'_>| key.text().is_some_and(|name| names.contains(&name));
        if self.fields.map().is_some_and(|entries| entries.iter().all(|(key, _)| known(key))) {
            Ok(())
        } else {
            Err(AttestationError::Syntax("it has a field that its format has not"))
        }
    }
}
