//! Whose session it is, and what each of its events says.

use sallyport_audit::recording::SessionMetadata;
use sallyport_audit::{Code, Event};
use serde_json::Value;
use time::OffsetDateTime;

use crate::factor::Evidence;

/// Whose session it is, where and when, and what all of its events say besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    metadata: SessionMetadata,
    told_by_proxy: bool,
    fields: Vec<(&'static str, Value)>,
}

impl About {
    /// A session whose client's address this host has seen itself.
    #[must_use]
    pub fn new(metadata: SessionMetadata, evidence: &Evidence) -> Self {
        let factor = evidence.factor().map(|factor| ("session_factor", factor.into()));
        Self { metadata, told_by_proxy: false, fields: factor.into_iter().collect() }
    }

    /// Says whether the client's address is a proxy's word. Default false.
    #[must_use]
    pub fn told_by_proxy(mut self, told: bool) -> Self {
        self.told_by_proxy = told;
        self
    }

    /// A field that each event of this session has. Never a secret.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// What its recording begins with, and lists show.
    #[must_use]
    pub fn metadata(&self) -> &SessionMetadata {
        &self.metadata
    }

    /// An event of this session, now.
    #[must_use]
    pub fn event(&self, code: Code) -> Event {
        let about = &self.metadata;
        let event = Event::new(code, OffsetDateTime::now_utc())
            .user(about.user.as_str())
            .login(about.login.as_str())
            .node(about.node.as_str())
            .session(about.session_id)
            .source(about.source.as_str());
        let event = if self.told_by_proxy { event.source_by_proxy() } else { event };
        self.fields.iter().fold(event, |event, (name, value)| event.field(name, value.clone()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sallyport_access::SessionId;

    use super::*;

    /// Alice's session with `web-1`, as `root`.
    pub(crate) fn about() -> About {
        let metadata = SessionMetadata {
            session_id: SessionId::new(),
            cluster: "c".to_owned(),
            user: "alice".to_owned(),
            login: "root".to_owned(),
            node: "web-1".to_owned(),
            node_id: "00000000-0000-4000-8000-000000000001".to_owned(),
            source: "192.0.2.7:4711".to_owned(),
            started: OffsetDateTime::now_utc(),
            kind: "app".to_owned(),
            command: None,
            term: None,
            size: None,
            application: None,
        };
        About::new(metadata, &Evidence::none())
    }

    #[test]
    fn events_say_whose_session_it_is_and_whose_word_the_address_is() {
        let own = about();
        let event = own.event(Code::SessionStart);
        assert_eq!(
            (event.user.as_str(), event.login.as_str(), event.node.as_str()),
            ("alice", "root", "web-1")
        );
        assert_eq!(event.session_id, own.metadata().session_id.to_string());
        assert_eq!((event.source.as_str(), event.fields.len()), ("192.0.2.7:4711", 0));
        let told = own.told_by_proxy(true).with("db_name", "orders").event(Code::SessionEnd);
        assert_eq!(told.fields["db_name"], "orders");
        assert_eq!(told.fields.len(), 2, "{:?}", told.fields);
    }
}
