//! The layer itself, with one provider as its only source: what it accepts must not depend on which one that is.

use rustls::CipherSuite;
use rustls::crypto::tls13::Hkdf;
use rustls::crypto::{ActiveKeyExchange, SupportedKxGroup};
use sallyport_sal::algorithm::{DhGroup, KexGroup, KeyAlgorithm, SignatureScheme, Standing};
use sallyport_sal::formats::FormatError;
use sallyport_sal::provider::{Agreement, Decapsulation, Fault, Offer, PrivateKey, Provider, Secret};
use sallyport_sal::selection::Mode;
use sallyport_sal::tls::{self, rustls};
use sallyport_sal::{
    MemoryKey, Policy, Primitive, PrivateKeyMaterial, PublicKey, SalError, Selection, Signer,
};

/// What the name of such a subject begins with.
pub(crate) const PREFIX: &str = "layer over ";

/// The public API with one source, in the shape of a provider, so that it runs the same vectors.
#[derive(Debug)]
pub(crate) struct Layered {
    name: &'static str,
    selection: &'static Selection,
    /// The selection behind `groups`: TLS needs ciphers, which not every provider has.
    exchange: &'static Selection,
    groups: Vec<&'static dyn SupportedKxGroup>,
    suites: Vec<rustls::SupportedCipherSuite>,
}

impl Layered {
    /// The layer over a provider. It is never freed.
    pub(crate) fn over(provider: &'static dyn Provider) -> &'static Self {
        let over = |policy| -> &'static Selection {
            Box::leak(Box::new(Selection::new(sallyport_sal::provider::ALL, policy)))
        };
        let selection = over(Policy { mode: Mode::Only(provider.name().to_owned()), ..Policy::default() });
        let own = |primitive: &Primitive| provider.offer(*primitive) == Offer::Yes;
        let overrides = Primitive::all().filter(own).map(|primitive| (primitive, provider.name().to_owned()));
        let exchange = over(Policy { overrides: overrides.collect(), ..Policy::default() });
        let composed = tls::compose(exchange, KexGroup::ALL).expect("a provider has the ciphers of TLS");
        Box::leak(Box::new(Self {
            name: Box::leak(format!("{PREFIX}{}", provider.name()).into_boxed_str()),
            selection,
            exchange,
            groups: composed.kx_groups.clone(),
            suites: composed.cipher_suites.clone(),
        }))
    }

    /// What took its source out of service. Nothing that a peer sends may do that, nor a key that is none.
    pub(crate) fn incidents(&self) -> Vec<String> {
        [self.selection, self.exchange]
            .iter()
            .flat_map(|selection| selection.incidents())
            .map(|incident| format!("{}: {incident}", self.name))
            .collect()
    }

    /// HKDF of a cipher suite of TLS, if the source has the HMAC in it.
    pub(crate) fn hkdf(&self, primitive: Primitive, cipher: CipherSuite) -> Option<&'static dyn Hkdf> {
        let suites = self.suites.iter().filter_map(rustls::SupportedCipherSuite::tls13);
        let mut named = suites.filter(|suite| suite.common.suite == cipher);
        self.has(primitive).then(|| named.next().expect("the cipher is composed").hkdf_provider)
    }

    /// Whether the source has a primitive and passed its self-test.
    fn has(&self, primitive: Primitive) -> bool {
        self.selection.source(primitive).is_ok()
    }

    /// A group of TLS with this source in it.
    pub(crate) fn group(&self, group: KexGroup) -> Option<&'static dyn SupportedKxGroup> {
        self.groups.iter().copied().find(|one| u16::from(one.name()) == group.iana_code())
    }
}

/// The error of the layer as a provider would put it. That no provider is left means that a vector broke the provider.
fn fault(error: &SalError) -> Fault {
    match error {
        SalError::NoSource { .. }
        | SalError::Provider { .. }
        | SalError::Format(FormatError::Provider { .. }) => Fault::Broken("stay in service"),
        _ => Fault::Refused("refused by the layer"),
    }
}

fn tls_fault(error: &rustls::Error) -> Fault {
    match error {
        rustls::Error::PeerMisbehaved(_) => Fault::Refused("refused by the layer"),
        _ => Fault::Broken("stay in service"),
    }
}

const fn kex(group: DhGroup) -> KexGroup {
    match group {
        DhGroup::P256 => KexGroup::P256,
        DhGroup::P384 => KexGroup::P384,
        _ => KexGroup::X25519,
    }
}

impl Provider for Layered {
    fn name(&self) -> &'static str {
        self.name
    }

    fn credit(&self) -> &'static str {
        self.name
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        let has = match primitive {
            Primitive::Sign(algorithm) | Primitive::Verify(algorithm) => {
                algorithm.standing() != Standing::LabOnly && self.has(primitive)
            }
            Primitive::Agree(group) => self.has(primitive) && self.group(kex(group)).is_some(),
            Primitive::Decapsulate | Primitive::Encapsulate => {
                self.has(primitive) && self.group(KexGroup::MlKem768).is_some()
            }
            // The rest takes nothing from a peer that providers could judge differently.
            _ => false,
        };
        if has { Offer::Yes } else { Offer::No }
    }

    fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        self.selection.generate_key(algorithm).map_err(|_| Fault::Unsupported)
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        self.selection.derive_public(algorithm, secret).map_err(|error| match error {
            SalError::Provider { .. } => Fault::Unsupported,
            other => fault(&other),
        })
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        match MemoryKey::from_material_in(self.selection, key.clone()) {
            Ok(key) => Ok(Box::new(Key(key))),
            Err(error) => Err(fault(&error)),
        }
    }

    fn verify(
        &self,
        algorithm: KeyAlgorithm,
        scheme: SignatureScheme,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        PublicKey::from_raw(algorithm, public)
            .and_then(|key| key.verify_in(self.selection, scheme, message, signature))
            .map_err(|error| fault(&error))
    }

    fn start_agreement(&self, group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        let group = self.group(kex(group)).ok_or(Fault::Unsupported)?;
        Ok(Box::new(Side(group.start().map_err(|error| tls_fault(&error))?)))
    }

    fn start_decapsulation(&self) -> Result<Box<dyn Decapsulation>, Fault> {
        let group = self.group(KexGroup::MlKem768).ok_or(Fault::Unsupported)?;
        Ok(Box::new(Side(group.start().map_err(|error| tls_fault(&error))?)))
    }

    fn encapsulate(&self, public: &[u8]) -> Result<(Vec<u8>, Secret), Fault> {
        let group = self.group(KexGroup::MlKem768).ok_or(Fault::Unsupported)?;
        let done = group.start_and_complete(public).map_err(|error| tls_fault(&error))?;
        Ok((done.pub_key, Secret::new(done.secret.secret_bytes())))
    }
}

struct Key(MemoryKey);

impl PrivateKey for Key {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        self.0.sign_with(scheme, message).map_err(|_| {
            if scheme.fits(self.0.algorithm()) { Fault::Broken("sign") } else { Fault::Unsupported }
        })
    }
}

struct Side(Box<dyn ActiveKeyExchange>);

impl Agreement for Side {
    fn share(&self) -> &[u8] {
        self.0.pub_key()
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        let secret = self.0.complete(peer).map_err(|error| tls_fault(&error))?;
        Ok(Secret::new(secret.secret_bytes()))
    }
}

impl Decapsulation for Side {
    fn public(&self) -> &[u8] {
        self.0.pub_key()
    }

    fn finish(self: Box<Self>, ciphertext: &[u8]) -> Result<Secret, Fault> {
        Agreement::finish(self, ciphertext)
    }
}
