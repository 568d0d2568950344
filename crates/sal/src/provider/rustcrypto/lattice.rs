//! ML-DSA and ML-KEM.

use getrandom::SysRng;
use ml_dsa::{ExpandedSigningKey, MlDsaParams, Signature, VerifyingKey};
use ml_kem::{Decapsulate as _, DecapsulationKey768, EncapsulationKey768, KeyExport as _};

use zeroize::Zeroize as _;

use super::draws::{MISMATCH, random_array};
use crate::PrivateKeyMaterial;
use crate::algorithm::SignatureScheme;
use crate::provider::contract::{
    BAD_KEY, BAD_PUBLIC, BAD_SIGNATURE, Decapsulation, Fault, PrivateKey, Secret,
};

fn expand<P: MlDsaParams>(secret: &[u8]) -> Result<ExpandedSigningKey<P>, Fault> {
    Ok(ExpandedSigningKey::from_seed(secret.try_into().map_err(|_| BAD_KEY)?))
}

pub(super) fn derive_public<P: MlDsaParams>(secret: &[u8]) -> Result<Vec<u8>, Fault> {
    Ok(expand::<P>(secret)?.verifying_key().encode().to_vec())
}

pub(super) fn load_key<P: MlDsaParams + 'static>(
    key: &PrivateKeyMaterial,
    scheme: SignatureScheme,
) -> Result<Box<dyn PrivateKey>, Fault> {
    let expanded = Box::new(Key { key: expand::<P>(key.secret())?, scheme });
    if expanded.key.verifying_key().encode().as_slice() != key.public() {
        return Err(MISMATCH);
    }
    Ok(expanded)
}

pub(super) fn verify<P: MlDsaParams>(public: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Fault> {
    let public = public.try_into().map_err(|_| BAD_PUBLIC)?;
    let signature = Signature::<P>::try_from(signature).map_err(|_| BAD_SIGNATURE)?;
    if VerifyingKey::<P>::decode(public).verify_with_context(message, &[], &signature) {
        Ok(())
    } else {
        Err(BAD_SIGNATURE)
    }
}

struct Key<P: MlDsaParams> {
    key: ExpandedSigningKey<P>,
    scheme: SignatureScheme,
}

impl<P: MlDsaParams> PrivateKey for Key<P>
where
    ExpandedSigningKey<P>: Send + Sync,
{
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != self.scheme {
            return Err(Fault::Unsupported);
        }
        let signature =
            self.key.sign_randomized(message, &[], &mut SysRng).map_err(|_| Fault::Broken("sign"))?;
        Ok(signature.encode().to_vec())
    }
}

// Loading expanded keys is deprecated in favour of seeds, but known answers come as either.
#[allow(deprecated)]
pub(super) fn load_decapsulation(
    seed: Option<&[u8; 64]>,
    expanded: Option<&[u8]>,
) -> Result<Box<dyn Decapsulation>, Fault> {
    let from_seed = seed.map(|seed| DecapsulationKey768::from_seed((*seed).into()));
    let from_expanded = expanded
        .map(|expanded| {
            let expanded = expanded.try_into().map_err(|_| BAD_KEY)?;
            DecapsulationKey768::from_expanded(expanded).map_err(|_| BAD_KEY)
        })
        .transpose()?;
    let key = match (from_seed, from_expanded) {
        (Some(key), Some(other)) if key == other => key,
        (Some(_), Some(_)) => return Err(Fault::Refused("the seed does not give the expanded key")),
        (Some(key), None) | (None, Some(key)) => key,
        (None, None) => return Err(Fault::Unsupported),
    };
    let public = key.encapsulation_key().to_bytes().to_vec();
    Ok(Box::new(Half { key, public }))
}

struct Half {
    key: DecapsulationKey768,
    public: Vec<u8>,
}

impl Decapsulation for Half {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn finish(self: Box<Self>, ciphertext: &[u8]) -> Result<Secret, Fault> {
        let mut secret = self
            .key
            .decapsulate_slice(ciphertext)
            .map_err(|_| Fault::Refused("the ML-KEM ciphertext has another length"))?;
        let kept = Secret::new(&secret);
        secret.as_mut_slice().zeroize();
        Ok(kept)
    }
}

pub(super) fn encapsulate(public: &[u8]) -> Result<(Vec<u8>, Secret), Fault> {
    let refused = Fault::Refused("the ML-KEM key is malformed");
    let key = EncapsulationKey768::new(public.try_into().map_err(|_| refused)?).map_err(|_| refused)?;
    // The library's own way to draw the message panics when the system has no randomness.
    let message = random_array::<32>()?;
    let mut message = ml_kem::B32::from(*message);
    let (ciphertext, mut secret) = key.encapsulate_deterministic(&message);
    message.as_mut_slice().zeroize();
    let kept = Secret::new(&secret);
    secret.as_mut_slice().zeroize();
    Ok((ciphertext.to_vec(), kept))
}
