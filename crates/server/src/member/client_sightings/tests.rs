//! What is gathered of clients, and when it is told.

use super::*;

fn offer(software: &str) -> Offer {
    Offer { key_exchange: vec!["curve25519-sha256".to_owned()], ..Offer::of(Kind::Ssh, software) }
}

fn user(name: &str) -> Option<Whose> {
    Some(Whose::User(name.to_owned()))
}

fn address(last: u8) -> Option<Whose> {
    Some(Whose::Address([192, 0, 2, last].into()))
}

#[test]
fn the_same_client_is_one_entry_and_is_reported_at_once_when_new_and_then_rarely() {
    let sightings = Sightings::default();
    let (now, start) = (OffsetDateTime::now_utc(), Instant::now());
    for name in ["alice", "bob", "alice"] {
        sightings.saw_at(offer("OpenSSH_9.2p1"), user(name), None, now, start);
    }
    let due = sightings.due(start);
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].count, due[0].users.as_slice()), (3, &["bob".to_owned(), "alice".to_owned()][..]));
    assert_eq!(sightings.due(start), []);
    sightings.saw_at(offer("OpenSSH_9.2p1"), user("alice"), None, now, start);
    assert_eq!(sightings.due(start + Duration::from_secs(30)), []);
    assert_eq!(sightings.due(start + KNOWN_INTERVAL)[0].count, 1);
    // Another user of the same program is news, the thousandth is not.
    sightings.saw_at(offer("OpenSSH_9.2p1"), user("carol"), None, now, start);
    assert_eq!(sightings.due(start + KNOWN_INTERVAL)[0].users, ["carol"]);
    let urgent = (0..1000).filter(|number| {
        sightings.saw_at(offer("OpenSSH_9.2p1"), user(&format!("user-{number}")), None, now, start);
        !sightings.due(start + KNOWN_INTERVAL).is_empty()
    });
    assert_eq!(urgent.count(), MOST_NAMES - 3);
    assert!(!sightings.due(start + 2 * KNOWN_INTERVAL).is_empty());
    // Being sent away is news.
    sightings.saw_at(offer("OpenSSH_9.2p1"), address(1), Some("it offers nothing".to_owned()), now, start);
    let due = sightings.due(start + 2 * KNOWN_INTERVAL);
    assert_eq!(due[0].refused.as_deref(), Some("it offers nothing"));
}

#[test]
fn what_could_not_be_reported_is_not_lost() {
    let sightings = Sightings::default();
    let (now, start) = (OffsetDateTime::now_utc(), Instant::now());
    sightings.saw_at(offer("one"), user("alice"), None, now, start);
    let due = sightings.due(start);
    sightings.saw_at(offer("one"), user("bob"), None, now + Duration::from_secs(1), start);
    sightings.restore(due);
    let due = sightings.due(start);
    assert_eq!((due[0].count, due[0].users.len(), due[0].first), (2, 2, now));
    assert_eq!(due[0].last, now + Duration::from_secs(1));
}

#[test]
fn strangers_fill_their_share_and_displace_no_user() {
    let sightings = Sightings::default();
    let (now, start) = (OffsetDateTime::now_utc(), Instant::now());
    for number in 0..MOST_ENTRIES {
        sightings.saw_at(offer(&format!("client-{number}")), user("alice"), None, now, start);
    }
    for number in 0..2000u32 {
        let later = start + Duration::from_millis(u64::from(number));
        sightings.saw_at(offer(&format!("scanner-{number}")), address(1), None, now, later);
    }
    let table = sightings.table();
    assert!(table.len() <= MOST_ENTRIES, "{}", table.len());
    assert!(table.values().filter(|entry| !entry.is_known()).count() <= MOST_STRANGERS);
    assert!(table.values().filter(|entry| entry.is_known()).count() >= MOST_ENTRIES - 1);
}

#[test]
fn names_and_addresses_are_the_last_sixteen() {
    let sightings = Sightings::default();
    for number in 0..40u8 {
        sightings.saw(offer("one"), user(&format!("user-{number}")), None);
        sightings.saw(offer("one"), address(number), None);
    }
    let report = sightings.due(Instant::now()).remove(0);
    assert_eq!((report.users.len(), report.addresses.len()), (MOST_NAMES, MOST_NAMES));
    assert_eq!(report.users.last().map(String::as_str), Some("user-39"));
}

#[test]
fn a_report_survives_the_wire_and_a_hostile_one_is_cut_down() {
    let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
    let report = Report {
        offer: offer("OpenSSH_9.2p1 Debian"),
        first: now - Duration::from_secs(60),
        last: now,
        count: 7,
        users: vec!["alice".to_owned()],
        addresses: vec!["2001:db8::1".parse().unwrap()],
        refused: Some("it offers nothing".to_owned()),
    };
    assert_eq!(from_proto(to_proto(&report), now), Ok(report.clone()));
    let mut hostile = to_proto(&report);
    hostile.users = vec!["x\u{1b}[2J".repeat(1000); 1000];
    hostile.addresses = vec!["not an address".to_owned(), "192.0.2.1".to_owned()];
    hostile.key_exchange = vec!["k".repeat(1000); 1000];
    hostile.refused = "\n".repeat(1_000_000);
    hostile.last_seen = Some(time_to_proto(now + Duration::from_secs(86_400 * 365)));
    hostile.first_seen = None;
    let read = from_proto(hostile, now).unwrap();
    assert_eq!((read.users.len(), read.addresses.len()), (1, 1));
    assert!(read.users[0].len() <= LONGEST_NAME && !read.users[0].contains('\u{1b}'));
    assert_eq!((read.offer.key_exchange.len(), read.refused, read.last), (0, None, now));
    let unknown = v1::SeenClient { kind: "telnet".to_owned(), ..Default::default() };
    assert!(from_proto(unknown, now).unwrap_err().to_string().contains("known are ssh, tls"));
}

#[test]
fn a_tls_client_is_told_of_once_by_its_first_request_or_its_end() {
    let sightings = Sightings::default();
    let hello = TlsOffer { groups: vec![0x001d], alpn: vec![b"h2".to_vec()], ..TlsOffer::default() };
    let guest = |hello: &TlsOffer| {
        ClientOffer::new(sightings.clone(), hello.clone(), Whose::Address("192.0.2.1".parse().unwrap()))
    };
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, "curl/8.5.0".parse().unwrap());
    let asking = guest(&hello);
    asking.asks(&headers);
    asking.asks(&headers);
    drop(asking);
    drop(guest(&hello));
    let own = TlsOffer { alpn: vec![b"sallyport-auth".to_vec()], ..hello };
    guest(&own).refused("it offers no key exchange that is spoken here".to_owned());
    let mut told: Vec<_> = sightings
        .due(Instant::now())
        .into_iter()
        .map(|report| (report.offer.kind, report.offer.software, report.count, report.refused.is_some()))
        .collect();
    told.sort();
    let wanted =
        [(Kind::Tls, "", 1, false), (Kind::Sallyport, "", 1, true), (Kind::Http, "curl/8.5.0", 1, false)];
    assert_eq!(
        told,
        wanted.map(|(kind, software, count, refused)| (kind, software.to_owned(), count, refused))
    );
}

#[test]
fn numbers_of_tls_become_names_and_grease_is_left_out() {
    let hello = TlsOffer {
        versions: vec![0x0a0a, 0x0304],
        groups: vec![0x3a3a, 0x11ec, 0x001d, 0x9999],
        signature_schemes: vec![0x0403, 0x0905],
        alpn: vec![b"h2".to_vec(), vec![0xff, 0xfe]],
        server_name: None,
    };
    let (kind, software) = of_user_agent("sallyport/0.1.0 tonic/0.14.9");
    assert_eq!((kind, software), (Kind::Sallyport, "sallyport/0.1.0"));
    let offer = tls_offer(&hello, kind, software);
    assert_eq!(offer.key_exchange, ["X25519MLKEM768", "x25519", "0x9999"]);
    assert_eq!(offer.signatures, ["ecdsa_secp256r1_sha256", "mldsa65"]);
    assert!(offer.protocols.is_empty() && offer.versions.is_empty(), "{offer:?}");
    let offer = tls_offer(&hello, Kind::Http, "Mozilla/5.0 (X11)");
    assert_eq!((offer.protocols, offer.versions), (vec!["h2".to_owned()], vec!["TLS 1.3".to_owned()]));
    assert_eq!(of_user_agent("Mozilla/5.0 (X11)").0, Kind::Http);
}
