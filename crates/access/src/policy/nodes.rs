//! Who may log in to which node, as which account.

use std::collections::HashMap;

use time::OffsetDateTime;

use super::decidable::{Decidable, Seeker, show_factor};
use super::engine::{Combination, Policies, Question};
use super::explaining::{show_span, unfit_labels};
use super::merged::Merged;
use crate::factor::SessionTarget;
use crate::limits::Limits;
use crate::node::SshOptions;
use crate::role::{LoginMatcher, Role, TraitRef};
use crate::{Identity, Kind, Lock, Login, Node, NodeKind, Permit, Principal, RecordAt, Traits};

impl Decidable for Node {
    fn act(&self, login: &Login) -> String {
        format!("log in as {login} on {}", self.name)
    }

    fn session_target(&self, login: &Login) -> SessionTarget {
        match self.kind {
            NodeKind::Sallyport => SessionTarget::node(self.id, login),
            NodeKind::OpenSsh(_) => SessionTarget::any(Kind::Node, self.id.to_string()),
        }
    }

    /// A stock server has the login from inside the SSH that passes through.
    fn accounts_behind(&self, seeker: &Seeker<'_>) -> Vec<Login> {
        match self.kind {
            NodeKind::Sallyport => Vec::new(),
            NodeKind::OpenSsh(_) => seeker.logins(self, &candidates(seeker.combination, seeker.traits)),
        }
    }

    fn question(&self, _: &Seeker<'_>, login: &Login) -> Question<'_> {
        Question::session(Kind::Node, self.id.to_string(), &self.labels).text("login", login.as_str())
    }

    fn options(&self, _: &Seeker<'_>, _: &[&Role], merged: &Merged<'_>, _: &Login) -> SshOptions {
        merged.ssh()
    }

    fn covered(
        &self,
        lock: &Lock,
        identity: &Identity,
        login: Option<&Login>,
        now: time::OffsetDateTime,
    ) -> bool {
        lock.covers(identity, Some(self), login, now)
    }

    fn hint(&self, seeker: &Seeker<'_>) -> Option<String> {
        let usable = seeker.logins(self, &candidates(seeker.combination, seeker.traits));
        let usable: Vec<&str> = usable.iter().map(Login::as_str).collect();
        (!usable.is_empty()).then(|| format!("logins you may use there: {}", usable.join(", ")))
    }

    fn title(&self) -> String {
        format!("node {} ({})", self.name, self.id)
    }

    /// Which half of a role's `allow` does not fit.
    fn missing(&self, role: &Role, seeker: &Seeker<'_>, login: &Login) -> String {
        if role.allow.logins.is_empty() || role.allow.labels.of(Kind::Node).is_empty() {
            return "it grants no login to any node".to_owned();
        }
        let logins = logins_of(std::iter::once(role), seeker.traits);
        if role.allow.logins.contains(&LoginMatcher::Any) || logins.contains(login) {
            unfit_labels(Kind::Node, role)
        } else {
            let logins: Vec<&str> = logins.iter().map(Login::as_str).collect();
            let logins = if logins.is_empty() { "none".to_owned() } else { logins.join(", ") };
            format!("its logins are {logins}")
        }
    }

    fn show(limits: &Limits, options: &SshOptions) -> Vec<String> {
        let mut shown = vec![
            format!("forward_agent {}", options.forward_agent),
            format!("port_forwarding {}", options.port_forwarding.as_str()),
            format!("stream_local_forwarding {}", options.stream_local_forwarding.as_str()),
            format!("permit_x11_forwarding {}", options.x11_forwarding),
            format!("ssh_file_copy {}", options.ssh_file_copy),
            format!("record_session {}", limits.record_session.as_str()),
            format!("session_recording {}", limits.recording.as_str()),
            format!("record_input {}", options.record_input.as_str()),
            format!("hash_files {}", options.hash_files),
            format!("max_sessions {}", options.max_sessions),
            format!("client_idle_timeout {}", show_span(limits.client_idle_timeout)),
            format!("max_session_duration {}", show_span(limits.max_session_duration)),
            format!("disconnect_expired_cert {}", limits.disconnect_expired_cert),
            format!("device_trust {}", limits.device_trust.as_str()),
            format!("pin_source_ip {}", limits.pin_source_ip),
        ];
        // It concerns few.
        if options.require_login_word {
            shown.push("require_login_word true".to_owned());
        }
        shown.extend(show_factor(&limits.factor));
        shown
    }
}

impl Seeker<'_> {
    /// Of these logins, those that may be used on a node.
    fn logins(&self, node: &Node, candidates: &[Login]) -> Vec<Login> {
        candidates.iter().filter(|login| self.weigh(node, login).allowed).cloned().collect()
    }
}

impl Policies {
    /// The logins that this identity may use on a node, locks aside.
    #[must_use]
    pub fn logins_on(&self, identity: &Identity, node: &Node) -> Vec<Login> {
        let Principal::User { name, roles, traits, .. } = &identity.principal else { return Vec::new() };
        let combination = self.combination(roles);
        let seeker = Seeker { policies: self, combination: &combination, user: name, traits };
        seeker.logins(node, &candidates(&combination, traits))
    }

    /// Whether sessions of this identity on a registered server are recorded at the proxy. The login is not asked: inside SSH that
    /// passes through it could be another one. One that roles give the user and that is refused now, for want of a trusted device, of a
    /// pin or by a lock, could be that other one as well, and is refused where the proxy looks into the session.
    #[must_use]
    pub fn records_at_proxy(
        &self,
        identity: &Identity,
        node: &Node,
        permit: &Permit,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> bool {
        let there = |permit: &Permit| permit.limits().recording.at == RecordAt::Proxy;
        matches!(node.kind, NodeKind::OpenSsh(_))
            && (there(permit)
                || self.logins_on(identity, node).iter().any(|login| {
                    self.decide(identity, node, login, locks, now).map_or(true, |permit| there(&permit))
                }))
    }

    /// The nodes that this identity may log in to at all, each with the logins. Nodes that agree in the labels which
    /// the user's roles look at share one answer, so that many nodes cost little more than its variety.
    pub fn visible<'n>(
        &self,
        identity: &Identity,
        nodes: impl IntoIterator<Item = &'n Node>,
    ) -> Vec<(&'n Node, Vec<Login>)> {
        let Principal::User { name, roles, traits, .. } = &identity.principal else { return Vec::new() };
        let combination = self.combination(roles);
        let candidates = candidates(&combination, traits);
        let seeker = Seeker { policies: self, combination: &combination, user: name, traits };
        let mut answers: HashMap<Vec<Option<&str>>, Vec<Login>> = HashMap::new();
        let mut visible = Vec::new();
        for node in nodes {
            let key: Vec<Option<&str>> =
                combination.labels(Kind::Node).iter().map(|label| node.labels.value(label)).collect();
            let logins = answers.entry(key).or_insert_with(|| seeker.logins(node, &candidates));
            if !logins.is_empty() {
                visible.push((node, logins.clone()));
            }
        }
        visible
    }
}

pub(super) fn candidates(combination: &Combination, traits: &Traits) -> Vec<Login> {
    logins_of(combination.roles.iter().map(|role| &role.role), traits)
}

/// The accounts that `allow.logins` name. A role that allows every account adds none: what cannot be listed cannot be
/// a principal, so that the accounts of a user's traits take its place.
fn logins_of<'r>(roles: impl Iterator<Item = &'r Role>, traits: &Traits) -> Vec<Login> {
    let mut logins = Vec::new();
    let mut take = |login: Login| {
        if !logins.contains(&login) {
            logins.push(login);
        }
    };
    let values = |name: &str| -> Vec<Login> {
        let of_trait = traits.iter().filter(|(key, _)| TraitRef::full_name(key) == name);
        of_trait.flat_map(|(_, values)| values).filter_map(|value| Login::new(value).ok()).collect()
    };
    for matcher in roles.flat_map(|role| &role.allow.logins) {
        match matcher {
            LoginMatcher::Literal(login) => take(login.clone()),
            LoginMatcher::Trait(reference) => values(reference.name()).into_iter().for_each(&mut take),
            LoginMatcher::Any => values("internal.logins").into_iter().for_each(&mut take),
        }
    }
    logins
}
