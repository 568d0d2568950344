//! A browser and an authenticator in software against the relying party.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod attestation;
mod authenticator;
mod ceremonies;
mod certificates;
mod parsers;
mod policies;
mod steps;
mod table;
mod vectors;
