//! What holds for the sessions of a whole cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::document::{metadata, read_document};
use crate::options::{self, Options};
use crate::yaml::{self, Errors, Problems, Section};

/// The one session policy's name.
pub const SESSION_POLICY_NAME: &str = "default";
/// Longest message of the day.
const MESSAGE_BYTES: usize = 4096;
/// Shortest and longest time for which recordings are kept.
const RETENTION_RANGE: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(3660 * 86_400));
const LOCAL_KEYS: [&str; 2] = ["message_of_the_day", "retention"];

/// What holds for the sessions of a whole cluster where no granting role says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionPolicy {
    /// Defaults for what roles do not say; never how many logins there may be, and how long unused.
    pub options: Options,
    /// What people read when they log in; empty for none.
    pub message_of_the_day: String,
    /// How long finished recordings are kept, from 1 h to ten years; for ever when none.
    pub retention: Option<Duration>,
}

impl SessionPolicy {
    /// Reads a session policy.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        read_document("session_policy", text, &["kind", "version", "metadata", "spec"], read)
    }

    /// The policy as YAML that [`SessionPolicy::parse`] reads back to the same policy.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut spec = self.options.to_map();
        if !self.message_of_the_day.is_empty() {
            spec.insert("message_of_the_day", self.message_of_the_day.clone().into());
        }
        if let Some(retention) = self.retention {
            spec.insert("retention", yaml::show(retention).into());
        }
        let document = Document {
            kind: "session_policy",
            version: "v1",
            metadata: BTreeMap::from([("name", SESSION_POLICY_NAME)]),
            spec,
        };
        serde_saphyr::to_string(&document).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Document {
    kind: &'static str,
    version: &'static str,
    metadata: BTreeMap<&'static str, &'static str>,
    spec: BTreeMap<&'static str, serde_json::Value>,
}

fn read(top: &Section<'_>, problems: &mut Problems) -> Option<SessionPolicy> {
    let metadata = metadata(top, "session_policy", problems);
    if metadata.name.as_deref().is_some_and(|name| name != SESSION_POLICY_NAME) {
        problems.push(
            metadata.place,
            "metadata.name",
            "a cluster has one session policy",
            format!("write name: {SESSION_POLICY_NAME}"),
        );
    }
    // How many logins there may be, and how long unused, only roles say.
    let known: Vec<&str> = options::KEYS.into_iter().skip(options::OF_LOGINS).chain(LOCAL_KEYS).collect();
    let Some(spec) = top.section("spec", &known, problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with options below it");
        return None;
    };
    let message_of_the_day = spec.parsed(
        "message_of_the_day",
        &format!("write text of at most {MESSAGE_BYTES} bytes without control characters"),
        problems,
        |text| match text {
            long if long.len() > MESSAGE_BYTES => Err("is too long"),
            odd if odd.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) => {
                Err("contains control characters")
            }
            text => Ok(text.to_owned()),
        },
    );
    Some(SessionPolicy {
        options: options::read(&spec, problems),
        message_of_the_day: message_of_the_day.unwrap_or_default(),
        retention: spec.duration("retention", RETENTION_RANGE.0, RETENTION_RANGE.1, problems),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_being_written() {
        let text = "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec:\n  session_recording: proxy-sync\n  \
                    port_forwarding: local\n  stream_local_forwarding: false\n  client_idle_timeout: 15m\n  \
                    message_of_the_day: |\n    Be kind.\n  retention: 90d\n";
        let policy = SessionPolicy::parse(text).unwrap();
        assert_eq!(policy.message_of_the_day, "Be kind.\n");
        assert_eq!(policy.retention, Some(Duration::from_secs(90 * 86_400)));
        assert_eq!(SessionPolicy::parse(&policy.to_yaml()).unwrap(), policy);
        assert_eq!(
            SessionPolicy::parse(&SessionPolicy::default().to_yaml()).unwrap(),
            SessionPolicy::default()
        );
    }

    #[test]
    fn mistakes_are_told_together() {
        let text = "kind: session_policy\nversion: v1\nmetadata: {name: mine}\nspec:\n  max_session_ttl: 1h\n  \
                    session_recording: sometimes\n  retention: 1s\n";
        let told = SessionPolicy::parse(text).unwrap_err().to_string();
        for part in ["write name: default", "max_session_ttl", "proxy-sync", "retention"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
