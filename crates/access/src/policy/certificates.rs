//! What roles allow before a resource is known: the lifetime of certificates and what stands in them.

use std::time::Duration;

use super::engine::Policies;
use super::merged::Merged;
use super::nodes::candidates;
use crate::options::{DEFAULT_LOGIN_TTL, TTL_RANGE};
use crate::refusal::Refusal;
use crate::{Identity, Login, Principal, RoleName, Traits, Unpinned};

/// What roles allow of forwarding on some server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardingSomewhere {
    /// The agent.
    pub agent: bool,
    /// Any port or socket, in any direction.
    pub ports: bool,
    /// X11.
    pub x11: bool,
}

/// What roles say of the logins of a user, each with the role that says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoginLimits {
    /// Logins that are open at a time.
    pub most: Option<(usize, RoleName)>,
    /// How long a login may be unused.
    pub idle: Option<(Duration, RoleName)>,
    /// Whether its certificates count from one address alone.
    pub pin: bool,
}

impl Policies {
    /// What these roles together say of logins: the strictest of all.
    #[must_use]
    pub fn login_limits(&self, roles: &[RoleName]) -> LoginLimits {
        let known = || roles.iter().filter_map(|role| self.role(role));
        let most = known().filter_map(|role| role.options.max_logins.map(|most| (most, role.name.clone())));
        let idle =
            known().filter_map(|role| role.options.login_idle_timeout.map(|idle| (idle, role.name.clone())));
        LoginLimits {
            most: most.min_by_key(|(most, _)| *most),
            idle: idle.min_by_key(|(idle, _)| *idle),
            pin: self.pins(roles),
        }
    }

    fn pins(&self, roles: &[RoleName]) -> bool {
        let cluster = self.sessions.options.pin_source_ip.unwrap_or(false);
        let mut known = roles.iter().filter_map(|role| self.role(role)).peekable();
        // One role is enough, and so is the cluster where one role is silent: what any session asks of its login, the login has.
        match known.peek() {
            Some(_) => known.any(|role| role.options.pin_source_ip.unwrap_or(cluster)),
            None => cluster,
        }
    }

    /// Whether a login serves its user outside of sessions, which decide by [`Limits::pin_source_ip`](crate::Limits::pin_source_ip): one that
    /// is pinned to no address does not, where its roles pin. Hosts have no logins.
    ///
    /// # Errors
    /// [`Unpinned`], which says what to do.
    pub fn pinned_enough(&self, identity: &Identity) -> Result<(), Unpinned> {
        match &identity.principal {
            Principal::User { roles, .. } if identity.pinned_to.is_none() && self.pins(roles) => {
                Err(Unpinned)
            }
            Principal::User { .. } | Principal::Host { .. } => Ok(()),
        }
    }

    /// The life of a login with these roles, and so of its certificates: what was asked for, at most the roles' bound, else the cluster's.
    ///
    /// # Errors
    /// A [`Refusal`] when more than the bound, or less than a minute, was asked for.
    pub fn login_ttl(&self, roles: &[RoleName], asked: Option<Duration>) -> Result<Duration, Refusal> {
        let known = roles.iter().filter_map(|role| self.role(role));
        let bounds = known.filter_map(|role| role.options.max_login_ttl.map(|ttl| (ttl, &role.name)));
        let bound = bounds.min_by_key(|(ttl, _)| *ttl);
        let cluster = self.sessions.options.max_login_ttl;
        let longest = bound.map(|(ttl, _)| ttl).or(cluster).unwrap_or(DEFAULT_LOGIN_TTL);
        let Some(asked) = asked else { return Ok(longest) };
        let refuse = |why: String, rule| Refusal {
            what: format!("no certificate for {}", crate::yaml::show(asked)),
            why,
            rule,
            hint: None,
        };
        if asked < TTL_RANGE.0 {
            return Err(refuse(format!("the shortest lifetime is {}", crate::yaml::show(TTL_RANGE.0)), None));
        }
        if asked > longest {
            let rule = match bound {
                Some((_, role)) => Some(format!("role \"{role}\" options.max_login_ttl")),
                None => cluster.map(|_| "session_policy max_login_ttl".to_owned()),
            };
            return Err(refuse(format!("the longest lifetime is {}", crate::yaml::show(longest)), rule));
        }
        Ok(asked)
    }

    /// What these roles could allow of forwarding somewhere. A certificate permits no more. Servers that ask no authority know
    /// nothing else; nodes decide at each session.
    #[must_use]
    pub fn forwarding_for(&self, roles: &[RoleName]) -> ForwardingSomewhere {
        let known = roles.iter().filter_map(|role| self.role(role));
        let each = known.map(|role| Merged::of(std::iter::once(&role.options), &self.sessions.options).ssh());
        each.fold(ForwardingSomewhere::default(), |so_far, options| {
            let (tcp, sockets) = (options.port_forwarding, options.stream_local_forwarding);
            let any = tcp.local || tcp.remote || sockets.local || sockets.remote;
            ForwardingSomewhere {
                agent: so_far.agent || options.forward_agent,
                ports: so_far.ports || any,
                x11: so_far.x11 || options.x11_forwarding,
            }
        })
    }

    /// Whether a node may do what comes with a ticket before the client has answered it: not where any of these roles, or
    /// the session policy for one of them that is silent, says no. It is asked before the login is known, so that roles
    /// count that do not grant it, too.
    #[must_use]
    pub fn early_data_for(&self, roles: &[RoleName]) -> bool {
        let cluster = self.sessions.options.early_data.unwrap_or(true);
        roles.iter().filter_map(|role| self.role(role)).all(|role| role.options.early_data.unwrap_or(cluster))
    }

    /// Every login that these roles could allow somewhere: the principals of an SSH certificate.
    #[must_use]
    pub fn logins_for(&self, roles: &[RoleName], traits: &Traits) -> Vec<Login> {
        candidates(&self.combination(roles), traits)
    }
}
