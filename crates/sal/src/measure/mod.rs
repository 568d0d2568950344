//! Measurements: what each source costs on this machine, and what handshakes made of them cost.

pub mod certificate;
pub mod danger;
mod error;
pub mod handshake;
pub mod instructions;
pub mod operation;
pub mod table;
pub mod timing;

pub use error::MeasureError;
