//! What may be done with the cluster's API.

use std::collections::HashSet;

use cedar_policy::{Context, Entity};

use super::engine::Policies;
use crate::permit::ApiPermit;
use crate::refusal::Refusal;
use crate::role::Verb;
use crate::{HostRole, Identity, Kind, Principal};

/// The kind of certificate that agents ask for in order to log in to databases. No role can name it.
pub const DB_CLIENT: &str = "db_client";

impl Policies {
    /// May this identity do this with resources of this kind?
    ///
    /// # Errors
    /// A [`Refusal`] that names the deciding rule.
    pub fn may(&self, identity: &Identity, resource: &str, verb: Verb) -> Result<ApiPermit, Refusal> {
        let what = format!("{} may not {} {resource}", identity.display_name(), verb.as_str());
        let refuse = |why: &str, rule| Refusal { what: what.clone(), why: why.to_owned(), rule, hint: None };
        let (name, roles, traits) = match &identity.principal {
            Principal::User { name, roles, traits, .. } => (name, roles, traits),
            Principal::Host { role, .. } => {
                return if host_may(*role, resource, verb) {
                    Ok(ApiPermit { rule: "built in for hosts".to_owned() })
                } else {
                    Err(refuse("hosts may not", None))
                };
            }
        };
        let combination = self.combination(roles);
        let weighed = self.ask(
            &combination,
            self.user_entity(name.as_str(), roles, traits),
            verb.as_str(),
            Entity::new_no_attrs(self.uid(&self.types.resource, resource), HashSet::new()),
            Context::empty(),
        );
        match (weighed.allowed, weighed.rules.into_iter().next()) {
            (true, rule) => Ok(ApiPermit { rule: rule.unwrap_or_default() }),
            (false, Some(rule)) => Err(refuse("a role denies it", Some(rule))),
            (false, None) => Err(refuse("no role allows it", None)),
        }
    }

    /// May this identity follow what changes of resources of this kind? A host is told only of those that concern it, so that this says
    /// nothing of reading: what a host decides by and what it serves or leads to it follows, and it reads and lists none of it.
    ///
    /// # Errors
    /// A [`Refusal`] that names the deciding rule.
    pub fn may_follow(&self, identity: &Identity, resource: &str) -> Result<ApiPermit, Refusal> {
        match &identity.principal {
            Principal::Host { role, .. } if host_follows(*role, resource) => {
                Ok(ApiPermit { rule: "built in for hosts".to_owned() })
            }
            _ => self.may(identity, resource, Verb::List),
        }
    }

    /// May this identity see this session and its recording? One's own always, others by rule.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub fn may_read_session(&self, identity: &Identity, owner: &str) -> Result<ApiPermit, Refusal> {
        if identity.user().is_some_and(|user| user.as_str() == owner) {
            return Ok(ApiPermit { rule: "one's own session".to_owned() });
        }
        self.may(identity, "recording", Verb::Read)
    }
}

/// What a host is told in whole: by this it decides.
pub(super) fn host_is_told(role: HostRole, resource: &str) -> bool {
    matches!(role, HostRole::Node | HostRole::Proxy) && matches!(resource, "role" | "lock" | "session_policy")
}

/// What a host follows. Of the kinds that sessions are with an agent is told of what it serves (of nodes, of itself and of the servers that
/// it is the gateway to, which is no matter of its rights), and a proxy of all, since it leads there.
fn host_follows(role: HostRole, resource: &str) -> bool {
    let leads_to = |kind| match role {
        HostRole::Node => kind != Kind::Node,
        HostRole::Proxy => true,
        HostRole::OpenSsh | HostRole::Auth => false,
    };
    host_is_told(role, resource)
        || host_may(role, resource, Verb::List)
        || Kind::of_document(resource).is_some_and(leads_to)
}

/// What hosts may do, by what they are. Everything that is not here is refused: what a host decides by, serves and leads to it only
/// follows, so that a host's stolen key lists nothing of what the cluster has.
pub(super) fn host_may(role: HostRole, resource: &str, verb: Verb) -> bool {
    use Verb::{Create, List, Read, Update};
    match role {
        // Whom to trust, one's own presence and certificates, and what one reports.
        HostRole::Node => matches!(
            (resource, verb),
            ("ca", List | Read)
                | ("node" | "host" | "session", Update)
                | ("event" | DB_CLIENT, Create)
                | ("recording", Create | Update)
        ),
        HostRole::Proxy => matches!(
            (resource, verb),
            ("ca", List | Read)
                | ("host" | "session", Update)
                | ("event", Create)
                | ("recording", Create | Update)
        ),
        // It renews its certificate, and learns whom its sshd is to trust.
        HostRole::OpenSsh => matches!((resource, verb), ("host", Update) | ("ca", List | Read)),
        HostRole::Auth => false,
    }
}
