//! What happened, as one typed record.

mod codes;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use uuid::Uuid;

use codes::codes;

/// How much an event should worry an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Info,
    /// Refused, or worth a look.
    Warning,
    /// Something is broken or lost.
    Error,
}

codes! {
    /// A user proved who they are and got certificates.
    UserLogin = "SP1000I", "user.login";
    /// A login was refused: wrong password or code, unknown or locked user.
    UserLoginFailed = "SP1000W", "user.login_failed";
    /// Too many failed logins: the account is closed for a while.
    UserLockedOut = "SP1001W", "user.locked_out";
    /// A user was added.
    UserCreated = "SP1002I", "user.created";
    /// A user's roles or traits were changed.
    UserUpdated = "SP1003I", "user.updated";
    /// A user was removed.
    UserDeleted = "SP1004I", "user.deleted";
    /// A user's credentials were taken away and a link for new ones was made.
    UserReset = "SP1005I", "user.reset";
    /// An invite or reset link was opened.
    InviteOpened = "SP1006I", "user.invite_opened";
    /// An invite or reset link was used to set credentials.
    InviteAccepted = "SP1007I", "user.invite_accepted";
    /// An invite or reset link was wrong, stale or used before.
    InviteRefused = "SP1007W", "user.invite_refused";
    /// A client asked what this cluster is, before logging in.
    Pinged = "SP1008I", "cluster.pinged";
    /// A user changed their password; their other logins ended.
    PasswordChanged = "SP1009I", "user.password_changed";
    /// A user added a factor.
    FactorAdded = "SP1010I", "user.factor_added";
    /// A user removed a factor.
    FactorRemoved = "SP1011I", "user.factor_removed";
    /// A user had recovery codes made; those from before are void.
    RecoveryCodesMade = "SP1012I", "user.recovery_codes_made";
    /// A recovery code was used, and is void.
    RecoveryCodeUsed = "SP1013W", "user.recovery_code_used";
    /// Something was begun that a person has to prove at a page: a login, a change of factors, or sessions.
    ChallengeBegun = "SP1014I", "user.challenge_begun";
    /// A person proved at a page what was asked for.
    ChallengeProven = "SP1015I", "user.challenge_proven";
    /// A proof was refused, or what was to be proven has ended: a wrong person, factor, code or verifier, or it was refused at the page.
    ChallengeRefused = "SP1015W", "user.challenge_refused";
    /// A local user was linked with a person of an identity provider, and logs in as that person, too.
    UserLinked = "SP1016I", "user.linked";
    /// The link of a local user with a person of an identity provider ended, and the logins that came by it.
    UserUnlinked = "SP1017I", "user.unlinked";
    /// A login was ended before its time: its user logged out or ended it from another, or an administrator did.
    LoginEnded = "SP1040I", "login.ended";
    /// A login, new certificates for one, or a user's first factor by single sign-on, was refused by a login rule.
    LoginDenied = "SP1041W", "login.denied";
    /// A login rule was made or changed.
    LoginRuleSet = "SP1042I", "login_rule.set";
    /// A login rule was removed.
    LoginRuleDeleted = "SP1043I", "login_rule.deleted";

    /// A person logged in at an identity provider, and has a user here.
    SsoLogin = "SP1050I", "sso.login";
    /// A person's way through an identity provider gave no login: the reason stands in it, and what each rule of the mapping came to.
    SsoRefused = "SP1050W", "sso.refused";
    /// A login was sent to an identity provider.
    SsoBegun = "SP1051I", "sso.begun";
    /// An identity provider told that a person has logged out there: their logins here ended.
    SsoLogout = "SP1052I", "sso.logout";
    /// What was told of a logout was not taken: it is not the identity provider's, or was taken before.
    SsoLogoutRefused = "SP1052W", "sso.logout_refused";
    /// An administrator tried a connector with a login of theirs; nothing of it was kept.
    SsoTested = "SP1053I", "sso.tested";
    /// An identity provider stands by a login no more, or gave no answer within the connector's grace: the login ended.
    SsoLoginEnded = "SP1054W", "sso.login_ended";
    /// An identity provider gave no answer about a login that can be used: it is asked again until the connector's grace is over.
    SsoUnanswered = "SP1055W", "sso.unanswered";

    /// A token for a SCIM client was made.
    ScimTokenCreated = "SP1060I", "scim.token_created";
    /// A token of a SCIM client was removed.
    ScimTokenDeleted = "SP1061I", "scim.token_deleted";
    /// A SCIM client made, changed or removed a user or group of its own.
    ScimChanged = "SP1062I", "scim.changed";
    /// A SCIM client said that a user is not active, or removed the user: the user here was removed, and the logins ended.
    ScimDeprovisioned = "SP1063I", "scim.deprovisioned";
    /// A request came as of a SCIM client, with no token that is good.
    ScimRefused = "SP1064W", "scim.refused";
    /// A SCIM client took a user out of a group that gave roles or traits: these are gone, and the logins ended.
    ScimRolesTaken = "SP1065I", "scim.roles_taken";

    /// A device was enrolled with a token.
    DeviceEnrolled = "SP1070I", "device.enrolled";
    /// A user asked for a device to be enrolled; it waits for an administrator.
    DeviceAsked = "SP1071I", "device.asked";
    /// A device was not enrolled.
    DeviceRefused = "SP1070W", "device.refused";
    /// It was said whose a device is; one that waited is admitted.
    DeviceAssigned = "SP1072I", "device.assigned";
    /// A device was removed, and the logins from it with it.
    DeviceRemoved = "SP1073I", "device.removed";
    /// A token was made with which one device is enrolled.
    DeviceTokenCreated = "SP1074I", "device.token_created";
    /// A token for a device was ended before it was used.
    DeviceTokenDeleted = "SP1075I", "device.token_deleted";

    /// An administrator proved a factor for dangerous acts of one login, from one address, within five minutes.
    AdminFactorProven = "SP1090I", "admin.factor_proven";
    /// A dangerous act was refused until its administrator proves a factor.
    AdminFactorDemanded = "SP1090W", "admin.factor_demanded";
    /// A dangerous act of an administrator who has no factor to prove was let in.
    AdminActUnproven = "SP1091W", "admin.act_unproven";
    /// A dangerous act came by the authority's socket on its own machine, where no factor is asked for.
    AdminActLocal = "SP1092I", "admin.act_local";

    /// A certificate was issued to a user.
    CertIssued = "SP1100I", "cert.issued";
    /// Certificates were issued to a host.
    HostCertIssued = "SP1101I", "cert.host_issued";
    /// A certificate or token was made by hand, for a user or host that cannot ask for it.
    CertSigned = "SP1102I", "cert.signed";
    /// A certificate was denied, and its holder with it.
    CertDenied = "SP1103I", "cert.denied";

    /// A role was created.
    RoleCreated = "SP1200I", "role.created";
    /// A role was changed.
    RoleUpdated = "SP1201I", "role.updated";
    /// A role was deleted.
    RoleDeleted = "SP1202I", "role.deleted";
    /// A lock was created.
    LockCreated = "SP1210I", "lock.created";
    /// A lock was changed.
    LockUpdated = "SP1211I", "lock.updated";
    /// A lock was lifted.
    LockDeleted = "SP1212I", "lock.deleted";
    /// The cluster's session policy was made or changed.
    SessionPolicySet = "SP1215I", "session_policy.set";
    /// The cluster's session policy was removed: only roles and defaults count.
    SessionPolicyDeleted = "SP1216I", "session_policy.deleted";
    /// A connector of single sign-on was created.
    ConnectorCreated = "SP1217I", "oidc.created";
    /// A connector of single sign-on was changed.
    ConnectorUpdated = "SP1218I", "oidc.updated";
    /// A connector of single sign-on was deleted.
    ConnectorDeleted = "SP1219I", "oidc.deleted";
    /// A join token was made.
    TokenCreated = "SP1220I", "token.created";
    /// A join token was withdrawn.
    TokenDeleted = "SP1221I", "token.deleted";
    /// A node was removed from the inventory.
    NodeDeleted = "SP1240I", "node.deleted";
    /// A stock OpenSSH server was registered.
    NodeCreated = "SP1241I", "node.created";
    /// What is registered of a stock OpenSSH server was changed.
    NodeUpdated = "SP1242I", "node.updated";
    /// A database was written by an administrator, or reported by an agent.
    DatabaseCreated = "SP1280I", "db.created";
    /// What is written of a database was changed, or which agents serve it.
    DatabaseUpdated = "SP1281I", "db.updated";
    /// A database was removed, or is no longer reported by any agent.
    DatabaseDeleted = "SP1282I", "db.deleted";
    /// A database that an agent reported was not taken.
    DatabaseReportRefused = "SP1283W", "db.report_refused";
    /// A resource of the catalogue was written by an administrator, or reported by an agent.
    ResourceCreated = "SP1290I", "resource.created";
    /// What is written of a resource of the catalogue was changed, or which agents serve it.
    ResourceUpdated = "SP1291I", "resource.updated";
    /// A resource of the catalogue was removed, or is no longer reported by any agent.
    ResourceDeleted = "SP1292I", "resource.deleted";
    /// A resource of the catalogue that an agent reported was not taken.
    ResourceReportRefused = "SP1293W", "resource.report_refused";

    /// The public half of a certificate authority was exported.
    CaExported = "SP1250I", "ca.exported";
    /// The rotation of a certificate authority began: a new one is trusted and signs nothing yet.
    CaRotationBegun = "SP1260I", "ca.rotation_begun";
    /// The rotation of a certificate authority went on to its next phase.
    CaRotationAdvanced = "SP1261I", "ca.rotation_advanced";
    /// The rotation of a certificate authority ended: one of the two is no longer trusted.
    CaRotationFinished = "SP1262I", "ca.rotation_finished";
    /// The rotation of a certificate authority was rolled back: the old one signs again.
    CaRotationRolledBack = "SP1263W", "ca.rotation_rolled_back";
    /// An automatic rotation is due and waits for hosts that have not confirmed its phase.
    CaRotationWaiting = "SP1264W", "ca.rotation_waiting";
    /// The rotation of a certificate authority was made automatic or manual.
    CaRotationMode = "SP1265I", "ca.rotation_mode";
    /// A host confirmed which trust it has applied.
    CaConfirmed = "SP1266I", "ca.confirmed";

    /// The cluster's suite was changed: which algorithms serve which purpose.
    SuiteChanged = "SP1270I", "suite.changed";

    /// A host joined with a token.
    NodeJoined = "SP1300I", "node.joined";
    /// A host took the place of another, by a token made for that: the other one is locked.
    NodeReplaced = "SP1303I", "node.replaced";
    /// A join was refused: the token is wrong, stale, spent, or for another role or other names, or the host means another cluster.
    JoinRefused = "SP1300W", "node.join_refused";
    /// Several hosts have one name, since they joined when names could be shared. Said at each start of the authority.
    NameShared = "SP1304W", "node.name_shared";
    /// A node's tunnel came up.
    NodeConnected = "SP1301I", "node.connected";
    /// A node's tunnel went away.
    NodeDisconnected = "SP1302I", "node.disconnected";
    /// A node opens tunnels more often, or has more of them, than a proxy serves.
    TunnelRefused = "SP1302W", "node.tunnel_refused";

    /// A session began.
    SessionStart = "SP2000I", "session.start";
    /// A session ended.
    SessionEnd = "SP2001I", "session.end";
    /// A command was run.
    SessionExec = "SP2002I", "session.exec";
    /// A file operation over SFTP.
    SessionSftp = "SP2003I", "session.sftp";
    /// A port or socket was forwarded.
    SessionPortForward = "SP2004I", "session.port_forward";
    /// The client's ssh-agent was made reachable from a session.
    SessionAgentForward = "SP2005I", "session.agent_forward";
    /// A session, or something inside one, was refused.
    SessionRefused = "SP2006W", "session.refused";
    /// The way to a session was lost before its end.
    SessionLost = "SP2007W", "session.lost";
    /// A session was cut off: a lock, an idle limit, a recording that failed.
    SessionCut = "SP2008W", "session.cut";
    /// The user's own key signed the login of a proxy that records, on the server.
    SessionAgentSigned = "SP2009I", "session.agent_signed";
    /// A proxy opened a stream to a node, a server, or an agent of a database.
    StreamOpened = "SP2012I", "stream.opened";
    /// A forwarded connection ended.
    SessionPortForwardEnd = "SP2020I", "session.port_forward_end";
    /// A node began to listen on a port or socket for a client (`ssh -R`).
    SessionListen = "SP2021I", "session.listen";
    /// A node listens no more on a port or socket for a client.
    SessionListenEnd = "SP2022I", "session.listen_end";
    /// The client's X11 display was made reachable from a session.
    SessionX11Forward = "SP2023I", "session.x11_forward";
    /// A user ended a session.
    SessionTerminated = "SP2030I", "session.terminated";
    /// A user joined another user's session.
    SessionJoined = "SP2031I", "session.joined";
    /// A user who had joined a session left it.
    SessionLeft = "SP2032I", "session.left";
    /// What a session ran goes on, or may: it was cut or its client has gone, and the node has found processes of it (`processes`, at
    /// most 16, and `processes_more`), or a registered server has not said that its process ended.
    SessionOutlived = "SP2033W", "session.outlived";

    /// A session with a database began.
    DatabaseSessionStart = "SP2200I", "db.session.start";
    /// A session with a database ended.
    DatabaseSessionEnd = "SP2201I", "db.session.end";
    /// A session with a database was refused: by a role, a lock or a limit, or because it cannot be recorded.
    DatabaseSessionRefused = "SP2202W", "db.session.refused";
    /// A session with a database was cut off: a lock, an idle limit, a recording that failed.
    DatabaseSessionCut = "SP2203W", "db.session.cut";
    /// A database could not be reached, did not take the login, or was lost before the session's end.
    DatabaseSessionLost = "SP2204W", "db.session.lost";
    /// The authority let an agent begin a session that a proxy opened for a client whose TLS ends at the proxy.
    DatabaseSessionPermitted = "SP2205I", "db.session.permitted";
    /// The process of a session that is over goes on at the database: it was cancelled and terminated, and has not ended.
    DatabaseBackendLeft = "SP2206W", "db.backend.left";
    /// A statement was run in a database, or tried.
    DatabaseQuery = "SP2210I", "db.query";
    /// Data was copied into or out of a database.
    DatabaseCopy = "SP2211I", "db.copy";
    /// A function of a database was called by its number.
    DatabaseFunctionCall = "SP2212I", "db.function_call";
    /// What came in a session with a database is not its protocol. Nothing of it was passed on.
    DatabaseMalformed = "SP2213W", "db.malformed";
    /// A client asked to have its statement cancelled.
    DatabaseCancel = "SP2214I", "db.cancel";
    /// A database user was made or opened for a user, with the database's roles that the roles here give.
    DatabaseUserProvisioned = "SP2220I", "db.user.provisioned";
    /// A database user whose last session has ended was dropped.
    DatabaseUserDropped = "SP2221I", "db.user.dropped";
    /// A database user whose last session has ended was closed to logins.
    DatabaseUserDeactivated = "SP2222I", "db.user.deactivated";
    /// A database user could not be dropped or closed to logins when their last session ended.
    DatabaseUserLeft = "SP2223W", "db.user.left";

    /// A session with an application began.
    AppSessionStart = "SP2300I", "app.session.start";
    /// A session with an application ended.
    AppSessionEnd = "SP2301I", "app.session.end";
    /// A session with an application was refused: by a role, a lock or a limit, or because the application was not reached.
    AppSessionRefused = "SP2302W", "app.session.refused";
    /// A session with an application was cut off: a lock, the roles, a limit, an administrator.
    AppSessionCut = "SP2303W", "app.session.cut";
    /// A proxy lost the way to the agent of an application before the session's end.
    AppSessionLost = "SP2304W", "app.session.lost";

    /// The authority has the whole recording of a session.
    RecordingUploaded = "SP2100I", "recording.uploaded";
    /// A recording ended without its end: the node or its process was lost.
    RecordingInterrupted = "SP2101W", "recording.interrupted";
    /// Parts of a recording cannot be read.
    RecordingDamaged = "SP2102E", "recording.damaged";
    /// A session goes on without being recorded, or was not recorded for a while.
    RecordingFailed = "SP2103E", "recording.failed";
    /// A user played a recording.
    RecordingPlayed = "SP2104I", "recording.played";
    /// A recording that had failed goes on.
    RecordingResumed = "SP2105I", "recording.resumed";
    /// A recording was removed: by a user, or because it was older than the session policy keeps them.
    RecordingRemoved = "SP2106I", "recording.removed";
    /// A recording is kept until it is released, whatever its age.
    RecordingHeld = "SP2107I", "recording.held";
    /// A recording is no longer kept from being removed.
    RecordingReleased = "SP2108I", "recording.released";

    /// A method of the API that only reads was used.
    ApiCalled = "SP3000I", "api.called";
    /// A call of the API was refused.
    ApiRefused = "SP3001W", "api.refused";
    /// The audit log was checked.
    AuditVerified = "SP3100I", "audit.verified";
    /// The audit log was checked and found broken.
    AuditBroken = "SP3101E", "audit.broken";
    /// After a crash the end of the audit log was mended.
    AuditRepaired = "SP3102W", "audit.repaired";
    /// The audit log could not be written for a while, and what was asked for then was refused. It can be again.
    AuditResumed = "SP3103W", "audit.resumed";
    /// Events of a host are missing from here: it could not keep them, or the authority does not take them.
    AuditLost = "SP3104E", "audit.lost";
    /// A host's process was killed, or its machine went: events of its last moment may be missing from here.
    AuditUnclosed = "SP3105W", "audit.unclosed";
    /// The audit log was not the one that the authority had written: it was set aside, and a new one was begun.
    AuditBegunAnew = "SP3110E", "audit.begun_anew";
    /// A host reported more events than it may: so many were not taken.
    AuditOverBudget = "SP3111W", "audit.over_budget";
    /// A place where checkpoints of the audit log are to be kept takes them again.
    CheckpointTaken = "SP3112I", "audit.checkpoint_taken";
    /// A place where checkpoints of the audit log are to be kept does not take them.
    CheckpointNotTaken = "SP3112W", "audit.checkpoint_not_taken";
    /// The authority started.
    AuthStarted = "SP3200I", "auth.started";
    /// The authority stopped.
    AuthStopped = "SP3201I", "auth.stopped";
    /// The authority's disk has little room: it takes no recordings, which wait where they were made.
    DiskShort = "SP3202E", "auth.disk_short";
    /// The authority's disk has room again, and it takes recordings.
    DiskRoom = "SP3202I", "auth.disk_room";

    /// A source of cryptography gave a wrong answer or broke, and is out of service for a primitive.
    CryptoQuarantined = "SP3300E", "crypto.quarantined";
    /// The measured profile is not of this build and machine; the built-in order of sources is used.
    CryptoProfileStale = "SP3301W", "crypto.profile_stale";
    /// A service takes its cryptography from the FIPS module, whose self-tests have passed.
    CryptoModule = "SP3302I", "crypto.module";
}

impl Code {
    /// Whether a text has the form of a code, of whatever version: `SP`, four digits and the letter of a severity.
    #[must_use]
    pub fn is_well_formed(text: &str) -> bool {
        matches!(text.as_bytes(), [b'S', b'P', digits @ .., b'I' | b'W' | b'E']
            if digits.len() == 4 && digits.iter().all(u8::is_ascii_digit))
    }

    /// How much the event should worry an operator.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.as_str().as_bytes().last() {
            Some(b'W') => Severity::Warning,
            Some(b'E') => Severity::Error,
            _ => Severity::Info,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::parse(&text))
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Unique and time-ordered: an event that is delivered twice is written once.
    pub id: Uuid,
    /// When it happened, by the clock of the host that saw it.
    #[serde(with = "time::serde::rfc3339")]
    pub time: OffsetDateTime,
    /// What.
    pub code: Code,
    /// The dotted name of the code.
    pub kind: String,
    /// Who did it: a user, or a host such as `node:web-1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// As which account.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub login: String,
    /// On which node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// In which session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_id: String,
    /// From which address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The host that reported it; the authority sets it from the host's certificate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// When the authority heard of it, for what a host reported.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub received: Option<OffsetDateTime>,
    /// In words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What else belongs to it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
}

impl Event {
    /// An event of this code, now.
    #[must_use]
    pub fn new(code: Code, now: OffsetDateTime) -> Self {
        Self {
            id: Uuid::now_v7(),
            time: now,
            kind: code.kind().to_owned(),
            code,
            user: String::new(),
            login: String::new(),
            node: String::new(),
            session_id: String::new(),
            source: String::new(),
            origin: String::new(),
            received: None,
            message: String::new(),
            fields: Map::new(),
        }
    }

    /// Who did it.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// As which account.
    #[must_use]
    pub fn login(mut self, login: impl Into<String>) -> Self {
        self.login = login.into();
        self
    }

    /// On which node.
    #[must_use]
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.node = node.into();
        self
    }

    /// In which session.
    #[must_use]
    pub fn session(mut self, session: impl fmt::Display) -> Self {
        self.session_id = session.to_string();
        self
    }

    /// From which address.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Says that the address is what a proxy told the host that reports it, which cannot see it itself.
    #[must_use]
    pub fn source_by_proxy(self) -> Self {
        self.field(SOURCE_BY, "proxy")
    }

    /// What it is known by when it is delivered again. An id is its host's to choose, so that it counts for that host alone.
    #[must_use]
    pub fn delivery(&self) -> Uuid {
        let mut named = self.origin.clone().into_bytes();
        named.push(0);
        named.extend_from_slice(self.id.as_bytes());
        let digest = sallyport_sal::hash::sha256(&named);
        digest.first_chunk().map_or(self.id, |first| Uuid::from_bytes(*first))
    }

    /// The host that reports it.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origin = origin.into();
        self
    }

    /// In words.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Something else that belongs to it. Never a secret.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// As one line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and maps with string keys always encode.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON.
    ///
    /// # Errors
    /// What is not an event.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Takes events. Emitting never waits: an implementation bounds what it keeps and says in its own documentation what
/// happens past the bound.
pub trait Sink: Send + Sync + fmt::Debug {
    /// Takes one.
    fn emit(&self, event: Event);
}

/// The field that says whose word an event's source is, where it is not that of the host that reports it.
pub const SOURCE_BY: &str = "source_by";

/// Keeps events in memory, for tests and for tools.
#[derive(Debug, Default)]
pub struct MemorySink(parking_lot::Mutex<Vec<Event>>);

impl MemorySink {
    /// Every event so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().clone()
    }
}

impl Sink for MemorySink {
    fn emit(&self, event: Event) {
        self.0.lock().push(event);
    }
}

#[cfg(test)]
mod tests;
