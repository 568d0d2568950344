//! What clients were seen to be able to do, put together until the authority has it.
//!
//! Listeners tell of every client; here the same client, of the same user or of another, becomes one entry. What is new
//! goes to the authority within a second, what is known once a minute. The table is bounded, and so is the part of it
//! that strangers can fill: a stranger never displaces what is known of a user.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::USER_AGENT;
use metrics::counter;
use parking_lot::{Mutex, MutexGuard};
use sallyport_sal::compatibility::{Kind, Offer, group_name, is_grease, scheme_name, version_name};
use sallyport_ssh::capabilities::{Sighting, SshOffer, Whose};
use sallyport_wire::client_hello::TlsOffer;
use sallyport_wire::convert::{time_from_proto, time_to_proto};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tokio_rustls::rustls::server::ClientHello;
use tokio_rustls::rustls::{self, PeerIncompatible};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::member::authority_client::AuthorityClient;

/// Entries of one process. One takes about 2 KiB.
const MOST_ENTRIES: usize = 1024;
/// Those of them that no user ever came with.
const MOST_STRANGERS: usize = 256;
/// Users, addresses and hosts of one client that are kept, the last ones.
pub(crate) const MOST_NAMES: usize = 16;
/// Longest name of a user or host.
pub(crate) const LONGEST_NAME: usize = 128;
/// Longest reason.
pub(crate) const LONGEST_REASON: usize = 400;
/// Clients in one report.
pub(crate) const MOST_REPORTED: usize = 256;
/// How often the table is looked through.
const TICK: Duration = Duration::from_secs(1);
/// How often a client that is known already is reported.
const KNOWN_INTERVAL: Duration = Duration::from_secs(60);
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// A client, and what happened since it was last reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) offer: Offer,
    pub(crate) first: OffsetDateTime,
    pub(crate) last: OffsetDateTime,
    /// Connections.
    pub(crate) count: u64,
    pub(crate) users: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
    /// Why it was sent away, when that was the last that happened.
    pub(crate) refused: Option<String>,
}

/// Puts a value at the end of a bounded list, where the last ones are; says whether it is new.
pub(crate) fn remember<T: PartialEq>(list: &mut Vec<T>, value: T) -> bool {
    let known = list.iter().position(|known| *known == value).map(|at| list.remove(at));
    let new = known.is_none();
    list.push(value);
    if list.len() > MOST_NAMES {
        list.remove(0);
    }
    new
}

fn short(text: &str, longest: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(longest).collect()
}

#[derive(Debug)]
struct Entry {
    report: Report,
    /// The first users who came with it. Each is news; once there are [`MOST_NAMES`], others wait their turn.
    named: Vec<String>,
    /// Something new happened.
    urgent: bool,
    reported: Option<Instant>,
    touched: Instant,
}

impl Entry {
    /// A user came with it at some time.
    fn is_known(&self) -> bool {
        !self.named.is_empty()
    }
}

/// The table. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sightings(Arc<Mutex<HashMap<String, Entry>>>);

impl Sightings {
    fn table(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock()
    }

    /// A client was here.
    pub(crate) fn saw(&self, offer: Offer, whose: Option<Whose>, refused: Option<String>) {
        self.saw_at(offer, whose, refused, OffsetDateTime::now_utc(), Instant::now());
    }

    /// An SSH client was here.
    pub(crate) fn saw_ssh(&self, sighting: Sighting) {
        self.saw(ssh_offer(sighting.offer), sighting.whose, sighting.refused);
    }

    fn saw_at(
        &self,
        offer: Offer,
        whose: Option<Whose>,
        refused: Option<String>,
        now: OffsetDateTime,
        instant: Instant,
    ) {
        let offer = offer.bounded();
        let refused = refused.map(|reason| short(&reason, LONGEST_REASON));
        let by_user = matches!(whose, Some(Whose::User(_)));
        let key = offer.fingerprint();
        let mut table = self.table();
        if !table.contains_key(&key) {
            make_room(&mut table, by_user);
        }
        let entry = table.entry(key).or_insert_with(|| Entry {
            report: Report {
                offer,
                first: now,
                last: now,
                count: 0,
                users: Vec::new(),
                addresses: Vec::new(),
                refused: None,
            },
            named: Vec::new(),
            urgent: true,
            reported: None,
            touched: instant,
        });
        let report = &mut entry.report;
        if report.count == 0 {
            report.first = now;
        }
        (report.last, report.count) = (now, report.count.saturating_add(1));
        entry.touched = instant;
        entry.urgent |= report.refused != refused;
        report.refused = refused;
        match whose {
            Some(Whose::User(user)) => {
                let user = short(&user, LONGEST_NAME);
                if entry.named.len() < MOST_NAMES && !entry.named.contains(&user) {
                    entry.named.push(user.clone());
                    entry.urgent = true;
                }
                remember(&mut report.users, user);
            }
            Some(Whose::Address(address)) => {
                remember(&mut report.addresses, address);
            }
            None => {}
        }
    }

    /// What is to be reported now; it counts as reported.
    pub(crate) fn due(&self, now: Instant) -> Vec<Report> {
        let mut due = Vec::new();
        for entry in self.table().values_mut() {
            let waited = entry.reported.is_none_or(|at| now.saturating_duration_since(at) >= KNOWN_INTERVAL);
            if entry.report.count == 0 || !(entry.urgent || waited) || due.len() >= MOST_REPORTED {
                continue;
            }
            due.push(entry.report.clone());
            entry.report.count = 0;
            entry.report.users.clear();
            entry.report.addresses.clear();
            (entry.urgent, entry.reported) = (false, Some(now));
        }
        due
    }

    /// Takes back what could not be reported.
    fn restore(&self, reports: Vec<Report>) {
        let mut table = self.table();
        for report in reports {
            let Some(entry) = table.get_mut(&report.offer.fingerprint()) else { continue };
            let newer = std::mem::replace(&mut entry.report, report);
            let merged = &mut entry.report;
            merged.count = merged.count.saturating_add(newer.count);
            if newer.count > 0 {
                (merged.last, merged.refused) = (newer.last, newer.refused);
            }
            for user in newer.users {
                remember(&mut merged.users, user);
            }
            for address in newer.addresses {
                remember(&mut merged.addresses, address);
            }
            entry.urgent = true;
        }
    }

    /// Reports to the authority until `stop`.
    pub(crate) async fn run(self, client: AuthorityClient, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            let due = self.due(Instant::now());
            if due.is_empty() {
                continue;
            }
            let request = v1::ReportClientsRequest { clients: due.iter().map(to_proto).collect() };
            let mut fleet = client.fleet();
            let answer = tokio::time::timeout(CALL_TIMEOUT, fleet.report_clients(request)).await;
            let outcome = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
            counter!("sallyport_authority_calls_total", "method" => "ReportClients", "result" => outcome)
                .increment(1);
            match answer {
                Ok(Ok(_)) => continue,
                Ok(Err(status)) => debug!(message = status.message(), "seen clients wait for the authority"),
                Err(_) => debug!("seen clients wait: no answer from the authority"),
            }
            self.restore(due);
            tokio::select! {
                () = tokio::time::sleep(CALL_TIMEOUT) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

fn make_room(table: &mut HashMap<String, Entry>, by_user: bool) {
    let strangers = table.values().filter(|entry| !entry.is_known()).count();
    let full = table.len() >= MOST_ENTRIES;
    if !full && (by_user || strangers < MOST_STRANGERS) {
        return;
    }
    let oldest = |known: bool| {
        let of_kind = table.iter().filter(|(_, entry)| entry.is_known() == known);
        of_kind.min_by_key(|(_, entry)| entry.touched).map(|(key, _)| key.clone())
    };
    if let Some(key) = oldest(false).or_else(|| oldest(true)) {
        table.remove(&key);
    }
}

/// What an SSH client offered.
fn ssh_offer(offer: SshOffer) -> Offer {
    Offer {
        key_exchange: offer.kex,
        signatures: offer.host_key_algorithms,
        ciphers: offer.ciphers,
        macs: offer.macs,
        ..Offer::of(Kind::Ssh, offer.software)
    }
}

/// What a TLS client offered, as names where they are known.
pub(crate) fn tls_offer(hello: &TlsOffer, kind: Kind, software: &str) -> Offer {
    let named = |codes: &[u16], name: fn(u16) -> String| -> Vec<String> {
        codes.iter().filter(|code| !is_grease(**code)).map(|code| name(*code)).collect()
    };
    let offer = Offer {
        key_exchange: named(&hello.groups, group_name),
        signatures: named(&hello.signature_schemes, scheme_name),
        ..Offer::of(kind, software)
    };
    if kind == Kind::Sallyport {
        // What one program of ours wants from one connection to the next is not what tells it from others.
        return offer;
    }
    // Some clients throw in protocols that mean nothing, too.
    let protocols = hello.alpn.iter().map(|protocol| String::from_utf8_lossy(protocol).into_owned());
    let protocols = protocols.filter(|name| name.is_ascii()).collect();
    Offer { protocols, versions: named(&hello.versions, version_name), ..offer }
}

/// The ClientHello as the TLS library has read it. It does not tell the versions, which the listener's own bound says
/// enough about.
pub(crate) fn of_hello(hello: &ClientHello<'_>) -> TlsOffer {
    let groups = hello.named_groups().unwrap_or_default();
    TlsOffer {
        versions: Vec::new(),
        groups: groups.iter().map(|group| u16::from(*group)).collect(),
        signature_schemes: hello.signature_schemes().iter().map(|scheme| u16::from(*scheme)).collect(),
        alpn: hello.alpn().into_iter().flatten().map(<[u8]>::to_vec).collect(),
        server_name: hello.server_name().map(str::to_owned),
    }
}

/// Why a handshake failed, when it was for what the client does not offer.
pub(crate) fn incompatible(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::PeerIncompatible(reason) = inner else { return None };
    Some(match reason {
        PeerIncompatible::NoKxGroupsInCommon
        | PeerIncompatible::NamedGroupsExtensionRequired
        | PeerIncompatible::KeyShareExtensionRequired => {
            "it offers no key exchange that is spoken here".to_owned()
        }
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::SignatureAlgorithmsExtensionRequired
        | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => {
            "it verifies no signature of the kind that is made here".to_owned()
        }
        PeerIncompatible::NoCipherSuitesInCommon => "it offers no cipher that is spoken here".to_owned(),
        PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => "it does not speak TLS 1.3".to_owned(),
        other => format!("its TLS does not fit: {other:?}"),
    })
}

/// One TLS connection. It is told of once: when a request says what the client is, or when it ends without.
#[derive(Debug)]
pub(crate) struct ClientOffer {
    sightings: Sightings,
    hello: TlsOffer,
    whose: Whose,
    told: AtomicBool,
}

impl ClientOffer {
    pub(crate) fn new(sightings: Sightings, hello: TlsOffer, whose: Whose) -> Self {
        Self { sightings, hello, whose, told: AtomicBool::new(false) }
    }

    /// A request came.
    pub(crate) fn asks(&self, headers: &HeaderMap) {
        if !self.told.load(Ordering::Relaxed) {
            let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
            self.tell(agent, None);
        }
    }

    /// It was sent away for what it cannot do.
    pub(crate) fn refused(&self, reason: String) {
        self.tell("", Some(reason));
    }

    fn tell(&self, agent: &str, refused: Option<String>) {
        if self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        let own = self.hello.alpn.iter().any(|protocol| protocol.starts_with(b"sallyport-"));
        let (kind, software) = match of_user_agent(agent) {
            (_, "") if own => (Kind::Sallyport, ""),
            (_, "") => (Kind::Tls, ""),
            told => told,
        };
        self.sightings.saw(tls_offer(&self.hello, kind, software), Some(self.whose.clone()), refused);
    }
}

impl Drop for ClientOffer {
    fn drop(&mut self) {
        self.tell("", None);
    }
}

/// What a program calls itself in a user agent: of ours the name and version, without the library that it uses.
pub(crate) fn of_user_agent(agent: &str) -> (Kind, &str) {
    match agent.split(' ').next() {
        Some(own) if own.starts_with("sallyport/") => (Kind::Sallyport, own),
        _ => (Kind::Http, agent),
    }
}

/// The report on the wire.
pub(crate) fn to_proto(report: &Report) -> v1::SeenClient {
    let offer = report.offer.clone();
    v1::SeenClient {
        kind: offer.kind.name().to_owned(),
        software: offer.software,
        key_exchange: offer.key_exchange,
        signatures: offer.signatures,
        ciphers: offer.ciphers,
        macs: offer.macs,
        protocols: offer.protocols,
        versions: offer.versions,
        first_seen: Some(time_to_proto(report.first)),
        last_seen: Some(time_to_proto(report.last)),
        count: report.count,
        users: report.users.clone(),
        addresses: report.addresses.iter().map(ToString::to_string).collect(),
        seen_by: Vec::new(),
        refused: report.refused.clone().unwrap_or_default(),
    }
}

/// A kind of client that this release does not know.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind:?} is no kind of client; known are {known}",
    known = Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
)]
pub(crate) struct UnknownClient {
    kind: String,
}

/// A report from the wire, within its bounds: the host that sent it may mean harm. A clock that is ahead is set back.
///
/// # Errors
/// [`UnknownClient`] when it is of a kind that is not known.
pub(crate) fn from_proto(client: v1::SeenClient, now: OffsetDateTime) -> Result<Report, UnknownClient> {
    let kind = Kind::named(&client.kind).ok_or_else(|| UnknownClient { kind: short(&client.kind, 32) })?;
    let time = |sent: Option<_>| sent.as_ref().and_then(time_from_proto).map_or(now, |time| time.min(now));
    let last = time(client.last_seen);
    let offer = Offer {
        kind,
        software: client.software,
        key_exchange: client.key_exchange,
        signatures: client.signatures,
        ciphers: client.ciphers,
        macs: client.macs,
        protocols: client.protocols,
        versions: client.versions,
    };
    let mut users = Vec::new();
    for user in client.users.iter().filter(|user| !user.is_empty()).take(MOST_NAMES) {
        remember(&mut users, short(user, LONGEST_NAME));
    }
    Ok(Report {
        offer: offer.bounded(),
        first: time(client.first_seen).min(last),
        last,
        count: client.count,
        users,
        addresses: client.addresses.iter().take(MOST_NAMES).filter_map(|text| text.parse().ok()).collect(),
        refused: Some(short(&client.refused, LONGEST_REASON)).filter(|reason| !reason.is_empty()),
    })
}

#[cfg(test)]
mod tests;
