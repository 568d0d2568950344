//! The key exchanges of TLS that have ML-KEM in them, between sources and with damaged shares.

use sallyport_sal::algorithm::KexGroup;
use sallyport_sal::provider::Provider as _;
use sallyport_sal::tls::rustls;

use crate::conformance::layered::Layered;
use crate::conformance::outcome::LAYERED;

const HYBRIDS: [KexGroup; 2] = [KexGroup::X25519MlKem768, KexGroup::P256MlKem768];

/// Both sides have the same secret whatever each is made of. A source that lacks a half is filled up by the preset.
#[test]
fn sources_agree_by_every_hybrid() {
    for group in HYBRIDS {
        for client in LAYERED.iter() {
            for server in LAYERED.iter() {
                let started = at(client, group).start().unwrap();
                let answered = at(server, group).start_and_complete(started.pub_key()).unwrap();
                let secret = started.complete(&answered.pub_key).unwrap();
                assert_eq!(
                    secret.secret_bytes(),
                    answered.secret.secret_bytes(),
                    "{group} between {} and {}",
                    client.name(),
                    server.name()
                );
                assert_eq!(secret.secret_bytes().len(), 64, "{group}");
            }
        }
    }
}

/// A half that must be refused spoils the whole, on both sides.
#[test]
fn a_damaged_half_spoils_a_hybrid() {
    for group in HYBRIDS {
        for layered in LAYERED.iter() {
            let group = at(layered, group);
            let share = group.start().unwrap().pub_key().to_vec();
            let answer = group.start_and_complete(&share).unwrap().pub_key;
            for (what, damage) in damages(group.name()) {
                let refused = group.start_and_complete(&damage(&share)).err();
                assert!(
                    is_refusal(refused.as_ref()),
                    "{} took a share with {what}: {refused:?}",
                    layered.name()
                );
                if what != "a coefficient of ML-KEM out of range" {
                    let refused = group.start().unwrap().complete(&damage(&answer)).err();
                    assert!(is_refusal(refused.as_ref()), "{} took an answer with {what}", layered.name());
                }
            }
        }
    }
}

fn at(layered: &Layered, group: KexGroup) -> &'static dyn rustls::crypto::SupportedKxGroup {
    layered.group(group).expect("the preset fills up what a source lacks")
}

fn is_refusal(error: Option<&rustls::Error>) -> bool {
    matches!(error, Some(rustls::Error::PeerMisbehaved(_)))
}

type Damage = fn(&[u8]) -> Vec<u8>;

fn damages(group: rustls::NamedGroup) -> Vec<(&'static str, Damage)> {
    let mut all: Vec<(&'static str, Damage)> = vec![
        ("no bytes", |_| Vec::new()),
        ("a byte less", |share| share[..share.len() - 1].to_vec()),
        ("a byte more", |share| [share, &[0]].concat()),
    ];
    if group == rustls::NamedGroup::X25519MLKEM768 {
        // ML-KEM comes first (draft-ietf-tls-ecdhe-mlkem §4).
        all.push(("a zero share of X25519", |share| {
            let (kem, dh) = share.split_at(share.len() - 32);
            [kem, &vec![0; dh.len()]].concat()
        }));
        all.push(("a coefficient of ML-KEM out of range", |share| [&[0xff, 0xff], &share[2..]].concat()));
    } else {
        all.push(("a point that is not on the curve", |share| {
            let mut share = share.to_vec();
            share[64] ^= 1;
            share
        }));
        all.push(("a point in hybrid form", |share| [&[6 + (share[64] & 1)], &share[1..]].concat()));
        all.push(("a coefficient of ML-KEM out of range", |share| {
            let mut share = share.to_vec();
            share[65..67].copy_from_slice(&[0xff, 0xff]);
            share
        }));
    }
    all
}
