//! What a login leaves on disk: one directory for each cluster address, everything of mode 0600.
//!
//! ```text
//! ~/.sallyport/current            the address used when none is given
//! ~/.sallyport/HOST_PORT/profile.json
//!                        trust.json     what the cluster's certificates are checked against
//!                        trust_version  which one that is, as the cluster calls it; see [`follow`](super::follow)
//!                        ssh_key, ssh_key.pub, ssh_key-cert.pub
//!                        tls_key.pem, tls_cert.pem
//!                        tls_key.pk8, tls_ca.pem   the same key as JDBC wants it, and who certifies proxies: for
//!                                                  clients of databases
//!                        local_host_key            see `host_key`
//!                        known_hosts
//!                        db/                       see `db::choice`
//! ```

mod files;
mod host_key;
mod known_hosts;
mod safe;

use std::fs;
use std::path::PathBuf;

use data_encoding::BASE64;
use sallyport_access::{ClusterName, Login, RoleName, UserName};
use sallyport_ca::keys::SshKeyPair;
use sallyport_ca::{CaKind, Trust, TrustBundle};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::times;
use crate::error::{CliError, CliResult, Context, Exit};
use files::TRUST_VERSION;
use files::write_private_bytes;
pub(crate) use files::{TLS_CA, TLS_KEY_DER, private_directory, write_private};

/// The facts of one login.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// `host:port` of the cluster.
    pub(crate) proxy: String,
    pub(crate) cluster: ClusterName,
    pub(crate) user: UserName,
    pub(crate) roles: Vec<RoleName>,
    pub(crate) logins: Vec<Login>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) valid_until: OffsetDateTime,
}

/// A profile and the directory it lives in.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) profile: Profile,
    pub(crate) directory: PathBuf,
}

/// Keys and certificates of a fresh login, to be stored together.
pub(crate) struct Material<'a> {
    pub(crate) ssh_private_openssh: &'a str,
    pub(crate) ssh_public_line: &'a str,
    pub(crate) ssh_certificate_line: &'a str,
    pub(crate) tls_key_pem: &'a str,
    pub(crate) tls_certificate_pem: &'a str,
    pub(crate) trust: &'a TrustBundle,
}

/// The logins of one user of this machine, and which of them is meant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Profiles {
    /// Their directory. Default: `~/.sallyport`.
    pub(crate) home: Option<PathBuf>,
    /// The address of the cluster that is meant, `host:port`. Default: that of the last login.
    pub(crate) proxy: Option<String>,
}

impl Profiles {
    /// The same directory, with the login at an address meant.
    #[must_use]
    pub(crate) fn at(&self, proxy: &str) -> Self {
        Self { home: self.home.clone(), proxy: Some(proxy.to_owned()) }
    }

    /// Their directory.
    pub(crate) fn home(&self) -> CliResult<PathBuf> {
        if let Some(home) = &self.home {
            return Ok(home.clone());
        }
        std::env::home_dir()
            .filter(|home| !home.as_os_str().is_empty())
            .map(|home| home.join(".sallyport"))
            .ok_or_else(|| CliError::new("there is no home directory").hint("set SALLYPORT_HOME"))
    }

    /// Where the login at an address is stored.
    pub(crate) fn directory_of(&self, proxy: &str) -> CliResult<PathBuf> {
        Ok(self.home()?.join(directory_name(proxy)))
    }

    /// The address a command is about: the one given, or the one last logged in to.
    pub(crate) fn current_proxy(&self) -> CliResult<String> {
        if let Some(proxy) = &self.proxy {
            return normalise_proxy(proxy);
        }
        let path = self.home()?.join("current");
        match fs::read_to_string(&path) {
            Ok(proxy) => normalise_proxy(proxy.trim()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(CliError::not_logged_in()),
            Err(error) => Err(error).doing(format!("read {}", path.display())),
        }
    }

    /// The stored login for the current address, whether or not it is still valid.
    pub(crate) fn load(&self) -> CliResult<Stored> {
        let proxy = self.current_proxy()?;
        let directory = self.directory_of(&proxy)?;
        let path = directory.join("profile.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => {
                safe::check(&directory)?;
                text
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(CliError::new(format!("you are not logged in to {proxy}"))
                    .hint(format!("sallyport login --proxy {proxy} --user NAME"))
                    .exit(Exit::NotLoggedIn));
            }
            Err(error) => return Err(error).doing(format!("read {}", path.display())),
        };
        let profile = serde_json::from_str(&text).map_err(|error| {
            CliError::new(format!("{} is damaged: {error}", path.display()))
                .hint(format!("sallyport login --proxy {proxy}"))
        })?;
        Ok(Stored { profile, directory })
    }

    /// As [`load`], refusing a login that has run out.
    pub(crate) fn load_valid(&self) -> CliResult<Stored> {
        let stored = self.load()?;
        let now = OffsetDateTime::now_utc();
        if stored.profile.valid_until <= now {
            return Err(CliError::new(format!(
                "your login as {} on {} expired {} ago",
                stored.profile.user,
                stored.profile.cluster,
                times::duration(now - stored.profile.valid_until)
            ))
            .hint(format!("sallyport login --proxy {} --user {}", stored.profile.proxy, stored.profile.user))
            .exit(Exit::NotLoggedIn));
        }
        Ok(stored)
    }

    /// Every stored login.
    pub(crate) fn all(&self) -> CliResult<Vec<Stored>> {
        let home = self.home()?;
        let entries = match fs::read_dir(&home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).doing(format!("read {}", home.display())),
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let directory = entry.path();
            let Ok(text) = fs::read_to_string(directory.join("profile.json")) else { continue };
            let Ok(profile) = serde_json::from_str(&text) else { continue };
            found.push(Stored { profile, directory });
        }
        Ok(found)
    }

    /// The valid login to a named cluster, or where none is named to the one that is meant.
    pub(crate) fn load_valid_of(&self, cluster: Option<&str>) -> CliResult<Stored> {
        let Some(cluster) = cluster else { return self.load_valid() };
        let mut found = self.all()?.into_iter().filter(|stored| stored.profile.cluster.as_str() == cluster);
        match (found.next(), found.next()) {
            (Some(stored), None) => self.at(&stored.profile.proxy).load_valid(),
            (Some(_), Some(_)) => {
                Err(CliError::new(format!("you are logged in to cluster {cluster} at several addresses"))
                    .hint("name one: --proxy HOST:PORT"))
            }
            (None, _) => Err(CliError::new(format!("you are not logged in to cluster {cluster}"))
                .hint("sallyport login --proxy HOST:PORT --user NAME")),
        }
    }

    /// Stores a login and makes it the current one. Each file appears whole or not at all.
    pub(crate) fn save(&self, profile: &Profile, material: &Material<'_>) -> CliResult<Stored> {
        let home = self.home()?;
        private_directory(&home)?;
        let directory = home.join(directory_name(&profile.proxy));
        private_directory(&directory)?;
        let stored = Stored { profile: profile.clone(), directory };
        let trust = Trust::from_bundle(material.trust).doing("understand the cluster's certificates")?;
        let known_hosts =
            known_hosts_of(profile, &trust, &host_key::host_key(&stored.directory, trust.suite())?);
        let trust_json = serde_json::to_string_pretty(material.trust).doing("encode the trust bundle")?;
        let profile_json = serde_json::to_string_pretty(profile).doing("encode the profile")?;
        write_private_bytes(&stored.directory.join(TLS_KEY_DER), &key_der(material.tls_key_pem)?)?;
        // The profile goes last: where it is, the rest is complete.
        for (name, content) in [
            ("ssh_key", material.ssh_private_openssh),
            ("ssh_key.pub", material.ssh_public_line),
            ("ssh_key-cert.pub", material.ssh_certificate_line),
            ("tls_key.pem", material.tls_key_pem),
            ("tls_cert.pem", material.tls_certificate_pem),
            ("trust.json", &trust_json),
            (TLS_CA, &trust.tls_certificates_pem(CaKind::Host)),
            ("known_hosts", &known_hosts),
            (TRUST_VERSION, &trust.version()),
            ("profile.json", &profile_json),
        ] {
            write_private(&stored.directory.join(name), content)?;
        }
        write_private(&home.join("current"), &profile.proxy)?;
        Ok(stored)
    }

    /// Removes a login's files.
    pub(crate) fn remove(&self, stored: &Stored) -> CliResult {
        let home = self.home()?;
        fs::remove_dir_all(&stored.directory).doing(format!("remove {}", stored.directory.display()))?;
        let current = home.join("current");
        if fs::read_to_string(&current).is_ok_and(|proxy| proxy.trim() == stored.profile.proxy) {
            fs::remove_file(&current).doing(format!("remove {}", current.display()))?;
        }
        Ok(())
    }
}

fn directory_name(proxy: &str) -> String {
    proxy.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' }).collect()
}

/// `host:port`, with the default port where none is given.
pub(crate) fn normalise_proxy(text: &str) -> CliResult<String> {
    let text = text.trim().trim_start_matches("https://").trim_end_matches('/');
    let bad = || {
        CliError::new(format!("{text:?} is not an address"))
            .hint("sallyport login --proxy HOST:PORT")
            .exit(Exit::Usage)
    };
    if text.is_empty() || text.contains(['/', ' ', '@']) {
        return Err(bad());
    }
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    if bare_v6 {
        return Ok(format!("[{text}]:{DEFAULT_PORT}"));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !text.ends_with(']') => {
            port.parse::<u16>().map_err(|_| bad())?;
            Ok(text.to_owned())
        }
        Some(_) if text.ends_with(']') => Ok(format!("{text}:{DEFAULT_PORT}")),
        Some(_) => Err(bad()),
        None => Ok(format!("{text}:{DEFAULT_PORT}")),
    }
}

/// The port of a cluster's one address, unless it says otherwise.
pub(crate) const DEFAULT_PORT: u16 = 3080;

impl Stored {
    pub(crate) fn ssh_key_path(&self) -> PathBuf {
        self.directory.join("ssh_key")
    }

    pub(crate) fn ssh_certificate_path(&self) -> PathBuf {
        self.directory.join("ssh_key-cert.pub")
    }

    pub(crate) fn known_hosts_path(&self) -> PathBuf {
        self.directory.join("known_hosts")
    }

    pub(crate) fn read(&self, name: &str) -> CliResult<String> {
        let path = self.directory.join(name);
        fs::read_to_string(&path).map_err(|error| {
            CliError::new(format!("cannot read {}: {error}", path.display()))
                .hint(format!("sallyport login --proxy {}", self.profile.proxy))
        })
    }

    /// Which trust is stored, as the cluster calls it; none where an earlier release stored it.
    pub(crate) fn trust_version(&self) -> Option<String> {
        let text = fs::read_to_string(self.directory.join(TRUST_VERSION)).ok()?;
        Some(text.trim().to_owned())
    }

    /// What the cluster's certificates are checked against.
    pub(crate) fn trust(&self) -> CliResult<Trust> {
        let text = self.read("trust.json")?;
        let damaged = |error: &dyn std::error::Error| {
            CliError::new(format!("{} is damaged: {error}", self.directory.join("trust.json").display()))
                .hint(format!("sallyport login --proxy {}", self.profile.proxy))
        };
        let bundle: TrustBundle = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
        Trust::from_bundle(&bundle).map_err(|error| damaged(&error))
    }

    /// Writes what stock clients of databases need and logins of an earlier release did not leave.
    pub(crate) fn write_for_stock_clients(&self) -> CliResult {
        let key = Zeroizing::new(self.read("tls_key.pem")?);
        write_private_bytes(&self.directory.join(TLS_KEY_DER), &key_der(&key)?)?;
        write_private(&self.directory.join(TLS_CA), &self.trust()?.tls_certificates_pem(CaKind::Host))
    }

    /// The TLS certificate chain and private key, both PEM.
    pub(crate) fn tls_identity(&self) -> CliResult<(String, String)> {
        Ok((self.read("tls_cert.pem")?, self.read("tls_key.pem")?))
    }

    /// The key, which `known_hosts` knows by then.
    pub(crate) fn local_host_key(&self) -> CliResult<SshKeyPair> {
        let trust = self.trust()?;
        let key = host_key::host_key(&self.directory, trust.suite())?;
        let path = self.known_hosts_path();
        let line = known_hosts::line(&self.profile.cluster, &key);
        // Written by a release that had no such key.
        if !fs::read_to_string(&path).is_ok_and(|text| text.contains(&line)) {
            write_private(&path, &known_hosts_of(&self.profile, &trust, &key))?;
        }
        Ok(key)
    }
}

/// Stores another trust, and certificates (SSH line, TLS chain) for the same keys where there are new ones. What was
/// there and what is put in its place are good at the same time, so files may be read in between.
pub(crate) fn update(
    stored: &Stored,
    bundle: &TrustBundle,
    version: &str,
    certificates: Option<(&str, &str)>,
) -> CliResult {
    let trust = Trust::from_bundle(bundle).doing("understand the cluster's certificates")?;
    let trust_json = serde_json::to_string_pretty(bundle).doing("encode the trust bundle")?;
    let host_key = host_key::host_key(&stored.directory, trust.suite())?;
    let known_hosts = known_hosts_of(&stored.profile, &trust, &host_key);
    let tls_ca = trust.tls_certificates_pem(CaKind::Host);
    let mut files = vec![
        ("trust.json", trust_json.as_str()),
        (TLS_CA, tls_ca.as_str()),
        ("known_hosts", known_hosts.as_str()),
    ];
    if let Some((ssh, tls)) = certificates {
        files.extend([("ssh_key-cert.pub", ssh), ("tls_cert.pem", tls)]);
    }
    // The version goes last: where it is, the rest is complete.
    files.push((TRUST_VERSION, version));
    for (name, content) in files {
        write_private(&stored.directory.join(name), content)?;
    }
    Ok(())
}

fn known_hosts_of(profile: &Profile, trust: &Trust, local: &SshKeyPair) -> String {
    known_hosts::lines(&profile.proxy, &profile.cluster, trust, local)
}

/// The inside of a key in PEM (RFC 7468), for programs that take no PEM.
fn key_der(pem: &str) -> CliResult<Zeroizing<Vec<u8>>> {
    let body: Zeroizing<String> =
        Zeroizing::new(pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect());
    BASE64.decode(body.as_bytes()).map(Zeroizing::new).doing("understand the stored key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_a_port() {
        assert_eq!(normalise_proxy("example.com").unwrap(), "example.com:3080");
        assert_eq!(normalise_proxy("https://example.com:443/").unwrap(), "example.com:443");
        assert_eq!(normalise_proxy("[::1]").unwrap(), "[::1]:3080");
        assert_eq!(normalise_proxy("::1").unwrap(), "[::1]:3080");
        assert_eq!(normalise_proxy("[::1]:99").unwrap(), "[::1]:99");
        for bad in ["", "a b", "x:y", "host:70000", ":80", "me@host"] {
            assert!(normalise_proxy(bad).is_err(), "{bad}");
        }
    }
}
