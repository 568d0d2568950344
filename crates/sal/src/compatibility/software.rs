//! Which product a client is, from what it calls itself.

use std::fmt;

/// A product of whose abilities something is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Product {
    /// OpenSSH, portable or not.
    OpenSsh,
    /// PuTTY and its companions.
    Putty,
    /// libssh.
    Libssh,
    /// libssh2: curl, Git libraries.
    Libssh2,
    /// JSch, from 0.1.58 on its maintained fork.
    Jsch,
    /// Apache MINA SSHD.
    MinaSshd,
    /// Paramiko: Ansible's fallback, Fabric.
    Paramiko,
    /// AsyncSSH.
    AsyncSsh,
    /// golang.org/x/crypto/ssh, which does not tell its version.
    GoSsh,
    /// Dropbear.
    Dropbear,
    /// Chrome and other browsers on its engine.
    Chrome,
    /// Firefox.
    Firefox,
    /// Safari, and what uses Apple's network library.
    Safari,
    /// OpenSSL, by the version that a program links.
    OpenSsl,
    /// BoringSSL, which has no versions.
    BoringSsl,
    /// GnuTLS.
    GnuTls,
    /// Schannel, by the version of Windows.
    Schannel,
    /// Mozilla's NSS.
    Nss,
    /// Mbed TLS.
    MbedTls,
    /// wolfSSL.
    WolfSsl,
    /// rustls.
    Rustls,
    /// Go's crypto/tls, by the version of Go.
    GoTls,
    /// Java's JSSE: JDBC drivers among others.
    Java,
    /// PostgreSQL's client library, which uses the OpenSSL of its machine.
    Libpq,
    /// Amazon CloudFront, as a reader of an origin.
    CloudFront,
    /// Cloudflare.
    Cloudflare,
    /// Akamai.
    Akamai,
    /// Google Cloud's load balancers and CDN.
    GoogleCloud,
    /// Azure Front Door.
    AzureFrontDoor,
    /// This project.
    Sallyport,
}

impl Product {
    /// Every product, in the order of the guide.
    pub const ALL: &[Self] = &[
        Self::OpenSsh,
        Self::Putty,
        Self::Libssh,
        Self::Libssh2,
        Self::Jsch,
        Self::MinaSshd,
        Self::Paramiko,
        Self::AsyncSsh,
        Self::GoSsh,
        Self::Dropbear,
        Self::Chrome,
        Self::Firefox,
        Self::Safari,
        Self::OpenSsl,
        Self::BoringSsl,
        Self::GnuTls,
        Self::Schannel,
        Self::Nss,
        Self::MbedTls,
        Self::WolfSsl,
        Self::Rustls,
        Self::GoTls,
        Self::Java,
        Self::Libpq,
        Self::CloudFront,
        Self::Cloudflare,
        Self::Akamai,
        Self::GoogleCloud,
        Self::AzureFrontDoor,
        Self::Sallyport,
    ];

    /// The name that people use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenSsh => "OpenSSH",
            Self::Putty => "PuTTY",
            Self::Libssh => "libssh",
            Self::Libssh2 => "libssh2",
            Self::Jsch => "JSch",
            Self::MinaSshd => "Apache MINA SSHD",
            Self::Paramiko => "Paramiko",
            Self::AsyncSsh => "AsyncSSH",
            Self::GoSsh => "Go x/crypto/ssh",
            Self::Dropbear => "Dropbear",
            Self::Chrome => "Chrome, Edge",
            Self::Firefox => "Firefox",
            Self::Safari => "Safari",
            Self::OpenSsl => "OpenSSL",
            Self::BoringSsl => "BoringSSL",
            Self::GnuTls => "GnuTLS",
            Self::Schannel => "Schannel",
            Self::Nss => "NSS",
            Self::MbedTls => "Mbed TLS",
            Self::WolfSsl => "wolfSSL",
            Self::Rustls => "rustls",
            Self::GoTls => "Go crypto/tls",
            Self::Java => "Java JSSE",
            Self::Libpq => "libpq",
            Self::CloudFront => "CloudFront",
            Self::Cloudflare => "Cloudflare",
            Self::Akamai => "Akamai",
            Self::GoogleCloud => "Google Cloud",
            Self::AzureFrontDoor => "Azure Front Door",
            Self::Sallyport => "Sallyport",
        }
    }
}

/// The first numbers of a version; missing ones are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Before every other.
    pub const FIRST: Self = Self(0, 0, 0);

    /// From the beginning of a text such as `9.2p1` or `0.10.6-foo`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = [0u32; 3];
        let mut rest = text;
        for (at, part) in parts.iter_mut().enumerate() {
            let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
            let Some((number, after)) = rest.split_at_checked(digits) else { break };
            match number.parse() {
                Ok(number) => *part = number,
                Err(_) if at == 0 => return None,
                Err(_) => break,
            }
            match after.strip_prefix('.') {
                Some(after) => rest = after,
                None => break,
            }
        }
        let [major, minor, patch] = parts;
        Some(Self(major, minor, patch))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(major, minor, 0) => write!(f, "{major}.{minor}"),
            Self(major, minor, patch) => write!(f, "{major}.{minor}.{patch}"),
        }
    }
}

/// A product and, when it tells, its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Software {
    /// Which.
    pub product: Product,
    /// Which of them.
    pub version: Option<Version>,
}

/// What an SSH identification begins with, in lower case, longest first where one begins another.
const SSH: &[(&str, Product)] = &[
    ("openssh_for_windows_", Product::OpenSsh),
    ("openssh_", Product::OpenSsh),
    ("putty_release_", Product::Putty),
    ("putty_snapshot_", Product::Putty),
    ("putty", Product::Putty),
    ("libssh2_", Product::Libssh2),
    ("libssh_", Product::Libssh),
    ("libssh-", Product::Libssh),
    ("jsch_", Product::Jsch),
    ("jsch-", Product::Jsch),
    ("apache-sshd-", Product::MinaSshd),
    ("sshd-core-", Product::MinaSshd),
    ("paramiko_", Product::Paramiko),
    ("asyncssh_", Product::AsyncSsh),
    ("dropbear_", Product::Dropbear),
    ("dropbear", Product::Dropbear),
    ("sallyport_", Product::Sallyport),
];

/// What a user agent has in it, in lower case, the most telling first: every browser claims to be several.
const HTTP: &[(&str, Product)] = &[
    ("sallyport/", Product::Sallyport),
    ("amazon cloudfront", Product::CloudFront),
    ("edg/", Product::Chrome),
    ("chrome/", Product::Chrome),
    ("chromium/", Product::Chrome),
    ("firefox/", Product::Firefox),
    ("java-http-client/", Product::Java),
    ("java/", Product::Java),
    ("openssl/", Product::OpenSsl),
];

impl Software {
    /// From what follows `SSH-2.0-` in an identification.
    #[must_use]
    pub fn of_ssh(identification: &str) -> Option<Self> {
        let lower = identification.trim().to_ascii_lowercase();
        if lower == "go" || lower.starts_with("go ") {
            return Some(Self { product: Product::GoSsh, version: None });
        }
        let (beginning, product) = SSH.iter().find(|(beginning, _)| lower.starts_with(beginning))?;
        let version = lower.get(beginning.len()..).and_then(Version::read);
        Some(Self { product: *product, version })
    }

    /// From a user agent.
    #[must_use]
    pub fn of_user_agent(agent: &str) -> Option<Self> {
        let lower = agent.to_ascii_lowercase();
        for (mark, product) in HTTP {
            if let Some((_, after)) = lower.split_once(mark) {
                let version = match (product, Version::read(after)) {
                    // Java 8 calls itself 1.8.
                    (Product::Java, Some(Version(1, minor, _))) => Some(Version(minor, 0, 0)),
                    (_, version) => version,
                };
                return Some(Self { product: *product, version });
            }
        }
        // Safari tells its version elsewhere than its name.
        if lower.contains("safari/")
            && let Some((_, after)) = lower.split_once("version/")
        {
            return Some(Self { product: Product::Safari, version: Version::read(after) });
        }
        if lower.starts_with("go-http-client/") {
            // The number is that of HTTP.
            return Some(Self { product: Product::GoTls, version: None });
        }
        None
    }
}

impl fmt::Display for Software {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.product.name())?;
        match self.version {
            Some(version) => write!(f, " {version}"),
            None => Ok(()),
        }
    }
}
