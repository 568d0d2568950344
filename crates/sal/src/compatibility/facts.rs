//! The built-in knowledge, a row for each fact.

use super::software::{Product, Version};

/// Something that a peer can or cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Ability {
    /// SSH key exchange `mlkem768x25519-sha256`.
    HybridSsh,
    /// SSH key exchange `sntrup761x25519-sha512`, which this project does not speak.
    SntrupSsh,
    /// Ed25519 keys in SSH.
    Ed25519Ssh,
    /// ECDSA keys on P-256 in SSH.
    EcdsaSsh,
    /// RSA keys in SSH that sign with SHA-2 (RFC 8332).
    RsaSha2Ssh,
    /// RSA keys in SSH that sign with SHA-1.
    RsaSha1Ssh,
    /// RSA keys of 2048 bits in SSH.
    Rsa2048Ssh,
    /// OpenSSH certificates of users and hosts.
    CertificatesSsh,
    /// OpenSSH certificates of RSA keys, signed with SHA-2.
    RsaSha2Certificates,
    /// TLS key exchange X25519MLKEM768.
    HybridTls,
    /// P-256 keys in certificates of TLS servers.
    EcdsaTls,
    /// Ed25519 keys in certificates of TLS servers.
    Ed25519Tls,
    /// ML-DSA keys in certificates of TLS servers.
    MlDsaTls,
    /// RSA keys of more than 2048 bits in certificates of TLS servers.
    LargeRsaTls,
    /// P-521 keys in certificates of TLS servers.
    EcdsaP521Tls,
    /// TLS 1.3.
    Tls13,
    /// TLS 1.0 and 1.1.
    OldTls,
}

impl Ability {
    /// Every ability, in the order of the guide.
    pub const ALL: &[Self] = &[
        Self::HybridSsh,
        Self::SntrupSsh,
        Self::Ed25519Ssh,
        Self::EcdsaSsh,
        Self::RsaSha2Ssh,
        Self::RsaSha1Ssh,
        Self::Rsa2048Ssh,
        Self::CertificatesSsh,
        Self::RsaSha2Certificates,
        Self::HybridTls,
        Self::EcdsaTls,
        Self::Ed25519Tls,
        Self::MlDsaTls,
        Self::LargeRsaTls,
        Self::EcdsaP521Tls,
        Self::Tls13,
        Self::OldTls,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HybridSsh => "mlkem768x25519-sha256",
            Self::SntrupSsh => "sntrup761x25519-sha512",
            Self::Ed25519Ssh => "Ed25519 keys",
            Self::EcdsaSsh => "ECDSA keys on P-256",
            Self::RsaSha2Ssh => "RSA with SHA-2",
            Self::RsaSha1Ssh => "RSA with SHA-1",
            Self::Rsa2048Ssh => "RSA keys of 2048 bits",
            Self::CertificatesSsh => "SSH certificates",
            Self::RsaSha2Certificates => "RSA certificates with SHA-2",
            Self::HybridTls => "X25519MLKEM768",
            Self::EcdsaTls => "P-256 certificates",
            Self::Ed25519Tls => "Ed25519 certificates",
            Self::MlDsaTls => "ML-DSA certificates",
            Self::LargeRsaTls => "RSA certificates above 2048 bits",
            Self::EcdsaP521Tls => "P-521 certificates",
            Self::Tls13 => "TLS 1.3",
            Self::OldTls => "TLS 1.0 and 1.1",
        }
    }
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Has {
    /// It is, and on unless it was turned off.
    Yes,
    /// It depends: off by default, or on what it was built with.
    Depends,
    /// It is not.
    No,
}

impl Has {
    /// The word in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Depends => "depends",
            Self::No => "no",
        }
    }
}

/// How the text behind a row came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The document itself was read, on this day.
    Read(&'static str),
    /// Read as another page quotes it: the day, and that page.
    Quoted(&'static str, &'static str),
    /// The document is known to say so; it was not read again when the row was written.
    Known,
}

/// Where a fact stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The document's title.
    pub title: &'static str,
    /// Where it is.
    pub url: &'static str,
    /// When it was published: a day, a month or a year.
    pub date: &'static str,
    /// How it was checked.
    pub reading: Reading,
}

/// One thing that one product does from a version on, until a later row says otherwise. Before the first row of an
/// ability the product has it not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    /// Who.
    pub product: Product,
    /// What.
    pub ability: Ability,
    /// From which version on.
    pub from: Version,
    /// Whether.
    pub has: Has,
    /// What else there is to know; may be empty.
    pub note: &'static str,
    /// Who says so.
    pub source: &'static Source,
}

use Ability::{
    CertificatesSsh, EcdsaP521Tls, EcdsaSsh, EcdsaTls, Ed25519Ssh, Ed25519Tls, HybridSsh, HybridTls,
    LargeRsaTls, MlDsaTls, OldTls, Rsa2048Ssh, RsaSha1Ssh, RsaSha2Certificates, RsaSha2Ssh, SntrupSsh, Tls13,
};
use Has::{Depends, No, Yes};
use Reading::{Known, Quoted, Read};

/// When the sources were looked up.
const CHECKED: &str = "2026-11-21";
/// The same, for TLS libraries, content networks and lifetimes.
const CHECKED_TLS: &str = "2026-11-22";

macro_rules! sources {
    ($($name:ident: $title:literal, $url:literal, $date:literal, $reading:expr;)*) => {
        $(static $name: Source = Source { title: $title, url: $url, date: $date, reading: $reading };)*
    };
}

sources! {
    SSH_5_4: "OpenSSH 5.4 release notes", "https://www.openssh.com/txt/release-5.4", "2010-03-08", Known;
    SSH_5_7: "OpenSSH 5.7 release notes", "https://www.openssh.com/txt/release-5.7", "2011-01-24",
        Quoted(CHECKED, "https://ibug.io/blog/2020/04/ssh-8.2-rsa-ca/");
    SSH_6_5: "OpenSSH 6.5 release notes", "https://www.openssh.com/txt/release-6.5", "2014-01-30",
        Quoted(CHECKED, "https://www.robesus.com/openssh-upgraded/");
    SSH_7_2: "OpenSSH 7.2 release notes", "https://www.openssh.com/txt/release-7.2", "2016-02-29",
        Quoted(CHECKED, "https://latesthackingnews.com/2020/06/01/openssh-drops-support-for-sha-1-logins-due-to-ease-of-breach/amp");
    SSH_7_8: "OpenSSH 7.8 release notes", "https://www.openssh.com/txt/release-7.8", "2018-08-24", Known;
    SSH_8_2: "OpenSSH 8.2 release notes", "https://www.openssh.com/txt/release-8.2", "2020-02-14",
        Quoted(CHECKED, "https://ibug.io/blog/2020/04/ssh-8.2-rsa-ca/");
    SSH_8_5: "OpenSSH 8.5 release notes", "https://www.openssh.com/txt/release-8.5", "2021-03-03", Known;
    SSH_8_8: "OpenSSH 8.8 release notes", "https://www.openssh.com/txt/release-8.8", "2021-09-26",
        Quoted(CHECKED, "https://github.com/mwiede/jsch");
    SSH_9_0: "OpenSSH 9.0 release notes", "https://www.openssh.com/txt/release-9.0", "2022-04-08",
        Quoted(CHECKED, "https://reviews.freebsd.org/rG87c1498d1a7473ff983e5c0456f30608f3f1e601");
    SSH_9_1: "OpenSSH 9.1 release notes", "https://www.openssh.com/txt/release-9.1", "2022-10-04", Known;
    SSH_9_9: "OpenSSH 9.9 release notes", "https://www.openssh.com/txt/release-9.9", "2024-09-19",
        Quoted(CHECKED, "https://kroon.email/site/en/posts/ssh-pqc");
    SSH_10_0: "OpenSSH 10.0 release notes", "https://www.openssh.com/txt/release-10.0", "2025-04-09",
        Quoted(CHECKED, "https://mail-archive.com/development@lists.ipfire.org/msg00094.html");
    PUTTY_CHANGES: "PuTTY change log", "https://www.chiark.greenend.org.uk/~sgtatham/putty/changes.html", "2025-02-08", Known;
    PUTTY_0_83: "PuTTY change log, 0.83", "https://www.chiark.greenend.org.uk/~sgtatham/putty/changes.html", "2025-02-08",
        Quoted(CHECKED, "https://github.com/ranvis/putty/releases/tag/ranvis-0.83");
    LIBSSH_0_7: "libssh 0.7.0 change log", "https://gitlab.com/libssh/libssh-mirror/-/tags/libssh-0.7.0", "2015-05-11", Known;
    LIBSSH_0_8_3: "libssh 0.8.3 change log", "https://gitlab.com/libssh/libssh-mirror/-/tags/libssh-0.8.3", "2018-09-21",
        Quoted(CHECKED, "https://build.opensuse.org/request/show/641739");
    LIBSSH_0_9: "libssh 0.9.0 change log", "https://gitlab.com/libssh/libssh-mirror/-/tags/libssh-0.9.0", "2019-06-28", Read(CHECKED);
    LIBSSH_0_12: "libssh 0.12.0 change log", "https://gitlab.com/libssh/libssh-mirror/-/tags/libssh-0.12.0", "2026", Read(CHECKED);
    LIBSSH2_1_9: "libssh2 1.9.0 release notes", "https://github.com/libssh2/libssh2/releases/tag/libssh2-1.9.0", "2019-06-20", Known;
    LIBSSH2_1_11: "libssh2 1.11.0 release notes", "https://github.com/libssh2/libssh2/releases/tag/libssh2-1.11.0", "2023-05-30", Known;
    LIBSSH2_ML_KEM: "libssh2: hybrid ML-KEM with OpenSSL 3.5", "https://github.com/libssh2/libssh2/pull/1644", "2025-08-28", Read(CHECKED);
    JSCH_FORK: "JSch fork: why", "https://github.com/mwiede/jsch", "2020-06-22", Read(CHECKED);
    JSCH_0_2: "JSch fork: RSA with SHA-1", "https://docsearch.algolia.com/mcp/docs/repo/mwiede/jsch", "2022-03-17", Read(CHECKED);
    JSCH_0_2_22: "JSch 0.2.22 release notes", "https://github.com/mwiede/jsch/releases/tag/jsch-0.2.22", "2025-01-10", Read(CHECKED);
    JSCH_2: "JSch 2.28.0, as taken up by others", "https://github.com/epiccastle/clojuressh/releases", "2026-06-17", Read(CHECKED);
    MINA_CERTIFICATES: "Apache MINA SSHD changes, SSHD-1161",
        "https://github.com/apache/mina-sshd/commit/dfa109b7b535d64e8ee395ddd0419e7696fb24ee.diff", "2021", Read(CHECKED);
    MINA_ML_KEM: "Apache MINA SSHD: ML-KEM key exchanges", "https://github.com/apache/mina-sshd/pull/629", "2024-11-03", Read(CHECKED);
    PARAMIKO_CHANGES: "Paramiko change log", "https://www.paramiko.org/changelog.html", "2026-05-09", Known;
    PARAMIKO_ML_KEM: "Paramiko: ML-KEM hybrid key exchange", "https://github.com/paramiko/paramiko/pull/2668", "2026-08-10", Read(CHECKED);
    ASYNCSSH_1_0: "AsyncSSH change log, 1.0.0", "https://asyncssh.readthedocs.io/en/latest/changes.html", "2015-04-11", Read(CHECKED);
    ASYNCSSH_CHANGES: "AsyncSSH change log", "https://asyncssh.readthedocs.io/en/latest/changes.html", "2024-09-26", Known;
    ASYNCSSH_SNTRUP: "SSH comparison: AsyncSSH 2.13.0", "https://github.com/fingolfin/ssh-comparison/pull/98", "2022-12-28", Read(CHECKED);
    ASYNCSSH_ML_KEM: "AsyncSSH: ML-KEM through Python cryptography", "https://github.com/ronf/asyncssh/issues/809", "2026-06-21", Read(CHECKED);
    GO_SSH_ML_KEM: "Go x/crypto: ssh/mlkem.go",
        "https://go.googlesource.com/crypto/+/a4d1237429d6056ef197b0b911b8b9d7dca8ecf6/ssh/mlkem.go", "2024", Read(CHECKED);
    GO_SSH: "Go x/crypto/ssh documentation", "https://pkg.go.dev/golang.org/x/crypto/ssh", "2025", Known;
    DROPBEAR_2020: "Dropbear change log, 2020.79", "https://github.com/mkj/dropbear/blob/master/CHANGES", "2020-06-15",
        Quoted(CHECKED, "https://github.com/hwti/G-010S-A/commit/e7c492898dd88cd588f1e0268755214f8e876daf");
    DROPBEAR_2025: "Dropbear change log, 2025.87", "https://github.com/mkj/dropbear/blob/master/CHANGES", "2025-03-05", Known;
    DROPBEAR: "Dropbear documentation", "https://matt.ucc.asn.au/dropbear/dropbear.html", "2025", Known;
    CHROME_131: "A new path for Kyber on the web", "https://security.googleblog.com/2024/09/a-new-path-for-kyber-on-web.html",
        "2024-09-13", Quoted(CHECKED, "https://planet.cybertzar.com/entries/440828");
    NO_EDDSA: "CA/Browser Forum list: Ed25519 in certificates",
        "https://lists.cabforum.org/pipermail/servercert-wg/2019-June/000875.html", "2019-06-25", Read(CHECKED);
    CHROME_150: "uTLS release 2026.7.8", "https://github.com/jawah/utls/releases/tag/2026.7.8", "2026-07-08", Read(CHECKED);
    PQC_SUPPORT: "Cloudflare: PQC support",
        "https://developers.cloudflare.com/ssl/post-quantum-cryptography/pqc-support/", "2025-11", Read(CHECKED);
    FIREFOX_ML_DSA: "Firefox source: test_mldsa.js",
        "https://raw.githubusercontent.com/mozilla-firefox/firefox/main/security/manager/ssl/tests/unit/test_mldsa.js", "2026", Read(CHECKED);
    SAFARI: "Apple: quantum-secure cryptography in Apple operating systems",
        "https://support.apple.com/guide/security/quantum-secure-cryptography-apple-devices-secc7c82e533/web", "2025", Known;
    OPENSSL_1_1_1: "OpenSSL 1.1.1 release notes", "https://openssl-library.org/news/openssl-1.1.1-notes/", "2018-09-11", Known;
    OPENSSL_1_0_1: "OpenSSL 1.0.1 release notes", "https://openssl-library.org/news/openssl-1.0.1-notes/", "2012-03-14", Known;
    OPENSSL_3_5: "OpenSSL 3.5 ships with post-quantum cryptography on by default",
        "https://postquantum.com/security-pqc/openssl-3-5-pqc-default/", "2025-04-10", Read(CHECKED);
    GO_1_13: "Go 1.13 release notes", "https://go.dev/doc/go1.13#tls_1_3", "2019-09-03",
        Quoted(CHECKED, "https://github.com/decred/dcrwallet/pull/1477");
    GO_1_24: "Go: crypto/tls: add X25519MLKEM768 and use by default", "https://github.com/golang/go/issues/69985",
        "2024-11-20", Read(CHECKED);
    GO_1_27: "Go: crypto/tls, crypto/x509: add ML-DSA support", "https://github.com/golang/go/issues/78888", "2026", Read(CHECKED);
    JAVA_7: "Java 7 security enhancements", "https://docs.oracle.com/javase/7/docs/technotes/guides/security/enhancements-7.html",
        "2011-07-28", Known;
    JAVA_15: "JDK 15 release notes: EdDSA in JSSE (JDK-8166596)", "https://www.oracle.com/java/technologies/javase/15-relnote-issues.html",
        "2020-09-15", Known;
    JAVA_27: "JDK-8369848: Implement JEP 527", "https://bugs.java.com/bugdatabase/view_bug?bug_id=8369848", "2025-12-09", Read(CHECKED);
    JEP_497: "JEP 497: ML-DSA", "https://openjdk.org/jeps/497", "2025-03-18", Known;
    LIBPQ: "PostgreSQL: libpq SSL support", "https://www.postgresql.org/docs/current/libpq-ssl.html", "2025-09-25", Known;
    POSTGRES_GROUPS: "PostgreSQL: ssl_groups",
        "https://www.postgresql.org/message-id/attachment/197022/0001-Clarify-that-ssl_groups-is-for-any-key-exchange-grou.patch",
        "2026-06-01", Read(CHECKED);
    CLOUDFRONT_SIZE: "CloudFront: size of the public key in an RSA certificate",
        "https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/cnames-and-https-size-of-public-key.html", "2026",
        Read(CHECKED);
    CLOUDFRONT: "CloudFront: requirements for SSL/TLS certificates",
        "https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/cnames-and-https-requirements.html", "2026",
        Read(CHECKED);
    CHROME_TLS_1_3: "Chrome platform status: TLS 1.3", "https://chromestatus.com/feature/5712755738804224", "2018-10-16", Known;
    CHROME_OLD_TLS: "Chrome platform status: remove TLS 1.0 and TLS 1.1",
        "https://chromestatus.com/feature/5759116003770368", "2020-07-14", Known;
    CHROME_P521: "Chromium: net/socket/ssl_client_socket_impl.cc, its list of signature algorithms",
        "https://chromium.googlesource.com/chromium/src/+/main/net/socket/ssl_client_socket_impl.cc", "2026", Known;
    FIREFOX_63: "Firefox 63 release notes", "https://www.mozilla.org/en-US/firefox/63.0/releasenotes/", "2018-10-23", Known;
    FIREFOX_78: "Firefox 78 release notes", "https://www.mozilla.org/en-US/firefox/78.0/releasenotes/", "2020-06-30", Known;
    OLD_TLS_PLANS: "Deprecation of legacy TLS 1.0 and 1.1 versions",
        "https://webkit.org/blog/8462/deprecation-of-legacy-tls-1-0-and-1-1-versions/", "2018-10-15",
        Quoted(CHECKED_TLS, "https://redmondmag.com/Articles/2018/10/15/Browsers-Drop-Support-for-TLS-1.aspx");
    SAFARI_TLS_1_3: "Apple: TLS security", "https://support.apple.com/guide/security/tls-security-sec100a75d12/web", "2025", Known;
    JAVA_11: "JEP 332: TLS 1.3", "https://openjdk.org/jeps/332", "2018-09-25", Known;
    BORINGSSL: "Cloudflare documentation: PQC support",
        "https://github.com/cloudflare/cloudflare-docs/pull/20158.diff", "2025", Read(CHECKED_TLS);
    GNUTLS_3_6: "GnuTLS 3.6.5 release notes", "https://lists.gnupg.org/pipermail/gnutls-help/2018-December/004465.html", "2018-12-01", Known;
    SCHANNEL_TLS_1_3: "TLS protocol version support in Windows",
        "https://learn.microsoft.com/en-us/windows/win32/secauthn/protocols-in-tls-ssl--schannel-ssp-", "2025", Known;
    SCHANNEL_PQ: "Post-quantum cryptography on Windows",
        "https://paragmali.com/blog/post-quantum-cryptography-on-windows-the-thirty-year-migrati.md", "2026-05-11", Read(CHECKED_TLS);
    NSS_3_39: "NSS 3.39 release notes", "https://firefox-source-docs.mozilla.org/security/nss/releases/index.html", "2018-08-31", Known;
    NSS_3_105: "NSS 3.105 release notes", "https://firefox-source-docs.mozilla.org/security/nss/releases/nss_3_105.html", "2024-09-26", Known;
    MBEDTLS_3_6: "Mbed TLS 3.6.0 release notes", "https://github.com/Mbed-TLS/mbedtls/releases/tag/v3.6.0", "2024-03-28", Known;
    WOLFSSL_PQ: "OpenVPN: added PQE to wolfSSL", "https://sourceforge.net/p/openvpn/mailman/message/59203555", "2025-07-07", Read(CHECKED_TLS);
    WOLFSSL_CURL: "wolfSSL: PQC in curl", "https://www.wolfssl.com/pqc-in-curl/", "2026", Read(CHECKED_TLS);
    RUSTLS_PQ: "mlkem-tls: who has X25519MLKEM768", "https://docs.rs/mlkem-tls", "2026", Read(CHECKED_TLS);
    RUSTLS: "rustls: supported features", "https://docs.rs/rustls/latest/rustls/manual/_04_features/index.html", "2026", Known;
    CLOUDFLARE_CUSTOM: "Cloudflare for SaaS: custom certificates",
        "https://developers.cloudflare.com/ssl/ssl-for-saas/custom-certificates", "2025", Read(CHECKED_TLS);
    CLOUDFLARE_ORIGIN: "Cloudflare: post-quantum between Cloudflare and origin servers",
        "https://developers.cloudflare.com/ssl/post-quantum-cryptography/pqc-to-origin/", "2026", Read(CHECKED_TLS);
    AKAMAI_ORIGIN: "Akamai: post quantum cryptography to origin",
        "https://techdocs.akamai.com/property-mgr/docs/pqc-origin", "2026", Read(CHECKED_TLS);
    GOOGLE_KEYS: "Google Cloud: SSL certificates overview", "https://cloud.google.com/load-balancing/docs/ssl-certificates", "2026",
        Quoted(CHECKED_TLS, "https://documentation.s3ns.fr/load-balancing/docs/ssl-certificates");
    FRONT_DOOR: "Azure Front Door: HTTPS for a custom domain",
        "https://learn.microsoft.com/en-us/azure/frontdoor/standard-premium/how-to-configure-https-custom-domain", "2026",
        Quoted(CHECKED_TLS, "https://docs.azure.cn/frontdoor/standard-premium/how-to-configure-https-custom-domain");
    BALLOT_193: "CA/Browser Forum ballot 193: 825-day certificate lifetimes",
        "https://cabforum.org/2017/03/17/ballot-193-825-day-certificate-lifetimes/", "2017-03-17", Known;
    BALLOT_SC31: "CA/Browser Forum ballot SC31: browser alignment",
        "https://cabforum.org/2020/07/16/ballot-sc31-browser-alignment/", "2020-07-16", Known;
    BALLOT_SC081: "CA/Browser Forum ballot SC-081v3",
        "https://cabforum.org/2025/04/11/ballot-sc081v3-introduce-schedule-of-reducing-validity-and-data-reuse-periods/",
        "2025-04-11", Quoted(CHECKED_TLS, "https://postquantum.com/security-pqc/sc081v3-47day-certificate");
    OWN: "This project's own tests", "https://github.com/sallyport/sallyport", "2026", Read(CHECKED);
}

const fn fact(
    product: Product,
    ability: Ability,
    from: (u32, u32, u32),
    has: Has,
    source: &'static Source,
    note: &'static str,
) -> Fact {
    Fact { product, ability, from: Version(from.0, from.1, from.2), has, note, source }
}

/// From the beginning.
const ALWAYS: (u32, u32, u32) = (0, 0, 0);

/// Everything that is known, by product, ability and version.
#[rustfmt::skip]
pub static FACTS: &[Fact] = &[
    fact(Product::OpenSsh, HybridSsh, (9, 9, 0), Yes, &SSH_9_9, "offered behind sntrup761x25519-sha512"),
    fact(Product::OpenSsh, HybridSsh, (10, 0, 0), Yes, &SSH_10_0, "first choice"),
    fact(Product::OpenSsh, SntrupSsh, (8, 5, 0), Depends, &SSH_8_5, "off by default"),
    fact(Product::OpenSsh, SntrupSsh, (9, 0, 0), Yes, &SSH_9_0, "first choice"),
    fact(Product::OpenSsh, Ed25519Ssh, (6, 5, 0), Yes, &SSH_6_5, ""),
    fact(Product::OpenSsh, EcdsaSsh, (5, 7, 0), Yes, &SSH_5_7, ""),
    fact(Product::OpenSsh, RsaSha2Ssh, (7, 2, 0), Yes, &SSH_7_2, ""),
    fact(Product::OpenSsh, RsaSha1Ssh, ALWAYS, Yes, &SSH_8_8, ""),
    fact(Product::OpenSsh, RsaSha1Ssh, (8, 8, 0), Depends, &SSH_8_8, "off by default"),
    fact(Product::OpenSsh, Rsa2048Ssh, ALWAYS, Yes, &SSH_9_1, ""),
    fact(Product::OpenSsh, Rsa2048Ssh, (9, 1, 0), Yes, &SSH_9_1, "RequiredRSASize can demand more; hardened systems set 3072"),
    fact(Product::OpenSsh, CertificatesSsh, (5, 4, 0), Yes, &SSH_5_4, ""),
    fact(Product::OpenSsh, RsaSha2Certificates, (7, 8, 0), Yes, &SSH_7_8, ""),
    fact(Product::OpenSsh, RsaSha2Certificates, (8, 2, 0), Yes, &SSH_8_2, "signatures of CAs with SHA-1 are refused"),

    fact(Product::Putty, HybridSsh, (0, 83, 0), Yes, &PUTTY_0_83, ""),
    fact(Product::Putty, SntrupSsh, (0, 78, 0), Yes, &PUTTY_CHANGES, ""),
    fact(Product::Putty, Ed25519Ssh, (0, 68, 0), Yes, &PUTTY_CHANGES, ""),
    fact(Product::Putty, EcdsaSsh, (0, 68, 0), Yes, &PUTTY_CHANGES, ""),
    fact(Product::Putty, RsaSha2Ssh, (0, 75, 0), Yes, &PUTTY_CHANGES, ""),
    fact(Product::Putty, CertificatesSsh, (0, 78, 0), Yes, &PUTTY_CHANGES, ""),

    fact(Product::Libssh, HybridSsh, (0, 12, 0), Yes, &LIBSSH_0_12, "first choice"),
    fact(Product::Libssh, Ed25519Ssh, (0, 7, 0), Yes, &LIBSSH_0_7, ""),
    fact(Product::Libssh, RsaSha2Ssh, (0, 8, 3), Yes, &LIBSSH_0_8_3, ""),
    fact(Product::Libssh, CertificatesSsh, (0, 9, 0), Yes, &LIBSSH_0_9, "of users; host certificates are not verified"),

    fact(Product::Libssh2, HybridSsh, (1, 11, 2), Depends, &LIBSSH2_ML_KEM, "merged after 1.11.1; built with OpenSSL 3.5"),
    fact(Product::Libssh2, Ed25519Ssh, (1, 9, 0), Yes, &LIBSSH2_1_9, ""),
    fact(Product::Libssh2, RsaSha2Ssh, (1, 11, 0), Yes, &LIBSSH2_1_11, ""),

    fact(Product::Jsch, HybridSsh, (0, 2, 22), Depends, &JSCH_0_2_22, "with Bouncy Castle"),
    fact(Product::Jsch, Ed25519Ssh, (0, 1, 58), Depends, &JSCH_0_2, "with Java 15 or Bouncy Castle; the original 0.1.55 has none"),
    fact(Product::Jsch, RsaSha2Ssh, (0, 1, 56), Yes, &JSCH_FORK, "the original 0.1.55 has none"),
    fact(Product::Jsch, RsaSha1Ssh, ALWAYS, Yes, &JSCH_FORK, ""),
    fact(Product::Jsch, RsaSha1Ssh, (0, 2, 0), Depends, &JSCH_0_2, "off by default"),
    fact(Product::Jsch, CertificatesSsh, (2, 28, 0), Yes, &JSCH_2, "at the latest from this version"),

    fact(Product::MinaSshd, HybridSsh, (2, 15, 0), Depends, &MINA_ML_KEM, "with Bouncy Castle 1.79"),
    fact(Product::MinaSshd, CertificatesSsh, (2, 8, 0), Yes, &MINA_CERTIFICATES, "of users"),

    fact(Product::Paramiko, HybridSsh, (5, 1, 0), Depends, &PARAMIKO_ML_KEM, "merged in August 2026; with cryptography 48 on OpenSSL 3.5; which release has it first was not verified"),
    fact(Product::Paramiko, Ed25519Ssh, (2, 2, 0), Yes, &PARAMIKO_CHANGES, ""),
    fact(Product::Paramiko, RsaSha2Ssh, (2, 9, 0), Yes, &PARAMIKO_CHANGES, ""),

    fact(Product::AsyncSsh, HybridSsh, (2, 18, 0), Depends, &ASYNCSSH_ML_KEM, "with liboqs, later with cryptography 48"),
    fact(Product::AsyncSsh, SntrupSsh, (2, 12, 0), Depends, &ASYNCSSH_SNTRUP, "with liboqs"),
    fact(Product::AsyncSsh, Ed25519Ssh, (1, 0, 0), Depends, &ASYNCSSH_1_0, "with libsodium at first"),
    fact(Product::AsyncSsh, RsaSha2Ssh, (1, 9, 0), Yes, &ASYNCSSH_CHANGES, ""),
    fact(Product::AsyncSsh, CertificatesSsh, (1, 0, 0), Yes, &ASYNCSSH_1_0, ""),

    fact(Product::GoSsh, HybridSsh, ALWAYS, Depends, &GO_SSH_ML_KEM, "first choice when built with Go 1.24 and a module of 2025 or later; it does not tell its version"),
    fact(Product::GoSsh, Ed25519Ssh, ALWAYS, Yes, &GO_SSH, ""),
    fact(Product::GoSsh, EcdsaSsh, ALWAYS, Yes, &GO_SSH, ""),
    fact(Product::GoSsh, RsaSha2Ssh, ALWAYS, Depends, &GO_SSH, "modules of 2022 or later"),
    fact(Product::GoSsh, CertificatesSsh, ALWAYS, Yes, &GO_SSH, "a program must ask for it"),

    fact(Product::Dropbear, HybridSsh, (2025, 87, 0), Depends, &DROPBEAR_2025, "an option of the build"),
    fact(Product::Dropbear, SntrupSsh, (2025, 87, 0), Yes, &DROPBEAR_2025, ""),
    fact(Product::Dropbear, Ed25519Ssh, (2020, 79, 0), Yes, &DROPBEAR_2020, ""),
    fact(Product::Dropbear, RsaSha2Ssh, (2020, 79, 0), Yes, &DROPBEAR_2020, ""),
    fact(Product::Dropbear, CertificatesSsh, ALWAYS, No, &DROPBEAR, "a user certificate cannot be shown, so it cannot log in"),

    fact(Product::Chrome, HybridTls, (131, 0, 0), Yes, &CHROME_131, "first choice"),
    fact(Product::Chrome, EcdsaTls, ALWAYS, Yes, &NO_EDDSA, ""),
    fact(Product::Chrome, Ed25519Tls, ALWAYS, No, &NO_EDDSA, ""),
    fact(Product::Chrome, MlDsaTls, (150, 0, 0), Depends, &CHROME_150, "offered; a certificate of a private CA was not tried, and its own root store takes none"),
    fact(Product::Chrome, EcdsaP521Tls, ALWAYS, No, &CHROME_P521, "P-256 and P-384 alone"),
    fact(Product::Chrome, Tls13, (70, 0, 0), Yes, &CHROME_TLS_1_3, ""),
    fact(Product::Chrome, OldTls, ALWAYS, Yes, &CHROME_OLD_TLS, ""),
    fact(Product::Chrome, OldTls, (84, 0, 0), No, &CHROME_OLD_TLS, ""),

    fact(Product::Firefox, HybridTls, (132, 0, 0), Yes, &PQC_SUPPORT, "on Android from 145"),
    fact(Product::Firefox, EcdsaTls, ALWAYS, Yes, &NO_EDDSA, ""),
    fact(Product::Firefox, Ed25519Tls, ALWAYS, No, &NO_EDDSA, ""),
    fact(Product::Firefox, MlDsaTls, ALWAYS, No, &FIREFOX_ML_DSA, "current sources have it behind security.tls.enable_mldsa"),
    fact(Product::Firefox, Tls13, (63, 0, 0), Yes, &FIREFOX_63, ""),
    fact(Product::Firefox, OldTls, ALWAYS, Yes, &FIREFOX_78, ""),
    fact(Product::Firefox, OldTls, (78, 0, 0), No, &FIREFOX_78, ""),

    fact(Product::Safari, HybridTls, (26, 0, 0), Yes, &PQC_SUPPORT, "on the operating systems of the same number"),
    fact(Product::Safari, EcdsaTls, ALWAYS, Yes, &NO_EDDSA, ""),
    fact(Product::Safari, Ed25519Tls, ALWAYS, No, &NO_EDDSA, ""),
    fact(Product::Safari, MlDsaTls, ALWAYS, No, &SAFARI, ""),
    fact(Product::Safari, Tls13, (12, 1, 0), Yes, &SAFARI_TLS_1_3, "on macOS from 10.14.4 and iOS from 12.2"),
    fact(Product::Safari, OldTls, ALWAYS, Depends, &OLD_TLS_PLANS, "removed by updates of the operating systems from March 2020 on"),

    fact(Product::OpenSsl, HybridTls, (3, 5, 0), Yes, &OPENSSL_3_5, "first choice; 1.1.1 and 3.0 have none"),
    fact(Product::OpenSsl, EcdsaTls, (1, 0, 1), Yes, &OPENSSL_1_0_1, ""),
    fact(Product::OpenSsl, Ed25519Tls, (1, 1, 1), Yes, &OPENSSL_1_1_1, ""),
    fact(Product::OpenSsl, MlDsaTls, (3, 5, 0), Yes, &OPENSSL_3_5, ""),
    fact(Product::OpenSsl, Tls13, (1, 1, 1), Yes, &OPENSSL_1_1_1, ""),

    fact(Product::BoringSsl, HybridTls, ALWAYS, Depends, &BORINGSSL, "since 2024; it has no versions, and the program that links it chooses the groups"),

    fact(Product::GnuTls, Tls13, (3, 6, 5), Yes, &GNUTLS_3_6, ""),

    fact(Product::Schannel, HybridTls, (10, 0, 26100), Depends, &SCHANNEL_PQ, "Windows 11 24H2 and Server 2025, behind a group policy"),
    fact(Product::Schannel, Tls13, (10, 0, 20348), Yes, &SCHANNEL_TLS_1_3, "Server 2022 and Windows 11"),

    fact(Product::Nss, HybridTls, (3, 105, 0), Yes, &NSS_3_105, "the library of Firefox 132"),
    fact(Product::Nss, Tls13, (3, 39, 0), Yes, &NSS_3_39, ""),

    fact(Product::MbedTls, Tls13, (3, 6, 0), Yes, &MBEDTLS_3_6, "before that an option of the build"),

    fact(Product::WolfSsl, HybridTls, (5, 8, 0), Depends, &WOLFSSL_PQ, "an option of the build, and must be named among the groups"),
    fact(Product::WolfSsl, MlDsaTls, (5, 8, 0), Depends, &WOLFSSL_CURL, "an option of the build; which version has it first was not verified"),

    fact(Product::Rustls, HybridTls, (0, 23, 27), Yes, &RUSTLS_PQ, "with aws-lc-rs"),
    fact(Product::Rustls, EcdsaTls, ALWAYS, Yes, &RUSTLS, ""),
    fact(Product::Rustls, Ed25519Tls, ALWAYS, Yes, &RUSTLS, ""),
    fact(Product::Rustls, Tls13, ALWAYS, Yes, &RUSTLS, ""),
    fact(Product::Rustls, OldTls, ALWAYS, No, &RUSTLS, ""),

    fact(Product::GoTls, HybridTls, (1, 24, 0), Yes, &GO_1_24, "first choice"),
    fact(Product::GoTls, Ed25519Tls, (1, 13, 0), Yes, &GO_1_13, ""),
    fact(Product::GoTls, MlDsaTls, (1, 27, 0), Yes, &GO_1_27, ""),
    fact(Product::GoTls, Tls13, (1, 13, 0), Yes, &GO_1_13, ""),

    fact(Product::Java, HybridTls, (27, 0, 0), Yes, &JAVA_27, "first choice"),
    fact(Product::Java, EcdsaTls, (7, 0, 0), Yes, &JAVA_7, ""),
    fact(Product::Java, Ed25519Tls, (15, 0, 0), Yes, &JAVA_15, ""),
    fact(Product::Java, MlDsaTls, ALWAYS, No, &JEP_497, "Java 24 signs and verifies with ML-DSA, but not in TLS"),
    fact(Product::Java, Tls13, (11, 0, 0), Yes, &JAVA_11, "8u261 has it too"),

    fact(Product::Libpq, HybridTls, ALWAYS, Depends, &POSTGRES_GROUPS, "what its OpenSSL offers, from 3.5; a server's ssl_groups default to X25519:prime256v1"),
    fact(Product::Libpq, Ed25519Tls, ALWAYS, Depends, &LIBPQ, "what its OpenSSL can do, from 1.1.1"),
    fact(Product::Libpq, MlDsaTls, ALWAYS, Depends, &LIBPQ, "what its OpenSSL can do, from 3.5"),

    fact(Product::CloudFront, EcdsaTls, ALWAYS, Yes, &CLOUDFRONT, "P-256"),
    fact(Product::CloudFront, Ed25519Tls, ALWAYS, No, &CLOUDFRONT, "RSA and ECDSA only"),
    fact(Product::CloudFront, MlDsaTls, ALWAYS, No, &CLOUDFRONT, "RSA and ECDSA only"),
    fact(Product::CloudFront, LargeRsaTls, ALWAYS, Depends, &CLOUDFRONT_SIZE, "to 4096 bits today; for years, and still for field-level encryption, 2048"),

    fact(Product::Cloudflare, HybridTls, ALWAYS, Yes, &CLOUDFLARE_ORIGIN, "to origins it sends a classical share and offers the hybrid one, so an origin has to ask for another hello, unless the zone says `preferred`"),
    fact(Product::Cloudflare, EcdsaTls, ALWAYS, Yes, &CLOUDFLARE_CUSTOM, "custom certificates signed with ecdsa-with-SHA256"),
    fact(Product::Cloudflare, Ed25519Tls, ALWAYS, No, &CLOUDFLARE_CUSTOM, "custom certificates: RSA and ECDSA only"),

    fact(Product::Akamai, HybridTls, ALWAYS, Depends, &AKAMAI_ORIGIN, "to origins a behaviour of the property, for Enhanced TLS; the origin needs TLS 1.3"),

    fact(Product::GoogleCloud, EcdsaTls, ALWAYS, Yes, &GOOGLE_KEYS, "P-256 and P-384"),
    fact(Product::GoogleCloud, Ed25519Tls, ALWAYS, No, &GOOGLE_KEYS, "RSA and ECDSA only"),
    fact(Product::GoogleCloud, LargeRsaTls, ALWAYS, Depends, &GOOGLE_KEYS, "3072 and 4096 bits for regional certificates"),
    fact(Product::GoogleCloud, EcdsaP521Tls, ALWAYS, No, &GOOGLE_KEYS, ""),

    fact(Product::AzureFrontDoor, EcdsaTls, ALWAYS, No, &FRONT_DOOR, "certificates of one's own: RSA only"),
    fact(Product::AzureFrontDoor, Ed25519Tls, ALWAYS, No, &FRONT_DOOR, "certificates of one's own: RSA only"),

    fact(Product::Sallyport, HybridSsh, (0, 1, 0), Yes, &OWN, "first choice"),
    fact(Product::Sallyport, Ed25519Ssh, (0, 1, 0), Yes, &OWN, ""),
    fact(Product::Sallyport, EcdsaSsh, (0, 1, 0), Yes, &OWN, ""),
    fact(Product::Sallyport, RsaSha2Ssh, (0, 1, 0), Yes, &OWN, ""),
    fact(Product::Sallyport, CertificatesSsh, (0, 1, 0), Yes, &OWN, ""),
    fact(Product::Sallyport, HybridTls, (0, 1, 0), Yes, &OWN, "first choice"),
    fact(Product::Sallyport, EcdsaTls, (0, 1, 0), Yes, &OWN, ""),
    fact(Product::Sallyport, Ed25519Tls, (0, 1, 0), Yes, &OWN, ""),
    fact(Product::Sallyport, MlDsaTls, (0, 1, 0), Yes, &OWN, ""),
];

/// For how long public CAs may issue certificates of TLS servers; browsers hold them to it. CAs that people added
/// themselves are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// For certificates that are issued on or after this day: `2026-03-15`.
    pub from_day: &'static str,
    /// At most so many days.
    pub days: u32,
    /// Who says so.
    pub source: &'static Source,
}

/// Every lifetime that was or will be in force, the oldest first.
pub static LIFETIMES: &[Lifetime] = &[
    Lifetime { from_day: "2018-03-01", days: 825, source: &BALLOT_193 },
    Lifetime { from_day: "2020-09-01", days: 398, source: &BALLOT_SC31 },
    Lifetime { from_day: "2026-03-15", days: 200, source: &BALLOT_SC081 },
    Lifetime { from_day: "2027-03-15", days: 100, source: &BALLOT_SC081 },
    Lifetime { from_day: "2029-03-15", days: 47, source: &BALLOT_SC081 },
];
