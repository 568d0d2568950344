//! Prints what each source costs here, and full handshakes of the composed provider beside rustls' own.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;

use sallyport_sal::KeyAlgorithm;
use sallyport_sal::algorithm::KexGroup;
use sallyport_sal::measure::handshake::{Credentials, Shape, compare, phases};
use sallyport_sal::measure::table::{Scope, measure, profile};
use sallyport_sal::measure::timing::Effort;
use sallyport_sal::provider::ALL;
use sallyport_sal::selection::{Mode, Policy, Selection};
use sallyport_sal::tls::{compose, rustls};

fn main() {
    let preset: &'static Selection = Box::leak(Box::new(Selection::new(ALL, Policy::default())));
    let started = std::time::Instant::now();
    let rows = measure(preset, Scope::Selection, Effort::TUNE, |_| true, |_| ());
    println!("tuned in {:?}", started.elapsed());
    for row in &rows {
        println!(
            "{:28} {:12?} {:12} {:10.2} us  median {:10.2}  spread {:.1} %",
            row.primitive.to_string(),
            row.part,
            row.provider,
            row.times.minimum() / 1e3,
            row.times.median() / 1e3,
            row.times.spread() * 100.0
        );
    }
    let profile = profile(preset, &rows, time::OffsetDateTime::now_utc());
    let policy = Policy { mode: Mode::Measured(profile), ..Policy::default() };
    let measured: &'static Selection = Box::leak(Box::new(Selection::new(ALL, policy)));
    let own = |provider: rustls::crypto::CryptoProvider, group: KexGroup| {
        let mut provider = provider;
        provider
            .cipher_suites
            .sort_by_key(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        provider.kx_groups = rustls::crypto::aws_lc_rs::ALL_KX_GROUPS
            .iter()
            .copied()
            .filter(|one| u16::from(one.name()) == group.iana_code())
            .collect();
        Arc::new(provider)
    };
    for (key, group, client_certificate, resumed) in [
        (KeyAlgorithm::EcdsaP256, KexGroup::X25519, false, false),
        (KeyAlgorithm::EcdsaP256, KexGroup::X25519, true, false),
        (KeyAlgorithm::EcdsaP256, KexGroup::X25519, false, true),
        (KeyAlgorithm::EcdsaP256, KexGroup::X25519MlKem768, false, false),
        (KeyAlgorithm::Ed25519, KexGroup::X25519, false, false),
        (KeyAlgorithm::EcdsaP384, KexGroup::X25519, false, false),
        (KeyAlgorithm::Rsa2048, KexGroup::X25519, false, false),
        (KeyAlgorithm::MlDsa65, KexGroup::X25519MlKem768, false, false),
    ] {
        let shape = Shape { key, group, client_certificate, resumed };
        let credentials = Credentials::new(measured, key).unwrap();
        let ours = compose(measured, &[group]).unwrap();
        let preset = compose(preset, &[group]).unwrap();
        let aws = own(rustls::crypto::aws_lc_rs::default_provider(), group);
        let mut default = rustls::crypto::aws_lc_rs::default_provider();
        default.kx_groups.clone_from(&aws.kx_groups);
        let default = Arc::new(default);
        let providers = [&ours, &preset, &aws, &default];
        let pairs: Vec<_> =
            providers.iter().map(|provider| credentials.pair(provider, provider, shape).unwrap()).collect();
        for pair in &pairs {
            pair.warm_up().unwrap();
        }
        let times = compare(pairs, Effort { passes: 40, batch: std::time::Duration::from_millis(20) });
        let rate = |at: usize| 1e9 / times[at].minimum();
        println!(
            "{key} {group} client {client_certificate} resumed {resumed}: measured {:.0}/s, preset {:.0}/s, aws-lc aes128 {:.0}/s, aws-lc default {:.0}/s: {:.3}x {:.3}x",
            rate(0),
            rate(1),
            rate(2),
            rate(3),
            rate(0) / rate(2),
            rate(0) / rate(3)
        );
    }
    for key in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Ed25519] {
        let shape = Shape { key, group: KexGroup::X25519, client_certificate: false, resumed: false };
        for (name, selection) in [("measured", measured)] {
            for row in phases(selection, shape, Effort::SPEED).unwrap().rows {
                println!(
                    "{name} {key} {:24} client {:8.1} server {:8.1} us",
                    row.name,
                    row.client / 1e3,
                    row.server / 1e3
                );
            }
        }
    }
}
