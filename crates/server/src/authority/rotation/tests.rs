//! Crashes at every write of every step, on a real authority: what is there afterwards is one of two states, goes on,
//! signs nothing that is not trusted, and is on record once.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use sallyport_access::{HostId, HostRole, Identity, Login, NodeName, Principal, RoleName, UserName};
use sallyport_audit::Event;
use sallyport_audit::log::Filter;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::rotation::{Mode, Phase, pin_of};
use sallyport_ca::{
    Authority as CertAuthority, CaKind, HostRequest, SshOptions, Trust, UserPair, issue_host, issue_user,
};
use sallyport_sal::Suite;
use sallyport_store::{Backend, Item, Op, StoreError, Watch};
use sallyport_wire::v1;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::steps::{Step, without_attempt};
use crate::authority::open::open;
use crate::authority::records::{AnnouncementRecord, CaAttemptRecord, ConfirmationRecord};
use crate::authority::services::Services;
use crate::authority::{AuthConfig, Authority};

/// State that is cut off at a write, as a process is that dies there.
#[derive(Debug)]
struct Mortal {
    inner: Arc<dyn Backend>,
    /// Writes that still work.
    left: AtomicUsize,
    /// Whether the write that it dies at reaches the disk.
    after: bool,
    dead: AtomicBool,
}

impl Mortal {
    fn alive(&self) -> Result<(), StoreError> {
        if self.dead.load(Ordering::SeqCst) { Err(StoreError::Closed) } else { Ok(()) }
    }
}

#[async_trait]
impl Backend for Mortal {
    async fn get(&self, key: &str, now: OffsetDateTime) -> Result<Option<Item>, StoreError> {
        self.alive()?;
        self.inner.get(key, now).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Item>, StoreError> {
        self.alive()?;
        self.inner.list(prefix, after, limit, now).await
    }

    async fn transact(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError> {
        self.alive()?;
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left != Ok(1) {
            return self.inner.transact(ops, now).await;
        }
        if self.after {
            self.inner.transact(ops, now).await?;
        }
        self.dead.store(true, Ordering::SeqCst);
        Err(StoreError::Closed)
    }

    async fn watch(&self, prefixes: Vec<String>, now: OffsetDateTime) -> Result<Watch, StoreError> {
        self.alive()?;
        self.inner.watch(prefixes, now).await
    }

    async fn sweep(&self, now: OffsetDateTime) -> Result<usize, StoreError> {
        self.alive()?;
        self.inner.sweep(now).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// An authority whose state dies at the `n`th write from now on; never for 0.
async fn open_mortal(directory: &Path, n: usize, after: bool) -> (Authority, Arc<Mortal>) {
    let mut mortal = None;
    let wrap = |inner: Arc<dyn Backend>| -> Arc<dyn Backend> {
        let made = Arc::new(Mortal { inner, left: AtomicUsize::new(0), after, dead: AtomicBool::new(false) });
        mortal = Some(Arc::clone(&made));
        made
    };
    let services =
        open(AuthConfig::of_tests(directory.to_owned()), wrap, OffsetDateTime::now_utc()).await.unwrap();
    let authority = Authority { services: Arc::new(services) };
    let mortal = mortal.unwrap();
    mortal.left.store(n, Ordering::SeqCst);
    (authority, mortal)
}

/// The end of a process: nothing is written any more.
async fn kill(authority: Authority) {
    let services = &authority.services;
    services.stop.cancel();
    services.tasks.close();
    services.tasks.wait().await;
    services.store.backend().close().await;
    services.journal.log().close().await.unwrap();
}

async fn take(authority: &Authority, kind: CaKind, step: Step) -> Result<(), tonic::Status> {
    let tell = |code| Event::new(code, OffsetDateTime::now_utc()).user("test");
    authority.services.rotations.rotate(kind, step, false, &tell).await.map(|_| ())
}

/// The certificates that a user and a host hold, and the trust that they have learned: what was last in force.
struct World {
    user: v1::FollowRequest,
    host: Vec<u8>,
    trust: Trust,
    keys: (SshKeyPair, TlsKey),
}

impl World {
    fn new(authority: &Authority) -> Self {
        let suite = Suite::BalancedV1;
        let keys = (SshKeyPair::generate(suite, "x").unwrap(), TlsKey::generate(suite).unwrap());
        let mut world =
            Self { user: v1::FollowRequest::default(), host: Vec::new(), trust: authority.trust(), keys };
        world.follow(authority);
        world
    }

    /// All members have applied what is in force now.
    fn follow(&mut self, authority: &Authority) {
        let authorities = authority.services.issuance.authorities();
        self.trust = authorities.trust().clone();
        self.user = self.user(authorities.signer(CaKind::User).unwrap());
        self.host = self.host(authorities.signer(CaKind::Host).unwrap());
    }

    fn user(&self, ca: &CertAuthority) -> v1::FollowRequest {
        let identity = Identity {
            principal: Principal::User {
                name: UserName::new("alice").unwrap(),
                roles: vec![RoleName::new("dev").unwrap()],
                logins: vec![Login::new("root").unwrap()],
                traits: BTreeMap::new(),
            },
            login_id: Uuid::nil(),
            device: None,
            pinned_to: None,
            valid_after: OffsetDateTime::UNIX_EPOCH,
            valid_before: OffsetDateTime::UNIX_EPOCH,
        };
        let (ssh, tls) = (self.keys.0.public_line(), self.keys.1.spki_der());
        let now = OffsetDateTime::now_utc();
        let issued =
            issue_user(ca, &identity, ssh, tls, now, Duration::hours(1), &SshOptions::default()).unwrap();
        v1::FollowRequest { ssh_certificate: issued.ssh, tls_certificate_pem: issued.tls_pem, device: None }
    }

    fn host(&self, ca: &CertAuthority) -> Vec<u8> {
        let request = HostRequest {
            id: HostId::new(),
            name: &NodeName::new("web-1").unwrap(),
            role: HostRole::Node,
            join_id: Uuid::nil(),
            public_names: &[],
            ssh_public_key: self.keys.0.public_line(),
            tls_spki: self.keys.1.spki_der(),
        };
        let issued = issue_host(ca, &request, OffsetDateTime::now_utc(), Duration::days(1)).unwrap();
        let pem = issued.tls_pem.split("-----").nth(2).unwrap().replace('\n', "");
        data_encoding::BASE64.decode(pem.as_bytes()).unwrap()
    }

    /// Members that have applied the former trust, and members that have applied today's, accept each other's
    /// certificates.
    fn check(&self, authority: &Authority, story: &str) {
        let authorities = authority.services.issuance.authorities();
        let user = self.user(authorities.signer(CaKind::User).unwrap());
        let host = self.host(authorities.signer(CaKind::Host).unwrap());
        let now = OffsetDateTime::now_utc();
        for (whose, trust) in [("today's", authorities.trust()), ("yesterday's", &self.trust)] {
            for (when, user) in [("before", &self.user), ("now", &user)] {
                let known = UserPair::verify(trust, &user.ssh_certificate, &user.tls_certificate_pem, now);
                assert!(known.is_ok(), "{story}: a user certified {when} by {whose} trust: {known:?}");
            }
            for (when, host) in [("before", &self.host), ("now", &host)] {
                let known = trust.identify_tls(host, now);
                assert!(known.is_ok(), "{story}: a host certified {when} by {whose} trust: {known:?}");
            }
        }
    }
}

/// A rotation each to the end, and one back from the middle.
fn plan() -> Vec<(CaKind, Step)> {
    use Phase::{Init, Standby, UpdateClients, UpdateServers};
    let mut plan = Vec::new();
    for kind in [CaKind::User, CaKind::Host] {
        plan.extend([Init, UpdateClients, UpdateServers, Standby].map(|phase| (kind, Step::To(phase))));
        plan.extend([Init, UpdateClients, UpdateServers].map(|phase| (kind, Step::To(phase))));
        plan.push((kind, Step::Rollback));
        plan.push((kind, Step::Mode(Mode::Automatic { grace: Duration::days(100) })));
        plan.push((kind, Step::To(Standby)));
    }
    plan
}

/// Where the two rotations are, in one line.
fn standing(services: &Services) -> String {
    let authorities = services.issuance.authorities();
    let show = |kind| {
        let entry = authorities.entry(kind).unwrap();
        let rotation = entry.state.rotation();
        let pins: Vec<String> = entry.state.trusted().filter_map(pin_of).collect();
        format!("{kind} {} {} {:?} {}", rotation.generation, rotation.phase, rotation.mode, pins.join(","))
    };
    format!("{}; {}", show(CaKind::User), show(CaKind::Host))
}

/// Every step that the audit log tells of.
fn told(services: &Services) -> Vec<String> {
    let mut told = Vec::new();
    let read = services.journal.log().scan(0, &Filter::default(), |record| {
        let event = record.event().unwrap();
        if event.kind.starts_with("ca.rotation") {
            told.push(format!("{} {} {}", event.fields["ca"], event.fields["generation"], event.message));
        }
        ControlFlow::Continue(())
    });
    read.unwrap();
    told
}

async fn nothing_is_left_over(services: &Services, story: &str) {
    let now = OffsetDateTime::now_utc();
    assert!(services.store.list::<AnnouncementRecord>(None, 9, now).await.unwrap().is_empty(), "{story}");
    assert!(services.store.list::<CaAttemptRecord>(None, 9, now).await.unwrap().is_empty(), "{story}");
}

/// A life that begins in `directory`, with steps of the plan `done`.
struct Life {
    authority: Authority,
    mortal: Arc<Mortal>,
    world: World,
    done: usize,
}

impl Life {
    /// Dies at the `n`th write.
    async fn begin(directory: &Path, done: usize, n: usize, after: bool) -> Self {
        let (authority, mortal) = open_mortal(directory, n, after).await;
        let world = World::new(&authority);
        Self { authority, mortal, world, done }
    }

    /// Takes the next step. Where that is its death, another life begins, which dies at its `then`th write.
    async fn step(mut self, directory: &Path, then: usize) -> (Self, bool) {
        let (kind, step) = plan()[self.done];
        let after = self.mortal.after;
        let when = if after { "after" } else { "before" };
        let story = format!("step {}, {kind} {step:?}, dying {when} a write", self.done);
        let before = standing(&self.authority.services);
        let taken = take(&self.authority, kind, step).await;
        if !self.mortal.dead.load(Ordering::SeqCst) {
            taken.unwrap_or_else(|status| panic!("{story}: {status:?}"));
            self.world.check(&self.authority, &story);
            self.world.follow(&self.authority);
            self.done += 1;
            return (self, false);
        }
        // What the dying process still does is no harm either.
        self.world.check(&self.authority, &story);
        kill(self.authority).await;
        (self.authority, self.mortal) = open_mortal(directory, then, after).await;
        self.world.check(&self.authority, &story);
        nothing_is_left_over(&self.authority.services, &story).await;
        // The step happened or it did not; there is nothing in between.
        let now = standing(&self.authority.services);
        let rotation = *self.authority.services.issuance.authorities().entry(kind).unwrap().state.rotation();
        let there = match step {
            Step::To(wanted) => rotation.phase == wanted,
            Step::Rollback => rotation.phase == Phase::Rollback,
            Step::Mode(wanted) => rotation.mode == wanted,
        };
        assert_eq!(there, now != before, "{story}: {before} became {now}");
        if there {
            self.world.follow(&self.authority);
            self.done += 1;
        }
        (self, true)
    }

    /// Each step so far is told of once, and in order.
    fn check_log(&self) {
        let told = told(&self.authority.services);
        assert_eq!(told.len(), self.done, "{told:#?}");
        for (said, (kind, step)) in told.iter().zip(plan()) {
            let to = match step {
                Step::To(phase) => phase.name(),
                Step::Rollback | Step::Mode(_) => "rollback",
            };
            assert!(said.contains(kind.name()) && said.contains(&format!("to {to}")), "{said}");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &name);
        } else {
            std::fs::copy(&path, &name).unwrap();
        }
    }
}

/// Dies in one step at its first write, then in another life at its second, and so on until none is left to die at; gives the
/// number of deaths.
async fn die_at_every_write(start: PathBuf, done: usize, after: bool) -> usize {
    for n in 1.. {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        copy(&start, directory);
        let (mut life, died) = Life::begin(directory, done, n, after).await.step(directory, 0).await;
        if life.done == done {
            (life, _) = life.step(directory, 0).await;
        }
        life.check_log();
        kill(life.authority).await;
        if !died {
            return n - 1;
        }
    }
    unreachable!("a step ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_any_step_leaves_something_that_goes_on() {
    let places = tempfile::tempdir().unwrap();
    let home = places.path().join("home");
    kill(Life::begin(&home, 0, 0, false).await.authority).await;
    let mut dying = tokio::task::JoinSet::new();
    for done in 0..plan().len() {
        // The state before this step, from which each life that dies in it begins.
        let start = places.path().join(done.to_string());
        copy(&home, &start);
        for after in [false, true] {
            dying.spawn(die_at_every_write(start.clone(), done, after));
        }
        let (life, _) = Life::begin(&home, done, 0, false).await.step(&home, 0).await;
        kill(life.authority).await;
    }
    let deaths: usize = dying.join_all().await.into_iter().sum();
    assert!(deaths > 4 * plan().len(), "only {deaths} deaths");
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_one_after_the_other_leave_something_that_goes_on() {
    // Dying at each few writes of every life, the plan is still brought to its end.
    let mut lives = tokio::task::JoinSet::new();
    for (n, then, after) in [(1, 4, false), (2, 5, true), (5, 7, false)] {
        lives.spawn(die_again_and_again(n, then, after));
    }
    lives.join_all().await;
}

async fn die_again_and_again(n: usize, then: usize, after: bool) {
    let directory = tempfile::tempdir().unwrap();
    let mut life = Life::begin(directory.path(), 0, n, after).await;
    let mut deaths = 0;
    while life.done < plan().len() {
        let died;
        (life, died) = life.step(directory.path(), then).await;
        deaths += usize::from(died);
    }
    assert!(deaths > 4, "{deaths}");
    life.check_log();
    for kind in [CaKind::User, CaKind::Host] {
        let rotation = *life.authority.services.issuance.authorities().entry(kind).unwrap().state.rotation();
        assert_eq!((rotation.generation, rotation.phase), (2, Phase::Standby));
    }
    kill(life.authority).await;
}

#[tokio::test]
async fn hosts_from_before_confirmations_are_waited_for_as_long_as_they_may_be_valid() {
    let directory = tempfile::tempdir().unwrap();
    let (authority, _) = open_mortal(directory.path(), 0, false).await;
    let services = &authority.services;
    let request = v1::JoinRequest {
        name: "web-1".to_owned(),
        role: "node".to_owned(),
        ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..v1::JoinRequest::default()
    };
    let id: HostId = authority.issue_host(request).await.unwrap().host_id.parse().unwrap();
    let now = OffsetDateTime::now_utc();
    // As a release without confirmations leaves it.
    services.store.delete::<ConfirmationRecord>(&id.to_string(), None, now).await.unwrap();
    kill(authority).await;
    let (authority, _) = open_mortal(directory.path(), 0, false).await;
    take(&authority, CaKind::User, Step::To(Phase::Init)).await.unwrap();
    let state = authority.services.issuance.authorities().entry(CaKind::User).unwrap().state.clone();
    let behind = authority.services.confirmations.lagging(&state, now).await.unwrap();
    assert_eq!(behind.len(), 1);
    assert!(behind[0].in_words(now).contains("never confirmed anything"), "{}", behind[0].in_words(now));
    // A host of this process that is not heard of is not part of it any more; another's certificates end.
    assert!(
        authority
            .services
            .confirmations
            .lagging(&state, now + Duration::minutes(3))
            .await
            .unwrap()
            .is_empty()
    );
    authority.services.confirmations.confirm(id, BTreeMap::new(), (String::new(), false), now).await.unwrap();
    assert_eq!(
        authority.services.confirmations.lagging(&state, now + Duration::minutes(3)).await.unwrap().len(),
        1
    );
    assert!(
        authority.services.confirmations.lagging(&state, now + Duration::days(8)).await.unwrap().is_empty()
    );
    kill(authority).await;
}

#[test]
fn labels_lose_their_attempt_and_nothing_else() {
    let attempt = Uuid::now_v7();
    assert_eq!(without_attempt(&format!("prod user ca ssh {attempt}")), "prod user ca ssh");
    assert_eq!(without_attempt("prod user ca ssh"), "prod user ca ssh");
    assert_eq!(without_attempt("ssh"), "ssh");
}
