//! In a word and a sentence, whether a key is to be kept.

use std::fmt;

use serde::Serialize;

use super::curve::Curve;
use super::lattice::Lattice;
use super::problem::Problem;
use super::sieve::sieve_bits;

/// Whether to keep a key, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It has been done, or could be at once.
    Broken,
    /// Not to be used for anything new, and to be replaced.
    Weak,
    /// In order today, with a date.
    Acceptable,
    /// Nothing to do.
    Good,
    /// Nothing is gained by so much, and it is paid for in every handshake.
    Excessive,
}

impl Verdict {
    /// The word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Weak => "weak",
            Self::Acceptable => "acceptable",
            Self::Good => "good",
            Self::Excessive => "excessive",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The word and the sentence for a key.
pub(super) fn of(problem: Problem) -> (Verdict, String) {
    match problem {
        Problem::Rsa { modulus_bits } => rsa(modulus_bits),
        Problem::Dsa { prime_bits, .. } => {
            const GONE: &str =
                "FIPS 186-5 took DSA out for new signatures, OpenSSH and browsers refuse it; use Ed25519 or P-256";
            // The same sieve finds logarithms modulo a prime and factors of a modulus of that length.
            match rsa(prime_bits) {
                (Verdict::Broken, _) => {
                    (Verdict::Broken, format!("broken by those who can pay, as RSA of that length is; {GONE}"))
                }
                _ => (Verdict::Weak, GONE.to_owned()),
            }
        }
        Problem::Curve(curve) => curve_of(curve),
        Problem::Lattice(lattice) => lattice_of(lattice),
        Problem::Hybrid(..) => (
            Verdict::Good,
            "holds as long as either half does; what is recorded today stays secret from a later quantum computer"
                .to_owned(),
        ),
    }
}

fn rsa(bits: u32) -> (Verdict, String) {
    let more = sieve_bits(bits) - sieve_bits(2048);
    match bits {
        // "Factoring as a Service" (2015): 512 bits in four hours for 75 dollars of rented machines.
        0..768 => (Verdict::Broken, "anyone factors it in hours with rented machines".to_owned()),
        // RSA-250 has 829 bits: 2,700 core-years, February 2020.
        768..830 => {
            (Verdict::Broken, "factored in public: 829 bits took 2,700 core-years in 2020".to_owned())
        }
        830..1024 => (Verdict::Broken, "little more than what was factored in public in 2020 (829 bits)".to_owned()),
        1024..1280 => (
            Verdict::Broken,
            "broken by those who can pay; NIST has disallowed it since 2014, and browsers refuse it".to_owned(),
        ),
        1280..2048 => (
            Verdict::Weak,
            "shorter than the 2048 bits that NIST, browsers and strict libraries ask for; none is known to have been \
             factored"
                .to_owned(),
        ),
        2048..3072 => {
            (Verdict::Acceptable, "fine until 2030 by NIST (112 bits), then 3072 or a curve".to_owned())
        }
        3072..4096 => (
            Verdict::Good,
            format!("{more:+.0} bits over 2048 for about three times the signing cost; see `sallyport lab keys`"),
        ),
        4096 => (
            Verdict::Good,
            format!("{more:+.0} bits over 2048 for 6 to 7 times the signing cost; see `sallyport lab keys`"),
        ),
        _ => {
            // Signing grows with the cube of the length (an estimate, which measurements bear out).
            let times = (f64::from(bits) / 2048.0).powi(3);
            (
                Verdict::Excessive,
                format!(
                    "{more:+.0} bits over 2048 for some {times:.0} times the signing cost (an estimate: the cube of \
                     the length), and a quantum computer would not notice; a curve is as strong for a fraction"
                ),
            )
        }
    }
}

fn curve_of(curve: Curve) -> (Verdict, String) {
    let words = |text: &str| text.to_owned();
    match curve {
        Curve::P192 => (Verdict::Weak, words("below the 112 bits that NIST asks for; use P-256 or Ed25519")),
        Curve::P224 => {
            (Verdict::Acceptable, words("fine until 2030 by NIST (112 bits); little software takes it"))
        }
        Curve::P256 => (Verdict::Good, words("sound and taken everywhere; signing is quick")),
        Curve::P384 => {
            (Verdict::Good, words("sound, several times slower than P-256; for those who must have 192 bits"))
        }
        Curve::P521 => (Verdict::Good, words("sound, and slow; browsers do not take it in certificates")),
        Curve::Secp256k1 => (Verdict::Good, words("sound; TLS and SSH do not use it")),
        Curve::Brainpool256 | Curve::Brainpool384 | Curve::Brainpool512 => {
            (Verdict::Good, words("sound; slow, and little software takes it"))
        }
        Curve::Ed25519 => (
            Verdict::Good,
            words(
                "sound and the quickest to sign with; for SSH and internal TLS: browsers do not take it in certificates",
            ),
        ),
        Curve::Ed448 => (Verdict::Good, words("sound; little software takes it")),
        Curve::X25519 => (
            Verdict::Good,
            words(
                "sound, but what is recorded today a later quantum computer could read: prefer X25519MLKEM768",
            ),
        ),
        Curve::X448 => (
            Verdict::Good,
            words(
                "sound, but what is recorded today a later quantum computer could read; little software takes it",
            ),
        ),
    }
}

fn lattice_of(lattice: Lattice) -> (Verdict, String) {
    let words = match lattice {
        Lattice::MlDsa44 | Lattice::MlDsa65 | Lattice::MlDsa87 => {
            "post-quantum; signatures of kilobytes, and no browser takes it in certificates yet"
        }
        Lattice::MlKem512 => {
            "post-quantum; the smallest set, which hybrids of TLS and SSH leave out for ML-KEM-768"
        }
        Lattice::MlKem768 => "post-quantum; young, so use it beside a curve: X25519MLKEM768",
        Lattice::MlKem1024 => "post-quantum; young, so use it beside a curve: SecP384r1MLKEM1024",
    };
    (Verdict::Good, words.to_owned())
}
