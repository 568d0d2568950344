//! The order of sources before anything was measured.
//!
//! The table comes from measurements on x86-64 with AVX2 and ADX, and without SHA-NI and VAES. Providers that need
//! what the CPU has not are dropped before it is read, which leaves aws-lc and ring first where graviola cannot run.

use crate::Primitive;
use crate::algorithm::{AeadAlgorithm, DhGroup, KeyAlgorithm, KeyKind};

const AWS: &str = "aws-lc";
const RING: &str = "ring";
const GRAVIOLA: &str = "graviola";
const LIBCRUX: &str = "libcrux";
const RUSTCRYPTO: &str = "rustcrypto";

/// Names of providers, the first choice first. A provider that is not named comes after those that are.
#[must_use]
pub fn order(primitive: Primitive) -> &'static [&'static str] {
    match primitive {
        Primitive::GenerateKey(KeyAlgorithm::Ed25519) | Primitive::Sign(KeyAlgorithm::Ed25519) => {
            &[GRAVIOLA, AWS, RUSTCRYPTO, RING]
        }
        Primitive::GenerateKey(KeyAlgorithm::EcdsaP256) => &[AWS, GRAVIOLA, RING, RUSTCRYPTO],
        Primitive::Sign(KeyAlgorithm::EcdsaP256) => &[AWS, RING, GRAVIOLA, RUSTCRYPTO],
        Primitive::GenerateKey(KeyAlgorithm::EcdsaP384) | Primitive::Sign(KeyAlgorithm::EcdsaP384) => {
            &[AWS, GRAVIOLA, RUSTCRYPTO, RING]
        }
        Primitive::Verify(KeyAlgorithm::Ed25519) => &[AWS, GRAVIOLA, RUSTCRYPTO, RING],
        Primitive::Verify(KeyAlgorithm::EcdsaP384) => &[AWS, GRAVIOLA, RING, RUSTCRYPTO],
        Primitive::Sign(KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096) => {
            &[RING, AWS, GRAVIOLA]
        }
        Primitive::GenerateKey(other) | Primitive::Sign(other) | Primitive::Verify(other) => {
            match other.kind() {
                KeyKind::MlDsa => &[AWS, LIBCRUX, RUSTCRYPTO],
                _ => &[AWS, RING, GRAVIOLA, RUSTCRYPTO],
            }
        }
        Primitive::Agree(DhGroup::X25519) => &[GRAVIOLA, AWS, RING, RUSTCRYPTO],
        Primitive::Agree(DhGroup::P256) => &[AWS, GRAVIOLA, RING, RUSTCRYPTO],
        Primitive::Agree(DhGroup::P384) => &[AWS, GRAVIOLA, RUSTCRYPTO, RING],
        Primitive::Decapsulate => &[GRAVIOLA, AWS, LIBCRUX, RUSTCRYPTO],
        Primitive::Encapsulate => &[AWS, GRAVIOLA, LIBCRUX, RUSTCRYPTO],
        Primitive::Aead(AeadAlgorithm::ChaCha20Poly1305) => &[RING, AWS, GRAVIOLA, RUSTCRYPTO],
        Primitive::Aead(_) => &[RING, AWS, GRAVIOLA, RUSTCRYPTO],
        Primitive::Hash(_) | Primitive::Hmac(_) => &[RING, AWS, GRAVIOLA, RUSTCRYPTO],
        // aws-lc takes 50 to 100 ms for the first bytes of a process; ring asks the system at once.
        Primitive::Random => &[RING, GRAVIOLA, RUSTCRYPTO, AWS],
    }
}
