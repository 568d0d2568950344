//! Certificates of attestation keys, and their way to a root (RFC 5280 §6.1, WebAuthn L3 §8.2.1).
//!
//! x509-parser reads them, and the abstraction layer verifies. Of path validation there is what makers use: names, times,
//! CA flags, path lengths and key usage. A critical extension beyond those is refused; revocation is not asked for.

use sallyport_sal::algorithm::Standing;
use sallyport_sal::{PublicKey, SignatureScheme};
use time::OffsetDateTime;
use x509_parser::asn1_rs::{Oid, oid};
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate, X509Version};

use super::error::AttestationError;
use crate::cose::Algorithm;

/// Longest certificate, in bytes.
const MAX_BYTES: usize = 16 * 1024;

/// Content of `id-fido-gen-ce-aaguid`, 1.3.6.1.4.1.45724.1.1.4 (§8.2.1).
const MODEL: Oid<'static> = oid!(1.3.6.1.4.1.45724.1.1.4);

pub(crate) struct Certificate<'a> {
    at: usize,
    parsed: X509Certificate<'a>,
    pub(super) key: PublicKey,
}

impl<'a> Certificate<'a> {
    /// Reads one; `at` is its place in the statement, for errors.
    pub(super) fn parse(at: usize, der: &'a [u8]) -> Result<Self, AttestationError> {
        let bad = |reason| AttestationError::Certificate { at, reason };
        if der.len() > MAX_BYTES {
            return Err(bad("it is longer than 16 KiB"));
        }
        let Ok(([], parsed)) = X509Certificate::from_der(der) else {
            return Err(bad("it is not an X.509 certificate in DER"));
        };
        // A second extension with one name could be read by one reader and not by another.
        if parsed.extensions_map().is_err() {
            return Err(bad("an extension stands there twice"));
        }
        let key = PublicKey::from_spki_der(parsed.public_key().raw)
            .map_err(|_| bad("its key is of a type that is not used here"))?;
        if key.algorithm().standing() == Standing::LabOnly {
            return Err(bad("its key is too weak"));
        }
        Ok(Self { at, parsed, key })
    }

    fn bad(&self, reason: &'static str) -> AttestationError {
        AttestationError::Certificate { at: self.at, reason }
    }

    /// Whether its key made the signature over these parts, one after the other.
    pub(super) fn verify(
        &self,
        algorithm: Algorithm,
        parts: &[&[u8]],
        signature: &[u8],
    ) -> Result<(), AttestationError> {
        if !algorithm.scheme().fits(self.key.algorithm()) {
            return Err(self.bad("its key does not sign by the statement's alg"));
        }
        self.key
            .verify_with(algorithm.scheme(), &parts.concat(), signature)
            .map_err(|_| AttestationError::Signature)
    }

    /// What §8.2.1 demands of the certificate of a packed statement.
    pub(super) fn check_packed(&self) -> Result<(), AttestationError> {
        let subject = self.parsed.subject();
        if self.parsed.version() != X509Version::V3 {
            return Err(self.bad("its version is not 3"));
        }
        let one = |mut names: Box<dyn Iterator<Item = Option<String>> + '_>| names.next().flatten();
        let text =
            |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().ok().map(str::to_owned);
        let country = one(Box::new(subject.iter_country().map(text)));
        if country.is_none_or(|country| {
            country.len() != 2 || !country.bytes().all(|byte| byte.is_ascii_alphabetic())
        }) {
            return Err(self.bad("its subject names no country by two letters"));
        }
        if one(Box::new(subject.iter_organization().map(text))).is_none_or(|name| name.is_empty()) {
            return Err(self.bad("its subject names no organization"));
        }
        if one(Box::new(subject.iter_organizational_unit().map(text))).as_deref()
            != Some("Authenticator Attestation")
        {
            return Err(self.bad("its subject's OU is not \"Authenticator Attestation\""));
        }
        if one(Box::new(subject.iter_common_name().map(text))).is_none_or(|name| name.is_empty()) {
            return Err(self.bad("its subject has no common name"));
        }
        match self.parsed.basic_constraints() {
            Ok(Some(constraints)) if !constraints.value.ca => Ok(()),
            _ => Err(self.bad("it has no basic constraints that say it is no CA")),
        }
    }

    /// The model that it is for: an AAGUID in two octet strings, not critical (§8.2.1).
    pub(super) fn model(&self) -> Result<Option<[u8; 16]>, AttestationError> {
        let Some(extension) = self.parsed.extensions().iter().find(|extension| extension.oid == MODEL) else {
            return Ok(None);
        };
        if extension.critical {
            return Err(self.bad("the extension with its model is critical"));
        }
        match extension.value {
            [0x04, 0x10, model @ ..] => {
                model.try_into().map(Some).map_err(|_| self.bad("the model in it is not 16 bytes"))
            }
            _ => Err(self.bad("the model in it is not 16 bytes")),
        }
    }

    fn check_time(&self, now: OffsetDateTime) -> Result<(), AttestationError> {
        let validity = self.parsed.validity();
        let seconds = now.unix_timestamp();
        if (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&seconds) {
            Ok(())
        } else {
            Err(self.bad("it is not valid now"))
        }
    }

    /// Extensions that path validation has to understand, and does.
    fn check_critical(&self) -> Result<(), AttestationError> {
        for extension in self.parsed.extensions() {
            let known = matches!(
                extension.parsed_extension(),
                ParsedExtension::BasicConstraints(_)
                    | ParsedExtension::KeyUsage(_)
                    | ParsedExtension::ExtendedKeyUsage(_)
            );
            if extension.critical && !known {
                return Err(self.bad("it has a critical extension that is not known here"));
            }
        }
        Ok(())
    }

    /// Whether it may sign a certificate with so many between that and the attestation's own.
    fn check_issuer(&self, below: usize) -> Result<(), AttestationError> {
        match self.parsed.basic_constraints() {
            Ok(Some(constraints)) if constraints.value.ca => {
                let allowed = constraints.value.path_len_constraint;
                if allowed.is_some_and(|length| usize::try_from(length).is_ok_and(|length| length < below)) {
                    return Err(self.bad("there are more certificates below it than it allows"));
                }
            }
            _ => return Err(self.bad("it is not a CA's, and signed another one")),
        }
        match self.parsed.key_usage() {
            Ok(None) => Ok(()),
            Ok(Some(usage)) if usage.value.key_cert_sign() => Ok(()),
            _ => Err(self.bad("its key is not for signing certificates")),
        }
    }

    fn issued_by(&self, issuer: &Certificate<'_>) -> Result<(), AttestationError> {
        if self.parsed.issuer().as_raw() != issuer.parsed.subject().as_raw() {
            return Err(self.bad("it names another issuer than the certificate after it"));
        }
        let oid = self.parsed.signature_algorithm.algorithm.as_bytes();
        let scheme = issuer
            .key
            .algorithm()
            .schemes()
            .iter()
            .copied()
            .filter(|scheme: &SignatureScheme| !scheme.is_pss())
            .find(|scheme| scheme.oid() == oid)
            .ok_or_else(|| self.bad("it is signed in a way that is not used here"))?;
        if self.parsed.signature_algorithm != self.parsed.tbs_certificate.signature {
            return Err(self.bad("it names two ways in which it is signed"));
        }
        issuer
            .key
            .verify_with(scheme, self.parsed.tbs_certificate.as_ref(), &self.parsed.signature_value.data)
            .map_err(|_| self.bad("its signature is not by the certificate after it"))
    }
}

/// Reads the certificates behind the first, so that a statement with rubbish there is refused whatever the policy.
pub(super) fn parse_rest(path: &[&[u8]]) -> Result<(), AttestationError> {
    path.iter().enumerate().skip(1).try_for_each(|(at, der)| Certificate::parse(at, der).map(|_| ()))
}

/// Whether the certificates of a statement, its own first, lead to one of the roots.
pub(crate) fn chains(path: &[&[u8]], roots: &[Vec<u8>], now: OffsetDateTime) -> Result<(), AttestationError> {
    let path = path
        .iter()
        .enumerate()
        .map(|(at, der)| Certificate::parse(at, der).map(|certificate| (*der, certificate)))
        .collect::<Result<Vec<_>, _>>()?;
    for (at, (der, certificate)) in path.iter().enumerate() {
        certificate.check_time(now)?;
        certificate.check_critical()?;
        if at > 0 {
            certificate.check_issuer(at - 1)?;
        }
        // §7.1 step 24: a certificate of the metadata is good by itself, and what it signed.
        if roots.iter().any(|root| root.as_slice() == *der) || certificate.has_root(at, roots, now) {
            return Ok(());
        }
        if let Some((_, issuer)) = path.get(at + 1) {
            certificate.issued_by(issuer)?;
        }
    }
    Err(AttestationError::NoRoot { roots: roots.len() })
}

impl Certificate<'_> {
    /// Whether one of the roots signed it.
    fn has_root(&self, at: usize, roots: &[Vec<u8>], now: OffsetDateTime) -> bool {
        roots.iter().any(|der| {
            Certificate::parse(at + 1, der).is_ok_and(|root| {
                root.check_time(now).is_ok()
                    && root.check_critical().is_ok()
                    && root.check_issuer(at).is_ok()
                    && self.issued_by(&root).is_ok()
            })
        })
    }
}
