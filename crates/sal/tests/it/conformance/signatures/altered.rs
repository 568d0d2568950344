//! Published signatures and keys, damaged or spelled otherwise.

use std::sync::Arc;

use sallyport_sal::Primitive;
use sallyport_sal::algorithm::{KeyAlgorithm, KeyKind};

use super::{Vector, Vectors};
use crate::conformance::encoding::{
    add, der, der_integer, der_integers, der_sequence, hex, padded, subtract,
};
use crate::conformance::report::{Case, Expect, Origin};

pub(super) fn load(vectors: &mut Vectors) {
    let mut made = Vec::new();
    let mut seen = Vec::new();
    for vector in &vectors.all {
        // One honest signature for each type of key and scheme is enough.
        if vector.case.expect != Expect::Accept || seen.contains(&(vector.algorithm, vector.scheme)) {
            continue;
        }
        seen.push((vector.algorithm, vector.scheme));
        damaged(vector, &mut made);
        if vector.algorithm.kind() == KeyKind::Ecdsa {
            ecdsa_signatures(vector, &mut made);
            points(vector, &mut made);
        }
    }
    vectors.all.extend(made);
}

fn alter(of: &Vector, expect: Expect, note: &str, id: &str, public: &[u8], signature: &[u8]) -> Vector {
    Vector {
        case: Arc::new(Case {
            primitive: Primitive::Verify(of.algorithm),
            origin: Origin::Edge,
            set: "altered",
            note: note.to_owned(),
            id: if id.is_empty() { of.scheme.to_string() } else { format!("{}, {id}", of.scheme) },
            expect,
        }),
        algorithm: of.algorithm,
        scheme: of.scheme,
        public: public.to_vec(),
        message: of.message.clone(),
        signature: signature.to_vec(),
    }
}

/// Every kind of key: signature and key cut, extended and with a bit turned over, and another message.
fn damaged(of: &Vector, made: &mut Vec<Vector>) {
    let refuse = |note: &str, id: String, public: &[u8], signature: &[u8]| {
        alter(of, Expect::Refuse, note, &id, public, signature)
    };
    let (public, signature) = (&of.public, &of.signature);
    for length in [0, 1, signature.len() / 2, signature.len() - 1] {
        made.push(refuse("truncated signature", format!("{length} bytes"), public, &signature[..length]));
    }
    for extra in [1, 16] {
        let longer = [signature.as_slice(), &vec![0; extra]].concat();
        made.push(refuse("extended signature", format!("{extra} more bytes"), public, &longer));
        let longer = [&vec![0; extra], signature.as_slice()].concat();
        made.push(refuse("extended signature", format!("{extra} more bytes in front"), public, &longer));
    }
    for length in [0, 1, public.len() / 2, public.len() - 1] {
        made.push(refuse("truncated key", format!("{length} bytes"), &public[..length], signature));
    }
    made.push(refuse(
        "extended key",
        "1 more byte".to_owned(),
        &[public.as_slice(), &[0]].concat(),
        signature,
    ));
    let spki =
        der_sequence(&[of.algorithm.spki_algorithm_der(), &der(0x03, &[&[0], public.as_slice()].concat())]);
    made.push(refuse("key in a SubjectPublicKeyInfo", String::new(), &spki, signature));
    for step in 0..16 {
        let at = (signature.len() - 1) * step / 15;
        let mut damaged = signature.clone();
        damaged[at] ^= 1 << (step % 8);
        made.push(refuse("damaged signature", format!("bit {} of byte {at}", step % 8), public, &damaged));
    }
    for step in 0..8 {
        let at = (public.len() - 1) * step / 7;
        let mut damaged = public.clone();
        damaged[at] ^= 1 << step;
        // The tag of RSA's key, or the form of a point, turned over is judged with the other spellings of keys.
        made.push(refuse("damaged key", format!("bit {step} of byte {at}"), &damaged, signature));
    }
    let mut other = refuse("another message", String::new(), public, signature);
    other.message.push(0);
    made.push(other);
    made.push(refuse("zeros for a signature", String::new(), public, &vec![0; signature.len()]));
}

/// The order of the group.
pub(crate) fn order(algorithm: KeyAlgorithm) -> Vec<u8> {
    hex(match algorithm {
        KeyAlgorithm::EcdsaP256 => "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
        KeyAlgorithm::EcdsaP384 => {
            "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973"
        }
        _ => {
            "01fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409"
        }
    })
}

fn ecdsa_signatures(of: &Vector, made: &mut Vec<Vector>) {
    let [r, s] = der_integers(&of.signature).try_into().expect("a signature is two integers");
    let n = order(of.algorithm);
    let size = of.algorithm.secret_bytes().expect("a curve has a size");
    let (r_der, s_der) = (der_integer(&r), der_integer(&s));
    let negative = |value: &[u8]| {
        // Two's complement at a length that leaves the sign bit.
        let zero = [&[1][..], &vec![0; value.len() + 1]].concat();
        der(0x02, &subtract(&zero, value)[1..])
    };
    let two = |r: &[u8], s: &[u8]| der_sequence(&[r, s]);
    let mut refuse = |note: &str, id: &str, signature: Vec<u8>| {
        made.push(alter(of, Expect::Refuse, note, id, &of.public, &signature));
    };
    let out_of_range: [(&str, Vec<u8>); 6] = [
        ("0", vec![]),
        ("n", n.clone()),
        ("n + 1", add(&n, &[1])),
        ("2^bits - 1", vec![0xff; size]),
        ("itself + n", Vec::new()),
        ("minus itself", Vec::new()),
    ];
    for (name, value) in &out_of_range {
        let spelled = |own: &[u8]| match *name {
            "itself + n" => der_integer(&add(own, &n)),
            "minus itself" => negative(own),
            _ => der_integer(value),
        };
        refuse("r or s out of range", &format!("r = {name}"), two(&spelled(&r), &s_der));
        refuse("r or s out of range", &format!("s = {name}"), two(&r_der, &spelled(&s)));
        refuse("r or s out of range", &format!("r and s = {name}"), two(&spelled(&r), &spelled(&s)));
    }
    let long_zero = |value: &[u8]| der(0x02, &[&[0, 0], value].concat());
    let spelling = "not the one DER encoding of the signature";
    refuse(spelling, "r with needless zeros", two(&long_zero(&r), &s_der));
    refuse(spelling, "s with needless zeros", two(&r_der, &long_zero(&s)));
    refuse(spelling, "r without content", two(&der(0x02, &[]), &s_der));
    refuse(spelling, "r as OCTET STRING", two(&der(0x04, &r_der[2..]), &s_der));
    refuse(spelling, "a third integer", der_sequence(&[&r_der, &s_der, &der_integer(&[1])]));
    refuse(spelling, "one integer", der_sequence(&[&r_der]));
    refuse(spelling, "SET for SEQUENCE", der(0x31, &[r_der.as_slice(), &s_der].concat()));
    let body = [r_der.as_slice(), &s_der].concat();
    let mut longer = vec![0x30, 0x82, 0];
    longer.push(u8::try_from(body.len()).unwrap());
    refuse(spelling, "length in three bytes", [longer.as_slice(), &body].concat());
    refuse(spelling, "indefinite length", [&[0x30, 0x80][..], &body, &[0, 0]].concat());
    refuse(spelling, "r || s", [padded(&r, size), padded(&s, size)].concat());

    let high = subtract(&n, &s);
    made.push(alter(
        of,
        Expect::Accept,
        "n - s for s, which plain ECDSA takes",
        "",
        &of.public,
        &two(&r_der, &der_integer(&high)),
    ));
}

fn points(of: &Vector, made: &mut Vec<Vector>) {
    let (x, y) = of.public[1..].split_at((of.public.len() - 1) / 2);
    let odd = y[y.len() - 1] & 1;
    let point = |form: u8, parts: &[&[u8]]| [&[form][..], &parts.concat()].concat();
    let mut off = y.to_vec();
    *off.last_mut().unwrap() ^= 2;
    let zero = vec![0; x.len()];
    let form = "another form of point than uncompressed";
    let curve = "a point that is not on the curve";
    for (note, id, public) in [
        (form, "compressed", point(2 + odd, &[x])),
        (form, "compressed, the other y", point(3 - odd, &[x])),
        (form, "hybrid", point(6 + odd, &[x, y])),
        (form, "hybrid, the other y", point(7 - odd, &[x, y])),
        (form, "infinity", vec![0]),
        (form, "infinity at full length", point(0, &[&zero, &zero])),
        (form, "form 5", point(5, &[x, y])),
        (form, "no form", [x, y].concat()),
        (curve, "other y", point(4, &[x, &off])),
        (curve, "zero", point(4, &[&zero, &zero])),
        (curve, "x and y exchanged", point(4, &[y, x])),
        (curve, "all ones", point(4, &[&vec![0xff; x.len()], &vec![0xff; x.len()]])),
    ] {
        made.push(alter(of, Expect::Refuse, note, id, &public, &of.signature));
    }
}
