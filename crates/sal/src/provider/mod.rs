//! Providers: the sources of primitives.
//!
//! A provider is a library behind the [`Provider`] trait. It says what it offers, what it needs of the CPU and what it
//! warns of itself; the [selection](crate::selection) decides whether it is used.
//!
//! # Adding a provider
//!
//! One file and one line. Write `provider/NAME.rs` with a unit struct that implements [`Provider`]: `offer` names the
//! primitives, and the methods behind those are the only ones to write, since the rest refuse by default. Then add it
//! to [`ALL`]. Nothing else changes: the self-tests, the conformance suite, `sal tune`, `sal speed` and the report go
//! over [`ALL`]. A library that does not build everywhere goes behind a feature of this crate, on both the module and
//! the line.

pub mod aws_lc;
mod contract;
#[cfg(not(feature = "fips"))]
pub mod graviola;
#[cfg(not(feature = "fips"))]
pub mod libcrux;
#[cfg(feature = "openssl")]
pub mod openssl;
#[cfg(not(feature = "fips"))]
pub mod ring;
#[cfg(test)]
mod round_trip;
pub mod rustcrypto;
#[cfg(feature = "sodium")]
pub mod sodium;

pub use contract::{
    AeadKey, Agreement, Decapsulation, Fault, HashContext, HmacKey, MAX, Module, Offer, PrivateKey, Provider,
    Secret,
};

/// Every provider of this build. The order is that of trust when nothing else decides. A build with the FIPS module has the module,
/// and RustCrypto for what a cluster of before has and the module lacks: no other library is linked to it.
pub static ALL: &[&dyn Provider] = &[
    &aws_lc::AwsLc,
    #[cfg(not(feature = "fips"))]
    &ring::Ring,
    #[cfg(not(feature = "fips"))]
    &graviola::Graviola,
    #[cfg(not(feature = "fips"))]
    &libcrux::Libcrux,
    &rustcrypto::RustCrypto,
    #[cfg(feature = "sodium")]
    &sodium::Sodium,
    #[cfg(feature = "openssl")]
    &openssl::OpenSsl,
];

/// The provider of a name in this build.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Provider> {
    ALL.iter().copied().find(|provider| provider.name() == name)
}

/// The module of this build, if it has one.
#[must_use]
pub fn module() -> Option<Module> {
    ALL.iter().find_map(|provider| provider.module())
}

/// Runs every self-test of the module of this build; gives the module. Blocks.
///
/// # Errors
/// [`Fault::Broken`] when one fails and the module lets the process go on.
pub fn prove_module() -> Result<Option<Module>, Fault> {
    let Some(provider) = ALL.iter().find(|provider| provider.is_fips()) else { return Ok(None) };
    provider.prove_module().map(|()| provider.module())
}
