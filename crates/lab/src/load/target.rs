//! How the load trusts, and who answers it.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sallyport_bench::AtFile;
use sallyport_sal::tls::rustls::client::Resumption;
use sallyport_sal::tls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName};
use sallyport_sal::tls::rustls::{ClientConfig, NamedGroup, RootCertStore};

use super::address::{Url, is_loopback};
use super::client::{Target, Tls};
use super::danger::AnyCertificate;
use crate::LabError;

/// Where systems keep the authorities that they trust.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Sessions that the client remembers when it resumes.
const SESSIONS: usize = 1024;

/// rustls and aws-lc as they come, X25519 first: every server has it, so that key exchange costs the same with all of
/// them and no server asks for another group. A post-quantum group is another matter, and not the certificate's.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups.sort_by_key(|group| match group.name() {
        NamedGroup::X25519 => 0,
        NamedGroup::secp256r1 | NamedGroup::secp384r1 => 1,
        _ => 2,
    });
    Arc::new(provider)
}

/// A client that trusts these authorities, resumes sessions or does not.
pub(super) fn trusting(roots: RootCertStore, resume: bool) -> Result<Arc<ClientConfig>, LabError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    Ok(finished(builder.with_root_certificates(roots).with_no_client_auth(), resume))
}

/// A client that trusts every server.
fn trusting_anybody(resume: bool) -> Result<Arc<ClientConfig>, LabError> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let verifier = Arc::new(AnyCertificate(provider));
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok(finished(config, resume))
}

fn finished(mut config: ClientConfig, resume: bool) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption =
        if resume { Resumption::in_memory_sessions(SESSIONS) } else { Resumption::disabled() };
    Arc::new(config)
}

fn unusable(error: impl std::fmt::Display) -> LabError {
    LabError::Failed { what: "preparing TLS for the load".to_owned(), said: error.to_string() }
}

/// The authorities of a PEM file.
pub(super) fn authorities(pem: &str, from: &str) -> Result<RootCertStore, LabError> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(LabError::Input(format!("there is no certificate in {from}")));
    }
    Ok(roots)
}

/// How far a server that the user names is trusted.
#[derive(Debug, Clone, Default)]
pub(super) struct Belief<'a> {
    /// Its certificate is taken whatever it is.
    pub anything: bool,
    /// The authorities, PEM; none: the system's.
    pub authority: Option<&'a Path>,
}

/// How TLS to a URL begins; none without TLS.
pub(super) fn tls_for(url: &Url, belief: &Belief<'_>, resume: bool) -> Result<Option<Tls>, LabError> {
    if !url.secure {
        return Ok(None);
    }
    let config = if belief.anything {
        trusting_anybody(resume)?
    } else {
        let path = match belief.authority {
            Some(path) => path.to_owned(),
            None => system_authorities().ok_or_else(|| {
                LabError::Input(
                    "this system has no file of trusted authorities; name one with --ca, or use --insecure"
                        .to_owned(),
                )
            })?,
        };
        let pem = std::fs::read_to_string(&path).at("read", &path)?;
        trusting(authorities(&pem, &path.display().to_string())?, resume)?
    };
    let name = ServerName::try_from(url.host.clone())
        .map_err(|_| LabError::Input(format!("{} is neither a host name nor an address", url.host)))?;
    Ok(Some(Tls { config, name }))
}

fn system_authorities() -> Option<PathBuf> {
    let said = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    said.into_iter().chain(SYSTEM.iter().map(PathBuf::from)).find(|path| path.is_file())
}

/// The target that a URL is, at an address that was found admissible.
pub(super) fn of_url(
    url: &Url,
    address: SocketAddr,
    tls: Option<Tls>,
    patience: std::time::Duration,
) -> Target {
    Target::new(address, tls, &url.authority(), &url.path, patience)
}

/// The processes that listen on a loopback address, as far as we may see them.
pub(super) fn listeners(address: SocketAddr) -> Vec<u32> {
    if !is_loopback(address.ip()) {
        return Vec::new();
    }
    let mut inodes = Vec::new();
    for (table, v6) in [("/proc/net/tcp", false), ("/proc/net/tcp6", true)] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        inodes.extend(text.lines().filter_map(|line| listening(line, address, v6)));
    }
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let descriptors = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let holds = descriptors
            .filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok())
            .filter_map(|link| {
                link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
            })
            .any(|inode| inodes.contains(&inode));
        if holds && pid != std::process::id() {
            pids.push(pid);
        }
    }
    pids
}

/// The inode of a socket that listens there, from a line of `/proc/net/tcp` (proc(5)).
fn listening(line: &str, wanted: SocketAddr, v6: bool) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    if *fields.get(3)? != LISTEN || u16::from_str_radix(port, 16).ok()? != wanted.port() {
        return None;
    }
    // Words of 32 bits in the machine's order, of what is in the network's order.
    let mut bytes = Vec::new();
    for at in (0..address.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    let bound: IpAddr =
        if v6 { <[u8; 16]>::try_from(bytes).ok()?.into() } else { <[u8; 4]>::try_from(bytes).ok()?.into() };
    (bound.is_unspecified() || bound == wanted.ip()).then(|| fields.get(9)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_of_the_kernels_table_is_read() {
        let line =
            "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 4711 1 0 100 0";
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        if cfg!(target_endian = "little") {
            assert_eq!(listening(line, at("127.0.0.1:8080"), false), Some(4711));
            assert_eq!(listening(line, at("127.0.0.2:8080"), false), None);
        }
        assert_eq!(listening(line, at("127.0.0.1:8081"), false), None);
        let any = line.replace("0100007F", "00000000");
        assert_eq!(listening(&any, at("127.0.0.2:8080"), false), Some(4711));
        let v6 = line.replace("0100007F", &"0".repeat(32));
        assert_eq!(listening(&v6, at("[::1]:8080"), true), Some(4711));
        assert_eq!(listening(&any.replace(" 0A ", " 01 "), at("127.0.0.2:8080"), false), None);
        assert_eq!(listening("", at("127.0.0.1:8080"), false), None);
    }

    #[test]
    fn other_programs_that_listen_are_found_but_not_ourselves() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(listeners(address).is_empty());
        assert!(listeners("192.0.2.1:80".parse().unwrap()).is_empty());
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        assert!(
            matches!(authorities("nothing", "x.pem"), Err(LabError::Input(text)) if text.contains("x.pem"))
        );
        assert!(matches!(
            tls_for(
                &Url::parse("https://localhost/").unwrap(),
                &Belief { anything: false, authority: Some(Path::new("/nowhere")) },
                false
            ),
            Err(LabError::File { .. })
        ));
    }
}
