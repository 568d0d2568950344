//! Where a provider by itself does not do what this suite asks, and why that is borne. The layer makes up for each of
//! them. An entry that excuses nothing fails the suite, so that the list only shrinks.

use crate::conformance::report::Case;

/// A deviation that is known.
pub(crate) struct Deviation {
    pub(crate) provider: &'static str,
    /// The set of the vectors.
    pub(crate) set: &'static str,
    /// What their note or name begins with.
    pub(crate) what: &'static str,
    pub(crate) why: &'static str,
}

const fn known(
    provider: &'static str,
    set: &'static str,
    what: &'static str,
    why: &'static str,
) -> Deviation {
    Deviation { provider, set, what, why }
}

const SMALL_ORDER: &str =
    "RFC 8032 does not ask for it; the layer refuses such points in keys and signatures";
const SIZES: &str = "takes any size in its range; the layer takes the sizes that have a name";
const SPKI: &str = "takes a key in either form; the layer takes the bare one alone";
const POINTS: &str = "takes every form of SEC 1; the layer takes uncompressed points alone";
const SCALARS: &str = "takes a scalar with leading zeros; the layer asks for the length of the curve";
const NUMBERS: &str =
    "checks less of a private key than it could; the layer proves an RSA key before it is used";
const EXPONENTS: &str = "checks neither that the exponent is odd nor that it is more than 1; the layer does";

pub(crate) const DEVIATIONS: &[Deviation] = &[
    known("aws-lc", "edge.json", "small-order key", SMALL_ORDER),
    known("aws-lc", "edge.json", "small-order R", SMALL_ORDER),
    known("aws-lc", "edge.json", "S = 0, R = 1", SMALL_ORDER),
    known("graviola", "edge.json", "small-order key", SMALL_ORDER),
    known("graviola", "edge.json", "small-order R", SMALL_ORDER),
    known("graviola", "edge.json", "S = 0, R = 1", SMALL_ORDER),
    known("ring", "edge.json", "small-order key", SMALL_ORDER),
    known("ring", "edge.json", "small-order R", SMALL_ORDER),
    known("ring", "edge.json", "S = 0, R = 1", SMALL_ORDER),
    known("aws-lc", "edge.json", "modulus of 2049", SIZES),
    known("aws-lc", "edge.json", "modulus of 2056", SIZES),
    known("graviola", "edge.json", "modulus of 2047", SIZES),
    known("ring", "edge.json", "modulus of 2047", SIZES),
    known("ring", "edge.json", "modulus of 2049", SIZES),
    known("ring", "edge.json", "modulus of 2056", SIZES),
    known("aws-lc", "edge.json", "key: SubjectPublicKeyInfo", SPKI),
    known("aws-lc", "altered", "key in a SubjectPublicKeyInfo", SPKI),
    known("aws-lc", "altered", "another form of point", POINTS),
    known("aws-lc", "shares", "another form of point", POINTS),
    known("aws-lc", "ecdh_secp256r1_ecpoint", "CompressedPublic", POINTS),
    known("aws-lc", "ecdh_secp384r1_ecpoint", "CompressedPublic", POINTS),
    known("graviola", "edge.json", "exponent 1", EXPONENTS),
    known("graviola", "edge.json", "exponent 2", EXPONENTS),
    known(
        "graviola",
        "edge.json",
        "signature with",
        "takes a number of any length; the layer asks for the modulus's",
    ),
    known(
        "graviola",
        "altered",
        "extended signature",
        "takes a number of any length; the layer asks for the modulus's",
    ),
    known(
        "graviola",
        "shares",
        "coordinates at the edge",
        "takes a coordinate modulo the prime; the layer asks for a reduced one",
    ),
    known("aws-lc", "private keys", "secret longer by a byte", SCALARS),
    known("graviola", "private keys", "secret longer by a byte", SCALARS),
    known("graviola", "private keys", "a damaged number", NUMBERS),
    known("ring", "private keys", "a damaged number", NUMBERS),
    #[cfg(feature = "comparison")]
    known("rustcrypto", "private keys", "a damaged number", NUMBERS),
    known(
        "aws-lc",
        "expanded keys",
        "hash turned over",
        "does not compare the hash (FIPS 203 section 7.3); the layer reads no such keys",
    ),
];

/// The place of the entry that excuses a verdict.
pub(crate) fn excuse(subject: &str, case: &Case) -> Option<usize> {
    DEVIATIONS.iter().position(|known| {
        known.provider == subject
            && known.set == case.set
            && (case.note.starts_with(known.what) || case.id.starts_with(known.what))
    })
}
