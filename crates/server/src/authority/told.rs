//! What hosts say has happened, within what the authority knows of them: a host speaks of its own sessions, of its own
//! node or database, and of now.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use sallyport_access::{DatabaseName, HostId, HostRole, Identity, NodeName, Principal, SessionId};
use sallyport_audit::{Code, Event};
use time::OffsetDateTime;
use tonic::Status;

use super::Inner;

/// Events in one call.
const MOST_EVENTS: usize = 10_000;
/// A host's clock may be ahead by this.
const FUTURE: time::Duration = time::Duration::minutes(5);
/// Events may have waited on a host's disk for so long.
const PAST: time::Duration = time::Duration::days(7);
/// Sessions whose ids do not name their host, as those of earlier releases, that are remembered with their host.
const MOST_BOUND: usize = 100_000;

/// Which host a session belongs to, where its id does not say so: the first that reported it.
#[derive(Debug, Default)]
pub(super) struct Bindings(Mutex<Bound>);

#[derive(Debug, Default)]
struct Bound {
    of: HashMap<SessionId, HostId>,
    order: VecDeque<SessionId>,
}

impl Bindings {
    /// The host that reported a session first: this one, unless another has.
    fn first(&self, session: SessionId, host: HostId) -> HostId {
        let mut bound = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = bound.of.get(&session) {
            return *first;
        }
        if bound.order.len() >= MOST_BOUND
            && let Some(oldest) = bound.order.pop_front()
        {
            bound.of.remove(&oldest);
        }
        bound.of.insert(session, host);
        bound.order.push_back(session);
        host
    }
}

/// Codes that hosts of this role see happen. Everything else is the authority's own to say.
fn reported_by(role: HostRole, code: &Code) -> bool {
    // Proxies alone open streams: a node that says so vouches for a session that no proxy has seen.
    if *code == Code::StreamOpened {
        return role == HostRole::Proxy;
    }
    seen_in_passing(code)
        || about_databases(code)
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
    )
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

/// Keeps what a host claimed beside what the authority says.
fn claimed(event: &mut Event, key: &str, claim: String) {
    if !claim.is_empty() {
        event.fields.insert(format!("claimed_{key}"), claim.into());
    }
}

impl Inner {
    /// Whether a session is this host's. An id that was made on a host names it; any other belongs to the first host that
    /// speaks of it.
    pub(super) fn is_session_of(&self, host: HostId, session: SessionId) -> bool {
        if session.is_on(&host) {
            return true;
        }
        if self.names.host_of(&session).is_some() || self.live.is_elsewhere(&session, host) {
            return false;
        }
        self.bindings.first(session, host) == host
    }

    /// Events of a host, stamped with who reported them and when that was heard.
    pub(super) fn take_events(&self, identity: &Identity, texts: Vec<String>) -> Result<Vec<Event>, Status> {
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
            if !reported_by(*role, &event.code) {
                return Err(Status::permission_denied(format!(
                    "{} may not report {}",
                    identity.display_name(),
                    event.code
                )));
            }
            event.kind = event.code.kind().to_owned();
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
        if session.is_ok_and(|session| self.is_session_of(host, session)) {
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

    /// A node speaks for itself and for the databases that it serves; a proxy for the servers whose sessions it records,
    /// and of others it says what it sees in passing.
    fn bind_node(&self, identity: &Identity, event: &mut Event) {
        let Principal::Host { name, role, .. } = &identity.principal else { return };
        let about_database = about_databases(&event.code);
        let allowed = match role {
            HostRole::Node => about_database && self.serves_database(identity, &event.node),
            _ => {
                event.node.is_empty()
                    || event.node == name.as_str()
                    || (seen_in_passing(&event.code) && is_a_name(&event.node))
                    || (!about_database && self.is_server(&event.node))
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
            _ if claim != event.node => claimed(event, "node", claim),
            _ => {}
        }
    }

    /// The same of a recording, whose host has written who was where.
    pub(super) fn bind_recorded(&self, identity: &Identity, kind: &str, event: &mut Event) {
        let Principal::Host { name, role, .. } = &identity.principal else { return };
        let own = event.node == name.as_str();
        let allowed = match role {
            HostRole::Node => own || (kind == "db" && self.serves_database(identity, &event.node)),
            _ => own || self.is_server(&event.node),
        };
        if !allowed {
            let claim = std::mem::replace(&mut event.node, name.to_string());
            claimed(event, "node", claim);
        }
    }

    /// Whether a name is a registered OpenSSH server's.
    fn is_server(&self, name: &str) -> bool {
        self.presence.find(name).iter().any(|known| known.openssh().is_some())
    }
}

fn is_a_name(text: &str) -> bool {
    NodeName::new(text).is_ok() || DatabaseName::new(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_belongs_to_the_first_host_that_speaks_of_it() {
        let bindings = Bindings::default();
        let (one, two, session) = (HostId::new(), HostId::new(), SessionId::new());
        assert_eq!(bindings.first(session, one), one);
        assert_eq!(bindings.first(session, two), one);
        assert_eq!(bindings.first(SessionId::new(), two), two);
        for _ in 0..MOST_BOUND {
            bindings.first(SessionId::new(), one);
        }
        let bound = bindings.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(bound.of.len() == MOST_BOUND && bound.order.len() == MOST_BOUND);
    }
}
