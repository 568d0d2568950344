#![allow(clippy::unwrap_used, clippy::panic, clippy::float_cmp)]

use super::*;

fn assess(name: &str) -> Strength {
    name.parse::<Problem>().unwrap_or_else(|error| panic!("{error}")).assess()
}

#[test]
fn the_sieve_gives_the_published_figures() {
    for (bits, published) in [(1024, "86.77"), (2048, "116.88"), (3072, "138.74"), (4096, "156.50")] {
        assert_eq!(format!("{:.2}", sieve_bits(bits)), published, "{bits}");
    }
}

#[test]
fn the_guidance_is_close_to_the_table_that_it_was_fitted_to() {
    for (bits, counts) in NIST_ROWS {
        let formula = guidance_bits(*bits);
        assert!((formula - f64::from(*counts)).abs() < 14.0, "{bits}: {formula}");
        assert!(formula < sieve_bits(*bits));
    }
    // The two by which it is known: 2048 -> 110, 3072 -> 132.
    assert_eq!(guidance_bits(2048).round(), 110.0);
    assert_eq!(guidance_bits(3072).round(), 132.0);
}

#[test]
fn longer_is_never_weaker() {
    let mut last = (0.0, 0.0, 0);
    for bits in RSA_BITS {
        let strength = Problem::rsa(bits).unwrap().assess();
        let nist = strength.nist.floor().unwrap_or_default();
        let now = (strength.classical.bits, strength.fips_guidance.unwrap().bits, nist);
        assert!(now.0 > last.0 && now.1 > last.1 && now.2 >= last.2, "{bits}: {now:?} after {last:?}");
        assert!(strength.classical.is_estimate && strength.quantum.bits == Some(0));
        last = now;
    }
    for bits in [0, 1, 511, 16_385, u32::MAX] {
        assert_eq!(Problem::rsa(bits), Err(UnknownKey::Size(bits)));
        assert!(sieve_bits(bits).is_finite() && guidance_bits(bits).is_finite());
    }
}

#[test]
fn between_rows_the_table_says_only_at_least() {
    let said: Vec<String> = [512, 1023, 1024, 2047, 2048, 3071, 4096, 7680, 8192, 15_360, 16_384]
        .into_iter()
        .map(|bits| nist_of_modulus(bits).to_string())
        .collect();
    let expected = [
        "below 80",
        "below 80",
        "80",
        "at least 80",
        "112",
        "at least 112",
        "at least 128",
        "192",
        "at least 192",
        "256",
        "at least 256",
    ];
    assert_eq!(said, expected);
}

#[test]
fn curves_have_half_the_bits_of_their_order() {
    for (name, bits, nist) in [
        ("ed25519", 126.0, 128),
        ("x25519", 126.0, 128),
        ("P-256", 128.0, 128),
        ("p384", 192.0, 192),
        ("p521", 260.5, 256),
    ] {
        let strength = assess(name);
        assert_eq!((strength.classical.bits, strength.nist), (bits, Nist::Equal(nist)), "{name}");
        assert_eq!(strength.quantum.bits, Some(0), "{name}");
    }
}

#[test]
fn lattices_have_categories_that_say_what_they_mean() {
    for (name, category, like) in [
        ("ml-dsa-44", 2, "SHA-256"),
        ("ml-dsa-65", 3, "AES-192"),
        ("ml-dsa-87", 5, "AES-256"),
        ("ml-kem-512", 1, "AES-128"),
        ("ml-kem-768", 3, "AES-192"),
        ("ML-KEM-1024", 5, "AES-256"),
        ("X25519MLKEM768", 3, "AES-192"),
    ] {
        let strength = assess(name);
        assert_eq!(strength.category.unwrap().number(), category, "{name}");
        assert!(
            strength.quantum.words.contains(like) && strength.quantum.bits.is_none(),
            "{name}: {strength:?}"
        );
    }
}

#[test]
fn names_are_read_as_people_write_them() {
    for (name, key) in [
        ("rsa-2048", "RSA-2048"),
        ("RSA2047", "RSA-2047"),
        ("16384", "RSA-16384"),
        ("ECDSA-P256", "P-256"),
        ("prime256v1", "P-256"),
        ("ecdsa-sha2-nistp384", "P-384"),
        ("ssh-ed25519", "Ed25519"),
        ("mlkem768x25519-sha256", "X25519MLKEM768"),
        ("SecP256r1MLKEM768", "SecP256r1MLKEM768"),
        ("mldsa65", "ML-DSA-65"),
    ] {
        assert_eq!(assess(name).key, key, "{name}");
    }
    // Every key reads its own name.
    for curve in Curve::ALL {
        assert_eq!(curve.name().parse(), Ok(Problem::Curve(*curve)));
    }
    for lattice in Lattice::ALL {
        assert_eq!(lattice.name().parse(), Ok(Problem::Lattice(*lattice)));
    }
    for name in ["", "rsa", "rsa-", "rsa-x", "-1", "99999999999999999999", "dsa", "\u{0}", "é"] {
        let error = name.parse::<Problem>().unwrap_err().to_string();
        assert!(error.contains("x25519mlkem768") || error.contains("512 to 16384"), "{name:?}: {error}");
    }
    assert_eq!("511".parse::<Problem>(), Err(UnknownKey::Size(511)));
}

#[test]
fn every_size_has_a_verdict_with_a_reason() {
    let verdict = |name: &str| {
        let strength = assess(name);
        (strength.verdict, strength.reason)
    };
    assert_eq!(verdict("512").0, Verdict::Broken);
    assert!(verdict("1024").1.contains("broken by those who can pay"));
    assert_eq!(verdict("2047").0, Verdict::Weak);
    assert_eq!(verdict("2048").0, Verdict::Acceptable);
    assert!(verdict("2048").1.contains("until 2030"));
    assert_eq!(verdict("3072").0, Verdict::Good);
    assert!(verdict("4096").1.starts_with("+40 bits over 2048 for 6 to 7 times"), "{:?}", verdict("4096"));
    assert_eq!(verdict("8192").0, Verdict::Excessive);
    assert_eq!(verdict("ed25519").0, Verdict::Good);
    let dsa = Problem::Dsa { prime_bits: 1024, order_bits: 160 }.assess();
    // One word for what costs the same: RSA-1024 is broken, too.
    assert_eq!((dsa.verdict, dsa.nist, dsa.classical.bits), (Verdict::Broken, Nist::Equal(80), 80.0));
    assert_eq!(Problem::Dsa { prime_bits: 2048, order_bits: 224 }.assess().verdict, Verdict::Weak);
    let odd = Problem::Dsa { prime_bits: 3072, order_bits: 160 }.assess();
    assert_eq!(odd.nist, Nist::AtLeast(80));
}

#[test]
fn programs_read_that_it_is_an_estimate() {
    let json = serde_json::to_value(assess("rsa-4096")).unwrap();
    assert_eq!(json["classical"]["is_estimate"], true);
    assert_eq!(json["fips_guidance"]["is_estimate"], true);
    assert_eq!(json["nist"], serde_json::json!({"is": "at_least", "bits": 128}));
    assert_eq!(json["quantum"]["bits"], 0);
    assert_eq!(json["verdict"], "good");
    let json = serde_json::to_value(assess("ml-dsa-65")).unwrap();
    assert_eq!(json["category"]["number"], 3);
}
