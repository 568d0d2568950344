//! Our own endpoint: the front page of a cluster's proxy, on its public port.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use sallyport_access::{ClusterName, HostRole};
use sallyport_bench::AtFile;
use sallyport_ca::server_name;
use sallyport_sal::tls::rustls::RootCertStore;
use sallyport_sal::tls::rustls::pki_types::ServerName;
use sallyport_sal::{KeyPurpose, Suite};
use sallyport_testing::{CLUSTER, Cluster, Programs, Shape};
use tempfile::TempDir;

use super::client::{Target, Tls};
use super::cores::Cores;
use super::target::{authorities, trusting};
use crate::LabError;

/// A running cluster.
#[derive(Debug)]
pub(super) struct Own {
    cluster: Cluster,
    suite: Suite,
    roots: RootCertStore,
    // Last: the processes end before their files go.
    _directory: TempDir,
}

impl Own {
    /// Starts one, with its processes where servers run.
    pub(super) fn start(program: &Path, suite: Suite, cores: &Cores) -> Result<Self, LabError> {
        let directory = tempfile::Builder::new()
            .prefix("sallyport-lab-")
            .tempdir()
            .at("make a directory in", &std::env::temp_dir())?;
        let (login, _) = sallyport_testing::account()?;
        let shape = Shape { suite: Some(suite), ..Shape::default() };
        let cluster = cores
            .on_server(|| Ok(Cluster::start(&Programs::all(program), directory.path(), &login, &shape)?))?;
        let export = &mut cluster.admin(&["ca", "export", "--kind", "host", "--format", "tls"]);
        let pem = sallyport_testing::output("exporting the host CA", export)?;
        let roots = authorities(&pem, "the host CA of the cluster")?;
        Ok(Self { cluster, suite, roots, _directory: directory })
    }

    /// The type of the key that it shows.
    pub(super) fn certificate(&self) -> String {
        self.suite.algorithm(KeyPurpose::HostTls).to_string()
    }

    /// The proxy alone: no other process takes part in showing its page.
    pub(super) fn processes(&self) -> Vec<u32> {
        vec![self.cluster.proxy.id()]
    }

    pub(super) fn target(&self, resume: bool, patience: Duration) -> Result<Target, LabError> {
        let unusable = |error: &dyn std::fmt::Display| LabError::Failed {
            what: "preparing TLS for the load".to_owned(),
            said: error.to_string(),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], self.cluster.port));
        let cluster: ClusterName = CLUSTER.parse().map_err(|error| unusable(&error))?;
        let name =
            ServerName::try_from(server_name(HostRole::Proxy, &cluster)).map_err(|error| unusable(&error))?;
        let tls = Tls { config: trusting(self.roots.clone(), resume)?, name };
        Ok(Target::new(address, Some(tls), &address.to_string(), "/", patience))
    }

    /// What was measured, in words.
    pub(super) fn condition(&self) -> String {
        format!(
            "own proxy: the front page on the public port of a cluster of the suite {}, whose host certificates have {} \
             keys and are signed with {}; it asks for a client certificate and takes none, and gives tickets; its \
             processor time is the proxy's",
            self.suite.name(),
            self.certificate(),
            self.suite.algorithm(KeyPurpose::HostCaTls)
        )
    }
}
