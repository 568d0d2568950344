//! A decision with all that was weighed.

use std::time::Duration;

use time::OffsetDateTime;

use super::{Policies, logins_of};
use crate::permit::SessionOptions;
use crate::role::{LoginMatcher, Role, TraitRef};
use crate::{Identity, Labels, Lock, Login, Node, Principal, Traits};

/// An answer to "why", for an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Whether the login is allowed.
    pub allowed: bool,
    /// One line.
    pub summary: String,
    /// Everything that was weighed, a line each.
    pub details: Vec<String>,
}

impl Policies {
    /// Why an identity may or may not log in, with everything that was weighed.
    #[must_use]
    pub fn explain(
        &self,
        identity: &Identity,
        node: &Node,
        login: &Login,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Explanation {
        let mut details =
            vec![format!("node {} ({}) has the labels {}", node.name, node.id, show_labels(&node.labels))];
        if let Principal::User { roles, traits, .. } = &identity.principal {
            let combination = self.combination(roles);
            for (name, values) in traits {
                details.push(format!("trait {} is {}", TraitRef::full_name(name), values.join(", ")));
            }
            for role in &combination.roles {
                let name = identity.user().map(ToString::to_string).unwrap_or_default();
                let alone = self.combination(std::slice::from_ref(&role.role.name));
                let weighed = self.weigh(&alone, &name, traits, node, login);
                let verdict = match (weighed.allowed, weighed.rules.first()) {
                    (true, _) => "allows it".to_owned(),
                    (false, Some(rule)) => format!("denies it: {rule}"),
                    (false, None) => {
                        format!("does not allow it: {}", self.missing(&role.role, traits, node, login))
                    }
                };
                details.push(format!("role \"{}\" {verdict}", role.role.name));
            }
            for role in &combination.unknown {
                details.push(format!("role \"{role}\" does not exist"));
            }
        }
        for lock in locks.iter().filter(|lock| lock.covers(identity, Some(node), Some(login), now)) {
            details.push(format!("lock \"{}\" covers {}", lock.name, lock.target));
        }
        match self.decide(identity, node, login, locks, now) {
            Ok(permit) => {
                let options = permit.options();
                details.push(format!("options: {}", show_options(options)));
                let summary = format!(
                    "{} may log in as {login} on {}: {} allows it",
                    permit.user(),
                    node.name,
                    permit.rule()
                );
                Explanation { allowed: true, summary, details }
            }
            Err(refusal) => Explanation { allowed: false, summary: refusal.public_message(), details },
        }
    }

    /// Which half of a role's `allow` does not fit.
    fn missing(&self, role: &Role, traits: &Traits, node: &Node, login: &Login) -> String {
        if role.allow.logins.is_empty() || role.allow.node_labels.is_empty() {
            return "it grants no login to any node".to_owned();
        }
        let logins = logins_of(std::iter::once(role), traits);
        let login_fits = role.allow.logins.contains(&LoginMatcher::Any) || logins.contains(login);
        let labels = role.allow.node_labels.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        if login_fits {
            let _ = node;
            format!("its node_labels ({labels}) do not match")
        } else {
            let logins: Vec<&str> = logins.iter().map(Login::as_str).collect();
            format!(
                "its logins are {}",
                if logins.is_empty() { "none".to_owned() } else { logins.join(", ") }
            )
        }
    }
}

fn show_options(options: &SessionOptions) -> String {
    let span = |span: Option<Duration>| span.map_or("none".to_owned(), crate::yaml::show);
    let mut shown = [
        format!("forward_agent {}", options.forward_agent),
        format!("port_forwarding {}", options.port_forwarding.as_str()),
        format!("stream_local_forwarding {}", options.stream_local_forwarding.as_str()),
        format!("permit_x11_forwarding {}", options.x11_forwarding),
        format!("ssh_file_copy {}", options.ssh_file_copy),
        format!("record_session {}", options.record_session.as_str()),
        format!("session_recording {}", options.recording.as_str()),
        format!("record_input {}", options.record_input.as_str()),
        format!("hash_files {}", options.hash_files),
        format!("max_sessions {}", options.max_sessions),
        format!("client_idle_timeout {}", span(options.client_idle_timeout)),
        format!("max_session_duration {}", span(options.max_session_duration)),
        format!("disconnect_expired_cert {}", options.disconnect_expired_cert),
    ]
    .join(", ");
    // It concerns few.
    if options.require_login_word {
        shown.push_str(", require_login_word true");
    }
    shown
}

pub(super) fn show_labels(labels: &Labels) -> String {
    if labels.is_empty() {
        return "none".to_owned();
    }
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}
