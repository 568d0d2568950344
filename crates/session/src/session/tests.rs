use std::sync::atomic::{AtomicBool, Ordering};

use sallyport_access::{
    HostId, Labels, Login, Node, NodeKind, NodeName, Policies, Principal, RecordPolicy, RecordingMode, Role,
    RoleName, UserName,
};
use sallyport_audit::event::MemorySink;
use sallyport_sal::hpke::{Kem, RecipientKeys};
use tempfile::TempDir;
use tokio::sync::watch::{self, Receiver};
use uuid::Uuid;

use super::*;
use crate::about::tests::about;
use crate::stop::Denied;

const STOPPING: &str = "the agent is being stopped; connect again";

/// A host, and whether its sessions are locked out.
struct Stand {
    host: Host,
    sink: Arc<MemorySink>,
    live: LiveSessions,
    locked: AtomicBool,
    changes: watch::Sender<u64>,
    directory: TempDir,
}

impl Watched for Stand {
    fn changes(&self) -> Receiver<u64> {
        self.changes.subscribe()
    }

    fn denied(&self, _: OffsetDateTime) -> Option<Denied> {
        self.locked.load(Ordering::Relaxed).then(|| Denied::new("alice is locked"))
    }
}

impl Stand {
    fn new() -> Self {
        let (sink, live, directory) =
            (Arc::new(MemorySink::default()), LiveSessions::default(), tempfile::tempdir().unwrap());
        let keys = RecipientKeys::generate(Kem::X25519).unwrap();
        let recorders = Recorders::open(&directory.path().join("spool"), keys.public()).unwrap();
        let host = Host::new(sink.clone(), recorders, live.clone(), "agent", STOPPING);
        Self { host, sink, live, locked: AtomicBool::new(false), changes: watch::channel(0).0, directory }
    }

    /// Why and where the last session was refused, as its event says.
    fn refused(&self) -> (String, String) {
        let events = self.sink.events();
        let last = events.iter().rfind(|event| event.code == Code::SessionRefused).unwrap();
        let said = |key: &str| last.fields[key].as_str().unwrap().to_owned();
        (said("reason"), said("at"))
    }

    async fn begin(&self, options: &str, how: How) -> Result<Session, NotBegun> {
        let (alice, permit) = permit(options);
        Session::begin(&self.host, &permit, about(), &alice, codes(), how).await
    }

    fn told(&self) -> Vec<(Code, String)> {
        self.sink.events().into_iter().map(|event| (event.code, event.message)).collect()
    }
}

fn codes() -> Codes {
    Codes {
        start: Code::SessionStart,
        end: Code::SessionEnd,
        refused: Code::SessionRefused,
        cut: Code::SessionCut,
    }
}

/// Alice, and her permit for a node with such options of her role.
fn permit(options: &str) -> (Identity, Permit<Node>) {
    let now = OffsetDateTime::now_utc();
    let alice = Identity {
        principal: Principal::User {
            name: UserName::new("alice").unwrap(),
            roles: vec![RoleName::new("dev").unwrap()],
            logins: Vec::new(),
            traits: Default::default(),
        },
        login_id: Uuid::nil(),
        device: None,
        pinned_to: None,
        valid_after: now - time::Duration::HOUR,
        valid_before: now + time::Duration::HOUR,
    };
    let spec = format!("{{allow: {{logins: [root], node_labels: {{'*': '*'}}}}, options: {{{options}}}}}");
    let yaml = format!("kind: role\nversion: v1\nmetadata: {{name: dev}}\nspec: {spec}\n");
    let role = Role::parse(&yaml).unwrap_or_else(|errors| panic!("{errors}"));
    let node = Node {
        id: HostId::new(),
        name: NodeName::new("web-1").unwrap(),
        labels: Labels::default(),
        kind: NodeKind::Sallyport,
    };
    let policies = Policies::compile(&[role]).unwrap();
    let permit = policies.decide(&alice, &node, &Login::new("root").unwrap(), &[], now).unwrap();
    (alice, permit)
}

#[tokio::test]
async fn a_session_is_listed_recorded_and_told_of_from_its_beginning_to_its_end() {
    let stand = Stand::new();
    let how = How { policy: RecordPolicy::Strict, mode: RecordingMode::default(), counted: "bytes" };
    let session = stand.begin("", how).await.unwrap();
    session.started(|event| event.field("address", "10.0.0.5:80"));
    let listed = stand.live.list();
    assert_eq!((listed.len(), listed[0].recording, stand.host.sessions()), (1, "node", 1));
    assert_eq!(listed[0].about.session_id, session.id());
    session.activity().note();
    let counts = Counts { bytes_in: 3, bytes_out: 5 };
    session.end(End::Done("the client closed the connection".to_owned()), counts).await;
    let events = stand.sink.events();
    let [start, end] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&start.code, &start.fields["address"]), (&Code::SessionStart, &"10.0.0.5:80".into()));
    assert!(start.fields["rule"].as_str().unwrap().contains("dev"), "{start:?}");
    assert_eq!((&end.code, end.message.as_str()), (&Code::SessionEnd, "the client closed the connection"));
    assert_eq!((&end.fields["bytes_in"], &end.fields["bytes_out"]), (&3.into(), &5.into()));
    assert!(end.fields["duration_ms"].is_u64());
    assert!(stand.live.list().is_empty() && stand.host.sessions() == 0);
    let recordings = std::fs::read_dir(stand.directory.path().join("spool")).unwrap().count();
    assert_eq!(recordings, 1);
}

#[tokio::test]
async fn a_lock_an_administrator_and_silence_end_it_and_an_event_says_so() {
    let stand = Stand::new();
    let locked = stand.begin("", How::events_alone()).await.unwrap();
    assert_eq!(stand.live.list()[0].recording, "off");
    let lock = async {
        stand.locked.store(true, Ordering::Relaxed);
        stand.changes.send_modify(|count| *count += 1);
    };
    let (stop, ()) = tokio::join!(locked.stopped(&stand), lock);
    locked.end(End::Stopped(stop), Counts::default()).await;
    stand.locked.store(false, Ordering::Relaxed);
    let ended = stand.begin("", How::events_alone()).await.unwrap();
    assert!(stand.live.end(&ended.id(), "maintenance"));
    let stop = ended.stopped(&stand).await;
    assert!(!ended.stop(Stop::Ended("late".to_owned())));
    ended.end(End::Stopped(stop), Counts::default()).await;
    tokio::time::pause();
    let idle = stand.begin("client_idle_timeout: 1m", How::events_alone()).await.unwrap();
    let stop = idle.stopped(&stand).await;
    idle.end(End::Stopped(stop), Counts::default()).await;
    let words = ["alice is locked", "maintenance", "the client was silent for 1 min"];
    let told: Vec<_> = words
        .iter()
        .flat_map(|words| [Code::SessionCut, Code::SessionEnd].map(|code| (code, (*words).to_owned())))
        .collect();
    assert_eq!(stand.told(), told);
}

#[tokio::test(start_paused = true)]
async fn a_drain_begins_nothing_and_ends_what_is_left() {
    let stand = Stand::new();
    let session = stand.begin("", How::events_alone()).await.unwrap();
    let served = async {
        let stop = session.stopped(&stand).await;
        assert_eq!(stop, Stop::Draining(STOPPING));
        session.end(End::Stopped(stop), Counts::default()).await;
    };
    let (drained, ()) = tokio::join!(stand.host.drain(Duration::from_secs(60)), served);
    assert!(drained && stand.host.sessions() == 0);
    let refused = stand.begin("", How::events_alone()).await.unwrap_err();
    assert_eq!(refused.to_string(), STOPPING);
    assert_eq!(stand.refused(), ("draining".to_owned(), "agent".to_owned()));
    let codes: Vec<_> = stand.told().into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, [Code::SessionCut, Code::SessionEnd, Code::SessionRefused]);
}

#[tokio::test]
async fn a_session_that_cannot_be_recorded_as_it_has_to_be_does_not_begin() {
    let stand = Stand::new();
    std::fs::remove_dir_all(stand.directory.path().join("spool")).unwrap();
    let how = How { policy: RecordPolicy::Strict, mode: RecordingMode::default(), counted: "bytes" };
    let refused = stand.begin("", how).await.unwrap_err();
    assert_eq!(refused, NotBegun::Unrecordable(Unrecordable));
    assert!(stand.live.list().is_empty() && stand.host.sessions() == 0);
    let told = stand.told();
    assert_eq!((&told[0].0, &told[1].0), (&Code::RecordingFailed, &Code::SessionRefused));
    assert_eq!(told[1].1, refused.to_string());
    assert_eq!(stand.refused(), ("unrecordable".to_owned(), "agent".to_owned()));
}
