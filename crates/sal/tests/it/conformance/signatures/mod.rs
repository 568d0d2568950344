//! Signatures that must be accepted, and those that must not.

mod altered;
mod wycheproof;

pub(crate) use altered::order;
pub(crate) use wycheproof::{expectation, flags};

use std::sync::{Arc, LazyLock};

use sallyport_sal::Primitive;
use sallyport_sal::algorithm::{KeyAlgorithm, SignatureScheme, Standing};
use sallyport_sal::provider::{Fault, Offer, Provider};

use crate::conformance::encoding::{EDGE, PUBLISHED, bytes, list, text};
use crate::conformance::report::{Case, Expect, Origin, Report};

/// A signature to judge.
pub(crate) struct Vector {
    pub(crate) case: Arc<Case>,
    pub(crate) algorithm: KeyAlgorithm,
    pub(crate) scheme: SignatureScheme,
    pub(crate) public: Vec<u8>,
    pub(crate) message: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

/// Everything there is to judge, and what no provider can judge, with the reason.
#[derive(Default)]
pub(crate) struct Vectors {
    pub(crate) all: Vec<Vector>,
    pub(crate) skipped: Vec<(Primitive, &'static str)>,
}

static VECTORS: LazyLock<Vectors> = LazyLock::new(|| {
    let mut vectors = Vectors::default();
    wycheproof::load(&mut vectors);
    published(&mut vectors);
    edge(&mut vectors);
    altered::load(&mut vectors);
    vectors
});

/// Has a provider judge every signature for a primitive that it offers.
pub(crate) fn verify(provider: &dyn Provider, report: &mut Report) {
    let offers = |primitive| provider.offer(primitive) != Offer::No;
    for vector in VECTORS.all.iter().filter(|vector| offers(vector.case.primitive)) {
        let outcome = provider.verify(
            vector.algorithm,
            vector.scheme,
            &vector.public,
            &vector.message,
            &vector.signature,
        );
        // Of keys for the lab not every scheme is asked.
        if outcome == Err(Fault::Unsupported) && vector.algorithm.standing() == Standing::LabOnly {
            report.skip(
                vector.case.primitive,
                vector.case.origin,
                "the library has not this scheme for so short a key",
            );
        } else {
            report.judge(&vector.case, outcome);
        }
    }
    for (primitive, reason) in VECTORS.skipped.iter().filter(|(primitive, _)| offers(*primitive)) {
        report.skip(*primitive, Origin::Wycheproof, reason);
    }
}

fn published(vectors: &mut Vectors) {
    for (name, of) in [("ed25519", Some(KeyAlgorithm::Ed25519)), ("ecdsa", None)] {
        for entry in list(&PUBLISHED, name) {
            let algorithm = of.unwrap_or_else(|| text(entry, "algorithm").parse().unwrap());
            vectors.all.push(Vector {
                case: Arc::new(Case {
                    primitive: Primitive::Verify(algorithm),
                    origin: Origin::Published,
                    set: if of.is_some() { "RFC 8032" } else { "RFC 6979" },
                    note: String::new(),
                    id: text(entry, "name").to_owned(),
                    expect: Expect::Accept,
                }),
                algorithm,
                scheme: algorithm.default_scheme(),
                public: bytes(entry, "public"),
                message: bytes(entry, "message"),
                signature: bytes(entry, "signature"),
            });
        }
    }
}

fn edge(vectors: &mut Vectors) {
    for (name, of) in
        [("ed25519", Some(KeyAlgorithm::Ed25519)), ("p521", Some(KeyAlgorithm::EcdsaP521)), ("rsa", None)]
    {
        for entry in list(&EDGE, name) {
            let algorithm = of.unwrap_or_else(|| text(entry, "algorithm").parse().unwrap());
            let scheme =
                entry["scheme"].as_str().map_or(algorithm.default_scheme(), |name| name.parse().unwrap());
            vectors.all.push(Vector {
                case: Arc::new(Case {
                    primitive: Primitive::Verify(algorithm),
                    origin: Origin::Edge,
                    set: "edge.json",
                    note: entry["why"].as_str().unwrap_or("a coordinate that is not reduced").to_owned(),
                    id: text(entry, "name").to_owned(),
                    expect: expected(text(entry, "expect")),
                }),
                algorithm,
                scheme,
                public: bytes(entry, "public"),
                message: bytes(entry, "message"),
                signature: bytes(entry, "signature"),
            });
        }
    }
}

pub(crate) fn expected(word: &str) -> Expect {
    match word {
        "accept" => Expect::Accept,
        "refuse" => Expect::Refuse,
        "same" => Expect::Same,
        other => panic!("{other} is no expectation"),
    }
}
