//! Which handshakes are measured.

use sallyport_sal::algorithm::{KexGroup, KeyAlgorithm};
use sallyport_sal::measure::handshake::{Shape, Version};

use super::settings::{CHAIN, Settings, Transport};
use super::tls::Cell;

/// Keys for which resumption and loopback are measured too when one thing varies at a time.
const WEB: [KeyAlgorithm; 3] = [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa4096];

/// What everything else is measured against: the first of each list.
fn base(settings: &Settings) -> Shape {
    let key = settings.keys.first().copied().unwrap_or(KeyAlgorithm::EcdsaP256);
    let group = settings.groups.first().copied().unwrap_or(KexGroup::X25519);
    Shape {
        version: settings.versions.first().copied().unwrap_or(Version::Tls13),
        chain: settings.chains.first().copied().unwrap_or(CHAIN),
        ..Shape::new(key, group)
    }
}

/// A group that a client may guess wrongly before this one.
fn guess(group: KexGroup) -> KexGroup {
    match group {
        KexGroup::X25519 | KexGroup::X25519MlKem768 => KexGroup::P256,
        _ => KexGroup::X25519,
    }
}

/// The cells in the order of the report, each once. The base comes first.
pub(super) fn cells(settings: &Settings) -> Vec<Cell> {
    if settings.versions.is_empty() {
        return Vec::new();
    }
    let mut shapes = if settings.cross { crossed(settings) } else { one_at_a_time(settings) };
    let mut cells: Vec<Cell> = Vec::new();
    for transport in &settings.transports {
        if *transport == Transport::Loopback && !settings.cross {
            shapes.retain(|shape| over_loopback(*shape, settings));
        }
        for shape in &shapes {
            let cell = Cell { shape: *shape, transport: *transport };
            // What cannot be is said once, and not for every combination.
            let unheard = settings.cross && shape.impossible().is_some();
            if !unheard && !cells.contains(&cell) {
                cells.push(cell);
            }
        }
    }
    cells
}

fn one_at_a_time(settings: &Settings) -> Vec<Shape> {
    let base = base(settings);
    let mut shapes = vec![base];
    for version in &settings.versions {
        let base = Shape { version: *version, ..base };
        let newest = *version == settings.versions.first().copied().unwrap_or(Version::Tls13);
        shapes.extend(settings.keys.iter().map(|key| Shape { key: *key, ..base }));
        if newest {
            shapes.extend(settings.groups.iter().map(|group| Shape { group: *group, ..base }));
            shapes.extend(settings.chains.iter().map(|chain| Shape { chain: *chain, ..base }));
        }
        if settings.resumed {
            let keys = settings.keys.iter().filter(|key| **key == base.key || newest && WEB.contains(key));
            shapes.extend(keys.map(|key| Shape { key: *key, resumed: true, ..base }));
        }
        if settings.client_certificate {
            let keys = settings.keys.iter().filter(|key| **key == base.key || newest && WEB.contains(key));
            shapes.extend(keys.map(|key| Shape { key: *key, client_certificate: true, ..base }));
        }
        if *version == Version::Tls13 {
            shapes.push(Shape { guessed: Some(guess(base.group)), ..base });
        }
    }
    shapes
}

/// The connection costs the same for all: a few tell what it adds.
fn over_loopback(shape: Shape, settings: &Settings) -> bool {
    let base = base(settings);
    let plain = Shape { key: base.key, version: base.version, ..shape } == base;
    let chosen = settings.keys.len() <= 4 || WEB.contains(&shape.key) || shape.key == base.key;
    (plain && chosen)
        || (shape.key == base.key && shape.chain == base.chain && !shape.client_certificate)
            && (shape.group == base.group || shape.group == KexGroup::X25519MlKem768)
}

fn crossed(settings: &Settings) -> Vec<Shape> {
    let flags = |both: bool| if both { &[false, true][..] } else { &[false][..] };
    let mut shapes = vec![base(settings)];
    for version in &settings.versions {
        for key in &settings.keys {
            for group in &settings.groups {
                for chain in &settings.chains {
                    for resumed in flags(settings.resumed) {
                        for client_certificate in flags(settings.client_certificate) {
                            shapes.push(Shape {
                                version: *version,
                                chain: *chain,
                                resumed: *resumed,
                                client_certificate: *client_certificate,
                                ..Shape::new(*key, *group)
                            });
                        }
                    }
                }
                if *version == Version::Tls13 {
                    shapes.push(Shape {
                        guessed: Some(guess(*group)),
                        chain: CHAIN,
                        ..Shape::new(*key, *group)
                    });
                }
            }
        }
    }
    shapes
}

/// A handshake in words.
pub(super) fn describe(cell: Cell) -> String {
    let shape = cell.shape;
    let mut words = format!("TLS {} {} {} chain {}", shape.version, shape.key, shape.group, shape.chain);
    if shape.resumed {
        words.push_str(", resumed");
    }
    if shape.client_certificate {
        words.push_str(", client certificate");
    }
    if let Some(guessed) = shape.guessed {
        words.push_str(&format!(", guessed {guessed}"));
    }
    if cell.transport == Transport::Loopback {
        words.push_str(", loopback");
    }
    words
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_default_varies_one_thing_at_a_time_and_full_crosses_everything() {
        let settings = Settings::full();
        let cells = cells(&settings);
        let base = cells.first().unwrap();
        assert_eq!(describe(*base), "TLS 1.3 ecdsa-p256 x25519 chain 2");
        let far = |cell: &&Cell| {
            let (shape, base) = (cell.shape, base.shape);
            [
                shape.key != base.key,
                shape.group != base.group,
                shape.chain != base.chain,
                shape.guessed.is_some(),
            ]
            .into_iter()
            .filter(|differs| *differs)
            .count()
                > 1
        };
        assert_eq!(cells.iter().find(far), None);
        for key in &settings.keys {
            assert!(
                cells
                    .iter()
                    .any(|cell| cell.shape == Shape { chain: 2, ..Shape::new(*key, KexGroup::X25519) })
            );
        }
        let mut sorted: Vec<String> = cells.iter().map(|cell| describe(*cell)).collect();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), cells.len(), "none is there twice");

        let crossed = super::cells(&Settings { cross: true, ..settings.clone() });
        assert!(crossed.len() > 1000, "{}", crossed.len());
        assert!(crossed.iter().all(|cell| cell.shape.impossible().is_none()));
        assert!(super::cells(&Settings { versions: Vec::new(), ..settings }).is_empty());
    }
}
