//! Open logins under the cluster's login rules: when their certificates are signed anew, and what the rules would come to.

use std::net::IpAddr;

use sallyport_access::{Device, Identity, LoginAsked, UserName};
use sallyport_audit::Code;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::admitting::{NOT_KNOWN, asked};
use crate::authority::accounts::means::{Said, Way};
use crate::authority::caller::{Caller, shown};
use crate::authority::identities::logins::{LoginRecord, Logins, OpenedBy, name_of};
use crate::authority::storage::storage;

impl Logins {
    /// Refuses new certificates for a login that the rules would not let in now, as it was proven then and from where it asks.
    pub(crate) async fn admit_renewal(
        &self,
        caller: &Caller,
        identity: &Identity,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let rules = std::sync::Arc::clone(&self.policy.cache().login_rules);
        let Some(user) = identity.user().and_then(|name| self.identities.user(name)) else { return Ok(()) };
        if rules.is_empty() {
            return Ok(());
        }
        let stored = self.store.get::<LoginRecord>(&name_of(&user.name, identity.login_id), now).await;
        let opened = stored.map_err(|error| storage(&error))?.and_then(|stored| stored.value.opened);
        let by = match opened.as_ref().map(|opened| &opened.by) {
            Some(OpenedBy::User(means)) => Some(means),
            // An administrator had its certificates made: nothing was proven that rules could look at.
            Some(OpenedBy::Signed(_)) => return Ok(()),
            // An earlier release let it in.
            None => None,
        };
        let asked = LoginAsked { renewal: true, ..asked(&user, by, caller.address(), identity.device) };
        let Err(denied) = rules.admit(&asked, now) else { return Ok(()) };
        let event = caller.event(Code::LoginDenied).message(denied.message.clone());
        let event = event.field("rule", denied.rule.unwrap_or_default()).field("renewal", true);
        let event = event.field("login_id", identity.login_id.to_string());
        self.journal.note_caused(caller, event, "renewal").await?;
        Err(Status::permission_denied(denied.message))
    }

    /// What the rules would come to for a login that is described, from this device and with this word of a provider.
    pub(crate) fn test_rules(
        &self,
        request: &v1::TestLoginRulesRequest,
        device: Option<Device>,
        said: Option<&Said>,
    ) -> Result<v1::TestLoginRulesResponse, Status> {
        let name = UserName::new(request.user.as_str())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let user = self
            .identities
            .user(&name)
            .ok_or_else(|| Status::not_found(format!("there is no user {name}")))?;
        let address = match request.address.as_str() {
            "" => None,
            text => Some(
                text.parse::<IpAddr>()
                    .map_err(|_| Status::invalid_argument(format!("{:?} is no address", shown(text))))?,
            ),
        };
        let now = request.time.as_ref().and_then(convert::time_from_proto);
        let now = now.unwrap_or_else(OffsetDateTime::now_utc);
        let single_sign_on = request.way == Way::SingleSignOn.word();
        if said.is_some() && !single_sign_on {
            return Err(Status::invalid_argument(format!(
                "a login by {:?} goes by no connector; leave it out, or try the way {:?}",
                shown(&request.way),
                Way::SingleSignOn.word()
            )));
        }
        let asked = LoginAsked {
            way: &request.way,
            factor_kind: &request.factor_kind,
            second_factor: request.second_factor,
            user_verified: request.user_verified,
            single_sign_on,
            renewal: request.renewal,
            connector: said.map_or("", |said| said.connector.as_str()),
            claims: single_sign_on.then(|| said.map_or(&NOT_KNOWN, |said| &said.claims)),
            ..asked(&user, None, address, device)
        };
        let rules = std::sync::Arc::clone(&self.policy.cache().login_rules);
        let outcomes = rules.outcomes(&asked, now);
        let denied = rules.judge(&outcomes).err();
        let outcomes = outcomes.into_iter().map(|outcome| v1::LoginRuleOutcome {
            rule: outcome.rule,
            then: outcome.then.as_str().to_owned(),
            meets: matches!(outcome.meets, Ok(true)),
            problem: outcome.meets.err().map(|error| error.to_string()).unwrap_or_default(),
        });
        let outcomes = outcomes.collect();
        Ok(v1::TestLoginRulesResponse {
            allowed: denied.is_none(),
            message: denied.map(|denied| denied.message).unwrap_or_default(),
            outcomes,
        })
    }
}
