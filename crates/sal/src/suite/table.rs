//! The table of suites.

use super::name::{KeyPurpose, Suite};
use crate::algorithm::KeyAlgorithm;
use crate::algorithm::KeyAlgorithm::{EcdsaP256, Ed25519, MlDsa65, Rsa2048};

/// Why a cell holds what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The reason, a clause.
    pub why: &'static str,
    /// The clients and servers that dictate it.
    pub dictated_by: &'static str,
}

/// One algorithm for one purpose in one suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The algorithm.
    pub algorithm: KeyAlgorithm,
    /// Why this one.
    pub reason: &'static Reason,
}

/// A purpose and what each suite uses for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The purpose.
    pub purpose: KeyPurpose,
    /// What it is for, in words.
    pub what: &'static str,
    /// In `legacy`.
    pub legacy: Cell,
    /// In `balanced-v1`.
    pub balanced_v1: Cell,
    /// In `fips-v1`.
    pub fips_v1: Cell,
    /// In `hsm-v1`.
    pub hsm_v1: Cell,
    /// In `pq-v1`.
    pub pq_v1: Cell,
}

impl Row {
    /// The cell of a suite.
    #[must_use]
    pub fn cell(&self, suite: Suite) -> &Cell {
        match suite {
            Suite::Legacy => &self.legacy,
            Suite::BalancedV1 => &self.balanced_v1,
            Suite::FipsV1 => &self.fips_v1,
            Suite::HsmV1 => &self.hsm_v1,
            Suite::PqV1 => &self.pq_v1,
        }
    }
}

macro_rules! reasons {
    ($($name:ident: $why:literal, $by:literal;)*) => {
        $(const $name: &Reason = &Reason { why: $why, dictated_by: $by };)*
    };
}

reasons! {
    EVERY_CLIENT: "RSA is what every client ever made can verify",
        "OpenSSH from 7.2 (rsa-sha2), Java 8, OpenSSL 1.0, old network devices";
    QUICK_SSH: "the fastest to make, sign and verify, with the shortest certificates",
        "OpenSSH from 6.5, PuTTY from 0.68, libssh from 0.7, Go, Paramiko from 2.2";
    QUICK_TLS: "fast everywhere; no browser accepts Ed25519 certificates",
        "browsers, OpenSSL from 1.0.1, Java from 7, Go, tokens";
    QUICK_JWT: "ES256 is short, and what libraries of JSON Web Tokens offer after RS256",
        "libraries that follow RFC 7518 §3.1, where ES256 is recommended";
    OLD_DATABASES: "drivers and managed databases that know only RSA; an override for one database is possible",
        "older JDBC and .NET drivers, managed databases with uploaded RSA certificates";
    OLD_CLOUDS: "some clouds verify federated tokens with RS256 only",
        "identity federation of cloud providers, which names RS256 as the algorithm to expect";
    NO_EDWARDS: "a NIST curve, because Ed25519 is missing from many validated modules",
        "FIPS 140-3 modules and their auditors; OpenSSH in FIPS mode";
    IN_FIPS: "approved, and at home in every validated module",
        "FIPS 140-3 modules and their auditors";
    TOKEN_CA: "tokens sign with ECDSA and RSA; few know Ed25519",
        "PKCS#11 2.40 modules, network HSMs, YubiHSM, cloud key services";
    SUBJECT_OF_TOKEN_CA: "never in the token, so it may be the quickest",
        "OpenSSH from 6.5";
    QUANTUM_TLS: "only Sallyport presents and reads it, so that a quantum computer is no reason to change it in a hurry",
        "Sallyport's own clients, agents, proxies and authority";
    READ_BY_OTHERS_TLS: "others load or verify it, and none of them knows ML-DSA yet",
        "psql and JDBC with the user's certificate (OpenSSL before 3.5, Java before 24), workloads with SVIDs";
    NO_QUANTUM_SSH: "no SSH client has post-quantum signatures; the key exchange is hybrid",
        "OpenSSH, PuTTY, libssh";
    EVIDENCE: "signs what must still be believable in decades; only Sallyport reads it",
        "`sallyport admin audit verify`";
    OWN_EVIDENCE: "only Sallyport reads it",
        "`sallyport admin audit verify`";
}

const fn cell(algorithm: KeyAlgorithm, reason: &'static Reason) -> Cell {
    Cell { algorithm, reason }
}

const RSA: Cell = cell(Rsa2048, EVERY_CLIENT);
const TLS_P256: Cell = cell(EcdsaP256, QUICK_TLS);
const DATABASE: Cell = cell(Rsa2048, OLD_DATABASES);

/// An SSH CA key.
const fn ssh_ca(purpose: KeyPurpose, what: &'static str) -> Row {
    Row {
        purpose,
        what,
        legacy: RSA,
        balanced_v1: cell(Ed25519, QUICK_SSH),
        fips_v1: cell(EcdsaP256, NO_EDWARDS),
        hsm_v1: cell(EcdsaP256, TOKEN_CA),
        pq_v1: cell(Ed25519, NO_QUANTUM_SSH),
    }
}

/// An SSH key of a user, a host or a machine user.
const fn ssh_subject(purpose: KeyPurpose, what: &'static str) -> Row {
    Row { hsm_v1: cell(Ed25519, SUBJECT_OF_TOKEN_CA), ..ssh_ca(purpose, what) }
}

/// A TLS key that others load or verify.
const fn tls(purpose: KeyPurpose, what: &'static str) -> Row {
    Row {
        purpose,
        what,
        legacy: RSA,
        balanced_v1: TLS_P256,
        fips_v1: cell(EcdsaP256, IN_FIPS),
        hsm_v1: if purpose.is_ca() { cell(EcdsaP256, TOKEN_CA) } else { TLS_P256 },
        pq_v1: cell(EcdsaP256, READ_BY_OTHERS_TLS),
    }
}

/// A TLS key that only Sallyport reads.
const fn own_tls(purpose: KeyPurpose, what: &'static str) -> Row {
    Row { pq_v1: cell(MlDsa65, QUANTUM_TLS), ..tls(purpose, what) }
}

/// A TLS key that databases read.
const fn database(purpose: KeyPurpose, what: &'static str) -> Row {
    Row {
        purpose,
        what,
        legacy: RSA,
        balanced_v1: DATABASE,
        fips_v1: DATABASE,
        hsm_v1: DATABASE,
        pq_v1: DATABASE,
    }
}

/// A key that signs JWTs.
const fn jwt(purpose: KeyPurpose, what: &'static str) -> Row {
    let balanced = cell(EcdsaP256, QUICK_JWT);
    Row {
        purpose,
        what,
        legacy: RSA,
        balanced_v1: balanced,
        fips_v1: cell(EcdsaP256, IN_FIPS),
        hsm_v1: cell(EcdsaP256, TOKEN_CA),
        pq_v1: balanced,
    }
}

/// Every purpose and every suite.
pub const TABLE: &[Row] = &[
    ssh_ca(KeyPurpose::UserCaSsh, "user CA: SSH certificates of users"),
    tls(KeyPurpose::UserCaTls, "user CA: X.509 certificates of users"),
    ssh_ca(KeyPurpose::HostCaSsh, "host CA: SSH certificates of hosts"),
    own_tls(KeyPurpose::HostCaTls, "host CA: X.509 certificates of hosts"),
    database(KeyPurpose::DbCaTls, "db CA: certificates of database servers"),
    database(KeyPurpose::DbClientCaTls, "db_client CA: certificates with which agents log in to databases"),
    ssh_ca(KeyPurpose::OpensshCaSsh, "openssh CA: user certificates for stock OpenSSH servers"),
    jwt(KeyPurpose::JwtCa, "jwt CA: tokens that prove users to applications"),
    Row {
        purpose: KeyPurpose::OidcIdpCa,
        what: "oidc_idp CA: tokens that prove the cluster to clouds",
        legacy: RSA,
        balanced_v1: cell(Rsa2048, OLD_CLOUDS),
        fips_v1: cell(Rsa2048, OLD_CLOUDS),
        hsm_v1: cell(Rsa2048, OLD_CLOUDS),
        pq_v1: cell(Rsa2048, OLD_CLOUDS),
    },
    tls(KeyPurpose::SpiffeCaTls, "spiffe CA: X.509-SVIDs"),
    jwt(KeyPurpose::SpiffeCaJwt, "spiffe CA: JWT-SVIDs"),
    ssh_subject(KeyPurpose::UserSsh, "a user's SSH key"),
    tls(KeyPurpose::UserTls, "a user's TLS key"),
    ssh_subject(KeyPurpose::WebSessionSsh, "the SSH key of a session in the browser, held by the proxy"),
    tls(KeyPurpose::WebSessionTls, "the TLS key of a session in the browser, held by the proxy"),
    ssh_subject(KeyPurpose::HostSsh, "a host's SSH key"),
    own_tls(KeyPurpose::HostTls, "a host's TLS key"),
    own_tls(KeyPurpose::ProxyToAgent, "the TLS key with which a proxy speaks to an agent for a user"),
    database(KeyPurpose::AgentToDatabase, "the TLS key with which an agent logs in to a database"),
    database(KeyPurpose::DatabaseServer, "a database server's TLS key"),
    ssh_subject(KeyPurpose::BotSsh, "a machine user's SSH key"),
    tls(KeyPurpose::BotTls, "a machine user's TLS key"),
    tls(KeyPurpose::Svid, "a workload's key"),
    Row {
        purpose: KeyPurpose::AuditCheckpoint,
        what: "checkpoints of the audit log",
        legacy: cell(Ed25519, OWN_EVIDENCE),
        balanced_v1: cell(Ed25519, OWN_EVIDENCE),
        fips_v1: cell(EcdsaP256, NO_EDWARDS),
        hsm_v1: cell(Ed25519, OWN_EVIDENCE),
        pq_v1: cell(MlDsa65, EVIDENCE),
    },
];

/// Stands where a row is missing, which a test excludes.
pub(super) const UNKNOWN: Row = tls(KeyPurpose::UserTls, "");
