//! The one source of TLS cryptography.
//!
//! The provider is rustls' aws-lc provider with two choices of ours: TLS 1.3 suites only, with AES-128-GCM first
//! (about 5 % more handshakes than AES-256-GCM with SHA-384), and key exchange X25519MLKEM768, then X25519, then
//! P-256. Configurations for the cluster's own connections are made by `sallyport-ca`, which knows whom to trust.

use std::sync::{Arc, OnceLock};

pub use rustls;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};

/// The provider, shared by every configuration of this process.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| {
        Arc::new(CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1],
            ..default_provider()
        })
    }))
}
