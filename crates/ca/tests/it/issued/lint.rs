//! Rules for X.509 certificates in the manner of zlint: RFC 5280, and where it is silent, what public verifiers want.

use sallyport_ca::CaKind;
use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::{KeyAlgorithm, PublicKey, Suite};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use crate::cluster::leaf;
use crate::issued::world::World;

/// Every rule that a certificate breaks, in words; none is what we want.
pub(crate) fn check(der: &[u8]) -> Vec<String> {
    let (rest, certificate) = X509Certificate::from_der(der).unwrap();
    let mut broken = Vec::new();
    let mut rule = |holds: bool, words: &str| {
        if !holds {
            broken.push(words.to_owned());
        }
    };
    rule(rest.is_empty(), "nothing follows");
    rule(certificate.version() == X509Version::V3, "version 3");

    let serial = certificate.raw_serial();
    rule(!serial.is_empty() && serial.len() <= 20, "§4.1.2.2: a serial number of 1 to 20 octets");
    rule(serial[0] & 0x80 == 0 && serial.iter().any(|byte| *byte != 0), "§4.1.2.2: it is positive");
    rule(serial.len() >= 9, "at least 64 bits of it can be random");
    rule(certificate.signature_algorithm == certificate.tbs_certificate.signature, "§4.1.1.2: one algorithm");

    let (from, until) = (certificate.validity().not_before, certificate.validity().not_after);
    rule(from < until, "it starts before it ends");
    for time in [from, until] {
        let late = time.to_datetime().year() >= 2050;
        rule(time.is_generalizedtime() == late, "§4.1.2.5: UTCTime until 2049, GeneralizedTime then");
    }

    let is_ca = certificate.basic_constraints().unwrap().is_some_and(|found| found.value.ca);
    rule(certificate.issuer().iter().count() > 0, "§4.1.2.4: the issuer has a name");
    let subject_empty = certificate.subject().iter().count() == 0;
    rule(!(is_ca && subject_empty), "§4.1.2.6: a CA has a name");
    for name in [certificate.subject(), certificate.issuer()] {
        for attribute in name.iter_attributes() {
            let text = attribute.as_str().unwrap();
            rule(!text.is_empty() && text.chars().count() <= 64, "A.1: 1 to 64 characters in a name");
            rule(text.trim() == text, "no spaces at the ends of a name");
            rule(attribute.attr_value().tag().0 == 12, "§4.1.2.4: names are UTF8String");
        }
        for set in name.iter() {
            rule(set.iter().count() == 1, "one attribute in each part of a name");
        }
    }

    let key = PublicKey::from_spki_der(certificate.public_key().raw).unwrap();
    rule(key.algorithm().modulus_bits().is_none_or(|bits| bits >= 2048), "RSA of 2048 bits or more");

    let mut seen = Vec::new();
    let (mut ski, mut aki, mut eku, mut san) = (None, None, None, None);
    for extension in certificate.extensions() {
        let oid = extension.oid.to_id_string();
        rule(!seen.contains(&oid), "§4.2: no extension twice");
        rule(!extension.value.is_empty(), "no empty extension");
        seen.push(oid);
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => {
                rule(!extension.critical, "§4.2.1.2: SKI is not critical");
                ski = Some(id.0.to_vec());
            }
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                rule(!extension.critical, "§4.2.1.1: AKI is not critical");
                rule(
                    id.authority_cert_issuer.is_none() && id.authority_cert_serial.is_none(),
                    "AKI by the key alone",
                );
                aki = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            ParsedExtension::KeyUsage(usage) => {
                rule(extension.critical, "§4.2.1.3: key usage is critical");
                rule(usage.flags != 0, "§4.2.1.3: some bit is set");
                if is_ca {
                    rule(usage.key_cert_sign() && usage.crl_sign(), "a CA signs certificates and CRLs");
                    rule(usage.flags & !0b0110_0000 == 0, "and is used for nothing else");
                } else {
                    rule(usage.digital_signature(), "a leaf signs");
                    rule(!usage.key_cert_sign() && !usage.crl_sign(), "a leaf is no CA");
                    let encipher = usage.key_encipherment();
                    rule(
                        !encipher || key.algorithm().kind() == KeyKind::Rsa,
                        "RFC 8813, 9881: only RSA encrypts",
                    );
                    rule(!usage.data_encipherment() && !usage.key_agreement(), "nothing more");
                }
            }
            ParsedExtension::BasicConstraints(basic) => {
                rule(extension.critical, "§4.2.1.9: basic constraints are critical");
                rule(basic.ca || basic.path_len_constraint.is_none(), "§4.2.1.9: a path length only in a CA");
                rule(!basic.ca || basic.path_len_constraint == Some(0), "our CAs sign leaves alone");
            }
            ParsedExtension::ExtendedKeyUsage(usage) => {
                rule(!usage.any && usage.other.is_empty(), "known purposes, and not any");
                rule(usage.client_auth || usage.server_auth, "some purpose");
                eku = Some(usage.clone());
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                rule(!names.general_names.is_empty(), "§4.2.1.6: at least one name");
                rule(extension.critical == subject_empty, "§4.2.1.6: critical when the subject is empty");
                for name in &names.general_names {
                    match name {
                        GeneralName::DNSName(dns) => {
                            rule(dns.is_ascii() && dns.len() <= 253, "a DNS name in ASCII");
                            rule(*dns == dns.to_ascii_lowercase(), "in lower case");
                            rule(
                                dns.split('.').all(|label| (1..=63).contains(&label.len())),
                                "of whole labels",
                            );
                            rule(
                                !dns.trim_start_matches("*.").contains('*'),
                                "a wildcard is the first label",
                            );
                        }
                        GeneralName::IPAddress(ip) => rule([4, 16].contains(&ip.len()), "4 or 16 octets"),
                        GeneralName::URI(uri) => {
                            rule(uri.starts_with("spiffe://"), "a URI is a SPIFFE ID");
                            rule(names.general_names.len() == 1, "X.509-SVID §2: one URI and nothing else");
                        }
                        other => rule(false, &format!("a name of an unexpected type: {other:?}")),
                    }
                }
                san = Some(names.general_names.len());
            }
            ParsedExtension::UnsupportedExtension { .. } => {
                rule(!extension.critical, "what others do not know is not critical");
            }
            other => rule(false, &format!("an unexpected extension: {other:?}")),
        }
    }
    let has = |oid: &str| seen.iter().any(|known| known == oid);
    rule(has("2.5.29.15") && has("2.5.29.19"), "key usage and basic constraints are there");
    rule(ski.as_ref().is_some_and(|id| id.len() == 20), "SKI of 20 octets");
    rule(aki.as_ref().is_some_and(|id| id.len() == 20), "AKI of 20 octets");
    if is_ca {
        rule(ski == aki, "a root identifies itself");
        rule(eku.is_none() && san.is_none(), "a CA has no purposes and no other names");
    } else {
        rule(ski != aki, "a leaf is not its issuer");
        rule(eku.is_some_and(|eku| !eku.server_auth || san.is_some()), "RFC 9525: a server has another name");
        rule(certificate.subject() != certificate.issuer(), "a leaf has another name than its issuer");
    }
    broken
}

#[test]
fn every_profile_keeps_every_rule_for_every_key() {
    let world = World::new(Suite::BalancedV1);
    for algorithm in [
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::EcdsaP384,
        KeyAlgorithm::EcdsaP521,
        KeyAlgorithm::Ed25519,
        KeyAlgorithm::Rsa2048,
        KeyAlgorithm::MlDsa65,
    ] {
        for made in world.leaves(algorithm) {
            assert_eq!(check(&leaf(&made.pem)), Vec::<String>::new(), "{} {algorithm}", made.name);
        }
    }
}

#[test]
fn every_authority_keeps_every_rule_under_every_suite() {
    for suite in Suite::ALL {
        let world = World::new(*suite);
        for kind in CaKind::ALL {
            for pem in world.trust.public_keys(*kind).tls {
                assert_eq!(check(&leaf(&pem)), Vec::<String>::new(), "{kind} {suite}");
            }
        }
    }
}

#[test]
fn serial_numbers_are_random() {
    let world = World::new(Suite::BalancedV1);
    let serial = |pem: &str| X509Certificate::from_der(&leaf(pem)).unwrap().1.raw_serial().to_vec();
    let mut serials: Vec<Vec<u8>> =
        (0..20).flat_map(|_| world.leaves(KeyAlgorithm::Ed25519)).map(|made| serial(&made.pem)).collect();
    // Every bit but the first two takes both values: 180 numbers miss one by chance once in 2^170.
    for bit in 2..128 {
        let ones = serials.iter().filter(|serial| serial[bit / 8] & (0x80 >> (bit % 8)) != 0).count();
        assert!(ones > 0 && ones < serials.len(), "bit {bit}");
    }
    let count = serials.len();
    serials.sort();
    serials.dedup();
    assert_eq!(serials.len(), count);
}

/// What a rule is worth shows when it is broken.
#[test]
fn the_rules_find_what_is_wrong() {
    let world = World::new(Suite::BalancedV1);
    let good = leaf(&world.leaves(KeyAlgorithm::EcdsaP256).remove(0).pem);
    let swap = |from: &[u8], to: &[u8]| {
        let at = good.windows(from.len()).position(|window| window == from).unwrap();
        let mut changed = good.clone();
        changed[at..at + from.len()].copy_from_slice(to);
        check(&changed)
    };
    // KeyUsage: digitalSignature becomes keyCertSign; critical becomes false.
    assert!(!swap(&[0x03, 0x02, 0x07, 0x80], &[0x03, 0x02, 0x02, 0x04]).is_empty());
    assert!(!swap(&[0x55, 0x1d, 0x0f, 0x01, 0x01, 0xff], &[0x55, 0x1d, 0x0f, 0x01, 0x01, 0x00]).is_empty());
    // SKI becomes a second AKI.
    assert!(!swap(&[0x55, 0x1d, 0x0e], &[0x55, 0x1d, 0x23]).is_empty());
    // Version 2.
    assert!(!swap(&[0xa0, 0x03, 0x02, 0x01, 0x02], &[0xa0, 0x03, 0x02, 0x01, 0x01]).is_empty());
}
