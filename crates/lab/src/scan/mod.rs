//! What a TLS or SSH server offers and prefers, what each choice costs it, and what to change.
//!
//! A server is asked, a question for each connection, one after the other and within bounds; nothing is tried that a
//! careless client would not do, and it does not log in. What is encrypted in TLS 1.3 is seen by whole handshakes
//! (`handshake.rs`), everything else by the first flight alone.

mod chain;
mod change;
mod costs;
mod danger;
mod finding;
mod handshake;
pub mod host_key;
mod line;
mod shaken;
mod ssh;
mod tls;
mod verdict;

use std::io::Read as _;
use std::time::Duration;

pub use chain::Certificate;
pub use costs::{Cost, time};
pub use finding::Finding;
pub use line::StartTls;
pub(crate) use line::dial;
use sallyport_bench::Talk;
use sallyport_bench::machine::Facts;
use sallyport_sal::compatibility::{group_name, scheme_name, version_name};
use sallyport_wire::tls_probe::{TLS_1_2, TLS_1_3};
use serde::Serialize;
pub use ssh::{Key, Ssh};
use time::OffsetDateTime;
pub use tls::{FirstHello, Order, Version};

use crate::LabError;
use crate::offers::Level;
use change::Server;
use costs::Prices;
use line::{Bounds, Caller, Trouble, is_late};

/// Ports on which web servers are.
const WEB_PORTS: &[u16] = &[443, 8443, 4443, 9443];
/// The port of SSH, on which a server may take longer to speak.
const SSH_PORT: u16 = 22;

/// What is asked, and within which bounds.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How TLS begins; anything but [`StartTls::None`] says that it is a TLS server.
    pub starttls: StartTls,
    /// The name to ask for, when it is not the host.
    pub name: Option<String>,
    /// For everything.
    pub deadline: Duration,
    /// For one connection.
    pub patience: Duration,
    /// Between two connections.
    pub pause: Duration,
    /// Connections at most.
    pub connections: usize,
    /// Whether to leave out the ends of long lists.
    pub quick: bool,
    /// Whether to measure what things cost here.
    pub costs: bool,
    /// What day it is.
    pub now: OffsetDateTime,
}

impl Settings {
    /// Everything, in a minute.
    #[must_use]
    pub fn full() -> Self {
        Self {
            starttls: StartTls::None,
            name: None,
            deadline: Duration::from_secs(60),
            patience: Duration::from_secs(5),
            pause: Duration::from_millis(20),
            connections: 200,
            quick: false,
            costs: true,
            now: OffsetDateTime::now_utc(),
        }
    }

    /// What matters most, with few connections.
    #[must_use]
    pub fn quick() -> Self {
        Self { deadline: Duration::from_secs(30), connections: 60, quick: true, ..Self::full() }
    }
}

/// A TLS server.
#[derive(Debug, Clone, Serialize)]
pub struct Tls {
    /// Versions, the newest first.
    pub versions: Vec<Version>,
    /// Groups, in the order in which the server takes them.
    pub groups: Vec<String>,
    /// Whose order of groups decides.
    pub group_order: Order,
    /// Whether there may be more groups.
    pub groups_incomplete: bool,
    /// What usual clients meet.
    pub first_hellos: Vec<FirstHello>,
    /// Chains of certificates.
    pub chains: Vec<ChainShown>,
    /// Protocols above TLS.
    pub alpn: Vec<String>,
    /// Whether sessions are resumed; none when it was not found out.
    pub resumed: Option<bool>,
    /// Whether an answer of OCSP is stapled.
    pub stapled: bool,
    /// Bytes of a whole handshake by the lab's own client, from the client and from the server, records included.
    pub handshake_bytes: Option<(usize, usize)>,
    /// Which handshake that was: `TLS 1.3, X25519MLKEM768, ecdsa_secp256r1_sha256`.
    pub handshake: Option<String>,
    /// Length of the prime of DHE, in bits.
    pub prime_bits: Option<usize>,
}

/// A chain of certificates as a server shows it.
#[derive(Debug, Clone, Serialize)]
pub struct ChainShown {
    /// To clients that offer these: signature schemes.
    pub by: Vec<String>,
    /// The server's own first.
    pub certificates: Vec<Certificate>,
    /// Length of all of them, in bytes.
    pub bytes: usize,
}

/// What was found out about one server.
#[derive(Debug, Clone, Serialize)]
pub struct Scan {
    /// As it was named.
    pub address: String,
    /// `tls` or `ssh`.
    pub protocol: &'static str,
    /// What it calls itself, where it does.
    pub software: Option<String>,
    /// Connections that were made.
    pub connections: usize,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// What a TLS server offers.
    pub tls: Option<Tls>,
    /// What an SSH server offers.
    pub ssh: Option<Ssh>,
    /// What it costs, on the machine where the lab runs.
    pub costs: Vec<Cost>,
    /// That machine.
    pub machine: Facts,
    /// What was not found out, and why.
    pub notes: Vec<String>,
}

impl Scan {
    /// Findings above informational.
    #[must_use]
    pub fn bad(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level > Level::Info).count()
    }
}

/// Looks at a server.
///
/// # Errors
/// [`LabError::Connection`] when there is none, it says nothing within the bounds, or what it says is neither TLS nor SSH.
pub fn run(address: &str, settings: &Settings, talk: &Talk) -> Result<Scan, LabError> {
    let mut caller = Caller::new(address, settings.starttls, bounds(settings))?;
    let failed = |trouble: Trouble| LabError::Connection(format!("{address}: {trouble}"));
    if settings.starttls != StartTls::None {
        return tls(caller, settings, talk);
    }
    let mut line = caller.dial().map_err(failed)?;
    let mut first = vec![0; 1024];
    let port = caller.port;
    line.hurry(if port == SSH_PORT { settings.patience } else { tls::FIRST_WORD });
    let read = match line.read(&mut first) {
        Ok(0) => return Err(failed(Trouble::Ended)),
        Ok(read) => read,
        Err(error) if is_late(&error) => 0,
        Err(error) => return Err(failed(Trouble::Refused(error))),
    };
    first.truncate(read);
    if first.is_empty() {
        drop(line);
        return tls(caller, settings, talk);
    }
    let said = line::shown(&first);
    if first.starts_with(b"SSH-") || b"SSH-".starts_with(&first) {
        line.extend(settings.patience);
        return ssh(caller, line, &first, settings);
    }
    let hint = match first.get(..4) {
        Some(b"220 " | b"220-") => "; if that is SMTP: --starttls smtp",
        Some(b"* OK") => "; if that is IMAP: --starttls imap",
        _ => "",
    };
    Err(LabError::Connection(format!("{address} speaks neither TLS nor SSH: it says {said:?}{hint}")))
}

/// The certificates that a TLS server shows, in DER, its own first. Nothing of them is checked.
///
/// # Errors
/// [`LabError::Connection`] when there is no TLS server, or it does not answer within `patience`.
pub fn certificates(
    address: &str,
    name: Option<&str>,
    starttls: StartTls,
    patience: Duration,
) -> Result<Vec<Vec<u8>>, LabError> {
    let bounds = Bounds { deadline: patience * 2, patience, pause: Duration::ZERO, connections: 4 };
    let mut caller = Caller::new(address, starttls, bounds)?;
    tls::certificates(&mut caller, name.map(str::to_owned))
        .map_err(|trouble| LabError::Connection(format!("{address}: {trouble}")))
}

fn bounds(settings: &Settings) -> Bounds {
    Bounds {
        deadline: settings.deadline,
        patience: settings.patience,
        pause: settings.pause,
        connections: settings.connections,
    }
}

fn tls(mut caller: Caller, settings: &Settings, talk: &Talk) -> Result<Scan, LabError> {
    let web_port = settings.starttls == StartTls::None && WEB_PORTS.contains(&caller.port);
    let mut asking = tls::Asking::new(&mut caller, talk, settings.name.clone(), settings.quick, web_port);
    let surveyed = asking.survey();
    let name = asking.peer.clone();
    let survey =
        surveyed.map_err(|trouble| LabError::Connection(format!("{}: {trouble}", caller.address)))?;
    let seconds = caller.elapsed().as_secs_f64();
    let web = settings.starttls == StartTls::None
        && (web_port || survey.alpn.iter().any(|name| name == "h2" || name == "http/1.1"));
    let software = match settings.starttls {
        StartTls::Postgres => Some("PostgreSQL".to_owned()),
        _ => survey.software.clone(),
    };
    let server = Server::of(software.as_deref());
    let leaves: Vec<_> = survey.chains.iter().filter_map(|chain| chain.certificates.first()).collect();
    let keys: Vec<_> = leaves.iter().map(|leaf| leaf.key.clone()).collect();
    let prices = if settings.costs {
        talk.say(format!("{}: measuring what its keys and groups cost here", caller.address));
        let issuers = survey.chains.iter().flat_map(|chain| chain.certificates.iter().skip(1));
        let all: Vec<_> = keys.iter().cloned().chain(issuers.map(|one| one.key.clone())).collect();
        Prices::measure(&all, &survey.groups)
    } else {
        Prices::default()
    };
    let has_p256 = keys.contains(&sallyport_ca::SubjectKey::Known(sallyport_sal::KeyAlgorithm::EcdsaP256));
    let mut findings = verdict::judge(&survey, server, web, &prices);
    for one in &survey.chains {
        let others = survey.chains.iter().filter(|other| other.der != one.der);
        let has_classical = others.filter_map(|other| other.certificates.first()).any(chain::is_classical);
        let about = chain::Circumstances {
            server,
            prices: &prices,
            name: &name,
            web,
            has_classical,
            has_p256,
            now: settings.now,
        };
        findings.extend(chain::judge(one, &about));
    }
    let mut costs: Vec<Cost> = survey
        .chains
        .iter()
        .filter_map(|chain| {
            let (leaf, issuers) = chain.certificates.split_first()?;
            let mut cost = prices.key(&leaf.key, "certificate")?;
            // Each certificate behind it is one more signature to verify; that of a root is not.
            cost.client_us += issuers.iter().filter_map(|one| prices.verify(&one.key)).sum::<f64>();
            Some(cost)
        })
        .collect();
    costs.extend(prices.alternatives(&keys));
    costs.extend(survey.groups.iter().filter_map(|group| prices.group(*group, "key exchange")));
    let browser = survey.browser.as_ref().filter(|shaken| shaken.bytes != (0, 0));
    let shown = Tls {
        groups: survey.groups.iter().map(|group| group_name(*group)).collect(),
        group_order: survey.group_order.unwrap_or(Order::Unknown),
        groups_incomplete: survey.groups_incomplete,
        first_hellos: survey.first_hellos.clone(),
        chains: survey.chains.iter().map(ChainShown::of).collect(),
        alpn: survey.alpn.clone(),
        resumed: survey.resumed,
        stapled: survey.stapled,
        handshake_bytes: browser.map(|shaken| shaken.bytes),
        handshake: browser.map(|shaken| {
            let version = if survey.speaks(TLS_1_3) { TLS_1_3 } else { TLS_1_2 };
            let group = shaken.group.map(group_name);
            let scheme = shaken.scheme.map(scheme_name);
            [Some(version_name(version)), group, scheme].into_iter().flatten().collect::<Vec<_>>().join(", ")
        }),
        prime_bits: survey.prime_bits,
        versions: survey.versions,
    };
    let mut notes = survey.notes;
    if settings.costs {
        let unpriced = survey.groups.iter().filter(|group| prices.group(**group, "").is_none());
        let keys = keys.iter().filter(|key| prices.key(key, "").is_none()).map(ToString::to_string);
        notes.extend(costs::unmeasured(keys.chain(unpriced.map(|group| group_name(*group)))));
    }
    Ok(finish(Scan {
        address: caller.address,
        protocol: "tls",
        software,
        connections: caller.made,
        seconds,
        findings,
        tls: Some(shown),
        ssh: None,
        costs,
        machine: Facts::here(),
        notes,
    }))
}

fn ssh(mut caller: Caller, line: line::Line, first: &[u8], settings: &Settings) -> Result<Scan, LabError> {
    let survey = ssh::survey(&mut caller, line, first)?;
    let seconds = caller.elapsed().as_secs_f64();
    let server = Server::of(Some(&survey.offer.software));
    let keys: Vec<_> = survey.keys.iter().map(|key| key.subject.clone()).collect();
    let mut groups: Vec<u16> = survey.offer.kex.iter().filter_map(|method| ssh::group_of(method)).collect();
    groups.dedup();
    let prices = if settings.costs {
        let ed25519 = sallyport_ca::SubjectKey::Known(sallyport_sal::KeyAlgorithm::Ed25519);
        Prices::measure(&keys.iter().cloned().chain([ed25519]).collect::<Vec<_>>(), &groups)
    } else {
        Prices::default()
    };
    let mut costs: Vec<Cost> = keys.iter().filter_map(|key| prices.key(key, "host key")).collect();
    costs.extend(groups.iter().filter_map(|group| prices.group(*group, "key exchange")));
    let findings = ssh::judge(&survey, server, &prices);
    let mut notes = survey.notes;
    let offer = survey.offer;
    if settings.costs {
        let price = |method: &&String| ssh::group_of(method).and_then(|group| prices.group(group, ""));
        let unpriced = offer.kex.iter().filter(|method| price(method).is_none()).cloned();
        let keys = keys.iter().filter(|key| prices.key(key, "").is_none()).map(ToString::to_string);
        notes.extend(costs::unmeasured(keys.chain(unpriced)));
    }
    Ok(finish(Scan {
        address: caller.address,
        protocol: "ssh",
        software: Some(offer.software),
        connections: caller.made,
        seconds,
        findings,
        tls: None,
        ssh: Some(Ssh {
            kex: offer.kex,
            host_key_algorithms: offer.host_key_algorithms,
            ciphers: offer.ciphers,
            macs: offer.macs,
            compression: offer.compression,
            host_keys: survey.keys,
            prime_bits: survey.prime_bits,
            login_methods: None,
        }),
        costs,
        machine: Facts::here(),
        notes,
    }))
}

fn finish(mut scan: Scan) -> Scan {
    scan.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    scan
}

impl ChainShown {
    fn of(chain: &tls::Chain) -> Self {
        Self {
            by: chain.by.clone(),
            certificates: chain.certificates.iter().map(Certificate::of).collect(),
            bytes: chain.der.iter().map(Vec::len).sum(),
        }
    }
}
