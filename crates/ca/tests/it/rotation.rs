//! Rotations, in every order that confirmations allow: no certificate that a peer holds is refused by another peer.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::cluster;
use crate::cluster::{Cluster, SUITE, alice, leaf};
use sallyport_access::{ClusterName, HostId, HostRole, NodeName};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::rotation::{CaState, Mode, Phase, pin_of, signed_by};
use sallyport_ca::{
    Authority, AuthorityRecord, CaError, CaKind, HostRequest, RotationStatus, SshOptions, Trust, UserPair,
    issue_host, issue_user,
};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use ssh_key::Certificate;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// The CAs of one kind that follow each other, and what they signed.
struct Line {
    kind: CaKind,
    cas: Vec<Authority>,
    /// An SSH and a TLS certificate of each.
    certificates: Vec<(Certificate, Vec<u8>)>,
    cluster: Cluster,
    /// Whether a verifier who trusts these, in this order, believes what this one signed.
    believed: std::cell::RefCell<HashMap<(Vec<usize>, usize), bool>>,
}

impl Line {
    fn new(kind: CaKind, length: usize) -> Self {
        let cluster = Cluster::new("prod");
        let name = ClusterName::new("prod").unwrap();
        let make = |_| Authority::generate(kind, &name, &cluster.custody, SUITE, cluster.now).unwrap();
        let cas: Vec<Authority> = (0..length).map(make).collect();
        let (ssh, tls) = (SshKeyPair::generate(SUITE, "x").unwrap(), TlsKey::generate(SUITE).unwrap());
        let certificates = cas.iter().map(|ca| {
            let (ssh, tls) = match kind {
                CaKind::Host => {
                    let request = HostRequest {
                        id: HostId::new(),
                        name: &NodeName::new("web-1").unwrap(),
                        role: HostRole::Node,
                        join_id: Uuid::nil(),
                        public_names: &[],
                        ssh_public_key: ssh.public_line(),
                        tls_spki: tls.spki_der(),
                    };
                    let issued = issue_host(ca, &request, cluster.now, Duration::days(1)).unwrap();
                    (issued.ssh, issued.tls_pem)
                }
                _ => {
                    let options = SshOptions::default();
                    let (line, spki) = (ssh.public_line(), tls.spki_der());
                    let issued =
                        issue_user(ca, &alice(), line, spki, cluster.now, Duration::hours(1), &options)
                            .unwrap();
                    (issued.ssh, issued.tls_pem)
                }
            };
            (Certificate::from_openssh(&ssh).unwrap(), leaf(&tls))
        });
        let certificates = certificates.collect();
        Self { kind, cas, certificates, cluster, believed: Default::default() }
    }

    fn index(&self, record: &AuthorityRecord) -> usize {
        self.cas.iter().position(|ca| ca.record() == record).unwrap()
    }

    fn trusted(&self, state: &CaState) -> Vec<usize> {
        state.trusted().map(|record| self.index(record)).collect()
    }

    /// Asks the real verifiers.
    fn believes(&self, trusted: &[usize], signer: usize) -> bool {
        let mut believed = self.believed.borrow_mut();
        *believed.entry((trusted.to_vec(), signer)).or_insert_with(|| {
            let (users, hosts) = (&self.cluster.users, &self.cluster.hosts);
            let mut all: Vec<&Authority> = trusted.iter().map(|index| &self.cas[*index]).collect();
            all.push(if self.kind == CaKind::Host { users } else { hosts });
            let trust = Trust::from_authorities(&all, None).unwrap();
            let (ssh, tls) = &self.certificates[signer];
            let ssh = match self.kind {
                CaKind::Host => trust.verify_host_ssh(ssh, "web-1", self.cluster.now),
                _ => trust.verify_user_ssh(ssh, self.cluster.now),
            };
            let tls = trust.identify_tls(tls, self.cluster.now);
            assert_eq!(ssh.is_ok(), tls.is_ok(), "{ssh:?} {tls:?}");
            assert!(tls.is_ok() || matches!(tls, Err(CaError::UnknownIssuer { .. })), "{tls:?}");
            tls.is_ok()
        })
    }
}

/// A peer with a certificate and its own trust.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Party {
    /// A host confirms phases; a user's program does not.
    host: bool,
    generation: u64,
    phase: Phase,
    trusts: Vec<usize>,
    /// Whose certificate it holds; none where this CA does not certify it.
    holds: Option<usize>,
}

#[derive(Debug, Clone)]
struct World {
    ca: CaState,
    /// CAs used up so far.
    used: usize,
    parties: Vec<Party>,
}

type Key = (u64, Phase, Vec<usize>, Vec<Party>);

/// What an order of events demands of a phase before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discipline {
    /// Hosts confirm, and users' programs come by while their phase lasts.
    Confirmed,
    /// Nothing.
    Forced,
}

impl World {
    fn key(&self, line: &Line) -> Key {
        let rotation = self.ca.rotation();
        (rotation.generation, rotation.phase, line.trusted(&self.ca), self.parties.clone())
    }

    fn may_end(&self, line: &Line) -> bool {
        let phase = self.ca.rotation().phase;
        let signer = line.index(self.ca.signer());
        self.parties.iter().all(|party| {
            let applied = Some(RotationStatus { generation: party.generation, phase: party.phase });
            if party.host {
                let pin = party.holds.and_then(|index| pin_of(line.cas[index].record()));
                return self.ca.confirmed_by(applied, pin.as_deref());
            }
            match (line.kind, phase) {
                // Until hosts change theirs, every program has come by once and learned of the new CA.
                (CaKind::Host, Phase::UpdateClients) => {
                    party.trusts.contains(&line.index(self.ca.incoming().unwrap()))
                }
                // Until a user CA is forgotten, every program has had its certificate replaced.
                (CaKind::User, Phase::UpdateServers | Phase::Rollback) => party.holds == Some(signer),
                _ => true,
            }
        })
    }

    /// Everything that can happen next.
    fn next(&self, line: &Line, discipline: Discipline, now: OffsetDateTime) -> Vec<(String, Self)> {
        let mut all = Vec::new();
        let phase = self.ca.rotation().phase;
        if phase == Phase::Standby && self.used < line.cas.len() {
            let incoming = line.cas[self.used].record().clone();
            let ca = self.ca.begin(incoming, Mode::Manual, now).unwrap();
            all.push(("begin".to_owned(), Self { ca, used: self.used + 1, ..self.clone() }));
        }
        if phase != Phase::Standby && (discipline == Discipline::Forced || self.may_end(line)) {
            let ca = self.ca.advance(now).unwrap();
            all.push((format!("advance to {}", ca.rotation().phase), Self { ca, ..self.clone() }));
        }
        if let Ok(ca) = self.ca.rollback(now) {
            all.push(("roll back".to_owned(), Self { ca, ..self.clone() }));
        }
        for index in 0..self.parties.len() {
            let mut world = self.clone();
            let party = &mut world.parties[index];
            party.trusts = line.trusted(&self.ca);
            (party.generation, party.phase) = (self.ca.rotation().generation, phase);
            all.push((format!("{index} learns"), world));
            let mut world = self.clone();
            if let Some(held) = &mut world.parties[index].holds {
                *held = line.index(self.ca.signer());
                all.push((format!("{index} gets a new certificate"), world));
            }
        }
        all
    }

    /// Who is refused by whom.
    fn refused(&self, line: &Line) -> Option<String> {
        let authority = line.trusted(&self.ca);
        for (holder, party) in self.parties.iter().enumerate() {
            let Some(held) = party.holds else { continue };
            if !line.believes(&authority, held) {
                return Some(format!("{holder}, certified by {held}, by the authority"));
            }
            for (verifier, other) in self.parties.iter().enumerate() {
                // Users' programs are not shown users' certificates.
                if (other.host || line.kind == CaKind::Host) && !line.believes(&other.trusts, held) {
                    return Some(format!(
                        "{holder}, certified by {held}, by {verifier} who trusts {:?}",
                        other.trusts
                    ));
                }
            }
        }
        None
    }
}

/// Goes through every order of events; gives how many states there are, or the first order in which a peer is
/// refused.
fn explore(line: &Line, discipline: Discipline) -> Result<usize, Vec<String>> {
    let now = line.cluster.now;
    let party = |host| Party {
        host,
        generation: 0,
        phase: Phase::Standby,
        trusts: vec![0],
        holds: (host == (line.kind == CaKind::Host)).then_some(0),
    };
    let ca = CaState::new(line.cas[0].record().clone());
    let first = World { ca, used: 1, parties: vec![party(true), party(true), party(false)] };
    let mut seen: HashMap<Key, Option<(Key, String)>> = HashMap::from([(first.key(line), None)]);
    let mut waiting = VecDeque::from([first]);
    while let Some(world) = waiting.pop_front() {
        let key = world.key(line);
        if let Some(refused) = world.refused(line) {
            let mut story = vec![format!("refused: {refused}")];
            let mut at = key;
            while let Some(Some((before, what))) = seen.get(&at) {
                story.push(what.clone());
                at = before.clone();
            }
            story.reverse();
            return Err(story);
        }
        for (what, next) in world.next(line, discipline, now) {
            if let std::collections::hash_map::Entry::Vacant(place) = seen.entry(next.key(line)) {
                place.insert(Some((key.clone(), what)));
                waiting.push_back(next);
            }
        }
    }
    let phases: HashSet<Phase> = seen.keys().map(|key| key.1).collect();
    assert_eq!(phases.len(), Phase::ALL.len());
    Ok(seen.len())
}

#[test]
fn in_every_order_no_certificate_is_refused() {
    for kind in [CaKind::User, CaKind::Host] {
        let line = Line::new(kind, 3);
        match explore(&line, Discipline::Confirmed) {
            Ok(states) => assert!(states > 1000, "only {states} states for the {kind} CA"),
            Err(story) => panic!("{kind} CA:\n{}", story.join("\n")),
        }
    }
}

#[test]
fn without_confirmations_a_user_would_be_refused() {
    for kind in [CaKind::User, CaKind::Host] {
        let story = explore(&Line::new(kind, 3), Discipline::Forced).unwrap_err();
        assert!(story.len() <= 5, "{story:?}");
    }
}

fn authority(kind: CaKind) -> (tempfile::TempDir, SealedCustody, Authority) {
    let dir = tempfile::tempdir().unwrap();
    let custody = SealedCustody::new(Arc::new(SealingKey::create(&dir.path().join("seal.key")).unwrap()));
    let made = another(&custody, kind);
    (dir, custody, made)
}

fn another(custody: &SealedCustody, kind: CaKind) -> Authority {
    let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
    Authority::generate(kind, &ClusterName::new("prod").unwrap(), custody, SUITE, now).unwrap()
}

#[test]
fn each_phase_says_who_signs_and_who_is_trusted() {
    for kind in [CaKind::User, CaKind::Host] {
        let (_dir, custody, old) = authority(kind);
        let new = another(&custody, kind);
        let at = |hours| old.record().created + Duration::hours(hours);
        let name = |record: &AuthorityRecord| if record == old.record() { "old" } else { "new" };
        let show = |state: &CaState| {
            let trusted: Vec<&str> = state.trusted().map(name).collect();
            format!(
                "{} {} leaving {}",
                state.rotation().phase,
                trusted.join(","),
                state.leaving().map_or("none", name)
            )
        };
        let standby = CaState::new(old.record().clone());
        let init = standby.begin(new.record().clone(), Mode::Manual, at(1)).unwrap();
        let clients = init.advance(at(2)).unwrap();
        let servers = clients.advance(at(3)).unwrap();
        let over = servers.advance(at(4)).unwrap();
        let said: Vec<String> = [&standby, &init, &clients, &servers, &over].into_iter().map(show).collect();
        let clients_line = match kind {
            CaKind::Host => "update_clients old,new leaving none",
            _ => "update_clients new,old leaving old",
        };
        assert_eq!(
            said,
            [
                "standby old leaving none",
                "init old,new leaving none",
                clients_line,
                "update_servers new,old leaving old",
                "standby new leaving none",
            ]
        );
        assert_eq!((over.rotation().generation, over.rotation().started), (1, at(1)));
        assert_eq!((over.rotation().phase_since, servers.rotation().phase_since), (at(4), at(3)));
        for state in [&init, &clients, &servers] {
            let back = state.rollback(at(5)).unwrap();
            assert_eq!(show(&back), "rollback old,new leaving new");
            let over = back.advance(at(6)).unwrap();
            assert_eq!(show(&over), "standby old leaving none");
            assert_eq!(over.rotation().generation, 1);
            assert!(matches!(
                back.rollback(at(6)),
                Err(CaError::RotationStep { phase: Phase::Rollback, .. })
            ));
        }
    }
}

#[test]
fn steps_that_cannot_be_taken_are_refused() {
    let (_dir, custody, old) = authority(CaKind::User);
    let now = old.record().created;
    let standby = CaState::new(old.record().clone());
    let problem = |result: Result<CaState, CaError>| result.unwrap_err().to_string();
    assert!(problem(standby.advance(now)).contains("no rotation is under way"));
    assert!(problem(standby.rollback(now)).contains("nothing to roll back"));
    let same = standby.begin(old.record().clone(), Mode::Manual, now);
    assert!(problem(same).contains("a key of the old one"));
    let host = another(&custody, CaKind::Host);
    assert!(problem(standby.begin(host.record().clone(), Mode::Manual, now)).contains("another kind"));
    let new = another(&custody, CaKind::User);
    let init = standby.begin(new.record().clone(), Mode::Manual, now).unwrap();
    let third = another(&custody, CaKind::User);
    let error = problem(init.begin(third.record().clone(), Mode::Manual, now));
    assert!(error.contains("user CA is in phase init"), "{error}");
    assert!(error.contains("sallyport admin ca status"), "{error}");
}

#[test]
fn confirmations_are_of_this_phase_and_of_the_right_certificate() {
    let (_dir, custody, old) = authority(CaKind::Host);
    let new = another(&custody, CaKind::Host);
    let now = old.record().created;
    let init = CaState::new(old.record().clone()).begin(new.record().clone(), Mode::Manual, now).unwrap();
    let said = |generation, phase| Some(RotationStatus { generation, phase });
    let (old_pin, new_pin) = (old.tls().unwrap().pin(), new.tls().unwrap().pin());
    assert!(!init.confirmed_by(None, Some(&old_pin)));
    assert!(!init.confirmed_by(said(0, Phase::Standby), Some(&old_pin)));
    assert!(init.confirmed_by(said(1, Phase::Init), Some(&old_pin)));
    let servers = init.advance(now).unwrap().advance(now).unwrap();
    assert!(!servers.confirmed_by(said(1, Phase::UpdateServers), Some(&old_pin)));
    assert!(!servers.confirmed_by(said(1, Phase::UpdateServers), None));
    assert!(!servers.confirmed_by(said(1, Phase::UpdateClients), Some(&new_pin)));
    assert!(servers.confirmed_by(said(1, Phase::UpdateServers), Some(&new_pin)));
    let back = servers.rollback(now).unwrap();
    assert!(!back.confirmed_by(said(1, Phase::Rollback), Some(&new_pin)));
    assert!(back.confirmed_by(said(1, Phase::Rollback), Some(&old_pin)));
    let status = |generation, phase| RotationStatus { generation, phase };
    // The next rotation is later than everything of this one, and the end of this one than its rollback.
    assert!(status(2, Phase::Init).reaches(status(1, Phase::Standby)));
    assert!(status(1, Phase::Standby).reaches(status(1, Phase::Rollback)));
    assert!(!status(1, Phase::Rollback).reaches(status(1, Phase::Standby)));
}

#[test]
fn a_host_sees_in_its_chain_who_signed_it() {
    let cluster = Cluster::new("prod");
    let node = cluster.host("web-1", HostRole::Node, &[]);
    assert_eq!(signed_by(&node.certificates.tls_pem), pin_of(cluster.hosts.record()));
    let bare = cluster::pem(&leaf(&node.certificates.tls_pem));
    assert_eq!((signed_by(&bare), signed_by("")), (None, None));
}

#[test]
fn the_grace_is_split_over_the_phases() {
    let (_dir, custody, old) = authority(CaKind::User);
    let new = another(&custody, CaKind::User);
    let start = old.record().created;
    let hours = |from, tenths| Some(from + Duration::hours(30) * tenths / 10);
    let mode = Mode::Automatic { grace: Duration::hours(30) };
    let standby = CaState::new(old.record().clone());
    assert_eq!(standby.rotation().due(), None);
    let init = standby.begin(new.record().clone(), mode, start).unwrap();
    assert_eq!(init.rotation().due(), hours(start, 1));
    let clients = init.advance(init.rotation().due().unwrap()).unwrap();
    assert_eq!(clients.rotation().due(), hours(start, 7));
    let servers = clients.advance(clients.rotation().due().unwrap()).unwrap();
    assert_eq!(servers.rotation().due(), hours(start, 10));
    assert_eq!(servers.rollback(start).unwrap().rotation().due(), hours(start, 6));
    assert_eq!(init.with_mode(Mode::Manual).rotation().due(), None);
    assert_eq!(servers.advance(start).unwrap().rotation().due(), None);
}

#[test]
fn records_of_releases_without_rotation_are_read() {
    let (_dir, custody, old) = authority(CaKind::Host);
    let plain = serde_json::to_string(old.record()).unwrap();
    let read: CaState = serde_json::from_str(&plain).unwrap();
    assert_eq!(read, CaState::new(old.record().clone()));
    assert_eq!((read.rotation().generation, read.rotation().phase), (0, Phase::Standby));

    let new = another(&custody, CaKind::Host);
    let mode = Mode::Automatic { grace: Duration::hours(30) };
    let init = read.begin(new.record().clone(), mode, old.record().created).unwrap();
    for state in [&read, &init, &init.with_mode(Mode::Manual), &init.rollback(old.record().created).unwrap()]
    {
        let text = serde_json::to_string(state).unwrap();
        assert_eq!(&serde_json::from_str::<CaState>(&text).unwrap(), state, "{text}");
    }
    let text = serde_json::to_string(&init).unwrap();
    assert!(
        text.contains(r#""generation":1,"phase":"init","mode":"automatic","grace_seconds":108000"#),
        "{text}"
    );

    // A record that lost half of it is damaged, and not a CA in standby.
    let mut value: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    value.remove("incoming");
    let error = serde_json::from_value::<CaState>(serde_json::to_value(&value).unwrap()).unwrap_err();
    assert!(error.to_string().contains("lacks the CA that replaces it"), "{error}");
    value.remove("rotation");
    assert!(serde_json::from_value::<CaState>(serde_json::to_value(&value).unwrap()).is_err());
}

#[test]
fn phases_are_typed_as_they_are_shown() {
    for phase in Phase::ALL {
        assert_eq!(phase.to_string().parse::<Phase>().unwrap(), *phase);
        assert_eq!(serde_json::to_string(phase).unwrap(), format!("\"{phase}\""));
    }
    assert_eq!("update-clients".parse::<Phase>().unwrap(), Phase::UpdateClients);
    let error = "later".parse::<Phase>().unwrap_err().to_string();
    assert!(error.contains("update_servers"), "{error}");
}

#[test]
fn certificates_are_signed_anew_with_the_same_end() {
    let cluster = Cluster::new("prod");
    let new = another(&cluster.custody, CaKind::User);
    let trust = Trust::from_authorities(&[&new, &cluster.users, &cluster.hosts], None).unwrap();
    let old = cluster.user(&alice()).certificates;
    let later = cluster.now + Duration::minutes(10) + Duration::milliseconds(1);
    let pair = UserPair::verify(&trust, &old.ssh, &old.tls_pem, later).unwrap();
    assert!(pair.is_signed_by(&cluster.users) && !pair.is_signed_by(&new));

    let issued = pair.reissue(&new, later).unwrap();
    assert_eq!(issued.valid_before, old.valid_before);
    assert_eq!(issued.ssh_fingerprint, old.ssh_fingerprint);
    let after = Trust::from_authorities(&[&new, &cluster.hosts], None).unwrap();
    assert!(UserPair::verify(&after, &old.ssh, &old.tls_pem, later).is_err());
    let again = UserPair::verify(&after, &issued.ssh, &issued.tls_pem, later).unwrap();
    assert!(again.is_signed_by(&new) && !again.is_signed_by(&cluster.users));
    assert_eq!(again.identity().principal, pair.identity().principal);
    assert_eq!(again.identity().login_id, pair.identity().login_id);
    let (before, now) =
        (Certificate::from_openssh(&old.ssh).unwrap(), Certificate::from_openssh(&issued.ssh).unwrap());
    assert_eq!(before.valid_before(), now.valid_before());
    assert_eq!((before.extensions(), before.public_key()), (now.extensions(), now.public_key()));

    // A key of the user's own, in a security key that takes no part.
    const SECURITY_KEY: &str = "sk-ssh-ed25519@openssh.com \
        AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABHNzaDo=";
    let (tls, hour) = (TlsKey::generate(SUITE).unwrap(), Duration::hours(1));
    let (own, options) = (alice(), SshOptions::default());
    let held = issue_user(&cluster.users, &own, SECURITY_KEY, tls.spki_der(), cluster.now, hour, &options);
    let held = held.unwrap();
    let anew =
        UserPair::verify(&trust, &held.ssh, &held.tls_pem, later).unwrap().reissue(&new, later).unwrap();
    let key = |line: &str| Certificate::from_openssh(line).unwrap().public_key().clone();
    assert_eq!(key(&held.ssh), key(&anew.ssh));
    assert_eq!(key(&anew.ssh).algorithm().as_str(), "sk-ssh-ed25519@openssh.com");

    // What ends in seconds is not worth it, and what has ended is refused.
    let end = cluster.now + Duration::hours(1);
    assert!(matches!(pair.reissue(&new, end - Duration::seconds(30)), Err(CaError::BadLifetime { .. })));
    assert!(pair.reissue(&new, end).is_err());
    let over = UserPair::verify(&trust, &old.ssh, &old.tls_pem, end + Duration::hours(1));
    assert!(matches!(over, Err(CaError::Expired { .. })), "{over:?}");

    // Certificates of two logins, or of a host, are no pair.
    let bob = cluster.user(&cluster::user("bob", &["root"])).certificates;
    assert!(UserPair::verify(&trust, &old.ssh, &bob.tls_pem, later).is_err());
    let node = cluster.host("web-1", HostRole::Node, &[]).certificates;
    assert!(UserPair::verify(&trust, &node.ssh, &node.tls_pem, later).is_err());
    assert!(UserPair::verify(&trust, &old.ssh, &node.tls_pem, later).is_err());
}
