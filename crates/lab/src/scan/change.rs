//! What to change, in the words of the server's own configuration where it is known.

/// Software whose configuration is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Nginx,
    Apache,
    Postgres,
    OpenSsh,
    Other,
}

impl Server {
    /// By what it calls itself.
    pub(crate) fn of(software: Option<&str>) -> Self {
        let Some(software) = software.map(str::to_ascii_lowercase) else { return Self::Other };
        let known = [
            ("nginx", Self::Nginx),
            ("apache/", Self::Apache),
            ("apache", Self::Apache),
            ("postgresql", Self::Postgres),
            ("openssh_", Self::OpenSsh),
        ];
        known
            .iter()
            .find(|(beginning, _)| software.starts_with(beginning))
            .map_or(Self::Other, |(_, server)| *server)
    }

    /// Only TLS 1.2 and 1.3.
    pub(crate) fn versions(self) -> String {
        match self {
            Self::Nginx => "ssl_protocols TLSv1.2 TLSv1.3;",
            Self::Apache => "SSLProtocol -all +TLSv1.2 +TLSv1.3",
            Self::Postgres => "ssl_min_protocol_version = 'TLSv1.2'",
            Self::OpenSsh | Self::Other => "accept TLS 1.2 and 1.3 alone",
        }
        .to_owned()
    }

    /// TLS 1.3 too.
    pub(crate) fn tls13(self) -> String {
        match self {
            Self::Nginx => "ssl_protocols TLSv1.2 TLSv1.3; (with OpenSSL 1.1.1 or newer)",
            Self::Apache => "SSLProtocol -all +TLSv1.2 +TLSv1.3 (with OpenSSL 1.1.1 or newer)",
            Self::Postgres => "leave ssl_max_protocol_version empty (with OpenSSL 1.1.1 or newer)",
            Self::OpenSsh | Self::Other => {
                "accept TLS 1.3, which every TLS library has had since 2018 to 2020"
            }
        }
        .to_owned()
    }

    /// Cipher suites with forward secrecy and authenticated encryption alone.
    pub(crate) fn suites(self) -> String {
        match self {
            Self::Nginx => "ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;",
            Self::Apache => "SSLCipherSuite ECDHE+AESGCM:ECDHE+CHACHA20",
            Self::Postgres => "ssl_ciphers = 'ECDHE+AESGCM:ECDHE+CHACHA20'",
            Self::OpenSsh | Self::Other => {
                "accept ECDHE with AES-GCM or ChaCha20-Poly1305 alone (for OpenSSL: ECDHE+AESGCM:ECDHE+CHACHA20)"
            }
        }
        .to_owned()
    }

    /// Hybrid key exchange first, X25519 and P-256 behind it.
    pub(crate) fn groups(self) -> String {
        match self {
            Self::Nginx => "ssl_ecdh_curve X25519MLKEM768:X25519:prime256v1; (with OpenSSL 3.5 or newer)",
            Self::Apache => "SSLOpenSSLConfCmd Groups X25519MLKEM768:X25519:prime256v1 (with OpenSSL 3.5 or newer)",
            Self::Postgres => "ssl_groups = 'X25519MLKEM768:X25519:prime256v1' (PostgreSQL 18 with OpenSSL 3.5 or newer)",
            Self::OpenSsh | Self::Other => {
                "accept X25519MLKEM768, then X25519 and P-256 (OpenSSL 3.5, Go 1.24, Java 27, rustls 0.23.27 have them by default)"
            }
        }
        .to_owned()
    }

    /// A certificate on P-256, alone or beside the one that is there.
    pub(crate) fn p256(self) -> String {
        match self {
            Self::Nginx => "a certificate for a P-256 key; a second ssl_certificate and ssl_certificate_key beside the first serve both",
            Self::Apache => "a certificate for a P-256 key; a second SSLCertificateFile and SSLCertificateKeyFile beside the first serve both",
            Self::Postgres => "ssl_cert_file and ssl_key_file with a P-256 key; there can be one only",
            Self::OpenSsh => "HostKey /etc/ssh/ssh_host_ed25519_key",
            Self::Other => "a certificate for a P-256 key; where old clients need RSA, one of 2048 bits beside it",
        }
        .to_owned()
    }

    /// No Diffie-Hellman modulo a prime.
    pub(crate) fn primes(self) -> String {
        match self {
            Self::Nginx => "leave DHE out of ssl_ciphers, or ssl_dhparam with 3072 bits",
            Self::Apache => {
                "leave DHE out of SSLCipherSuite, or add 3072-bit parameters to SSLCertificateFile"
            }
            Self::Postgres => "leave DHE out of ssl_ciphers, or ssl_dh_params_file with 3072 bits",
            Self::OpenSsh => "remove the short primes from /etc/ssh/moduli: awk '$5 >= 3071'",
            Self::Other => "leave DHE out, or take ffdhe3072 (RFC 7919)",
        }
        .to_owned()
    }

    /// The certificates that belong into a chain.
    pub(crate) fn chain(self) -> String {
        let file = match self {
            Self::Nginx => "the file of ssl_certificate",
            Self::Apache => "SSLCertificateFile",
            Self::Postgres => "ssl_cert_file",
            Self::OpenSsh | Self::Other => "the server's certificate file",
        };
        format!("{file}: the server's certificate, then each intermediate in order, without the root")
    }

    /// Sessions that can go on.
    pub(crate) fn sessions(self) -> String {
        match self {
            Self::Nginx => "ssl_session_cache shared:TLS:10m; or ssl_session_tickets on;",
            Self::Apache => "SSLSessionCache shmcb:... or SSLSessionTickets on",
            Self::Postgres => {
                "nothing: PostgreSQL has no sessions that can be resumed; keep connections, or pool them"
            }
            Self::OpenSsh | Self::Other => "turn on session tickets, with keys that change daily",
        }
        .to_owned()
    }

    /// The line of `sshd_config` that takes algorithms away from a list of ours (`offers`).
    pub(crate) fn without(self, list: &str, items: &[String]) -> String {
        let keyword = match list {
            "kex" => "KexAlgorithms",
            "host key" => "HostKeyAlgorithms",
            "cipher" => "Ciphers",
            "mac" => "MACs",
            "compression" => return "Compression no".to_owned(),
            _ => return "update the server".to_owned(),
        };
        match self {
            Self::OpenSsh => format!("{keyword} -{}", items.join(",")),
            _ => format!("do not offer {}", items.join(", ")),
        }
    }
}
