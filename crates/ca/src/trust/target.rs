//! Whether a host is the one that was dialled: its role and its id as well as its name. A name alone is not enough,
//! since hosts of several roles carry names that people chose.

use sallyport_access::{HostId, HostRole, Identity, Principal};
use sallyport_sal::tls::rustls::pki_types::ServerName;
use ssh_key::Certificate;
use time::OffsetDateTime;

use super::{Trust, require_role};
use crate::names::DOMAIN;
use crate::{CaError, CaKind, ssh};

impl Trust {
    /// Which host holds an SSH host certificate, whatever it is called: checks all that [`Trust::verify_host_ssh`] checks but
    /// the name.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn identify_host_ssh(
        &self,
        certificate: &Certificate,
        now: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        self.verify_ssh(certificate, CaKind::Host, now)
    }

    /// Which host serves SSH sessions under the name that a client asked for. Beyond [`Trust::verify_host_ssh`], the
    /// host is a node, a stock OpenSSH server, or a proxy that the authority lets stand before that server, and the
    /// name is the host's own: its id, its registered name, either with the cluster behind it, or a name that a stock
    /// server is registered with. A proxy's certificate for itself never passes, whatever names it carries.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn verify_target_ssh(
        &self,
        certificate: &Certificate,
        asked: &str,
        now: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        let identity = self.verify_host_ssh(certificate, asked, now)?;
        let Principal::Host { id, name, role } = &identity.principal else {
            return Err(CaError::Malformed { reason: "it is not a host's certificate".to_owned() });
        };
        let has_public_names = match role {
            HostRole::Node => false,
            HostRole::OpenSsh => true,
            HostRole::Proxy if ssh::stands_for(certificate) == Some(*id) => true,
            HostRole::Proxy | HostRole::Auth => {
                return Err(CaError::WrongRole {
                    got: role.name().to_owned(),
                    expected: format!("the node or server {asked:?}"),
                });
            }
        };
        let own = self.own_names(*id, name.as_str());
        let is_own = own.iter().any(|own| same_name(own, asked));
        if is_own || (has_public_names && !self.is_id(asked)) {
            return Ok(identity);
        }
        Err(CaError::WrongHost { asked: asked.to_owned(), names: own.to_vec() })
    }

    /// Which proxy serves under the name that a client asked for: one that shows its own certificate, and not the one with
    /// which it stands before a server.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn verify_proxy_ssh(
        &self,
        certificate: &Certificate,
        asked: &str,
        now: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        let identity = self.verify_host_ssh(certificate, asked, now)?;
        require_role(&identity, HostRole::Proxy)?;
        if ssh::stands_for(certificate).is_some() {
            return Err(CaError::WrongRole {
                got: "proxy before a server".to_owned(),
                expected: format!("the proxy {asked:?}"),
            });
        }
        Ok(identity)
    }

    /// Whether a name is the id of some host, with or without the cluster behind it.
    fn is_id(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let bare = name.strip_suffix(self.cluster().as_str()).and_then(|rest| rest.strip_suffix('.'));
        bare.unwrap_or(&name).parse::<HostId>().is_ok()
    }

    /// The names that every host has of itself, in SSH as in TLS: its id and its registered name, each with and without
    /// the cluster behind it.
    pub(crate) fn own_names(&self, id: HostId, name: &str) -> [String; 4] {
        let cluster = self.cluster();
        [name.to_owned(), id.to_string(), format!("{name}.{cluster}"), format!("{id}.{cluster}")]
    }

    /// Whether the host behind a TLS connection has the role, or is the host, that the dialled name stands for. Names of
    /// the cluster's machinery say it; every other name is a public one, which only proxies have.
    pub(super) fn require_dialled(
        &self,
        identity: &Identity,
        server_name: &ServerName<'_>,
    ) -> Result<(), CaError> {
        let dialled = server_name.to_str();
        let machinery = dialled.trim_end_matches('.').strip_suffix(DOMAIN).and_then(|rest| {
            rest.strip_suffix('.')?.strip_suffix(self.cluster().as_str())?.strip_suffix('.')
        });
        let Some(label) = machinery else { return require_role(identity, HostRole::Proxy) };
        if let Some(role) = HostRole::ALL.into_iter().find(|role| role.name() == label) {
            return require_role(identity, role);
        }
        let own = match &identity.principal {
            Principal::Host { id, .. } => id.to_string(),
            Principal::User { .. } => String::new(),
        };
        if own == label {
            return Ok(());
        }
        Err(CaError::WrongHost { asked: dialled.into_owned(), names: vec![own] })
    }
}

/// Whether two host names are one: case and a final dot do not count.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sallyport_access::NodeName;
    use uuid::Uuid;

    use super::*;
    use crate::server_name;
    use crate::trust::tests::trust_of;

    #[test]
    fn a_tls_name_of_the_clusters_means_a_role_or_a_host() {
        let trust = trust_of("prod");
        let now = OffsetDateTime::UNIX_EPOCH;
        let of = |role| Identity {
            principal: Principal::Host { id: HostId::new(), name: NodeName::new("x").unwrap(), role },
            login_id: Uuid::nil(),
            device: None,
            pinned_to: None,
            valid_after: now,
            valid_before: now,
        };
        let dialled = |identity: &Identity, name: String| {
            trust.require_dialled(identity, &ServerName::try_from(name).unwrap())
        };
        for role in HostRole::ALL {
            let host = of(role);
            for asked in HostRole::ALL {
                let dialled = dialled(&host, server_name(asked, trust.cluster()));
                assert_eq!(dialled.is_ok(), role == asked, "{role:?} as {asked:?}");
            }
            // What people call it is a proxy's.
            assert_eq!(dialled(&host, "ssh.example.com".to_owned()).is_ok(), role == HostRole::Proxy);
            assert_eq!(dialled(&host, "127.0.0.1".to_owned()).is_ok(), role == HostRole::Proxy);
            let Principal::Host { id, .. } = &host.principal else { continue };
            dialled(&host, format!("{id}.prod.sallyport.internal")).unwrap();
            dialled(&host, format!("{}.prod.sallyport.internal", HostId::new())).unwrap_err();
        }
    }
}
