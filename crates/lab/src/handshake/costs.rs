//! What handshakes cost here, for those who reckon with it.

use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_bench::statistics::Samples;
use sallyport_sal::algorithm::{KexGroup, KeyAlgorithm};
use sallyport_sal::measure::handshake::Shape;

use super::tls::{Bench, Cell};
use super::{CHAIN, Effort, KeyExchange, Protocol, Transport, ssh};
use crate::LabError;

/// A few seconds for six keys and three groups: short samples, and enough of them for an interval.
const EFFORT: Effort = Effort { rounds: 15, batch: Duration::from_millis(4) };

/// A median, and the interval in which it lies with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Spread {
    pub(super) fn of(samples: &Samples) -> Self {
        let median = samples.median();
        let (low, high) = samples.interval().unwrap_or((median, median));
        Self { median, low, high }
    }
}

/// What one handshake costs on this machine, client and server in memory.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Cost {
    /// The protocol.
    pub protocol: Protocol,
    /// Type of the keys: of server and authorities in TLS, of the host in SSH.
    pub key: KeyAlgorithm,
    /// The group of TLS; none in SSH.
    pub group: Option<KexGroup>,
    /// What the protocol calls the key exchange.
    pub exchange: &'static str,
    /// Whether it resumes an earlier session. SSH has no such thing.
    pub resumed: bool,
    /// Processor time of the server, in microseconds.
    pub server: Spread,
    /// Processor time of the client, in microseconds.
    pub client: Spread,
    /// Bytes that the client sends.
    pub client_bytes: usize,
    /// Bytes that the server sends.
    pub server_bytes: usize,
    /// How often the client waits for an answer before it can send data, without that of TCP.
    pub round_trips: usize,
}

/// What handshakes of TLS 1.3 cost on this machine, for each of the keys with each of the groups: a full one, and one
/// that resumes. The server sends two certificates and asks for none. What cannot be had is left out.
///
/// # Errors
/// When a handshake fails that went well before.
pub fn costs(keys: &[KeyAlgorithm], groups: &[KexGroup], talk: &Talk) -> Result<Vec<Cost>, LabError> {
    let shapes = keys.iter().flat_map(|key| {
        groups.iter().flat_map(|group| {
            let full = Shape { chain: CHAIN, ..Shape::new(*key, *group) };
            [full, Shape { resumed: true, ..full }]
        })
    });
    let cells: Vec<Cell> = shapes.map(|shape| Cell { shape, transport: Transport::Memory }).collect();
    let mut bench = Bench::prepare(&cells, false, EFFORT, &talk.part(0.0, 0.2))?;
    let measuring = talk.part(0.2, 1.0);
    for round in 0..EFFORT.rounds {
        measuring.progress(round, EFFORT.rounds, "handshakes");
        if !bench.round(talk, |_| Ok(()))? {
            break;
        }
    }
    let costs = bench.cells.iter().filter(|measured| !measured.server.is_empty()).map(|measured| {
        let shape = measured.cell.shape;
        Cost {
            protocol: Protocol::Tls13,
            key: shape.key,
            group: Some(shape.group),
            exchange: shape.group.name(),
            resumed: shape.resumed,
            server: Spread::of(&measured.server),
            client: Spread::of(&measured.client),
            client_bytes: measured.sides.client_bytes,
            server_bytes: measured.sides.server_bytes,
            round_trips: measured.sides.round_trips,
        }
    });
    Ok(costs.collect())
}

/// What handshakes of SSH cost on this machine, to the end of the user's login, for each of the host keys with each of the
/// key exchanges. Host and user (Ed25519) show certificates. What cannot be had is left out.
///
/// # Errors
/// When a handshake fails that went well before.
pub fn ssh_costs(
    hosts: &[KeyAlgorithm],
    exchanges: &[KeyExchange],
    talk: &Talk,
) -> Result<Vec<Cost>, LabError> {
    let cells = ssh::shapes(hosts, exchanges);
    let mut bench = ssh::Bench::prepare(&cells, EFFORT, &talk.part(0.0, 0.2))?;
    let measuring = talk.part(0.2, 1.0);
    for round in 0..EFFORT.rounds {
        measuring.progress(round, EFFORT.rounds, "handshakes of SSH");
        if !bench.round(talk, |_, _, _, _| Ok(()))? {
            break;
        }
    }
    let costs = bench.cells.iter().filter(|measured| !measured.server.is_empty()).map(|measured| Cost {
        protocol: Protocol::Ssh,
        key: measured.cell.shape.host,
        group: None,
        exchange: measured.cell.shape.exchange.name(),
        resumed: false,
        server: Spread::of(&measured.server),
        client: Spread::of(&measured.client),
        client_bytes: measured.client_bytes,
        server_bytes: measured.server_bytes,
        round_trips: measured.round_trips,
    });
    Ok(costs.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_key_and_group_has_its_price() {
        let keys = [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa4096];
        let groups = [KexGroup::X25519, KexGroup::X25519MlKem768];
        let costs = costs(&keys, &groups, &Talk::silent()).unwrap();
        assert_eq!(costs.len(), 2 * keys.len() * groups.len());
        let of = |key, group, resumed| {
            let same = |cost: &&Cost| (cost.key, cost.group, cost.resumed) == (key, Some(group), resumed);
            costs.iter().find(same).unwrap()
        };
        for cost in &costs {
            assert!(
                cost.server.low <= cost.server.median && cost.server.median <= cost.server.high,
                "{cost:?}"
            );
            assert!(cost.client.median > 0.0 && cost.round_trips == 1, "{cost:?}");
        }
        // Known by wide margins: 640 and 4,400 microseconds of signing, against 20. A build that is not optimised adds some
        // hundreds to each.
        let server = |key| of(key, KexGroup::X25519, false).server.median;
        let [p256, rsa2048, rsa4096] = keys.map(server);
        assert!(rsa4096 > 2.0 * rsa2048 && rsa2048 > 1.15 * p256, "{p256} {rsa2048} {rsa4096}");
        assert!(of(KeyAlgorithm::Rsa4096, KexGroup::X25519, true).server.median < rsa4096 / 3.0);
        let ssh =
            ssh_costs(&[KeyAlgorithm::Ed25519, KeyAlgorithm::Rsa4096], KeyExchange::ALL, &Talk::silent());
        let ssh = ssh.unwrap();
        assert_eq!(ssh.len(), 2 * KeyExchange::ALL.len());
        assert!(ssh.iter().all(|cost| cost.protocol == Protocol::Ssh && cost.server.median > 0.0), "{ssh:?}");

        let bytes = |group| of(KeyAlgorithm::EcdsaP256, group, false).client_bytes;
        // An encapsulation key has 1,184 bytes (FIPS 203 table 3).
        assert!(bytes(KexGroup::X25519MlKem768) >= bytes(KexGroup::X25519) + 1184);
    }
}
