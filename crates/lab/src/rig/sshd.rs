//! A stock `sshd` of the machine, with a configuration of its own, that trusts the cluster's user CA.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CIPHER, Cluster, DIRECT, KEY_EXCHANGE, Process, free_port, output, write_private};
use crate::LabError;

/// Where Debian and others keep it; `sshd` demands to be started by an absolute path.
const PLACES: [&str; 4] = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd", "/usr/bin/sshd"];

/// The running server.
#[derive(Debug)]
pub struct Sshd {
    /// Its listener; every connection has a child.
    pub process: Process,
    /// Its port on loopback.
    pub port: u16,
    known_hosts: PathBuf,
}

impl Sshd {
    pub(super) fn start(directory: &Path, cluster: &Cluster) -> Result<Self, LabError> {
        let program = PLACES.iter().map(Path::new).find(|path| path.exists());
        let Some(program) = program else {
            return Err(LabError::Missing {
                program: "sshd".to_owned(),
                source: std::io::Error::from(std::io::ErrorKind::NotFound),
                hint: "the lab measures against OpenSSH: install openssh-server",
            });
        };
        let port = free_port()?;
        let host_key = directory.join("sshd_host");
        output(
            "certifying the stock server",
            cluster
                .admin(&["auth", "sign", "--format", "openssh-host", "--host", DIRECT, "--out"])
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
        let lines: Vec<String> = lines.map(|line| format!("@cert-authority {DIRECT} {line}\n")).collect();
        write_private(&known_hosts, &lines.concat())?;
        let config = directory.join("sshd_config");
        write_private(
            &config,
            &format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {key}\nHostCertificate {key}-cert.pub\nTrustedUserCAKeys {}\n\
                 KexAlgorithms {KEY_EXCHANGE}\nCiphers {CIPHER}\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n\
                 PermitRootLogin yes\nMaxStartups 5000\nPidFile none\nPrintMotd no\nLogLevel ERROR\n\
                 Subsystem sftp internal-sftp\n",
                users.display(),
                key = host_key.display(),
            ),
        )?;
        // Where it leaves its privileges behind; the packages' service makes it at boot.
        if nix::unistd::geteuid().is_root() {
            let _ = std::fs::create_dir_all("/run/sshd");
        }
        let mut process =
            Process::start("sshd", Command::new(program).args(["-D", "-e", "-f"]).arg(&config), directory)?;
        process.wait_until("sshd", || std::net::TcpStream::connect(("127.0.0.1", port)).ok())?;
        Ok(Self { process, port, known_hosts })
    }

    /// What `ssh` needs to know of it.
    pub(super) fn ssh_config(&self, cluster: &Cluster) -> String {
        let profile = cluster.profile();
        format!(
            "Host {DIRECT}\n    HostName 127.0.0.1\n    Port {}\n    HostKeyAlias {DIRECT}\n    \
             UserKnownHostsFile {}\n    StrictHostKeyChecking yes\n    IdentitiesOnly yes\n    \
             IdentityFile {profile}/ssh_key\n    CertificateFile {profile}/ssh_key-cert.pub\n    \
             PreferredAuthentications publickey\n\n",
            self.port,
            self.known_hosts.display(),
            profile = profile.display(),
        )
    }
}
