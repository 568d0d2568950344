//! Makers of authenticators, with their certificates.

use sallyport_sal::{KeyAlgorithm, MemoryKey, PublicKey, Signer};
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag};

/// What a certificate says; the default is a good one of an attestation key.
pub struct Template {
    pub country: &'static str,
    pub unit: &'static str,
    /// None leaves the basic constraints out.
    pub ca: Option<bool>,
    pub path_length: Option<u8>,
    pub model: Option<[u8; 16]>,
    pub model_critical: bool,
    pub unknown_critical: bool,
    pub cert_sign: bool,
    pub version: u8,
    pub not_after: &'static str,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            country: "SE",
            unit: "Authenticator Attestation",
            ca: Some(false),
            path_length: None,
            model: None,
            model_critical: false,
            unknown_critical: false,
            cert_sign: false,
            version: 2,
            not_after: "20991231235959Z",
        }
    }
}

impl Template {
    pub fn ca() -> Self {
        Self { unit: "CA", ca: Some(true), cert_sign: true, ..Self::default() }
    }
}

fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new(text.split('.').map(|part| part.parse().unwrap()).collect())
}

fn write_name(writer: DERWriter<'_>, template: &Template, name: &str) {
    writer.write_sequence(|writer| {
        for (attribute, value) in [
            ("2.5.4.6", template.country),
            ("2.5.4.10", "Maker"),
            ("2.5.4.11", template.unit),
            ("2.5.4.3", name),
        ] {
            writer.next().write_set(|writer| {
                writer.next().write_sequence(|writer| {
                    writer.next().write_oid(&oid(attribute));
                    writer.next().write_utf8_string(value);
                });
            });
        }
    });
}

fn write_algorithm(writer: DERWriter<'_>, key: &MemoryKey) {
    writer.write_der(&key.algorithm().default_scheme().x509_algorithm_der().unwrap());
}

/// A key with its certificate, and who signed that.
pub struct Issued {
    pub key: MemoryKey,
    pub der: Vec<u8>,
    name: String,
    country: &'static str,
    unit: &'static str,
}

/// A root.
pub fn root(name: &str, algorithm: KeyAlgorithm) -> Issued {
    issue(name, algorithm, Template::ca(), None)
}

pub fn issue(name: &str, algorithm: KeyAlgorithm, template: Template, issuer: Option<&Issued>) -> Issued {
    let key = MemoryKey::generate(algorithm).unwrap();
    let signer = issuer.map_or(&key, |issuer| &issuer.key);
    let tbs = yasna::construct_der(|writer| {
        write_tbs(writer, name, &key.public_key(), &template, signer, issuer);
    });
    let signature = signer.sign(&tbs).unwrap();
    let der = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&tbs);
            write_algorithm(writer.next(), signer);
            writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    });
    Issued { key, der, name: name.to_owned(), country: template.country, unit: template.unit }
}

fn write_tbs(
    writer: DERWriter<'_>,
    name: &str,
    key: &PublicKey,
    template: &Template,
    signer: &MemoryKey,
    issuer: Option<&Issued>,
) {
    writer.write_sequence(|writer| {
        if template.version > 0 {
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(template.version));
        }
        writer.next().write_u8(7);
        write_algorithm(writer.next(), signer);
        let by = issuer.map_or((template.country, template.unit, name), |issuer| {
            (issuer.country, issuer.unit, issuer.name.as_str())
        });
        let as_template = Template { country: by.0, unit: by.1, ..Template::default() };
        write_name(writer.next(), &as_template, by.2);
        writer.next().write_sequence(|writer| {
            for text in ["20200101000000Z", template.not_after] {
                let mut der = vec![0x18, 15];
                der.extend(text.as_bytes());
                writer.next().write_der(&der);
            }
        });
        write_name(writer.next(), template, name);
        writer.next().write_der(&key.spki_der());
        if template.version == 2 {
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| {
                    for (id, critical, value) in extensions(template) {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_oid(&oid(id));
                            if critical {
                                writer.next().write_bool(true);
                            }
                            writer.next().write_bytes(&value);
                        });
                    }
                });
            });
        }
    });
}

fn extensions(template: &Template) -> Vec<(&'static str, bool, Vec<u8>)> {
    let mut extensions = Vec::new();
    if let Some(ca) = template.ca {
        let value = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                if ca {
                    writer.next().write_bool(true);
                    if let Some(length) = template.path_length {
                        writer.next().write_u8(length);
                    }
                }
            });
        });
        extensions.push(("2.5.29.19", true, value));
        let usage: (u8, usize) = if template.cert_sign { (0x04, 6) } else { (0x80, 1) };
        let value = yasna::construct_der(|writer| writer.write_bitvec_bytes(&[usage.0], usage.1));
        extensions.push(("2.5.29.15", true, value));
    }
    if let Some(model) = template.model {
        let value = yasna::construct_der(|writer| writer.write_bytes(&model));
        extensions.push(("1.3.6.1.4.1.45724.1.1.4", template.model_critical, value));
    }
    if template.unknown_critical {
        extensions.push(("1.2.3.4", true, vec![5, 0]));
    }
    extensions
}
