//! What is compared: connections to one database, each by another route, and the processes that take part in each.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::{ClusterName, HostRole};
use sallyport_bench::AtFile;
use sallyport_bench::cost::{children_time, processor_time};
use sallyport_ca::{Trust, TrustBundle, server_name, tls};
use sallyport_sal::tls::rustls::client::Resumption;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sallyport_sal::tls::rustls::{ClientConfig, RootCertStore, version};
use sallyport_sal::{Suite, tls::provider};
use sallyport_testing::floors::Floor;
use sallyport_testing::postgres::{DATABASE, HOST, Postgres, USER};
use sallyport_testing::{CLUSTER, Cluster, Process, Programs, Shape};

use super::client::{Route, Tls};
use crate::LabError;

/// What stands between the client and the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Nothing.
    Direct,
    /// Another program that ends TLS.
    Floor,
    /// A cluster that makes a key pair and a certificate for each connection on each hop.
    Published,
    /// A cluster as it is; the client makes a TLS connection to the public port.
    Native,
    /// A cluster as it is; the client uses a local listener, which has one connection to the proxy for all.
    Warm,
}

impl Kind {
    /// Whether it is one of ours as it is.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Native | Self::Warm)
    }
}

/// A process that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    Proxy,
    Agent,
    Authority,
    Terminator,
    Tunnel,
    Postgres,
    Client,
}

impl Service {
    pub(super) const ALL: [Self; 7] = [
        Self::Proxy,
        Self::Agent,
        Self::Authority,
        Self::Terminator,
        Self::Tunnel,
        Self::Postgres,
        Self::Client,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Agent => "agent",
            Self::Authority => "authority",
            Self::Terminator => "terminator",
            Self::Tunnel => "tunnel",
            Self::Postgres => "postgres",
            Self::Client => "client",
        }
    }
}

/// What libpq needs to connect by the same route.
pub(super) enum Link {
    /// A port, no TLS.
    Plain,
    /// Files of these contents, PEM, and parameters for the server.
    Certificate { authority: String, chain: String, key: String, options: String },
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // One of them is a private key.
        f.write_str("Link")
    }
}

/// One route to the database, with the processes that take part in it.
#[derive(Debug)]
pub(super) struct Candidate {
    pub name: String,
    pub kind: Kind,
    pub suite: Option<Suite>,
    pub route: Route,
    pub link: Link,
    /// Who takes part, by number of the process.
    services: Vec<(Service, u32)>,
    /// Where they write down which keys they make.
    ledgers: Vec<PathBuf>,
}

/// Processor time and keys so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent {
    services: Vec<(Service, Duration)>,
    keys: u64,
    key_time: Duration,
}

impl Spent {
    /// What a service spent since an earlier look; none when it takes no part.
    pub(super) fn since(&self, earlier: &Self, service: Service) -> Option<Duration> {
        let of = |spent: &Self| spent.services.iter().find(|(one, _)| *one == service).map(|(_, time)| *time);
        of(self).map(|now| now.saturating_sub(of(earlier).unwrap_or_default()))
    }

    /// Keys made since an earlier look, and the processor time that went into them.
    pub(super) fn keys_since(&self, earlier: &Self) -> (u64, Duration) {
        (self.keys.saturating_sub(earlier.keys), self.key_time.saturating_sub(earlier.key_time))
    }
}

impl Candidate {
    /// That it failed, and why.
    pub(super) fn failed(&self, error: &dyn std::fmt::Display) -> LabError {
        LabError::Failed { what: self.name.clone(), said: error.to_string() }
    }

    /// What every process spent so far.
    pub(super) fn spent(&self) -> Spent {
        let whole = |pid| processor_time(pid) + children_time(pid);
        let (keys, key_time) = self
            .ledgers
            .iter()
            .map(|path| read_ledger(path))
            .fold((0, Duration::ZERO), |(keys, time), (more, longer)| (keys + more, time + longer));
        Spent {
            services: self.services.iter().map(|(service, pid)| (*service, whole(*pid))).collect(),
            keys,
            key_time,
        }
    }

    /// The process of a service.
    pub(super) fn pid(&self, service: Service) -> Option<u32> {
        self.services.iter().find(|(one, _)| *one == service).map(|(_, pid)| *pid)
    }

    fn new(name: String, kind: Kind, route: Route, link: Link, postgres: &Postgres) -> Self {
        let services =
            vec![(Service::Postgres, postgres.process().id()), (Service::Client, std::process::id())];
        Self { name, kind, suite: None, route, link, services, ledgers: Vec::new() }
    }
}

/// Lines of purpose, algorithm and microseconds.
fn read_ledger(path: &Path) -> (u64, Duration) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let times = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    times.fold((0, Duration::ZERO), |(keys, time), micros| (keys + 1, time + Duration::from_micros(micros)))
}

/// Straight to the server, with a certificate.
pub(super) fn direct(postgres: &Postgres) -> Result<Candidate, LabError> {
    let route = Route {
        address: loopback(postgres.port()),
        tls: Some(straight(postgres, true)?),
        parameters: login(),
    };
    Ok(Candidate::new("direct TLS".to_owned(), Kind::Direct, route, straight_link(postgres), postgres))
}

fn straight_link(postgres: &Postgres) -> Link {
    let (chain, key) = postgres.client_pem.clone();
    Link::Certificate { authority: postgres.ca_pem.clone(), chain, key, options: String::new() }
}

/// Through what others have.
pub(super) fn floor(postgres: &Postgres, floor: &Floor) -> Result<Candidate, LabError> {
    let route = Route {
        address: loopback(floor.port),
        tls: Some(straight(postgres, floor.ask)?),
        parameters: login(),
    };
    let mut candidate =
        Candidate::new(floor.name.to_owned(), Kind::Floor, route, straight_link(postgres), postgres);
    candidate.services.push((Service::Terminator, floor.process.id()));
    Ok(candidate)
}

/// A cluster with a database, and the local listener of its user.
#[derive(Debug)]
pub(super) struct Served {
    // In the order in which they end.
    tunnel: Option<(Process, u16)>,
    pub cluster: Cluster,
    suite: Suite,
    published: bool,
}

impl Served {
    /// Starts it.
    pub(super) fn start(
        program: &Path,
        directory: &Path,
        login: &str,
        postgres: &Postgres,
        suite: Suite,
        published: bool,
    ) -> Result<Self, LabError> {
        let kind = if published { "published" } else { "own" };
        let directory = directory.join(format!("{kind}-{}", suite.name()));
        fs::create_dir(&directory).at("make", &directory)?;
        let danger = if published {
            "  danger:
    fresh_database_keys: true
"
        } else {
            ""
        };
        let shape = postgres.behind(Shape {
            suite: Some(suite),
            proxy: danger.to_owned(),
            node: danger.to_owned(),
            ledgers: true,
            ..Shape::default()
        });
        let cluster = Cluster::start(&Programs::all(program), &directory, login, &shape)?;
        postgres.trust_cluster(&cluster)?;
        let mut served = Self { tunnel: None, cluster, suite, published };
        if !published {
            served.tunnel = Some(served.open_tunnel(&directory)?);
        }
        Ok(served)
    }

    fn open_tunnel(&self, directory: &Path) -> Result<(Process, u16), LabError> {
        let port = sallyport_testing::free_port()?;
        let mut command =
            self.cluster.client(&["proxy", "db", DATABASE, "--tunnel", "--port", &port.to_string()]);
        let mut process = Process::start("tunnel", &mut command, directory)?;
        process.wait_until("sallyport proxy db", || std::net::TcpStream::connect((HOST, port)).ok())?;
        Ok((process, port))
    }

    /// The candidates through it.
    pub(super) fn candidates(&self, postgres: &Postgres) -> Result<Vec<Candidate>, LabError> {
        let suite = self.suite.name();
        let candidate = |name: String, kind, route, link| {
            let mut candidate = Candidate::new(name, kind, route, link, postgres);
            let cluster = &self.cluster;
            candidate.suite = Some(self.suite);
            candidate.services.extend([
                (Service::Proxy, cluster.proxy.id()),
                (Service::Agent, cluster.node.id()),
                (Service::Authority, cluster.authority.id()),
            ]);
            candidate.ledgers =
                ["proxy", "node", "authority"].iter().map(|name| cluster.ledger(name)).collect();
            candidate
        };
        let mut parameters = login();
        let options = format!("-c sallyport.database={DATABASE}");
        parameters.push(("options", options.clone()));
        let export = &mut self.cluster.admin(&["ca", "export", "--kind", "host", "--format", "tls"]);
        let link = Link::Certificate {
            authority: sallyport_testing::output("exporting the host CA", export)?,
            chain: of_profile(&self.cluster, "tls_cert.pem")?,
            key: of_profile(&self.cluster, "tls_key.pem")?,
            options,
        };
        let native =
            Route { address: loopback(self.cluster.port), tls: Some(through(&self.cluster)?), parameters };
        if self.published {
            return Ok(vec![candidate(
                format!("published architecture, {suite}"),
                Kind::Published,
                native,
                link,
            )]);
        }
        let mut candidates = vec![candidate(format!("sallyport, {suite}"), Kind::Native, native, link)];
        if let Some((tunnel, port)) = &self.tunnel {
            let route = Route { address: loopback(*port), tls: None, parameters: login() };
            let mut warm =
                candidate(format!("sallyport, warm transport, {suite}"), Kind::Warm, route, Link::Plain);
            warm.services.push((Service::Tunnel, tunnel.id()));
            candidates.push(warm);
        }
        Ok(candidates)
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn login() -> Vec<(&'static str, String)> {
    vec![("user", USER.to_owned()), ("database", USER.to_owned()), ("application_name", "lab".to_owned())]
}

/// TLS to the server itself, or to what stands in front of it and proves its name.
fn straight(postgres: &Postgres, ask: bool) -> Result<Tls, LabError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(postgres.ca_pem.as_bytes()) {
        roots.add(certificate.map_err(unusable)?).map_err(unusable)?;
    }
    let (chain, key) = &postgres.client_pem;
    let chain =
        CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().map_err(unusable)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(unusable)?;
    new_each_time(config, HOST.to_owned(), ask)
}

fn of_profile(cluster: &Cluster, name: &str) -> Result<String, LabError> {
    let path = cluster.profile().join(name);
    Ok(fs::read_to_string(&path).at("read", &path)?)
}

/// TLS to the proxy, with the user's certificate.
fn through(cluster: &Cluster) -> Result<Tls, LabError> {
    let read = |name: &str| of_profile(cluster, name);
    let bundle: TrustBundle = serde_json::from_str(&read("trust.json")?).map_err(unusable)?;
    let trust = Trust::from_bundle(&bundle).map_err(unusable)?;
    let config = tls::client_config(&trust, Some((&read("tls_cert.pem")?, &read("tls_key.pem")?)), &[])
        .map_err(unusable)?;
    let name: ClusterName = CLUSTER.parse().map_err(unusable)?;
    new_each_time(config, server_name(HostRole::Proxy, &name), true)
}

fn new_each_time(mut config: ClientConfig, name: String, ask: bool) -> Result<Tls, LabError> {
    config.resumption = Resumption::disabled();
    Ok(Tls { config: Arc::new(config), name: ServerName::try_from(name).map_err(unusable)?, ask })
}

fn unusable(error: impl std::fmt::Display) -> LabError {
    LabError::Failed { what: "preparing TLS for the load".to_owned(), said: error.to_string() }
}
