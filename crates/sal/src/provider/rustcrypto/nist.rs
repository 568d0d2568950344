//! ECDSA and Diffie and Hellman on NIST's curves.

use getrandom::SysRng;
use p256::elliptic_curve::point::AffinePoint;
use p256::elliptic_curve::sec1::{FromSec1Point, ModulusSize, ToSec1Point};
use p256::elliptic_curve::{
    CurveArithmetic, FieldBytesSize, Generate as _, NonZeroScalar, PublicKey, SecretKey,
};
use zeroize::Zeroizing;

use super::draws::NO_RANDOMNESS;
use crate::provider::contract::{Agreement, BAD_KEY, BAD_SHARE, Fault, Secret};

/// ECDSA on one curve. It is a macro because the bounds of generic code over the curves are longer than the code.
macro_rules! ecdsa {
    ($module:ident, $library:ident, $scheme:expr) => {
        pub(super) mod $module {
            use getrandom::SysRng;
            use zeroize::Zeroizing;
            use $library::ecdsa::signature::{RandomizedSigner as _, Verifier as _};
            use $library::ecdsa::{DerSignature, SigningKey, VerifyingKey};
            use $library::elliptic_curve::Generate as _;

            use super::is_uncompressed;
            use crate::algorithm::SignatureScheme;
            use crate::provider::contract::{BAD_KEY, BAD_PUBLIC, BAD_SIGNATURE, Fault, PrivateKey};
            use crate::provider::rustcrypto::draws::{MISMATCH, NO_RANDOMNESS};

            pub(crate) fn generate() -> Result<(Zeroizing<Vec<u8>>, Vec<u8>), Fault> {
                let key = SigningKey::try_generate_from_rng(&mut SysRng).map_err(|_| NO_RANDOMNESS)?;
                let scalar = Zeroizing::new(key.to_bytes());
                let public = key.verifying_key().to_sec1_point(false).as_bytes().to_vec();
                Ok((Zeroizing::new(scalar.to_vec()), public))
            }

            // `from_slice` would pad a scalar that is too short.
            fn load(secret: &[u8]) -> Result<SigningKey, Fault> {
                SigningKey::from_bytes(secret.try_into().map_err(|_| BAD_KEY)?).map_err(|_| BAD_KEY)
            }

            pub(crate) fn derive_public(secret: &[u8]) -> Result<Vec<u8>, Fault> {
                Ok(load(secret)?.verifying_key().to_sec1_point(false).as_bytes().to_vec())
            }

            pub(crate) fn load_key(secret: &[u8], public: &[u8]) -> Result<Box<dyn PrivateKey>, Fault> {
                let key = load(secret)?;
                if key.verifying_key().to_sec1_point(false).as_bytes() != public {
                    return Err(MISMATCH);
                }
                Ok(Box::new(Key(key)))
            }

            pub(crate) fn load_public(public: &[u8]) -> Result<VerifyingKey, Fault> {
                if !is_uncompressed(public) {
                    return Err(BAD_PUBLIC);
                }
                VerifyingKey::from_sec1_bytes(public).map_err(|_| BAD_PUBLIC)
            }

            pub(crate) fn verify(public: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Fault> {
                let key = load_public(public)?;
                let signature = DerSignature::try_from(signature).map_err(|_| BAD_SIGNATURE)?;
                key.verify(message, &signature).map_err(|_| BAD_SIGNATURE)
            }

            struct Key(SigningKey);

            impl PrivateKey for Key {
                fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
                    if scheme != $scheme {
                        return Err(Fault::Unsupported);
                    }
                    let signature: DerSignature =
                        self.0.try_sign_with_rng(&mut SysRng, message).map_err(|_| Fault::Broken("sign"))?;
                    Ok(signature.as_bytes().to_vec())
                }
            }
        }
    };
}

ecdsa!(ecdsa_p256, p256, SignatureScheme::EcdsaP256Sha256);
ecdsa!(ecdsa_p384, p384, SignatureScheme::EcdsaP384Sha384);
ecdsa!(ecdsa_p521, p521, SignatureScheme::EcdsaP521Sha512);

pub(super) fn start_agreement<C>() -> Result<Box<dyn Agreement>, Fault>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let scalar = NonZeroScalar::<C>::try_generate_from_rng(&mut SysRng).map_err(|_| NO_RANDOMNESS)?;
    Ok(half(SecretKey::from(*Zeroizing::new(scalar))))
}

pub(super) fn load_agreement<C>(private: &[u8]) -> Result<Box<dyn Agreement>, Fault>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let private = private.try_into().map_err(|_| BAD_KEY)?;
    Ok(half(SecretKey::<C>::from_bytes(private).map_err(|_| BAD_KEY)?))
}

fn half<C>(secret: SecretKey<C>) -> Box<dyn Agreement>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let share = secret.public_key().to_sec1_point(false).as_bytes().to_vec();
    Box::new(Half { secret, share })
}

struct Half<C: CurveArithmetic> {
    secret: SecretKey<C>,
    share: Vec<u8>,
}

impl<C> Agreement for Half<C>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        if !is_uncompressed(peer) {
            return Err(BAD_SHARE);
        }
        let peer = PublicKey::<C>::from_sec1_bytes(peer).map_err(|_| BAD_SHARE)?;
        Ok(Secret::new(self.secret.diffie_hellman(&peer).raw_secret_bytes()))
    }
}

/// The identity, compressed and hybrid points have other first bytes (SEC 1 §2.3.3).
fn is_uncompressed(point: &[u8]) -> bool {
    point.first() == Some(&0x04)
}
