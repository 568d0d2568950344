//! What stands behind the cluster of the table: stock sshd, and a PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use sallyport_testing::postgres::{Place, Server, Setup};
use sallyport_testing::{Process, Site, fixtures, free_port, write_private};
use sallyport_wire::v1::certificates_client::CertificatesClient;

use super::*;
use crate::support::member::Joining;

/// Servers of the machine's own programs. They end with this.
pub(super) struct Places {
    _servers: Vec<Process>,
    _postgres: Option<Server>,
    /// What the cluster's user CA and host CA are, for stock programs.
    pub(super) trust: v1::TrustBundle,
    pub(super) directory: PathBuf,
}

/// Registered servers: the name, whether the proxy records there, and the node through which it is reached.
const SERVERS: [(&str, bool, Option<&str>); 4] = [
    ("seen-1", true, None),
    ("seen-2", true, Some("web-1")),
    ("stock-1", false, None),
    ("stock-2", false, Some("web-1")),
];

impl Places {
    /// Registers stock servers. Those that the proxy passes SSH on to have joined, so that clients know them; of the others the proxy
    /// knows the key.
    pub(super) async fn servers(cluster: &Cluster, user: &User) -> Self {
        let directory = cluster.directory.path().join("places");
        std::fs::create_dir(&directory).unwrap();
        let answer = RotationClient::new(user.authority().await).follow(user.certificates()).await;
        let trust = answer.unwrap().into_inner().trust.unwrap();
        let (mut users, mut servers) = (trust.user_ssh_keys.clone(), Vec::new());
        users.extend(openssh_keys(cluster).await);
        for (name, recorded, via) in SERVERS {
            let (port, via) =
                (free_port().unwrap(), via.map(|via| format!(", via: {via}")).unwrap_or_default());
            let address = format!("127.0.0.1:{port}");
            let key = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
            let line = key.public_line().trim();
            let pinned = if recorded { format!(", host_key: {line}") } else { String::new() };
            put(
                cluster,
                format!(
                    "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {{name: {name}, labels: {{recorded: '{recorded}'}}}}\nspec: \
                     {{address: '{address}'{via}{pinned}}}\n"
                ),
            )
            .await;
            let (key, certificate) = match recorded {
                true => (key, None),
                false => {
                    let joined = Joining::new("openssh", name).at(&address).join(cluster).await.unwrap();
                    (joined.ssh, Some(joined.issued.ssh_certificate))
                }
            };
            servers.push(sshd(&directory.join(name), port, &key, &users, certificate));
        }
        Self { _servers: servers, _postgres: None, trust, directory }
    }

    /// Puts a PostgreSQL with the user `app` behind the database `shop`, and registers it so.
    pub(super) async fn with_postgres(self, cluster: &Cluster) -> Self {
        let key = TlsKey::generate(Suite::BalancedV1).unwrap();
        let request = v1::SignCertificateRequest {
            kind: "database_server".to_owned(),
            names: vec!["127.0.0.1".to_owned()],
            tls_public_key: key.spki_der().to_vec().into(),
            ..Default::default()
        };
        let mut authority = CertificatesClient::new(support::admin_channel(&cluster.data_dir()).await);
        let issued = authority.sign_certificate(request).await.unwrap().into_inner();
        let server = tokio::task::block_in_place(|| {
            let place = Place::new().unwrap();
            let certificate = place.write("server.crt", &issued.tls_certificate_pem).unwrap();
            let key = place.write("server.key", &key.pkcs8_pem()).unwrap();
            let clients = place.write("clients.pem", &issued.peer_certificates_pem.concat()).unwrap();
            let setup = Setup {
                site: &Site::default(),
                rules: "hostssl all all 127.0.0.1/32 cert\n",
                tls: [&certificate, &key, &clients],
                settings: "max_connections = 50\nshared_buffers = 16MB\n",
                template: Some(&fixtures::kept()),
            };
            let server = place.start(&setup).unwrap().ending_at_once();
            server.sql("postgres", "create role app login").unwrap();
            server.sql("postgres", "create database shop owner app").unwrap();
            server
        });
        put(
            cluster,
            format!(
                "kind: db\nversion: v1\nmetadata: {{name: shop}}\nspec: {{address: '127.0.0.1:{}', via: web-1}}\n",
                server.port
            ),
        )
        .await;
        Self { _postgres: Some(server), ..self }
    }
}

/// The authority of the certificates that proxies show to servers.
async fn openssh_keys(cluster: &Cluster) -> Vec<String> {
    let request = v1::SignCertificateRequest {
        kind: "openssh_host".to_owned(),
        names: vec!["other.example".to_owned()],
        ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
        ..Default::default()
    };
    let mut authority = CertificatesClient::new(support::admin_channel(&cluster.data_dir()).await);
    authority.sign_certificate(request).await.unwrap().into_inner().peer_ssh_keys
}

/// A stock sshd that takes certificates of these authorities.
fn sshd(
    directory: &Path,
    port: u16,
    key: &SshKeyPair,
    users: &[String],
    certificate: Option<String>,
) -> Process {
    std::fs::create_dir(directory).unwrap();
    if rustix::process::geteuid().is_root() {
        // Where it locks unprivileged children up.
        std::fs::create_dir_all("/run/sshd").unwrap();
    }
    let at = directory.display();
    write_private(&directory.join("host"), &key.private_openssh()).unwrap();
    let keys: Vec<String> = users.iter().map(|line| format!("{}\n", line.trim())).collect();
    write_private(&directory.join("users.pub"), &keys.concat()).unwrap();
    let shown = match &certificate {
        Some(certificate) => {
            write_private(&directory.join("host-cert.pub"), certificate).unwrap();
            format!("HostCertificate {at}/host-cert.pub\n")
        }
        None => String::new(),
    };
    let text = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {at}/host\n{shown}TrustedUserCAKeys {at}/users.pub\nAuthorizedKeysFile none\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPidFile none\n\
         LogLevel ERROR\n"
    );
    write_private(&directory.join("sshd_config"), &text).unwrap();
    let mut command = Command::new("/usr/sbin/sshd");
    command.args(["-D", "-e", "-f"]).arg(directory.join("sshd_config"));
    let mut process = Process::start("sshd", &mut command, directory).unwrap();
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
    tokio::task::block_in_place(|| process.wait_until("sshd", listens)).unwrap();
    process
}
