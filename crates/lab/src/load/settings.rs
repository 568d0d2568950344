//! What is measured of servers under load, and how hard they are pressed.

use std::path::PathBuf;
use std::time::Duration;

use sallyport_sal::{KeyAlgorithm, Suite};

use super::address::Consent;

/// A server under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// The machine's nginx, configured and started by the lab.
    Nginx,
    /// The proxy of a cluster of this suite, started by the lab.
    Own(Suite),
    /// Whatever is at this URL.
    Url(String),
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whom.
    pub servers: Vec<Server>,
    /// Keys of nginx's certificates.
    pub keys: Vec<KeyAlgorithm>,
    /// Those of them that are measured with keep-alive too: there the certificate plays no part after the first request.
    pub kept: Vec<KeyAlgorithm>,
    /// Whether a new connection for each request is measured.
    pub new_connections: bool,
    /// Whether connections that go on are measured.
    pub keep_alive: bool,
    /// Whether plain HTTP is measured with keep-alive too.
    pub kept_plain: bool,
    /// Whether new connections that resume TLS are measured besides.
    pub resume: bool,
    /// Bytes of nginx's page.
    pub page_bytes: usize,
    /// Rounds of each step of the ramp.
    pub ramp_rounds: usize,
    /// Rounds at the saturation point.
    pub rounds: usize,
    /// Rounds by the clock; 0 leaves that out.
    pub paced_rounds: usize,
    /// What is not counted before every run.
    pub warm_up: Duration,
    /// What is counted in a step of the ramp.
    pub ramp: Duration,
    /// What is counted in a round at the saturation point.
    pub length: Duration,
    /// What is counted in a round by the clock.
    pub paced: Duration,
    /// Requests a second by the clock; none: half of the rate at the saturation point.
    pub rate: Option<f64>,
    /// Most requests at a time.
    pub most: usize,
    /// Longest that a request may take.
    pub patience: Duration,
    /// After so long it ends by itself, with what there is.
    pub budget: Duration,
    /// Whether the generator has processors of its own.
    pub apart: bool,
    /// How many; none: half of them.
    pub generator: Option<usize>,
    /// Whether certificates of named URLs are taken whatever they are.
    pub insecure: bool,
    /// Authorities to trust for named URLs, PEM; none: the system's.
    pub authority: Option<PathBuf>,
    /// What was said about URLs that are not on loopback.
    pub consent: Consent,
    /// Where every run goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// Less than a minute: nginx with RSA-2048, RSA-4096, P-256 and without TLS.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            servers: vec![Server::Nginx],
            keys: vec![KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa4096, KeyAlgorithm::EcdsaP256],
            kept: vec![KeyAlgorithm::Rsa2048],
            new_connections: true,
            keep_alive: true,
            kept_plain: false,
            resume: false,
            page_bytes: 612,
            ramp_rounds: 1,
            rounds: 5,
            paced_rounds: 1,
            warm_up: Duration::from_millis(100),
            ramp: Duration::from_millis(400),
            length: Duration::from_millis(800),
            paced: Duration::from_millis(1000),
            rate: None,
            most: 256,
            patience: Duration::from_secs(5),
            budget: Duration::from_secs(45),
            apart: true,
            generator: None,
            insecure: false,
            authority: None,
            consent: Consent::default(),
            csv: None,
        }
    }

    /// About ten minutes: every certificate, with keep-alive and without; nginx and clusters.
    #[must_use]
    pub fn full() -> Self {
        let keys = vec![
            KeyAlgorithm::Rsa2048,
            KeyAlgorithm::Rsa3072,
            KeyAlgorithm::Rsa4096,
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::Ed25519,
        ];
        Self {
            servers: vec![Server::Nginx, Server::Own(Suite::Legacy), Server::Own(Suite::BalancedV1)],
            kept: keys.clone(),
            keys,
            kept_plain: true,
            ramp_rounds: 3,
            rounds: 7,
            paced_rounds: 2,
            warm_up: Duration::from_millis(300),
            ramp: Duration::from_millis(700),
            length: Duration::from_millis(1500),
            paced: Duration::from_millis(2500),
            budget: Duration::from_secs(900),
            ..Self::quick()
        }
    }
}
