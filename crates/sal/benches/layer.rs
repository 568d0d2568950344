//! What the layer itself costs: each operation through it, beside the same one asked of its source directly.
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use criterion::{Criterion, criterion_group, criterion_main};
use sallyport_sal::algorithm::{AeadAlgorithm, HashAlgorithm, KeyAlgorithm};
use sallyport_sal::{MemoryKey, Primitive, Signer, hash, selection};

fn layer(criterion: &mut Criterion) {
    let selection = selection::global();
    let message = [0x20; 130];

    criterion.bench_function("source/lookup", |bencher| {
        bencher.iter(|| selection.source(Primitive::Sign(KeyAlgorithm::EcdsaP256)).unwrap().name());
    });

    for algorithm in [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256] {
        let key = MemoryKey::generate(algorithm).unwrap();
        let scheme = algorithm.default_scheme();
        let source = selection.source(Primitive::Sign(algorithm)).unwrap();
        let direct = source.load_key(key.material()).unwrap();
        let mut group = criterion.benchmark_group(format!("sign/{algorithm}"));
        group.bench_function("layer", |bencher| bencher.iter(|| key.sign(&message).unwrap()));
        group.bench_function("direct", |bencher| bencher.iter(|| direct.sign(scheme, &message).unwrap()));
        group.finish();

        let (public, signature) = (key.public_key(), key.sign(&message).unwrap());
        let source = selection.source(Primitive::Verify(algorithm)).unwrap();
        let mut group = criterion.benchmark_group(format!("verify/{algorithm}"));
        group.bench_function("layer", |bencher| {
            bencher.iter(|| public.verify(&message, &signature).unwrap());
        });
        group.bench_function("direct", |bencher| {
            bencher.iter(|| source.verify(algorithm, scheme, public.raw(), &message, &signature).unwrap());
        });
        group.finish();
    }

    let source = selection.source(Primitive::Hash(HashAlgorithm::Sha256)).unwrap();
    let mut group = criterion.benchmark_group("hash/sha-256 of 64 bytes");
    group.bench_function("layer", |bencher| bencher.iter(|| hash::sha256(&message[..64])));
    group.bench_function("direct", |bencher| {
        bencher.iter(|| {
            let mut out = [0; 32];
            source.hash(HashAlgorithm::Sha256, &[&message[..64]], &mut out).unwrap();
            out
        });
    });
    group.finish();

    let algorithm = AeadAlgorithm::Aes256Gcm;
    let source = selection.source(Primitive::Aead(algorithm)).unwrap();
    let layer = sallyport_sal::aead::Aes256GcmKey::new(&[7; 32]).unwrap();
    let direct = source.aead(algorithm, &[7; 32]).unwrap();
    let mut group = criterion.benchmark_group("aes-256-gcm of 1 KiB");
    group
        .bench_function("layer", |bencher| bencher.iter(|| layer.seal_numbered(1, b"", &[1; 1024]).unwrap()));
    group.bench_function("direct", |bencher| {
        bencher.iter(|| {
            let mut sealed = Vec::with_capacity(1040);
            sealed.extend_from_slice(&[1; 1024]);
            let tag = direct.seal(&[1; 12], b"", &mut sealed).unwrap();
            sealed.extend_from_slice(&tag);
            sealed
        });
    });
    group.finish();
}

criterion_group!(benches, layer);
criterion_main!(benches);
