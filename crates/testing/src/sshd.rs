//! A stock `sshd` of the machine, with a configuration of its own, that trusts the cluster's user CA.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cluster::Cluster;
use super::process::Process;
use super::programs::{output, write_private};
use super::site::Site;
use crate::{AtFile, TestbedError};

/// The key exchange that stock clients and servers are held to: what this cluster and OpenSSH of any age both have.
pub const KEY_EXCHANGE: &str = "curve25519-sha256";

/// The cipher that both sides are held to.
pub const CIPHER: &str = "aes128-gcm@openssh.com";

/// Where Debian and others keep it; `sshd` demands to be started by an absolute path.
const PLACES: [&str; 4] = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd", "/usr/bin/sshd"];

/// The running server.
#[derive(Debug)]
pub struct Sshd {
    /// Its listener; every connection has a child.
    pub process: Process,
    /// Its port.
    pub port: u16,
    /// What its host certificate says, and the configuration of `ssh` calls it.
    name: &'static str,
    site: Site,
    known_hosts: PathBuf,
}

impl Sshd {
    /// Starts it in a directory of its own; as a `member`, it is a server of the cluster by that name.
    pub fn start(
        directory: &Path,
        cluster: &Cluster,
        name: &'static str,
        member: Option<&str>,
        site: &Site,
    ) -> Result<Self, TestbedError> {
        let program = PLACES.iter().map(Path::new).find(|path| path.exists());
        let Some(program) = program else {
            return Err(TestbedError::Missing {
                program: "sshd".to_owned(),
                source: std::io::Error::from(std::io::ErrorKind::NotFound),
                hint: "the lab measures against OpenSSH: install openssh-server",
            });
        };
        let port = site.free_port()?;
        let host_key = directory.join("sshd_host");
        output(
            "certifying the stock server",
            cluster
                .admin(&["auth", "sign", "--format", "openssh-host", "--host", name, "--out"])
                .arg(&host_key),
        )?;
        let users = directory.join("sshd_users.pub");
        output(
            "exporting the user CA",
            cluster.admin(&["ca", "export", "--kind", "user", "--out"]).arg(&users),
        )?;
        let hosts = output(
            "exporting the host CA",
            &mut cluster.admin(&["ca", "export", "--kind", "host", "--format", "openssh"]),
        )?;
        let known_hosts = directory.join("sshd_known_hosts");
        let lines = hosts.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let lines: Vec<String> = lines.map(|line| format!("@cert-authority {name} {line}\n")).collect();
        write_private(&known_hosts, &lines.concat())?;
        let (config, more) = (directory.join("sshd_config"), directory.join("sshd_config.d"));
        fs::create_dir(&more).at("make", &more)?;
        write_private(
            &config,
            &format!(
                "Include {}/*.conf\nListenAddress {address}:{port}\nHostKey {key}\nHostCertificate {key}-cert.pub\nTrustedUserCAKeys {}\n\
                 KexAlgorithms {KEY_EXCHANGE}\nCiphers {CIPHER}\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n\
                 PermitRootLogin yes\nMaxStartups 5000\nPidFile none\nPrintMotd no\nLogLevel ERROR\n\
                 Subsystem sftp internal-sftp\n",
                more.display(),
                users.display(),
                address = site.address(),
                key = host_key.display(),
            ),
        )?;
        // Where it leaves its privileges behind; the packages' service makes it at boot.
        if nix::unistd::geteuid().is_root() {
            let _ = fs::create_dir_all("/run/sshd");
        }
        if let Some(member) = member {
            // A loopback address is an administrator's to register.
            let at = format!("{}:{port}", site.address());
            output(
                "registering the stock server",
                &mut cluster.admin(&["nodes", "add", member, "--address", &at]),
            )?;
            let mut join = cluster.join_openssh()?;
            join.args(["--name", member, "--also", name, "--address", &at])
                .args(["--apply", "--reload", "true", "--sshd"])
                .arg(program)
                .arg("--state")
                .arg(directory.join("sshd_member"))
                .arg("--host-key")
                .arg(&host_key)
                .arg("--sshd-config")
                .arg(&config)
                .arg("--drop-in")
                .arg(more.join("sallyport.conf"))
                .arg("--directory")
                .arg(directory);
            site.inside(|| output("sallyport join openssh", &mut join))??;
        }
        let mut command = Command::new(program);
        command.args(["-D", "-e", "-f"]).arg(&config);
        let mut process = site.inside(|| Process::start("sshd", &mut command, directory))??;
        process.wait_until("sshd", || site.answers(port).then_some(()))?;
        Ok(Self { process, port, name, site: site.clone(), known_hosts })
    }

    /// What `ssh` needs to know of it.
    pub fn ssh_config(&self, cluster: &Cluster) -> String {
        let profile = cluster.profile();
        format!(
            "Host {name}\n    HostName {}\n    Port {}\n    HostKeyAlias {name}\n    \
             UserKnownHostsFile {}\n    StrictHostKeyChecking yes\n    IdentitiesOnly yes\n    \
             IdentityFile {profile}/ssh_key\n    CertificateFile {profile}/ssh_key-cert.pub\n    \
             PreferredAuthentications publickey\n\n",
            self.site.address(),
            self.port,
            self.known_hosts.display(),
            name = self.name,
            profile = profile.display(),
        )
    }
}
