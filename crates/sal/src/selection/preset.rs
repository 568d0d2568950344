//! The order of sources before anything was measured, by what the CPU has.
//!
//! The table comes from measurements on two kinds of x86-64, both with AVX2 and ADX: one without SHA-NI, VAES and IFMA,
//! and one with all of them. Providers that need what the CPU has not are dropped before it is read, which leaves
//! aws-lc and ring first where graviola cannot run.

use crate::Primitive;
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind};
use crate::cpu::{Cpu, CpuFeature};

const AWS: &str = "aws-lc";
const RING: &str = "ring";
const GRAVIOLA: &str = "graviola";
const LIBCRUX: &str = "libcrux";
const RUSTCRYPTO: &str = "rustcrypto";

/// Names of providers, the first choice first. A provider that is not named comes after those that are.
#[must_use]
pub fn order(primitive: Primitive, cpu: &Cpu) -> &'static [&'static str] {
    let ifma = cpu.has(CpuFeature::Avx512ifma);
    let wide_aes =
        cpu.has(CpuFeature::Vaes) && cpu.has(CpuFeature::Vpclmulqdq) && cpu.has(CpuFeature::Avx512f);
    let sha = cpu.has(CpuFeature::Sha);
    match primitive {
        // With 52-bit multiplication aws-lc signs with RSA 2.4 times as fast as the others.
        Primitive::Sign(algorithm) if algorithm.kind() == KeyKind::Rsa && ifma => &[AWS, GRAVIOLA, RING],
        // graviola's ML-KEM uses 512-bit registers, which the same CPUs have.
        Primitive::Encapsulate if ifma => &[GRAVIOLA, AWS, LIBCRUX, RUSTCRYPTO],
        // With AES over 512-bit registers aws-lc encrypts twice as fast as ring, which does not use them.
        Primitive::Aead(AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm) if wide_aes => {
            &[AWS, GRAVIOLA, RING, RUSTCRYPTO]
        }
        // Where the CPU hashes, what is left is the cost of the call.
        Primitive::Hmac(HashAlgorithm::Sha256) if sha => &[GRAVIOLA, RUSTCRYPTO, RING, AWS],
        Primitive::Hash(HashAlgorithm::Sha256) if sha => &[AWS, GRAVIOLA, RUSTCRYPTO, RING],
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
