//! Suites: which algorithm serves which purpose, chosen once, by name.
//!
//! The whole choice is one table, [`TABLE`]: a row for each purpose, a cell for each suite, and in each cell the
//! algorithm with the reason for it. `docs/suites.md` prints it, and a test compares the two.

mod name;
mod table;

use crate::algorithm::{KeyAlgorithm, KeyKind};

pub use name::{HybridKeyExchange, KeyPurpose, Suite, UnknownPurpose, UnknownSuite};
pub use table::{Cell, Reason, Row, TABLE};

impl KeyPurpose {
    /// What it is for, in words.
    #[must_use]
    pub fn what(self) -> &'static str {
        self.row().what
    }

    /// Its row of the table.
    #[must_use]
    pub fn row(self) -> &'static Row {
        // The table has a row for every purpose, in the order of the declaration: a test says so.
        TABLE.iter().find(|row| row.purpose == self).unwrap_or(&table::UNKNOWN)
    }
}

impl Suite {
    /// The algorithm that serves a purpose.
    #[must_use]
    pub fn algorithm(self, purpose: KeyPurpose) -> KeyAlgorithm {
        self.cell(purpose).algorithm
    }

    /// The algorithm that serves a purpose, with the reason.
    #[must_use]
    pub fn cell(self, purpose: KeyPurpose) -> &'static Cell {
        purpose.row().cell(self)
    }

    /// Whether its CA keys can be in a PKCS#11 token: what tokens make is ECDSA and RSA.
    #[must_use]
    pub fn is_for_tokens(self) -> bool {
        KeyPurpose::ALL
            .iter()
            .filter(|purpose| purpose.is_ca())
            .all(|purpose| matches!(self.algorithm(*purpose).kind(), KeyKind::Ecdsa | KeyKind::Rsa))
    }

    /// Whether a key that a user or host brings is certified under this suite. It need not be the suite's own choice: the
    /// keys of a former suite are in use until they are renewed, and people bring stronger ones. Under `fips-v1`
    /// Ed25519 is not accepted.
    #[must_use]
    pub fn accepts(self, algorithm: KeyAlgorithm) -> bool {
        let known = Self::ALL
            .iter()
            .any(|suite| KeyPurpose::ALL.iter().any(|purpose| suite.algorithm(*purpose) == algorithm))
            || matches!(
                algorithm,
                KeyAlgorithm::EcdsaP384
                    | KeyAlgorithm::EcdsaP521
                    | KeyAlgorithm::Rsa3072
                    | KeyAlgorithm::Rsa4096
            );
        known && (self != Self::FipsV1 || algorithm != KeyAlgorithm::Ed25519)
    }

    /// The purposes whose algorithm differs between two suites.
    pub fn changes(self, to: Self) -> impl Iterator<Item = KeyPurpose> {
        KeyPurpose::ALL
            .iter()
            .copied()
            .filter(move |purpose| self.algorithm(*purpose) != to.algorithm(*purpose))
    }
}

#[cfg(test)]
mod tests;
