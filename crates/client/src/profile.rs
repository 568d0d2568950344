//! What a login leaves on disk: one directory for each cluster address, everything of mode 0600.
//!
//! ```text
//! ~/.sallyport/current            the address used when none is given
//! ~/.sallyport/devices/           what this machine is to clusters; see `device`
//! ~/.sallyport/HOST_PORT/profile.json
//!                        trust.json     what the cluster's certificates are checked against
//!                        trust_version  which one that is, as the cluster calls it; see `follow`
//!                        ssh_key, ssh_key.pub, ssh_key-cert.pub   without the first where the key is the user's own
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
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::BASE64;
use sallyport_access::{ClusterName, Device, Login, RoleName, UserName};
use sallyport_ca::keys::{self, SshKeyPair};
use sallyport_ca::{CaKind, Trust, TrustBundle};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::own_ssh_key::{self, CertifiedKey};
use super::times;
use crate::error::{Doing, Error, Result, Source};
use files::TRUST_VERSION;
use files::write_private_bytes;
pub use files::{TLS_CA, TLS_KEY_DER, private_directory, write_private};

/// The facts of one login.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Profile {
    /// `host:port` of the cluster.
    pub proxy: String,
    /// The cluster's name.
    pub cluster: ClusterName,
    /// Whose login it is.
    pub user: UserName,
    /// The user's roles.
    pub roles: Vec<RoleName>,
    /// The accounts on nodes that the certificate is for.
    pub logins: Vec<Login>,
    /// When the certificates expire.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_until: OffsetDateTime,
    /// How the authority has the login on record; none from authorities that do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginFacts>,
    /// The file of the public key, where the SSH key is the user's own: no private key is stored then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<PathBuf>,
}

/// How a login was proven, by the authority's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginFacts {
    /// Its id, by which it can be ended.
    pub id: String,
    /// In which way, such as `passkey`.
    pub way: String,
    /// The name of the factor that was proven; empty where there was none.
    pub factor: String,
    /// Its kind: `webauthn` or `totp`.
    pub factor_kind: String,
    /// More than a password was proven.
    pub second_factor: bool,
}

/// A profile and the directory it lives in.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The facts of the login.
    pub profile: Profile,
    /// Where its files are.
    pub directory: PathBuf,
}

#[cfg(test)]
impl Stored {
    /// A login in this directory, at a proxy where nothing listens.
    pub(crate) fn of_test(directory: &std::path::Path) -> Self {
        let profile = Profile {
            proxy: "127.0.0.1:1".to_owned(),
            cluster: ClusterName::new("test.example").unwrap(),
            user: UserName::new("alice").unwrap(),
            roles: Vec::new(),
            logins: Vec::new(),
            valid_until: OffsetDateTime::UNIX_EPOCH,
            login: None,
            ssh_key: None,
        };
        Self { profile, directory: directory.to_owned() }
    }
}

/// Keys and certificates of a fresh login, to be stored together.
pub struct Material<'a> {
    /// The SSH key, as OpenSSH keeps it; none where it is the user's own, which is elsewhere.
    pub ssh_private_openssh: Option<&'a str>,
    /// Its public half, as a line.
    pub ssh_public_line: &'a str,
    /// Its certificate, as a line.
    pub ssh_certificate_line: &'a str,
    /// The TLS key, PKCS#8 in PEM.
    pub tls_key_pem: &'a str,
    /// Its certificate and those above it, PEM.
    pub tls_certificate_pem: &'a str,
    /// What the cluster's certificates are checked against.
    pub trust: &'a TrustBundle,
}

/// The logins of one user of this machine, and which of them is meant.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    /// Their directory. Default: `~/.sallyport`.
    pub home: Option<PathBuf>,
    /// The address of the cluster that is meant, `host:port`. Default: that of the last login.
    pub proxy: Option<String>,
}

impl Profiles {
    /// The same directory, with the login at an address meant.
    #[must_use]
    pub fn at(&self, proxy: &str) -> Self {
        Self { home: self.home.clone(), proxy: Some(proxy.to_owned()) }
    }

    /// Their directory.
    ///
    /// # Errors
    /// There is no home directory.
    pub fn home(&self) -> Result<PathBuf> {
        if let Some(home) = &self.home {
            return Ok(home.clone());
        }
        std::env::home_dir()
            .filter(|home| !home.as_os_str().is_empty())
            .map(|home| home.join(".sallyport"))
            .ok_or_else(|| Error::NoHome)
    }

    /// Where the login at an address is stored.
    ///
    /// # Errors
    /// There is no home directory.
    pub fn directory_of(&self, proxy: &str) -> Result<PathBuf> {
        Ok(self.home()?.join(directory_name(proxy)))
    }

    /// The address a command is about: the one given, or the one last logged in to.
    ///
    /// # Errors
    /// There is no login, or what is given is no address.
    pub fn current_proxy(&self) -> Result<String> {
        if let Some(proxy) = &self.proxy {
            return normalise_proxy(proxy);
        }
        let path = self.home()?.join("current");
        match fs::read_to_string(&path) {
            Ok(proxy) => normalise_proxy(proxy.trim()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::NoLogin),
            Err(error) => Err(error).doing(format!("read {}", path.display())),
        }
    }

    /// The stored login for the current address, whether or not it is still valid.
    ///
    /// # Errors
    /// There is no such login, or its files cannot be used.
    pub fn load(&self) -> Result<Stored> {
        let proxy = self.current_proxy()?;
        let directory = self.directory_of(&proxy)?;
        let path = directory.join("profile.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => {
                safe::check(&directory)?;
                text
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::NoLoginAt { proxy });
            }
            Err(error) => return Err(error).doing(format!("read {}", path.display())),
        };
        let profile = serde_json::from_str(&text).map_err(|error| Error::Damaged {
            path,
            proxy,
            source: Arc::new(error),
        })?;
        Ok(Stored { profile, directory })
    }

    /// As [`Profiles::load`], refusing a login that has run out.
    ///
    /// # Errors
    /// As [`Profiles::load`], or the login has expired.
    pub fn load_valid(&self) -> Result<Stored> {
        let stored = self.load()?;
        let now = OffsetDateTime::now_utc();
        if stored.profile.valid_until <= now {
            let Profile { user, cluster, proxy, valid_until, .. } = stored.profile;
            return Err(Error::Expired {
                user: user.to_string(),
                cluster: cluster.to_string(),
                proxy,
                since: times::duration(now - valid_until),
            });
        }
        Ok(stored)
    }

    /// Every stored login.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all(&self) -> Result<Vec<Stored>> {
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
    ///
    /// # Errors
    /// There is no such login or there are several, or it has expired.
    pub fn load_valid_of(&self, cluster: Option<&str>) -> Result<Stored> {
        let Some(cluster) = cluster else { return self.load_valid() };
        let mut found = self.all()?.into_iter().filter(|stored| stored.profile.cluster.as_str() == cluster);
        match (found.next(), found.next()) {
            (Some(stored), None) => self.at(&stored.profile.proxy).load_valid(),
            (Some(_), Some(_)) => Err(Error::SeveralLogins(cluster.to_owned())),
            (None, _) => Err(Error::NoLoginTo(cluster.to_owned())),
        }
    }

    /// Stores a login and makes it the current one. Each file appears whole or not at all.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, profile: &Profile, material: &Material<'_>) -> Result<Stored> {
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
        match material.ssh_private_openssh {
            Some(key) => write_private(&stored.directory.join("ssh_key"), key)?,
            // Of an earlier login.
            None => remove_file(&stored.directory.join("ssh_key"))?,
        }
        // The profile goes last: where it is, the rest is complete.
        for (name, content) in [
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
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(&self, stored: &Stored) -> Result {
        let home = self.home()?;
        fs::remove_dir_all(&stored.directory).doing(format!("remove {}", stored.directory.display()))?;
        let current = home.join("current");
        if fs::read_to_string(&current).is_ok_and(|proxy| proxy.trim() == stored.profile.proxy) {
            fs::remove_file(&current).doing(format!("remove {}", current.display()))?;
        }
        Ok(())
    }
}

/// A file that need not be there.
fn remove_file(path: &Path) -> Result {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing(format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn directory_name(proxy: &str) -> String {
    proxy.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' }).collect()
}

/// Whether the login in a directory has an SSH key of its own, and not the user's: for a program that has no time to read the profile.
#[must_use]
pub fn has_ssh_key(directory: &Path) -> bool {
    directory.join("ssh_key").exists()
}

/// `host:port`, with the default port where none is given.
pub fn normalise_proxy(text: &str) -> Result<String> {
    let text = text.trim().trim_start_matches("https://").trim_end_matches('/');
    let bad = || Error::Address(text.to_owned());
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
pub const DEFAULT_PORT: u16 = 3080;

impl Stored {
    /// The file of the SSH key, as ssh takes it. One of the user's own is no file of this login.
    pub fn ssh_key_path(&self) -> PathBuf {
        match &self.profile.ssh_key {
            Some(own) => own_ssh_key::for_ssh(own),
            None => self.directory.join("ssh_key"),
        }
    }

    /// The SSH key that the certificate is for, where that is the user's own.
    #[must_use]
    pub fn own_ssh_key(&self) -> Option<CertifiedKey> {
        self.profile.ssh_key.as_ref()?;
        let certificate = keys::certificate(&self.read("ssh_key-cert.pub").ok()?).ok()?;
        let key = certificate.public_key();
        let (kind, fingerprint) = (key.algorithm().to_string(), keys::fingerprint(key));
        Some(CertifiedKey { file: self.ssh_key_path(), kind, fingerprint })
    }

    /// The file of its certificate.
    pub fn ssh_certificate_path(&self) -> PathBuf {
        self.directory.join("ssh_key-cert.pub")
    }

    /// What OpenSSH knows the cluster's hosts by.
    pub fn known_hosts_path(&self) -> PathBuf {
        self.directory.join("known_hosts")
    }

    /// The text of one of the files, which is wiped: some are private keys.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, name: &str) -> Result<Zeroizing<String>> {
        let path = self.directory.join(name);
        fs::read_to_string(&path).map(Zeroizing::new).map_err(|error| Error::Unreadable {
            path,
            proxy: self.profile.proxy.clone(),
            source: Arc::new(error),
        })
    }

    /// The trusted device that the login came from, as its certificate says.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        sallyport_ca::device_in(&self.read("ssh_key-cert.pub").ok()?)
    }

    /// Which trust is stored, as the cluster calls it; none where an earlier release stored it.
    pub fn trust_version(&self) -> Option<String> {
        let text = fs::read_to_string(self.directory.join(TRUST_VERSION)).ok()?;
        Some(text.trim().to_owned())
    }

    /// What the cluster's certificates are checked against.
    pub fn trust(&self) -> Result<Trust> {
        let text = self.read("trust.json")?;
        let damaged = |source: Source| Error::Damaged {
            path: self.directory.join("trust.json"),
            proxy: self.profile.proxy.clone(),
            source,
        };
        let bundle: TrustBundle = serde_json::from_str(&text).map_err(|error| damaged(Arc::new(error)))?;
        Trust::from_bundle(&bundle).map_err(|error| damaged(Arc::new(error)))
    }

    /// Writes what stock clients of databases need and logins of an earlier release did not leave.
    pub fn write_for_stock_clients(&self) -> Result {
        let key = self.read("tls_key.pem")?;
        write_private_bytes(&self.directory.join(TLS_KEY_DER), &key_der(&key)?)?;
        write_private(&self.directory.join(TLS_CA), &self.trust()?.tls_certificates_pem(CaKind::Host))
    }

    /// The TLS certificate chain and private key, both PEM.
    pub fn tls_identity(&self) -> Result<(String, Zeroizing<String>)> {
        Ok((self.read("tls_cert.pem")?.to_string(), self.read("tls_key.pem")?))
    }

    /// The key, which `known_hosts` knows by then.
    pub fn local_host_key(&self) -> Result<SshKeyPair> {
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
pub fn update(
    stored: &Stored,
    bundle: &TrustBundle,
    version: &str,
    certificates: Option<(&str, &str)>,
) -> Result {
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
fn key_der(pem: &str) -> Result<Zeroizing<Vec<u8>>> {
    let body: Zeroizing<String> =
        Zeroizing::new(pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect());
    BASE64.decode(body.as_bytes()).map(Zeroizing::new).doing("understand the stored key")
}

#[cfg(test)]
mod tests {
    use sallyport_ca::Authority;
    use sallyport_sal::Suite;
    use sallyport_sal::custody::{SealedCustody, SealingKey};

    use super::*;

    /// A login is stored over another one's files.
    #[test]
    fn no_key_of_an_earlier_login_stays_beside_one_of_the_users_own() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let profiles = Profiles { home: Some(at("home")), proxy: Some("127.0.0.1:1".to_owned()) };
        let fresh = Stored::of_test(directory.path()).profile;
        let (ssh, tls) = (
            SshKeyPair::generate(Suite::BalancedV1, "").unwrap(),
            keys::TlsKey::generate(Suite::BalancedV1).unwrap(),
        );
        let custody = SealedCustody::new(Arc::new(SealingKey::create(&at("seal.key")).unwrap()));
        let make = |kind| {
            let (cluster, now) = (&fresh.cluster, OffsetDateTime::now_utc());
            Authority::generate(kind, cluster, &custody, Suite::BalancedV1, now).unwrap()
        };
        let trust = Trust::from_authorities(&[&make(CaKind::User), &make(CaKind::Host)], None).unwrap();
        let trust = trust.to_bundle();
        let save = |profile: &Profile, private: Option<&str>| {
            let material = Material {
                ssh_private_openssh: private,
                ssh_public_line: ssh.public_line(),
                ssh_certificate_line: "certificate",
                tls_key_pem: &tls.pkcs8_pem(),
                tls_certificate_pem: "certificate",
                trust: &trust,
            };
            profiles.save(profile, &material).unwrap()
        };
        fs::write(at("id.pub"), ssh.public_line()).unwrap();
        fs::write(at("id"), "the user's").unwrap();
        let own = Profile { ssh_key: Some(at("id.pub")), ..fresh.clone() };
        let private = ssh.private_openssh();
        for (profile, private, key) in [
            (&fresh, Some(private.as_str()), None),
            (&own, None, Some(at("id"))),
            (&own, None, Some(at("id"))),
            (&fresh, Some(&private), None),
            (&own, None, Some(at("id"))),
        ] {
            let stored = save(profile, private);
            let loaded = profiles.load().unwrap();
            assert_eq!(loaded.profile.ssh_key, profile.ssh_key);
            let kept = stored.directory.join("ssh_key");
            assert_eq!(kept.exists(), private.is_some());
            assert_eq!(loaded.ssh_key_path(), key.unwrap_or(kept));
        }
        profiles.remove(&profiles.load().unwrap()).unwrap();
        assert_eq!(fs::read_to_string(at("id")).unwrap(), "the user's");
        assert!(at("id.pub").exists());
    }

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
