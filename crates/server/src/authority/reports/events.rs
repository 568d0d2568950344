//! What hosts say has happened, within what the authority knows of them: a host speaks of its own sessions, of its own
//! node or database, and of now.

use std::sync::Arc;

use sallyport_access::{DatabaseName, HostId, HostRole, Identity, Kind, NodeName, Principal, SessionId};
use sallyport_audit::{Code, Event};
use sallyport_session::serving::Serving;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::audit::refusals::Who;
use crate::authority::caller::shown;
use crate::authority::catalogue::register::{Catalogue, DatabaseRegister};
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::reports::budgets::Budgets;
use crate::authority::reports::served::ServedSessions;
use crate::authority::sessions::running::LiveSessions;
use crate::member::spool::MAY_NOT_REPORT;

/// The name of events whose code this version does not know.
const UNKNOWN: &str = "unknown";

/// Events in one call.
const MOST_EVENTS: usize = 10_000;
/// A host's clock may be ahead by this.
const FUTURE: time::Duration = time::Duration::minutes(5);
/// Events may have waited on a host's disk for so long.
const PAST: time::Duration = time::Duration::days(7);

/// Codes that hosts of this role see happen. Everything else is the authority's own to say.
fn reported_by(role: HostRole, code: &Code) -> bool {
    // Proxies alone open streams: a node that says so vouches for a session that no proxy has seen.
    if *code == Code::StreamOpened {
        return role == HostRole::Proxy;
    }
    // And agents alone begin and end sessions with what they serve: a proxy that says so makes up a session that no agent has had.
    if about_databases(code) || about_listed(code).is_some() {
        return role == HostRole::Node || seen_in_passing(code);
    }
    seen_in_passing(code)
        || matches!(
            code,
            Code::SessionStart
                | Code::SessionEnd
                | Code::SessionExec
                | Code::SessionSftp
                | Code::SessionPortForward
                | Code::SessionPortForwardEnd
                | Code::SessionListen
                | Code::SessionListenEnd
                | Code::SessionX11Forward
                | Code::SessionAgentForward
                | Code::SessionAgentSigned
                | Code::RecordingFailed
                | Code::RecordingResumed
                | Code::SessionJoined
                | Code::SessionLeft
                | Code::SessionOutlived
                | Code::SessionTerminated
                | Code::CryptoQuarantined
                | Code::CryptoProfileStale
                | Code::CryptoModule
                | Code::AuditLost
                | Code::AuditUnclosed
        )
}

/// What a proxy sees of the nodes that it connects people to.
fn seen_in_passing(code: &Code) -> bool {
    matches!(
        code,
        Code::NodeConnected
            | Code::NodeDisconnected
            | Code::StreamOpened
            | Code::TunnelRefused
            | Code::SessionRefused
            | Code::SessionLost
            | Code::SessionCut
            | Code::DatabaseSessionRefused
            | Code::DatabaseSessionCut
            | Code::DatabaseSessionLost
            | Code::DatabaseCancel
    ) || about_listed(code)
        .and_then(serving)
        .is_some_and(|serving| [&serving.codes.refused, &serving.codes.cut, &serving.lost].contains(&code))
}

/// How agents serve a kind of the catalogue.
fn serving(kind: Kind) -> Option<&'static Serving> {
    sallyport_protocols::row(kind)?.catalogued
}

/// Whether with this event a session with a database or a resource of the catalogue begins.
fn begins(code: &Code) -> bool {
    *code == Code::DatabaseSessionStart
        || about_listed(code).and_then(serving).is_some_and(|serving| serving.codes.start == *code)
}

/// Whether with this event it is over.
fn ends(code: &Code) -> bool {
    *code == Code::DatabaseSessionEnd
        || about_listed(code).and_then(serving).is_some_and(|serving| serving.codes.end == *code)
}

/// The kind of the catalogue that a code is about. Events of sessions with it begin with the kind's name; that a resource was made
/// or changed, only the authority says, by names that no kind has.
fn about_listed(code: &Code) -> Option<Kind> {
    let (document, _) = code.kind().split_once(".session.")?;
    Kind::of_document(document).filter(|kind| kind.is_listed())
}

/// Codes of sessions with databases, which agents see and proxies refuse.
fn about_databases(code: &Code) -> bool {
    matches!(
        code,
        Code::DatabaseSessionStart
            | Code::DatabaseSessionEnd
            | Code::DatabaseSessionRefused
            | Code::DatabaseSessionCut
            | Code::DatabaseSessionLost
            | Code::DatabaseBackendLeft
            | Code::DatabaseQuery
            | Code::DatabaseCopy
            | Code::DatabaseFunctionCall
            | Code::DatabaseMalformed
            | Code::DatabaseCancel
            | Code::DatabaseUserProvisioned
            | Code::DatabaseUserDropped
            | Code::DatabaseUserDeactivated
            | Code::DatabaseUserLeft
    )
}

/// Whether hosts of a later version may have an event of this code, which this version does not know. A letter of another severity makes
/// no other event of a number that is known here, and where only the authority speaks in this version it does so in the next:
/// else a search for `SP10*` or a rule on `SP1000?` would find what any host makes up.
fn may_be_of_later_hosts(code: &str) -> bool {
    let (number, hundred) = (code.get(..6), code.get(..4));
    let hosts_report =
        |code: &Code| [HostRole::Node, HostRole::Proxy].iter().any(|role| reported_by(*role, code));
    let (mut known, mut of_hosts) = (false, false);
    for other in Code::ALL {
        if other.as_str().get(..6) == number {
            return false;
        }
        if other.as_str().get(..4) == hundred {
            known = true;
            of_hosts |= hosts_report(other);
        }
    }
    of_hosts || !known
}

/// Marks an event whose code this version does not know, as a host of a later one sends it: it is kept as it came, and its name
/// is no more than the host's claim.
fn unread(event: &mut Event) {
    let claim = std::mem::replace(&mut event.kind, UNKNOWN.to_owned());
    claimed(event, "kind", claim);
    event.fields.insert("unknown_to".to_owned(), concat!("auth ", env!("CARGO_PKG_VERSION")).into());
}

/// Keeps what a host claimed beside what the authority says.
fn claimed(event: &mut Event, key: &str, claim: String) {
    if !claim.is_empty() {
        event.fields.insert(format!("claimed_{key}"), claim.into());
    }
}

/// Takes what hosts say.
#[derive(Debug)]
pub(crate) struct HostReports {
    journal: Arc<Journal>,
    registry: Arc<HostRegistry>,
    databases: Arc<DatabaseRegister>,
    catalogue: Arc<Catalogue>,
    sessions: Arc<LiveSessions>,
    served: ServedSessions,
    budgets: Budgets,
}

impl HostReports {
    pub(crate) fn new(
        journal: &Arc<Journal>,
        registry: &Arc<HostRegistry>,
        databases: &Arc<DatabaseRegister>,
        catalogue: &Arc<Catalogue>,
        sessions: &Arc<LiveSessions>,
        budgets: Budgets,
    ) -> Arc<Self> {
        Arc::new(Self {
            journal: Arc::clone(journal),
            registry: Arc::clone(registry),
            databases: Arc::clone(databases),
            catalogue: Arc::clone(catalogue),
            sessions: Arc::clone(sessions),
            served: ServedSessions::default(),
            budgets,
        })
    }

    /// Whether a host may report these events now. What it may not is counted, in one event a minute; a host of ours keeps it and sends
    /// it again.
    pub(crate) async fn within_budget(&self, identity: &Identity, texts: &[String]) -> Result<(), Status> {
        let Principal::Host { id, .. } = &identity.principal else { return Ok(()) };
        let now = OffsetDateTime::now_utc();
        if self.budgets.admits(*id, texts, now) {
            return Ok(());
        }
        let name = identity.display_name();
        let event = Event::new(Code::AuditOverBudget, now)
            .user(name.clone())
            .origin("auth")
            .field("host_id", id.to_string())
            .message(format!("{name} reports more events than a host may"));
        self.journal
            .note_caused_times(event, Who::Login(identity.login_id), "", 0, texts.len() as u64)
            .await?;
        Err(Status::resource_exhausted("too many events from this host; they are taken again in a minute"))
    }

    /// Events of a host, stamped with who reported them and when that was heard.
    pub(crate) fn take_events(&self, identity: &Identity, texts: Vec<String>) -> Result<Vec<Event>, Status> {
        if texts.len() > MOST_EVENTS {
            return Err(Status::invalid_argument(format!(
                "{} events in one call, at most {MOST_EVENTS} are allowed",
                texts.len()
            )));
        }
        let Principal::Host { id, role, .. } = &identity.principal else {
            return Err(Status::permission_denied("only hosts report events"));
        };
        let now = OffsetDateTime::now_utc();
        let mut events = Vec::with_capacity(texts.len());
        for text in texts {
            let mut event = Event::from_json(&text)
                .map_err(|error| Status::invalid_argument(format!("this is not an event: {error}")))?;
            match &event.code {
                Code::Unknown(code) if !Code::is_well_formed(code) => {
                    return Err(Status::invalid_argument(format!(
                        "{:?} is no code of an event",
                        shown(code)
                    )));
                }
                code if reported_by(*role, code) => event.kind = code.kind().to_owned(),
                Code::Unknown(code) if may_be_of_later_hosts(code) => unread(&mut event),
                code => {
                    let name = identity.display_name();
                    return Err(Status::permission_denied(format!("{name} {MAY_NOT_REPORT} {code}")));
                }
            }
            event.origin = identity.display_name();
            event.received = Some(now);
            if event.time > now + FUTURE || event.time < now - PAST {
                event.fields.insert("reported_time".to_owned(), event.time.to_string().into());
                event.time = now;
            }
            self.bind_session(*id, &mut event);
            self.bind_node(identity, &mut event);
            events.push(event);
        }
        Ok(events)
    }

    /// Takes another host's session out of an event, and with it who was in it.
    fn bind_session(&self, host: HostId, event: &mut Event) {
        if event.session_id.is_empty() {
            return;
        }
        let session = event.session_id.parse::<SessionId>();
        if session.is_ok_and(|session| self.sessions.is_session_of(host, session)) {
            return;
        }
        for (key, claim) in [
            ("session", std::mem::take(&mut event.session_id)),
            ("user", std::mem::replace(&mut event.user, event.origin.clone())),
            ("login", std::mem::take(&mut event.login)),
            ("source", std::mem::take(&mut event.source)),
        ] {
            claimed(event, key, claim);
        }
    }

    /// A node speaks for itself and for the databases and other resources that it serves; a proxy for the servers whose sessions it records,
    /// and of others it says what it sees in passing.
    fn bind_node(&self, identity: &Identity, event: &mut Event) {
        let Principal::Host { id, name, role } = &identity.principal else { return };
        let about_database = about_databases(&event.code);
        let about_listed = about_listed(&event.code);
        let kind = about_listed.or(about_database.then_some(Kind::Database));
        let serves =
            *role == HostRole::Node && kind.is_some_and(|kind| self.serves_for(identity, *id, kind, event));
        let allowed = match role {
            HostRole::Node => serves,
            _ => {
                event.node.is_empty()
                    || event.node == name.as_str()
                    || (seen_in_passing(&event.code) && is_a_name(&event.node))
                    || (!about_database && about_listed.is_none() && self.registry.is_server(&event.node))
            }
        };
        if allowed {
            return;
        }
        let claim = std::mem::replace(&mut event.node, name.to_string());
        match role {
            HostRole::Node if about_database && !claim.is_empty() => {
                event.fields.insert("database".to_owned(), claim.into());
            }
            HostRole::Node if about_listed.is_some() && !claim.is_empty() => {
                event.fields.insert("resource".to_owned(), claim.into());
            }
            _ if claim != event.node => claimed(event, "node", claim),
            _ => {}
        }
    }

    /// Whether an agent serves the resource that an event is about, or did when the event's session began: a session that ends
    /// because the resource is deleted or another agent's now is on record with that resource to its end.
    fn serves_for(&self, identity: &Identity, id: HostId, kind: Kind, event: &Event) -> bool {
        let serves = self.serves(identity, kind, &event.node);
        // Another host's session is out of the event by now.
        let Ok(session) = event.session_id.parse::<SessionId>() else { return serves };
        if serves && begins(&event.code) {
            self.served.begun(id, session, kind, &event.node);
        }
        let did = serves || self.served.is_with(id, session, kind, &event.node);
        if ends(&event.code) {
            self.served.ended(id, session);
        }
        did
    }

    /// Whether a host is an agent that serves a resource of this kind.
    fn serves(&self, identity: &Identity, kind: Kind, name: &str) -> bool {
        match kind {
            Kind::Database => self.databases.is_served_by(identity, Kind::Database, name),
            kind => self.catalogue.is_served_by(identity, kind, name),
        }
    }

    /// The same of a recording, whose host has written who was where.
    pub(crate) fn bind_recorded(&self, identity: &Identity, kind: &str, event: &mut Event) {
        let Principal::Host { name, role, .. } = &identity.principal else { return };
        let own = event.node == name.as_str();
        let allowed = match role {
            HostRole::Node => {
                own || Kind::of_document(kind).is_some_and(|kind| self.serves(identity, kind, &event.node))
            }
            _ => own || self.registry.is_server(&event.node),
        };
        if !allowed {
            let claim = std::mem::replace(&mut event.node, name.to_string());
            claimed(event, "node", claim);
        }
    }
}

fn is_a_name(text: &str) -> bool {
    NodeName::new(text).is_ok() || DatabaseName::new(text).is_ok()
}
