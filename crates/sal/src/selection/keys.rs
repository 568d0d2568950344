//! What a selection does with keys as bytes: it makes them, and asks whichever provider can tell what belongs to them.

use super::{RunError, Selection};
use crate::algorithm::DhGroup;
use crate::provider::{Agreement, Fault, Provider, Secret};
use crate::{KeyAlgorithm, Primitive, PrivateKeyMaterial, SalError, selftest};

impl Selection {
    /// Makes a key pair. RSA keys are proven by a signature each, because their generation is too slow for a
    /// self-test.
    ///
    /// # Errors
    /// [`SalError::NoSource`] when no source makes such keys.
    pub fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, SalError> {
        let primitive = Primitive::GenerateKey(algorithm);
        let made = self.run(primitive, |provider| {
            let made = provider.generate_key(algorithm)?;
            if algorithm.modulus_bits().is_some() && selftest::pairwise(provider, &made).is_err() {
                return Err(Fault::Broken("generate a key pair that signs and verifies"));
            }
            Ok(made)
        });
        made.map_err(|error| error.into_sal(|_| SalError::Provider { operation: "generate a key pair" }))
    }

    /// The public half of a secret half, by the first provider that can tell.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when the secret half is malformed.
    pub fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, SalError> {
        let primitive = Primitive::Sign(algorithm);
        let ranking = self.ranking(primitive);
        let those_that_sign =
            ranking.iter().filter(|place| place.obstacle.is_none()).map(|place| place.provider);
        // Where nothing that may sign can tell: whether two halves belong together is plain arithmetic, and any other may do it.
        let has = |provider: &&dyn Provider| provider.needs().iter().all(|feature| self.cpu.has(*feature));
        let others =
            self.providers.iter().copied().filter(|provider| has(provider) && self.may_compute(*provider));
        for provider in those_that_sign.chain(others) {
            match provider.derive_public(algorithm, secret) {
                Ok(public) => {
                    self.used_by(primitive, provider);
                    return Ok(public);
                }
                Err(Fault::Refused(reason)) => {
                    return Err(SalError::BadPrivateKey { reason: reason.to_owned() });
                }
                Err(_) => {}
            }
        }
        Err(SalError::Provider { operation: "derive a public key" })
    }

    /// The public share of a private scalar that is kept. In FIPS mode there may be one from before, of a group that is not
    /// approved: the module's library takes it then, outside its approved services.
    pub(crate) fn kept_share(&self, group: DhGroup, private: &[u8]) -> Result<Vec<u8>, SalError> {
        self.with_kept(group, private, |side| Ok(side.share().to_vec()))
            .map_err(|error| error.into_sal(|reason| SalError::BadPrivateKey { reason: reason.to_owned() }))
    }

    /// The secret of a private scalar that is kept, with a peer's share, to open what was sealed to it: see [`Self::kept_share`].
    pub(crate) fn kept_agreement(
        &self,
        group: DhGroup,
        private: &[u8],
        peer: &[u8],
    ) -> Result<Secret, RunError> {
        self.with_kept(group, private, |side| side.finish(peer))
    }

    fn with_kept<T>(
        &self,
        group: DhGroup,
        private: &[u8],
        operation: impl Fn(Box<dyn Agreement>) -> Result<T, Fault>,
    ) -> Result<T, RunError> {
        match self.with_static(group, private, &operation) {
            Err(RunError::NoSource(problem)) if self.is_fips() => {
                let module = self.providers().iter().copied().find(|provider| provider.is_fips());
                let Some(module) = module else { return Err(RunError::NoSource(problem)) };
                self.used_by(Primitive::Agree(group), module);
                module.load_agreement(group, private).and_then(operation).map_err(|fault| match fault {
                    Fault::Refused(reason) => RunError::Refused(reason),
                    Fault::Unsupported | Fault::Broken(_) => RunError::NoSource(problem),
                })
            }
            done => done,
        }
    }

    /// Libraries that have only fresh scalars are passed over.
    fn with_static<T>(
        &self,
        group: DhGroup,
        private: &[u8],
        operation: impl Fn(Box<dyn Agreement>) -> Result<T, Fault>,
    ) -> Result<T, RunError> {
        let primitive = Primitive::Agree(group);
        let mut last = RunError::Refused("no source takes a private key that stays");
        // The first one has proven itself when this gives it.
        self.source(primitive).map_err(RunError::NoSource)?;
        for place in self.ranking(primitive).iter().filter(|place| place.obstacle.is_none()) {
            match place.provider.load_agreement(group, private).and_then(&operation) {
                Ok(done) => {
                    self.used_by(primitive, place.provider);
                    return Ok(done);
                }
                Err(Fault::Refused(reason)) => return Err(RunError::Refused(reason)),
                Err(Fault::Unsupported) => {}
                Err(fault @ Fault::Broken(_)) => {
                    self.quarantine(primitive, place.provider, &fault.to_string());
                    last = RunError::Refused("the source of the agreement failed");
                }
            }
        }
        Err(last)
    }

    /// Does the arithmetic that shows whether a public key is one: a point on its curve. The first provider that can
    /// tell decides; where none can, the first verification does.
    pub(crate) fn check_public(&self, algorithm: KeyAlgorithm, raw: &[u8]) -> Result<(), &'static str> {
        let primitive = Primitive::Verify(algorithm);
        for place in self.ranking(primitive) {
            if place.obstacle.is_some() {
                continue;
            }
            match place.provider.check_public(algorithm, raw) {
                Ok(()) => {
                    self.used_by(primitive, place.provider);
                    return Ok(());
                }
                Err(Fault::Refused(reason)) => return Err(reason),
                Err(_) => {}
            }
        }
        Ok(())
    }
}
