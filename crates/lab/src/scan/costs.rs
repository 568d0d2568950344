//! What keys and groups cost, measured on the machine where the lab runs.
//!
//! These are figures of this machine and of the best source that this program has for each; the server that is looked at
//! has its own. What carries over is their ratio.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sallyport_ca::SubjectKey;
use sallyport_sal::algorithm::{DhGroup, KexGroup, KeyAlgorithm, KeyKind};
use sallyport_sal::measure::operation::deciding_part;
use sallyport_sal::measure::table::{Scope, measure};
use sallyport_sal::measure::timing::Effort;
use sallyport_sal::{Primitive, selection};
use serde::Serialize;

/// A glance at each: about two seconds for all of them together.
const EFFORT: Effort = Effort { passes: 12, batch: Duration::from_micros(800) };
/// What is measured beside whatever a server has, to compare with.
const ALTERNATIVES: &[KeyAlgorithm] = &[KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048];

/// Prices of primitives, in microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prices(BTreeMap<Primitive, f64>);

/// What one choice costs for a handshake.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// The key or the group.
    pub what: String,
    /// What it is compared with, or what is seen.
    pub role: &'static str,
    /// Microseconds of the server.
    pub server_us: f64,
    /// Microseconds of the client.
    pub client_us: f64,
    /// Handshakes that one core of a server could do in a second if this were all there is to do.
    pub per_second: f64,
    /// Whether it follows from another size and was not measured.
    pub estimated: bool,
}

impl Prices {
    /// Measures what these keys and groups need.
    pub(crate) fn measure(keys: &[SubjectKey], groups: &[u16]) -> Self {
        let mut wanted: BTreeSet<Primitive> = BTreeSet::new();
        let mut key = |algorithm| wanted.extend([Primitive::Sign(algorithm), Primitive::Verify(algorithm)]);
        for one in keys {
            if let Some((algorithm, _)) = measured(one) {
                key(algorithm);
            }
        }
        if !keys.is_empty() {
            ALTERNATIVES.iter().copied().for_each(key);
        }
        for group in groups.iter().filter_map(|code| KexGroup::from_iana(*code)) {
            wanted.extend(group.dh().map(Primitive::Agree));
            if group.has_ml_kem() {
                wanted.extend([Primitive::Encapsulate, Primitive::Decapsulate]);
            }
        }
        // To tell what post-quantum key exchange would add.
        if !groups.is_empty() {
            wanted.extend([
                Primitive::Agree(DhGroup::X25519),
                Primitive::Encapsulate,
                Primitive::Decapsulate,
            ]);
        }
        let rows =
            measure(selection::global(), Scope::Everything, EFFORT, |one| wanted.contains(&one), |_| {});
        let mut prices = BTreeMap::new();
        for row in rows {
            if row.part == deciding_part(row.primitive) && row.warning.is_none() {
                let price = prices.entry(row.primitive).or_insert(f64::INFINITY);
                *price = row.times.minimum().min(*price * 1000.0) / 1000.0;
            }
        }
        Self(prices)
    }

    fn price(&self, primitive: Primitive) -> Option<f64> {
        self.0.get(&primitive).copied().filter(|price| price.is_finite())
    }

    /// A signature by the server and its verification by the client.
    pub(crate) fn key(&self, key: &SubjectKey, role: &'static str) -> Option<Cost> {
        let (algorithm, scale) = measured(key)?;
        // The private operation grows with the cube of the size, the public one with its square.
        let sign = self.price(Primitive::Sign(algorithm))? * scale.powi(3);
        let verify = self.price(Primitive::Verify(algorithm))? * scale.powi(2);
        Some(Cost::new(key.to_string(), role, sign, verify, (scale - 1.0).abs() > f64::EPSILON))
    }

    /// Verification of one signature by a key.
    pub(crate) fn verify(&self, key: &SubjectKey) -> Option<f64> {
        let (algorithm, scale) = measured(key)?;
        Some(self.price(Primitive::Verify(algorithm))? * scale.powi(2))
    }

    /// A key exchange.
    pub(crate) fn group(&self, code: u16, role: &'static str) -> Option<Cost> {
        let group = KexGroup::from_iana(code)?;
        let (mut server, mut client) = (0.0, 0.0);
        if let Some(dh) = group.dh() {
            let agree = self.price(Primitive::Agree(dh))?;
            server += agree;
            client += agree;
        }
        if group.has_ml_kem() {
            server += self.price(Primitive::Encapsulate)?;
            client += self.price(Primitive::Decapsulate)?;
        }
        Some(Cost::new(group.name().to_owned(), role, server, client, false))
    }

    /// What keys are compared with, where they are not the same.
    pub(crate) fn alternatives(&self, keys: &[SubjectKey]) -> Vec<Cost> {
        let others = ALTERNATIVES.iter().map(|algorithm| SubjectKey::Known(*algorithm));
        others.filter(|one| !keys.contains(one)).filter_map(|one| self.key(&one, "to compare with")).collect()
    }
}

impl Cost {
    fn new(what: String, role: &'static str, server_us: f64, client_us: f64, estimated: bool) -> Self {
        let per_second = if server_us > 0.0 { 1e6 / server_us } else { 0.0 };
        Self { what, role, server_us, client_us, per_second, estimated }
    }
}

/// The key type that is measured for a key, and how much longer the key is.
fn measured(key: &SubjectKey) -> Option<(KeyAlgorithm, f64)> {
    match key {
        SubjectKey::Known(algorithm) => Some((*algorithm, 1.0)),
        SubjectKey::Rsa(bits) => {
            let sizes = KeyAlgorithm::ALL.iter().filter(|one| one.kind() == KeyKind::Rsa);
            let (algorithm, size) = sizes
                .filter_map(|one| Some((*one, one.modulus_bits()?)))
                .filter(|(one, _)| *one != KeyAlgorithm::Rsa1024)
                .min_by_key(|(_, size)| size.abs_diff(*bits))?;
            let float = |number: usize| u32::try_from(number).map(f64::from).unwrap_or(f64::MAX);
            Some((algorithm, float(*bits) / float(size)))
        }
        SubjectKey::Other(_) => None,
    }
}

/// Says of which keys and groups there are no figures; nothing when there are none of these.
pub(crate) fn unmeasured(names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| format!("what they cost is not measured here: {}", names.join(", ")))
}

/// `4.4 ms`, `21 µs`.
#[must_use]
pub fn time(microseconds: f64) -> String {
    if microseconds >= 1000.0 {
        format!("{:.1} ms", microseconds / 1000.0)
    } else if microseconds >= 10.0 {
        format!("{microseconds:.0} µs")
    } else {
        format!("{microseconds:.1} µs")
    }
}
