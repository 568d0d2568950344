//! Issues and verifies the certificates of a cluster: SSH and X.509, for users and for hosts.
//!
//! * [`Authority`] is one certificate authority. A cluster has one of each [`CaKind`], and each signs SSH certificates
//!   with one key, X.509 certificates with another and JWTs with a third, as far as its kind has any of them.
//! * [`issue_user`] and [`issue_host`] make the pair of certificates that a login or a join gives; the other `issue_`
//!   functions certify databases, workloads, stock servers and others. [`Lifetimes`] says for how long.
//! * [`Trust`] is the other side: the public keys of the authorities, and the only way from a certificate to an
//!   [`Identity`](sallyport_access::Identity). A user's certificate is believed only when the user CA signed it, a
//!   host's only when the host CA did.
//! * [`tls`] builds the rustls configurations from that trust; [`tls::danger`] is first contact without any.
//! * [`jwt`] signs and verifies JSON Web Tokens; [`spiffe`] names workloads.
//! * [`revocation`] makes the lists of what was denied, for verifiers that do not ask the authority.
//! * [`keys`] makes the private keys that clients and hosts keep on disk.
//!
//! `docs/certificates.md` describes what is in the certificates.
//!
//! # Time
//! Certificates start [`SKEW_ALLOWANCE`] before they are issued, and every check tolerates the same difference at
//! both ends. A holder whose clock is a minute off is let in; one that is wrong by more reads which way to turn it.

mod accepted;
mod authority;
mod chains;
mod described;
mod device_proof;
mod encoding;
mod error;
mod export;
mod extension;
mod issue;
mod kind;
mod login_word;
mod names;
mod opening;
mod permits;
mod phase;
mod public_keys;
mod reissue;
mod security_keys;
mod ssh;
mod trust;
mod validity;
mod x509;

pub mod jwt;
pub mod keys;
pub mod lifetimes;
pub mod revocation;
pub mod rotation;
pub mod spiffe;
pub mod tls;

pub use accepted::{check_accepted, check_ssh_accepted, check_tls_accepted};
pub use authority::{Authority, AuthorityRecord, JwtSide, SshSide, TlsSide};
pub use chains::{ChainCounts, Remember, chain_counts, remember_chains};
pub use described::{Described, SignatureAlgorithm, SubjectKey};
pub use device_proof::{DEVICE_KEY, DeviceAct};
pub use error::CaError;
pub use export::{authorized_keys_lines, known_hosts_lines, trusted_user_ca_lines};
pub use extension::{IDENTITY_OID, IDENTITY_OID_TEXT};
pub use issue::measure;
pub use issue::{
    DatabaseServerRequest, Form, HostCertificates, HostRequest, Issued, MAX_HOST_TTL, MAX_USER_TTL,
    OpensshHostRequest, Serials, SshCertificate, SshOptions, TlsCertificate, Token, TokenSubject,
    UserCertificates, UserKind, issue_database_client, issue_database_server, issue_host, issue_host_tls,
    issue_jwt, issue_jwt_svid, issue_oidc, issue_openssh_host, issue_openssh_user, issue_proxied, issue_svid,
    issue_target_host, issue_user, issue_user_as,
};
pub use kind::{CaKind, UnknownCa};
pub use lifetimes::{CertificateKind, Lifetimes, MIN_TTL, UnknownKind};
pub use login_word::{LOGIN_WORD_LIFE, LOGIN_WORD_NONCE_BYTES, LoginWord, WantedLogin};
pub use names::{DOMAIN, name_covers, server_name};
pub use opening::{OPENING_LIFE, OPENING_NONCE_BYTES, Opener, Opening, OpeningWord};
pub use permits::SshPermits;
pub use reissue::{SESSION_TTL, UserPair};
pub use spiffe::SpiffeId;
pub use ssh::{NO_LOGIN, device_in, own_login};
pub use trust::{PublicKeys, RotationStatus, Trust, TrustBundle, is_renewable};

use time::Duration;

/// How far clocks may differ: certificates start this long before they are issued, and checks tolerate as much
/// before the start and after the end.
pub const SKEW_ALLOWANCE: Duration = Duration::minutes(1);
