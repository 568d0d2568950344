//! How a host joins: its token, the names that it may have, and what is stored of it.

use sallyport_access::{ClusterName, HostId, HostRole, Labels};
use sallyport_audit::Code;
use sallyport_sal::constant_time_eq;
use sallyport_store::StoreError;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use crate::authority::caller::{Caller, shown};
use crate::authority::hosts::membership::{Joining, Membership};
use crate::authority::hosts::names::{Claim, Reserved, Taken, canonical, registered_name};
use crate::authority::hosts::registry::host_role;
use crate::authority::records::{HostRecord, NodeRecord, TokenRecord};
use crate::authority::secrets::{TOKEN_NAME, hash_of};
use crate::authority::storage::storage;
use crate::backoff::chance;

/// Hosts that join with one token at the same moment get its uses one after the other: a whole rack may.
const JOIN_ATTEMPTS: usize = 500;
const JOIN_PAUSE: std::time::Duration = std::time::Duration::from_millis(40);

/// What an answer to a joining host may say, and what the log says.
struct JoinRefusal {
    status: Status,
    reason: &'static str,
}

fn refusal(reason: &'static str, status: Status) -> JoinRefusal {
    JoinRefusal { status, reason }
}

/// The next step for a host whose token does not let it join.
fn make_one(role: HostRole) -> String {
    let role = role.name();
    match role {
        "openssh" => format!("make one for it: sallyport admin tokens add --role {role}"),
        _ => format!(
            "make one for it with `sallyport admin tokens add --role {role}` and put it under {role}.join"
        ),
    }
}

fn unreadable(error: &StoreError) -> JoinRefusal {
    refusal("state", storage(error))
}

/// What a token brings to a join that takes one of its uses.
struct Spent<'a> {
    token: TokenRecord,
    reserved: Reserved<'a>,
    /// For a stock server, what is to be registered of it.
    server: Option<NodeRecord>,
}

impl Membership {
    pub(crate) async fn join(
        &self,
        caller: &Caller,
        request: v1::JoinRequest,
    ) -> Result<v1::HostCertificates, Status> {
        let now = OffsetDateTime::now_utc();
        let outcome = self.try_join(caller, &request, now).await;
        match outcome {
            Ok(answer) => Ok(answer),
            Err(refusal) => {
                let event = caller
                    .event(Code::JoinRefused)
                    .node(shown(&request.name))
                    .message(refusal.status.message())
                    .field("reason", refusal.reason)
                    .field("role", shown(&request.role));
                self.journal.note_caused(caller, event, refusal.reason).await?;
                Err(refusal.status)
            }
        }
    }

    async fn try_join(
        &self,
        caller: &Caller,
        request: &v1::JoinRequest,
        now: OffsetDateTime,
    ) -> Result<v1::HostCertificates, JoinRefusal> {
        self.guesses.not_barred(caller, now).map_err(|status| refusal("too many attempts", status))?;
        self.is_meant(&request.cluster).map_err(|status| refusal("another cluster", status))?;
        let role = host_role(&request.role).ok_or_else(|| {
            refusal(
                "role",
                Status::invalid_argument(format!(
                    "{:?} is not a role of a host; expected node, proxy or openssh",
                    shown(&request.role)
                )),
            )
        })?;
        let name = registered_name(role, &request.name, &self.config.cluster)
            .map_err(|status| refusal("name", status))?;
        let public_names = self.asked_names(role, request).map_err(|status| refusal("name", status))?;
        let mut wanted = HostRecord {
            id: HostId::new(),
            name,
            role,
            join_id: Uuid::new_v4(),
            in_process: false,
            labels: std::collections::BTreeMap::new(),
            public_names,
            bounds: sallyport_access::Bounds::default(),
        };
        // A registered server that joins keeps its id.
        if role == HostRole::OpenSsh
            && let [registered] = self.registry.names.find(wanted.name.as_str(), Some(role)).as_slice()
        {
            wanted.id = registered.id;
        }
        let Spent { token, reserved, server } = match self.spend(request, &wanted, now).await {
            Ok(spent) => spent,
            Err(refusal) => {
                self.guesses.note(caller, now);
                return Err(refusal);
            }
        };
        let (host_id, bounds) = (wanted.id, token.bounds.clone());
        let host = HostRecord { labels: token.labels.clone(), bounds: token.bounds, ..wanted };
        let mut replaced = None;
        if let Some(id) = token.replaces {
            let stored = self.store.get::<HostRecord>(&id.to_string(), now).await;
            replaced = stored.map_err(|error| unreadable(&error))?.map(|stored| stored.value);
        }
        let joining = Joining { host, server, replaced };
        let answer = self.admit(caller, joining, request, now).await;
        let answer = answer.map_err(|status| refusal("certificates", status))?;
        reserved.keep();
        self.registry.names.allow(host_id, bounds);
        Ok(answer)
    }

    /// Asked before the token is spent: a host that means another cluster refuses the certificates that it gets here.
    fn is_meant(&self, cluster: &str) -> Result<(), Status> {
        if cluster.is_empty() || cluster == self.config.cluster.as_str() {
            return Ok(());
        }
        let other = ClusterName::new(cluster)
            .map_err(|error| Status::invalid_argument(format!("the cluster that the host means: {error}")))?;
        Err(Status::invalid_argument(format!(
            "this is the authority of the cluster {own}, and the host is configured for the cluster {other}; put cluster: {own} \
             into its configuration and start it again with the same token, which is not spent, or give it the address, \
             token and pin of {other}",
            own = self.config.cluster,
        )))
    }

    /// Takes one use of a token and the names that the host wants, in one step each: of two hosts that come at once with a
    /// token for one, or with one name, one is refused.
    async fn spend(
        &self,
        request: &v1::JoinRequest,
        wanted: &HostRecord,
        now: OffsetDateTime,
    ) -> Result<Spent<'_>, JoinRefusal> {
        let refuse = |reason, text: &str| refusal(reason, Status::permission_denied(text.to_owned()));
        let next = make_one(wanted.role);
        let name: String = request.token.chars().take(TOKEN_NAME).collect();
        let mut reserved = None;
        let mut server = None;
        for attempt in 0..JOIN_ATTEMPTS {
            if attempt > 0 {
                // Of those that join at this moment one got ahead; they shall not all try again at once.
                tokio::time::sleep(JOIN_PAUSE.mul_f64(chance())).await;
            }
            let stored =
                self.store.get::<TokenRecord>(&name, now).await.map_err(|error| unreadable(&error))?;
            let Some(stored) = stored.filter(|stored| {
                constant_time_eq(stored.value.hash.as_bytes(), hash_of(&request.token).as_bytes())
            }) else {
                return Err(refuse("wrong token", &format!("this token is not known; {next}")));
            };
            let mut token = stored.value;
            if token.expires <= now {
                return Err(refuse("stale token", &format!("this token has expired; {next}")));
            }
            if token.role != wanted.role {
                let text = format!(
                    "this token is for a {}, not a {}; {next}",
                    token.role.name(),
                    wanted.role.name()
                );
                return Err(refuse("token for another role", &text));
            }
            if token.uses_left == 0 {
                return Err(refuse("spent token", &format!("this token has been used; {next}")));
            }
            // Asked before the token is spent, so that what is wrong can be mended and tried again with it; and behind the
            // token, so that only the holder of a token is told what is registered.
            if let Some(problem) = self.beyond_token(&token, wanted) {
                return Err(refuse("token for other names", &problem));
            }
            self.issuance
                .takes_keys(&request.ssh_public_key, &request.tls_public_key)
                .map_err(|status| refusal("keys", status))?;
            if wanted.role == HostRole::OpenSsh {
                let labels: Labels = token.labels.clone().into_iter().collect();
                let joins =
                    self.servers.joining_server(request, wanted, labels, token.replaces.is_some(), now).await;
                server = Some(joins.map_err(|status| refusal("server", status))?);
            }
            if reserved.is_none() {
                let claim = Claim::of(wanted, &self.config.cluster);
                let taken = |taken: Taken| refusal("name", Status::already_exists(taken.advice(wanted.role)));
                reserved = Some(self.registry.names.reserve(claim, token.replaces).map_err(taken)?);
            }
            token.uses_left -= 1;
            match self.store.update(&name, stored.revision, &token, stored.expires, now).await {
                Ok(_) => {
                    let Some(reserved) = reserved.take() else { break };
                    return Ok(Spent { token, reserved, server });
                }
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
                Err(error) => return Err(unreadable(&error)),
            }
        }
        Err(refuse("contention", "too many hosts join with this token at this moment; try again"))
    }

    /// Why a token does not let a host have the names that it wants.
    fn beyond_token(&self, token: &TokenRecord, wanted: &HostRecord) -> Option<String> {
        let replaced = token.replaces.and_then(|id| self.registry.names.find(&id.to_string(), None).pop());
        if let Some(replaced) = &replaced
            && replaced.name != wanted.name
        {
            return Some(format!(
                "this token is to replace {}, and the host that joins is called {}; join under the name of the one that \
                 it replaces",
                replaced.name, wanted.name
            ));
        }
        let own = replaced.is_none().then(|| wanted.name.as_str());
        let names = own.into_iter().chain(wanted.public_names.iter().map(String::as_str));
        let beyond = names.into_iter().find(|name| {
            let inherited = replaced.as_ref().is_some_and(|replaced| replaced.has(&canonical(name)));
            !inherited && !token.bounds.allow_name(name)
        })?;
        Some(format!(
            "this token is for hosts called {}, not {beyond}; take such a name, or make a token for this one: sallyport \
             admin tokens add --names {beyond}",
            token.bounds.names.join(" or ")
        ))
    }
}
