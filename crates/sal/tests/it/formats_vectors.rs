//! Published keys are read as what they are, and files that are wrong in one point are refused for that point.

use std::fmt::Write as _;

use crypto_bigint::{BoxedUint, NonZero};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use sallyport_sal::formats::{self, Format, FormatError, PublicFormat, jwk, openssh, pkcs8};
use sallyport_sal::{KeyAlgorithm, MemoryKey, PrivateKeyMaterial, PublicKey};

/// RFC 7517 appendix A.2, the first key. It says there that it is for encryption.
const RFC7517_EC: &str = r#"{"kty":"EC","crv":"P-256",
    "x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    "d":"870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE","use":"enc","kid":"1"}"#;
/// RFC 7517 appendix A.2, the second key. Its thumbprint is in RFC 7638 §3.1.
const RFC7517_RSA: &str = r#"{"kty":"RSA",
    "n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
    "e":"AQAB",
    "d":"X4cTteJY_gn4FYPsXB8rdXix5vwsg1FLN5E3EaG6RJoVH-HLLKD9M7dx5oo7GURknchnrRweUkC7hT5fJLM0WbFAKNLWY2vv7B6NqXSzUvxT0_YSfqijwp3RTzlBaCxWp4doFk5N2o8Gy_nHNKroADIkJ46pRUohsXywbReAdYaMwFs9tv8d_cPVY3i07a3t8MN6TNwm0dSawm9v47UiCl3Sk5ZiG7xojPLu4sbg1U2jx4IBTNBznbJSzFHK66jT8bgkuqsk0GjskDJk19Z4qwjwbsnn4j2WBii3RL-Us2lGVkY8fkFzme1z0HbIkfz0Y6mqnOYtqc0X4jfcKoAC8Q",
    "p":"83i-7IvMGXoMXCskv73TKr8637FiO7Z27zv8oj6pbWUQyLPQBQxtPVnwD20R-60eTDmD2ujnMt5PoqMrm8RfmNhVWDtjjMmCMjOpSXicFHj7XOuVIYQyqVWlWEh6dN36GVZYk93N8Bc9vY41xy8B9RzzOGVQzXvNEvn7O0nVbfs",
    "q":"3dfOR9cuYq-0S-mkFLzgItgMEfFzB2q3hWehMuG0oCuqnb3vobLyumqjVZQO1dIrdwgTnCdpYzBcOfW5r370AFXjiWft_NGEiovonizhKpo9VVS78TzFgxkIdrecRezsZ-1kYd_s1qDbxtkDEgfAITAG9LUnADun4vIcb6yelxk",
    "dp":"G4sPXkc6Ya9y8oJW9_ILj4xuppu0lzi_H7VTkS8xj5SdX3coE0oimYwxIi2emTAue0UOa5dpgFGyBJ4c8tQ2VF402XRugKDTP8akYhFo5tAA77Qe_NmtuYZc3C3m3I24G2GvR5sSDxUyAN2zq8Lfn9EUms6rY3Ob8YeiKkTiBj0",
    "dq":"s9lAH9fggBsoFR8Oac2R_E2gw282rT2kGOAhvIllETE1efrA6huUUvMfBcMpn8lqeW6vzznYY5SSQF7pMdC_agI3nG8Ibp1BUb0JUiraRNqUfLhcQb_d9GF4Dh7e74WbRsobRonujTYN1xCaP6TO61jvWrX-L18txXw494Q_cgk",
    "qi":"GyM_p6JrXySiz1toFgKbWV-JdI3jQ4ypu9rbMWx3rQJBfmt0FoYzgUIZEVFEcOqwemRN81zoDAaa-Bk0KWNGDjJHZDdDmFhW3AN7lI-puxk_mHZGJ11rxyR8O55XLSe3SPmRfKwZI6yU24ZxvQKFYItdldUKGzO6Ia6zTKhAVRU",
    "alg":"RS256","kid":"2011-04-29"}"#;
/// RFC 8037 appendix A.1.
const RFC8037: &str = r#"{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
    "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
/// RFC 9881 appendix C.1.1.3: the seed 00 to 1f and the expanded key.
const RFC9881_BOTH: &[u8] = include_bytes!("vectors/rfc9881-ml-dsa-44-both.pem");

fn read(bytes: impl AsRef<[u8]>) -> Result<PrivateKeyMaterial, FormatError> {
    formats::read_private(bytes.as_ref(), None)
}

fn public(key: &PrivateKeyMaterial) -> PublicKey {
    PublicKey::from_raw(key.algorithm(), key.public()).unwrap()
}

/// What the error says; the file must have been refused.
fn refusal(bytes: impl AsRef<[u8]>) -> String {
    match read(bytes) {
        Ok(_) => "it was read".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_keys_of_rfc_7517_are_read() {
    assert_eq!(
        refusal(RFC7517_EC),
        "not a well-formed JSON Web Key: \"use\" \"enc\" contradicts a key that is to sign"
    );
    let key = read(RFC7517_EC.replace("\"use\":\"enc\",", "")).unwrap();
    assert_eq!(key.algorithm(), KeyAlgorithm::EcdsaP256);
    assert_eq!(BASE64URL_NOPAD.encode(key.secret()), "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE");

    let key = read(RFC7517_RSA).unwrap();
    assert_eq!(key.algorithm(), KeyAlgorithm::Rsa2048);
    // RFC 7638 §3.1.
    assert_eq!(jwk::thumbprint(&public(&key)).unwrap(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    let written = jwk::encode_private(&key).unwrap();
    for line in RFC7517_RSA.lines().skip(1) {
        let member = line.trim().trim_end_matches([',', '}']);
        assert!(
            member.starts_with("\"alg\"") || written.contains(member),
            "{member} is not in what we write"
        );
    }
}

#[test]
fn the_key_of_rfc_8037_is_read() {
    let key = read(RFC8037).unwrap();
    assert_eq!(
        HEXLOWER.encode(key.secret()),
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    );
    let line = r#"{"crv":"Ed25519","kty":"OKP","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    assert_eq!(jwk::encode_public(&public(&key)).unwrap(), line);
    assert_eq!(formats::read_public(line.as_bytes()).unwrap(), public(&key));
    assert_eq!(jwk::thumbprint(&public(&key)).unwrap(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
}

/// RFC 9964 gives the thumbprint of the ML-DSA-44 key of the zero seed, and both ends of the key.
#[test]
fn the_ml_dsa_key_of_rfc_9964_is_written() {
    let der = [
        &HEXLOWER.decode(b"3034020100300b06096086480165030403110422" as &[u8]).unwrap()[..],
        &[0x80, 32],
        &[0; 32],
    ];
    let key = pkcs8::decode(&der.concat()).unwrap();
    let json = jwk::encode_private(&key).unwrap();
    assert!(json.starts_with(r#"{"alg":"ML-DSA-44","kty":"AKP","pub":"unH59k4Ru"#), "{}", json.as_str());
    let zeros = "A".repeat(43);
    assert!(
        json.ends_with(&format!(r#"DZgbTP07e7gEWzw4MFRrndjbDQ","priv":"{zeros}"}}"#)),
        "{}",
        json.as_str()
    );
    assert_eq!(jwk::thumbprint(&public(&key)).unwrap(), "T4xl70S7MT6Zeq6r9V9fPJGVn76wfnXJ21-gyo0Gu6o");
    assert_eq!(read(json.as_bytes()).unwrap().public(), key.public());
}

#[test]
fn the_ml_dsa_keys_of_rfc_9881_are_read_by_their_seed() {
    let key = read(RFC9881_BOTH).unwrap();
    assert_eq!(key.algorithm(), KeyAlgorithm::MlDsa44);
    assert_eq!(key.secret(), (0..32).collect::<Vec<u8>>());
    // Appendix C.1.1.1, byte for byte.
    let seed = "-----BEGIN PRIVATE KEY-----\n\
                MDQCAQAwCwYJYIZIAWUDBAMRBCKAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZ\n\
                GhscHR4f\n\
                -----END PRIVATE KEY-----\n";
    assert_eq!(*formats::write_private(&key, Format::Pkcs8Pem, None).unwrap(), seed.as_bytes());
    assert_eq!(read(seed).unwrap().public(), key.public());

    let text = String::from_utf8(RFC9881_BOTH.to_vec()).unwrap();
    let base64: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let both = BASE64.decode(base64.as_bytes()).unwrap();
    let expanded = &both[both.len() - 2560..];
    // Anywhere in the expanded key, one bit is enough.
    for at in [0, 32, 64, 128, 1000, 2559] {
        let mut damaged = both.clone();
        let start = both.len() - 2560;
        damaged[start + at] ^= 1;
        assert_eq!(
            refusal(&damaged),
            "the PKCS#8 private key holds an ml-dsa-44 key of which the expanded form does not follow from the seed"
        );
    }
    // Appendix C.1.1.2: without the seed.
    let mut alone = HEXLOWER.decode(b"30820a18020100300b060960864801650304031104820a0404820a00").unwrap();
    alone.extend_from_slice(expanded);
    let refused = refusal(&alone);
    assert!(
        refused.starts_with(
            "the PKCS#8 private key holds the expanded form of an ml-dsa-44 key without its seed, expected the seed"
        ),
        "{refused}"
    );
    // A seed that is wrapped once too often, as one library wrote it before the RFC.
    let early =
        [&HEXLOWER.decode(b"3034020100300b060960864801650304031104220420").unwrap()[..], &[7; 32]].concat();
    assert!(refusal(&early).contains("without its seed"));
}

#[test]
fn json_that_contradicts_itself_is_refused() {
    let ec = RFC7517_EC.replace("\"use\":\"enc\",", "");
    let set = |what: &str, to: &str| ec.replace("\"kid\":\"1\"", &format!("{what}:{to}"));
    for (json, reason) in [
        (set("\"alg\"", "\"ES384\""), "\"alg\" \"ES384\" does not belong to an ecdsa-p256 key"),
        (set("\"alg\"", "\"ECDH-ES\""), "\"alg\" \"ECDH-ES\" does not belong"),
        (set("\"key_ops\"", "[\"verify\"]"), "\"key_ops\" without that contradicts a key that is to sign"),
        (set("\"kty\"", "\"EC\""), "stands there twice"),
        (set("\"n\"", "7"), "a member has another type"),
        (ec.replace("P-256", "P-384"), "\"d\" has 32 bytes, expected 48"),
        (ec.replace("P-256", "secp256k1"), "a key of kty EC with crv \"secp256k1\", expected P-256"),
        (ec.replace("\"EC\"", "\"OKP\""), "a key of kty OKP with crv \"P-256\", expected Ed25519"),
        (ec.replace("\"crv\":\"P-256\",", ""), "there is no member \"crv\" for kty EC"),
        (ec.replace("\"kty\":\"EC\",", ""), "there is no member \"kty\""),
        (ec.replace("\"x\":", "\"X\":"), "there is no member \"x\""),
        (ec.replace("FyM\"", "FyM=\""), "\"y\" is not base64url"),
        // One bit beyond the last byte.
        (ec.replace("FyM\"", "FyN\""), "\"y\" is not base64url"),
        (ec.replace("870MB6", "870MB7"), "the public half belongs to another secret half"),
        (ec.replace("870M", "870\\u004d"), "is escaped"),
        (ec.replace('{', "{\"keys\":{},"), "it was read"),
        ("{\"keys\":[]}".to_owned(), "found a set of JSON Web Keys"),
        ("{\"kty\":\"oct\",\"k\":\"AAAA\",\"d\":\"AA\"}".to_owned(), "a symmetric key (kty \"oct\")"),
        ("{\"kty\":\"AKP\",\"alg\":\"ML-DSA-99\",\"priv\":\"AA\"}".to_owned(), "alg \"ML-DSA-99\""),
        ("{\"kty\":\"OKP\",\"crv\":\"X25519\",\"d\":\"AA\"}".to_owned(), "crv \"X25519\", expected Ed25519"),
        ("{}".to_owned(), "found a public JSON Web Key"),
        ("{".to_owned(), "it ends too early, at line 1 column 1"),
        ("{]".to_owned(), "it is not JSON"),
    ] {
        let refused = refusal(&json);
        assert!(refused.contains(reason), "{json}\n{refused}\nexpected {reason}");
        assert!(!refused.contains("870"), "the secret shows: {refused}");
    }
    for (from, to, reason) in [
        ("\"RS256\"", "\"PS512\"", "it was read"),
        ("\"RS256\"", "\"ES256\"", "does not belong to an rsa-2048 key"),
        ("\"AQAB\"", "\"AAEAAQ\"", "\"e\" starts with a zero byte"),
        ("\"AQAB\"", "\"AQ\"", "an RSA public exponent of 1 bits that is odd, expected 65537"),
        ("\"AQAB\"", "\"AQAA\"", "an RSA public exponent of 17 bits that is even"),
        ("\"AQAB\"", "\"AQAAAAE\"", "an RSA public exponent of 33 bits that is odd"),
        ("\"AQAB\"", "\"Aw\"", "the private exponent does not undo the public one"),
        ("X4cT", "X4cU", "an exponent for a prime does not follow from the private exponent"),
        ("83i-", "83i_", "the modulus is not the product of the primes"),
        ("G4sP", "G4sQ", "an exponent for a prime does not follow from the private exponent"),
        ("s9lA", "s9lB", "an exponent for a prime does not follow from the private exponent"),
        ("GyM_", "GyN_", "the coefficient is not the inverse of the second prime"),
        ("\"qi\"", "\"QI\"", "there is no member \"qi\""),
        ("\"kid\"", "\"oth\"", "more than two primes"),
        ("0vx7", "Uvx7", "an RSA key of 2047 bits, expected 2048, 3072 or 4096 bits"),
    ] {
        let refused = refusal(RFC7517_RSA.replace(from, to));
        assert!(refused.contains(reason), "{from} to {to}: {refused}\nexpected {reason}");
    }
    let without =
        RFC7517_RSA.split(r#""p":"#).next().unwrap().trim_end().trim_end_matches(',').to_owned() + "}";
    assert!(
        refusal(&without).contains("an RSA key without its primes, expected p, q, dp, dq and qi beside d")
    );
    // The other way: a private key is no public one.
    let refused = formats::read_public(RFC8037.as_bytes()).unwrap_err().to_string();
    assert_eq!(refused, "found a private JSON Web Key, expected a public one");
}

/// A key of which everything follows from its primes as it should, but one of them is not prime: its signatures do not
/// verify, and would give the other one away.
#[test]
fn an_rsa_key_with_a_composite_prime_is_refused() {
    let parsed: serde_json::Value = serde_json::from_str(RFC7517_RSA).unwrap();
    let number = |name: &str| {
        let bytes = BASE64URL_NOPAD.decode(parsed[name].as_str().unwrap().as_bytes()).unwrap();
        BoxedUint::from_be_slice(&bytes, 4096).unwrap()
    };
    let one = BoxedUint::from_be_slice(&[1], 4096).unwrap();
    let modulus = |number: BoxedUint| NonZero::new(number).unwrap();
    let (e, q) = (number("e"), number("q"));
    // The next odd number after a prime of this size is not one, and has an inverse where one is needed, but for bad
    // luck.
    let p = number("p").wrapping_add(&one).wrapping_add(&one);
    let orders = [p.wrapping_sub(&one), q.wrapping_sub(&one)];
    let d = e.invert_mod(&modulus(orders[0].wrapping_mul(&orders[1]))).unwrap();
    let text = |number: &BoxedUint| {
        let bytes = number.to_be_bytes();
        let start = bytes.iter().position(|byte| *byte != 0).unwrap();
        BASE64URL_NOPAD.encode(&bytes[start..])
    };
    let members = [
        ("n", p.wrapping_mul(&q)),
        ("e", e),
        ("d", d.clone()),
        ("dp", d.rem(&modulus(orders[0].clone()))),
        ("dq", d.rem(&modulus(orders[1].clone()))),
        ("qi", q.invert_mod(&modulus(p.clone())).unwrap()),
        ("p", p),
        ("q", q),
    ];
    let members: Vec<_> =
        members.iter().map(|(name, number)| format!("{name:?}:{:?}", text(number))).collect();
    let refused = refusal(format!("{{\"kty\":\"RSA\",{}}}", members.join(",")));
    assert!(refused.contains("a prime is not one"), "{refused}");
}

#[test]
fn halves_of_different_keys_are_told() {
    let key = MemoryKey::generate(KeyAlgorithm::Rsa2048).unwrap().material().clone();
    formats::prove(&key).unwrap();
    let other = MemoryKey::generate(KeyAlgorithm::Rsa2048).unwrap().material().clone();
    let mixed = PrivateKeyMaterial::new(
        KeyAlgorithm::Rsa2048,
        zeroize::Zeroizing::new(key.secret().to_vec()),
        other.public().to_vec(),
    );
    let refused = formats::prove(&mixed).unwrap_err().to_string();
    assert!(refused.ends_with("the public half belongs to another secret half"), "{refused}");
    let wrong = PrivateKeyMaterial::new(
        KeyAlgorithm::Rsa3072,
        zeroize::Zeroizing::new(key.secret().to_vec()),
        key.public().to_vec(),
    );
    assert!(formats::prove(&wrong).is_err());
    for algorithm in [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP521, KeyAlgorithm::MlDsa65] {
        let key = MemoryKey::generate(algorithm).unwrap().material().clone();
        formats::prove(&key).unwrap();
        let mut padded = vec![0];
        padded.extend_from_slice(key.secret());
        let padded =
            PrivateKeyMaterial::new(algorithm, zeroize::Zeroizing::new(padded), key.public().to_vec());
        assert!(formats::prove(&padded).is_err(), "{algorithm}");
    }
}

#[test]
fn lines_of_public_keys_are_read_one_by_one() {
    let key = read(RFC8037).unwrap();
    let line = openssh::encode_line(&public(&key), "alice@example.com").unwrap();
    let read_line = |text: &str| openssh::decode_line(text);
    let words = |text: &str| read_line(text).unwrap_err().to_string();
    assert_eq!(read_line(&line).unwrap().2, "alice@example.com");
    assert_eq!(
        read_line(&format!("# mine\n\n  {line} and more \n")).unwrap().2,
        "alice@example.com and more"
    );
    assert_eq!(read_line(line.rsplit_once(' ').unwrap().0).unwrap().2, "");
    assert_eq!(words(&format!("{line}\n{line}")), "found several lines of OpenSSH public keys, expected one");
    assert!(words(&format!("restrict,command=\"a b\" {line}")).contains("options before the key"));
    assert!(
        words(&line.replacen("ssh-ed25519", "ssh-rsa", 1))
            .contains("it says ssh-rsa in the text and holds an ed25519 key")
    );
    assert!(words(&line.replacen("ssh-ed25519", "ssh-dss", 1)).contains("a DSA key"));
    assert!(words("sk-ssh-ed25519@openssh.com AAAA").contains("a key that lives on a security key"));
    assert!(words("ssh-ed25519-cert-v01@openssh.com AAAA").contains("an OpenSSH certificate"));
    assert!(words("ssh-ed25519").contains("it ends within the type of the key"));
    assert!(words("ssh-ed25519 !").contains("the second word is not base64"));
    let refused = openssh::encode_line(&public(&key), "a\nssh-ed25519 AAAA").unwrap_err().to_string();
    assert!(refused.contains("control character"), "{refused}");
    assert!(openssh::encode(&key, "a\nb", None).is_err());
}

/// What a file is that is not a key here, in words that help.
#[test]
fn other_files_are_told_apart() {
    let block = |label: &str| format!("-----BEGIN {label}-----\nMAA=\n-----END {label}-----\n");
    for (bytes, words) in [
        (b"".to_vec(), "found an empty file, "),
        (b"hello".to_vec(), "found bytes that no format of keys starts with, "),
        (vec![0xff; 100], "found bytes that no format of keys starts with, "),
        (vec![b' '; formats::MAX_FILE_BYTES + 1], "found a file of 1048577 bytes, "),
        (
            b"PuTTY-User-Key-File-3: ssh-ed25519\n".to_vec(),
            "found a key of PuTTY (convert it with `puttygen OLD",
        ),
        (block("CERTIFICATE").into_bytes(), "found PEM with \"CERTIFICATE\", "),
        ((block("X") + &block("EC PARAMETERS")).into_bytes(), "found PEM with \"X\", \"EC PARAMETERS\", "),
        (b"-----BEGIN PRIVATE KEY-----\nMAA=\n".to_vec(), "found a PEM block without its last line, "),
        (
            b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n".to_vec(),
            "found a PEM block without its last line, ",
        ),
        (block("PRIVATE KEY").into_bytes(), "not a well-formed PKCS#8 private key: "),
        (
            b"-----BEGIN PRIVATE KEY-----\nComment: x\n\nMAA=\n-----END PRIVATE KEY-----\n".to_vec(),
            "not a well-formed PKCS#8 private key: PEM headers",
        ),
        (b"\x30\x03\x02\x01\x00".to_vec(), "found DER that is not a key, "),
        (b"\x30\x82\x10\x00\x02\x01\x00".to_vec(), "not a well-formed DER file: "),
    ] {
        let refused = refusal(&bytes);
        assert!(
            refused.starts_with(words),
            "{:?}: {refused}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
        );
    }
    // Blocks that come first and are no private key are passed over, and text may be anywhere.
    let key = read(RFC8037).unwrap();
    let pem = formats::write_private(&key, Format::Pkcs8Pem, None).unwrap();
    let spki = formats::write_public(&public(&key), PublicFormat::SpkiPem).unwrap();
    let mut bundle = Vec::new();
    for part in [block("CERTIFICATE").as_bytes(), b"0 or more words\n", &spki, &pem, &pem] {
        bundle.extend_from_slice(part);
    }
    assert_eq!(read(&bundle).unwrap().secret(), key.secret());
    assert_eq!(formats::read_public(&bundle).unwrap(), public(&key));
    // Windows' line ends, lines of another length, no line feed at the end.
    let text = std::str::from_utf8(&pem).unwrap();
    assert_eq!(read(text.replace('\n', "\r\n")).unwrap().secret(), key.secret());
    assert_eq!(read(text.trim_end()).unwrap().secret(), key.secret());
    let (first, rest) = text.split_once('\n').unwrap();
    let long = rest.replace('\n', "").replace("-----END", "\n-----END");
    assert_eq!(read(format!("{first}\n{long}\n")).unwrap().secret(), key.secret());
}

#[test]
fn versions_and_attributes_of_pkcs8() {
    let key = read(RFC8037).unwrap();
    let hex = |bytes: &[u8]| HEXLOWER.encode(bytes);
    let body = format!("300506032b657004220420{}", hex(key.secret()));
    let public_key = hex(key.public());
    let attributes = "a009300706035504033100";
    let file = |inner: &str| {
        let mut text = String::new();
        write!(text, "30{:02x}{inner}", inner.len() / 2).unwrap();
        HEXLOWER.decode(text.as_bytes()).unwrap()
    };
    for good in [
        format!("020100{body}"),
        format!("020100{body}a000"),
        format!("020101{body}812100{public_key}"),
        format!("020101{body}a000812100{public_key}"),
        // As ring writes it.
        format!("020101{body}a123032100{public_key}"),
    ] {
        assert_eq!(read(file(&good)).unwrap().secret(), key.secret(), "{good}");
    }
    for bad in [
        // The version and the public key do not go together.
        format!("020101{body}"),
        format!("020100{body}812100{public_key}"),
        format!("020102{body}"),
        // Another public key, one that is cut short, and one with bits to spare.
        format!("020101{body}812100{}", public_key.replace('5', "6")),
        format!("020101{body}812000{}", &public_key[2..]),
        format!("020101{body}812101{public_key}"),
        // Twice, in the wrong order, or with something behind.
        format!("020101{body}812100{public_key}812100{public_key}"),
        format!("020101{body}812100{public_key}a000"),
        format!("020100{body}0500"),
        // Lengths and numbers that are not as short as possible.
        format!("02020000{body}"),
        format!("020100{}", body.replacen("3005", "308105", 1)),
        // Parameters where RFC 8410 §3 wants none.
        format!("020100{}", body.replacen("300506032b6570", "300706032b65700500", 1)),
    ] {
        assert!(read(file(&bad)).is_err(), "{bad}");
    }
    // An attribute, which no reader takes anything from.
    let inner = format!("020100{body}{attributes}");
    assert_eq!(read(file(&inner)).unwrap().secret(), key.secret());
}

/// The page for people has every name and every command that an error gives.
#[test]
fn the_page_on_keys_is_complete() {
    let page = include_str!("../../../../docs/keys.md");
    for name in Format::ALL.iter().map(|format| format.name()) {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
    for name in PublicFormat::ALL.iter().map(|format| format.name()) {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
    for source in [
        include_str!("../../src/formats/mod.rs"),
        include_str!("../../src/formats/openssh.rs"),
        include_str!("../../src/formats/pkcs8.rs"),
    ] {
        for line in source.lines().filter_map(|line| line.trim().strip_prefix("command: \"")) {
            let command = line.trim_end_matches("\",");
            assert!(page.contains(&format!("`{command}`")), "{command}");
        }
    }
}

#[test]
fn public_keys_that_are_no_keys_are_refused() {
    let refusal = |algorithm, raw: &[u8]| {
        formats::read_public(&formats::spki::encode(algorithm, raw)).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(KeyAlgorithm::Ed25519, &[0; 32]),
        "not a well-formed SubjectPublicKeyInfo: ed25519: the point has small order"
    );
    let mut point = [0; 65];
    (point[0], point[32], point[64]) = (4, 1, 1);
    assert_eq!(
        refusal(KeyAlgorithm::EcdsaP256, &point),
        "not a well-formed SubjectPublicKeyInfo: ecdsa-p256: the point is not on the curve"
    );
    assert!(refusal(KeyAlgorithm::EcdsaP256, &point[..64]).contains("of 64 bytes, expected 65"));
    point[0] = 6;
    assert!(refusal(KeyAlgorithm::EcdsaP256, &point).contains("does not start with 04"));
    point[0] = 2;
    assert!(refusal(KeyAlgorithm::EcdsaP256, &point[..33]).contains("a compressed point"));
    assert!(refusal(KeyAlgorithm::MlDsa65, &[0; 1951]).contains("of 1951 bytes, expected 1952"));
}
