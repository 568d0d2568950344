//! Why a certificate was refused or not issued.

use sallyport_access::HostId;
use sallyport_sal::{SalError, SignError};
use time::OffsetDateTime;

use crate::CaKind;
use crate::phase::Phase;

/// Everything that can go wrong with certificates, sorted by who has to act.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaError {
    // The peer: what it showed is refused.
    /// The certificate's time is over.
    #[error(
        "the certificate expired at {valid_before} and it is now {now}; log in again, or check this machine's clock"
    )]
    Expired {
        /// End of validity.
        valid_before: OffsetDateTime,
        /// The verifier's clock.
        now: OffsetDateTime,
    },
    /// The certificate's time has not come, which means that a clock is wrong.
    #[error(
        "the certificate is valid from {valid_after} but it is only {now} here; one of the two clocks is wrong, check that they are synchronised"
    )]
    NotYetValid {
        /// Start of validity.
        valid_after: OffsetDateTime,
        /// The verifier's clock.
        now: OffsetDateTime,
    },
    /// Signed by a key that this cluster does not have.
    #[error(
        "the certificate was not issued by the {expected} CA of cluster {cluster}; it belongs to another cluster, or the CA was replaced since"
    )]
    UnknownIssuer {
        /// The authority that should have signed it.
        expected: Expected,
        /// This cluster.
        cluster: String,
    },
    /// A user's certificate where a host's was needed, or the other way round.
    #[error("this is a certificate for a {got}, expected one for a {expected}")]
    WrongKind {
        /// What it is for.
        got: CaKind,
        /// What was needed.
        expected: CaKind,
    },
    /// The CA's signature does not fit the certificate.
    #[error("the signature on the certificate is not valid: it was altered")]
    BadSignature,
    /// The certificate names another cluster.
    #[error("the certificate is for cluster {got:?}, this is {expected:?}")]
    WrongCluster {
        /// What it names.
        got: String,
        /// This cluster.
        expected: String,
    },
    /// A host certificate that does not cover the name asked for.
    #[error("the host certificate is for {names}, not for {asked:?}", names = names.join(", "))]
    WrongHost {
        /// The name asked for.
        asked: String,
        /// The names it covers.
        names: Vec<String>,
    },
    /// The far end of a TLS connection is a host of the cluster, but not one with the role that was needed.
    #[error("the far end is a {got}, expected {expected}")]
    WrongRole {
        /// Its role.
        got: String,
        /// The role needed.
        expected: String,
    },
    /// A critical option that we do not implement; RFC-like rules say to refuse (PROTOCOL.certkeys).
    #[error("the certificate has the critical option {name:?}, which is not supported here")]
    CriticalOption {
        /// The option.
        name: String,
    },
    /// A certificate with which a proxy speaks for a user to one agent, shown to another host.
    #[error(
        "the certificate is for proxy {proxy} to speak for a user to agent {agent}; it is good for nothing else"
    )]
    OnBehalf {
        /// Who holds it.
        proxy: HostId,
        /// Who may believe it.
        agent: HostId,
    },
    /// Not parseable, or without the fields that an identity needs.
    #[error("the certificate is malformed: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// At a first contact: the server's certificate authority is not one of the pinned. Its own pin is not told: it would be the
    /// next thing that a person tries.
    #[error(
        "its certificate authority does not have the pin {expected}; the pin is of another cluster, or something stands between you and it"
    )]
    OtherPin {
        /// The pins, one of which it should have.
        expected: String,
    },
    /// X.509 path validation failed for a reason of its own.
    #[error("the certificate was refused: {reason}")]
    Refused {
        /// What the verifier said.
        reason: String,
    },

    // The operator: what was configured or stored does not work.
    /// A trust bundle that cannot be used.
    #[error("the trust bundle's {field} cannot be used: {reason}")]
    BadTrust {
        /// Which part of it.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A pin that is not of the form `sha256:` and 64 hexadecimal digits.
    #[error(
        "the CA pin {got:?} is not `sha256:` followed by 64 hexadecimal digits; copy it again from `sallyport admin tokens add` or the invite link"
    )]
    BadPin {
        /// What was given.
        got: String,
    },
    /// A certificate chain or private key file that rustls cannot use.
    #[error("the TLS certificate and key cannot be used: {reason}")]
    BadTlsIdentity {
        /// What is wrong.
        reason: String,
    },

    // The caller: what was asked for is not possible.
    /// A public key that we do not certify.
    #[error("the {which} public key cannot be certified: {reason}")]
    BadPublicKey {
        /// "SSH" or "TLS".
        which: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A private key that cannot be read.
    #[error("the {which} private key cannot be used: {reason}")]
    BadPrivateKey {
        /// "SSH" or "TLS".
        which: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A lifetime outside the bounds.
    #[error("a lifetime of {got} s was asked for; {min} to {max} s are possible")]
    BadLifetime {
        /// Asked for, in seconds.
        got: i64,
        /// Shortest, in seconds.
        min: i64,
        /// Longest, in seconds.
        max: i64,
    },
    /// A user who may log in nowhere wants a certificate that is good for nothing but logging in.
    #[error(
        "{user} has no logins, and a certificate without any would be good for every login; give {user} a role that allows some"
    )]
    NoLogins {
        /// Who.
        user: String,
    },
    /// A name that may not be in a certificate.
    #[error("{name:?} cannot be in a certificate: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// A claim that a token may not have.
    #[error("the claim {name:?} cannot be in a token: {reason}")]
    BadClaim {
        /// The claim.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// The wrong authority was asked: users are certified by the user CA, hosts by the host CA.
    #[error("a {asked} certificate was asked of the {authority} CA")]
    WrongAuthority {
        /// What was asked for.
        asked: CaKind,
        /// Who was asked.
        authority: CaKind,
    },
    /// A step that a rotation cannot take from where it is.
    #[error("the {kind} CA is in phase {phase}: {problem}; see `sallyport admin ca status`")]
    RotationStep {
        /// Whose rotation.
        kind: CaKind,
        /// Where it is.
        phase: Phase,
        /// Why not.
        problem: &'static str,
    },

    /// The authority has no key of this sort.
    #[error("the {kind} CA has no {what} key")]
    NoKey {
        /// The authority.
        kind: CaKind,
        /// "SSH", "TLS" or "JWT".
        what: &'static str,
    },

    // Ourselves.
    /// A key could not be made, found or used.
    #[error("the CA's keys cannot be used")]
    Keys(#[from] SalError),
    /// A signature could not be made.
    #[error("the CA could not sign")]
    Sign(#[from] SignError),
    /// Something that we encode ourselves did not encode.
    #[error("could not encode {what}: {reason}")]
    Encode {
        /// What.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

/// Which authority a verifier would have believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// One of the two.
    Only(CaKind),
    /// Either.
    Either,
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Only(kind) => kind.fmt(f),
            Self::Either => f.write_str("user or host"),
        }
    }
}
