//! The client inventory: what clients were seen to be able to do, as the authority remembers it.
//!
//! All of it is in memory, to be asked at once, and in the state under `seen/`, where what is new is written at once and
//! what only has a later time once a minute. It is bounded; the oldest goes first, and strangers before users.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::{Mutex, MutexGuard};
use sallyport_sal::compatibility::Offer;
use sallyport_store::{Kind, Op, Store, StoreError, typed};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::authority::storage::PAGE;
use crate::member::client_sightings::{MOST_NAMES, Report, remember};

/// Clients that are remembered. One takes about 2 KiB.
const MOST_CLIENTS: usize = 10_000;
/// One that was not seen for so long has been replaced.
const FORGET_AFTER: Duration = Duration::days(180);
/// How often a later time is written.
const WRITE_INTERVAL: Duration = Duration::seconds(60);

/// A client, under its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientRecord {
    pub(crate) offer: Offer,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) first: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) last: OffsetDateTime,
    /// Connections.
    pub(crate) count: u64,
    /// Users and hosts who came with it, the last ones.
    #[serde(default)]
    pub(crate) users: Vec<String>,
    /// Where it came from when its user was not known, the last ones.
    #[serde(default)]
    pub(crate) addresses: Vec<IpAddr>,
    /// Hosts that saw it, the last ones.
    #[serde(default)]
    pub(crate) seen_by: Vec<String>,
    /// Why it was sent away, when that was the last that happened.
    #[serde(default)]
    pub(crate) refused: Option<String>,
}

impl ClientRecord {
    /// What the hosts that saw it have told, together.
    pub(crate) fn report(&self) -> Report {
        Report {
            offer: self.offer.clone(),
            first: self.first,
            last: self.last,
            count: self.count,
            users: self.users.clone(),
            addresses: self.addresses.clone(),
            refused: self.refused.clone(),
        }
    }
}

impl Kind for ClientRecord {
    const KIND: &'static str = "seen";
}

#[derive(Debug)]
struct Held {
    record: ClientRecord,
    written: OffsetDateTime,
}

#[derive(Debug, Default)]
struct Table {
    clients: HashMap<String, Held>,
    forgotten: bool,
}

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<Table>);

impl Clients {
    /// Reads what was remembered.
    pub(crate) async fn load(store: &Store, now: OffsetDateTime) -> Result<Self, StoreError> {
        let mut clients = HashMap::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.list::<ClientRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for stored in page {
                let held = Held { written: stored.value.last, record: stored.value };
                clients.insert(stored.name, held);
            }
        }
        Ok(Self(Mutex::new(Table { clients, forgotten: false })))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// Takes reports of a host; gives what is to be written.
    pub(crate) fn take(
        &self,
        reports: Vec<Report>,
        by: &str,
        now: OffsetDateTime,
    ) -> Result<Vec<Op>, StoreError> {
        let mut steps = Vec::new();
        let mut table = self.table();
        for report in reports {
            let key = report.offer.fingerprint();
            if !table.clients.contains_key(&key) {
                steps.extend(table.make_room(MOST_CLIENTS));
            }
            let mut news = false;
            let held = table.clients.entry(key.clone()).or_insert_with(|| {
                news = true;
                Held { written: now, record: fresh(&report) }
            });
            news |= held.record.merge(report, by);
            if news || now - held.written >= WRITE_INTERVAL {
                held.written = now;
                let expires = held.record.last + FORGET_AFTER;
                steps.push(typed::put(&key, &held.record, Some(expires))?);
            }
        }
        Ok(steps)
    }

    /// Every client, the last seen first; and whether some had to be forgotten.
    pub(crate) fn list(&self, now: OffsetDateTime) -> (Vec<ClientRecord>, bool) {
        let mut table = self.table();
        table.clients.retain(|_, held| held.record.last + FORGET_AFTER > now);
        let mut clients: Vec<ClientRecord> = table.clients.values().map(|held| held.record.clone()).collect();
        clients.sort_by(|one, other| {
            other.last.cmp(&one.last).then_with(|| one.offer.software.cmp(&other.offer.software))
        });
        (clients, table.forgotten)
    }
}

impl Table {
    fn make_room(&mut self, most: usize) -> Option<Op> {
        if self.clients.len() < most {
            return None;
        }
        let key = self
            .clients
            .iter()
            .min_by_key(|(_, held)| (!held.record.users.is_empty(), held.record.last))
            .map(|(key, _)| key.clone())?;
        self.clients.remove(&key);
        self.forgotten = true;
        Some(typed::delete::<ClientRecord>(&key, None))
    }
}

fn fresh(report: &Report) -> ClientRecord {
    ClientRecord {
        offer: report.offer.clone(),
        first: report.first,
        last: report.last,
        count: 0,
        users: Vec::new(),
        addresses: Vec::new(),
        seen_by: Vec::new(),
        refused: None,
    }
}

impl ClientRecord {
    /// Adds what a host reports; says whether that is worth a write by itself.
    fn merge(&mut self, report: Report, by: &str) -> bool {
        self.count = self.count.saturating_add(report.count);
        self.first = self.first.min(report.first);
        let mut news = false;
        if report.last >= self.last {
            news |= self.refused != report.refused;
            (self.last, self.refused) = (report.last, report.refused);
        }
        for user in report.users {
            news |= remember(&mut self.users, user) && self.users.len() < MOST_NAMES;
        }
        for address in report.addresses {
            remember(&mut self.addresses, address);
        }
        news |= remember(&mut self.seen_by, by.to_owned()) && self.seen_by.len() < MOST_NAMES;
        news
    }
}

#[cfg(test)]
mod tests {
    use sallyport_sal::compatibility::Kind as ClientKind;

    use super::*;

    fn report(software: &str, user: Option<&str>, last: OffsetDateTime) -> Report {
        Report {
            offer: Offer::of(ClientKind::Ssh, software),
            first: last,
            last,
            count: 1,
            users: user.map(str::to_owned).into_iter().collect(),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            refused: None,
        }
    }

    #[test]
    fn news_are_written_at_once_and_times_once_a_minute() {
        let clients = Clients::default();
        let now = OffsetDateTime::now_utc();
        let take = |report, by, at| clients.take(vec![report], by, at).unwrap().len();
        assert_eq!(take(report("one", Some("alice"), now), "node:web-1", now), 1);
        assert_eq!(take(report("one", Some("alice"), now), "node:web-1", now), 0);
        assert_eq!(take(report("one", Some("bob"), now), "node:web-1", now), 1, "another user");
        assert_eq!(take(report("one", Some("bob"), now), "proxy:p", now), 1, "another host");
        let later = now + Duration::seconds(61);
        assert_eq!(take(report("one", Some("bob"), later), "proxy:p", later), 1, "a minute later");
        let mut refused = report("one", None, later);
        refused.refused = Some("it offers nothing".to_owned());
        assert_eq!(take(refused, "proxy:p", later), 1, "sent away");
        let (list, forgotten) = clients.list(later);
        assert_eq!((list.len(), forgotten), (1, false));
        assert_eq!(list[0].users, ["alice", "bob"]);
        assert_eq!(list[0].seen_by, ["node:web-1", "proxy:p"]);
        assert_eq!((list[0].count, list[0].refused.as_deref()), (6, Some("it offers nothing")));
        assert_eq!(clients.list(later + FORGET_AFTER).0, []);
    }

    #[test]
    fn an_older_report_does_not_change_what_happened_last() {
        let clients = Clients::default();
        let now = OffsetDateTime::now_utc();
        clients.take(vec![report("one", Some("alice"), now)], "node:web-1", now).unwrap();
        let mut late = report("one", None, now - Duration::hours(1));
        late.refused = Some("it offered nothing".to_owned());
        clients.take(vec![late], "node:web-2", now).unwrap();
        let (list, _) = clients.list(now);
        assert_eq!(
            (list[0].last, list[0].refused.clone(), list[0].first),
            (now, None, now - Duration::hours(1))
        );
    }

    #[test]
    fn the_oldest_stranger_goes_first() {
        let mut table = Table::default();
        let now = OffsetDateTime::now_utc();
        for (name, user, age) in
            [("old user", Some("alice"), 9), ("old stranger", None, 5), ("new stranger", None, 1)]
        {
            let report = report(name, user, now - Duration::minutes(age));
            let mut record = fresh(&report);
            record.merge(report, "node:web-1");
            table.clients.insert(name.to_owned(), Held { record, written: now });
        }
        for gone in ["old stranger", "new stranger", "old user"] {
            let most = table.clients.len();
            assert!(table.make_room(most).is_some() && table.forgotten);
            assert!(!table.clients.contains_key(gone), "{gone}");
        }
    }
}
