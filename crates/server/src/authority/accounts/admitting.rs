//! Logins are held to the cluster's login rules, at each login and when certificates are signed anew.

use std::net::IpAddr;

use sallyport_access::{Device, LoginAsked};
use sallyport_audit::Code;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::login::{Accounts, LoginRefusal, refusal};
use crate::authority::accounts::means::{Means, Way};
use crate::authority::caller::Caller;
use crate::authority::records::UserRecord;

/// What a login was proven by and the device that it comes from, as rules see it.
pub(crate) fn asked<'a>(
    user: &'a UserRecord,
    by: Option<&'a Means>,
    address: Option<IpAddr>,
    device: Option<Device>,
) -> LoginAsked<'a> {
    LoginAsked {
        user: &user.name,
        roles: &user.roles,
        traits: &user.traits,
        address,
        way: by.map_or("", |by| by.way.word()),
        factor_kind: by.and_then(|by| by.factor.as_ref()).map_or("", |factor| factor.kind.name()),
        second_factor: by.is_some_and(|by| by.second_factor),
        user_verified: by.is_some_and(|by| by.user_verified),
        single_sign_on: by.is_some_and(|by| by.way == Way::SingleSignOn),
        renewal: false,
        device,
    }
}

impl Accounts {
    /// Refuses a login that the rules do not let in, with the rule on record.
    pub(super) async fn admit(
        &self,
        caller: &Caller,
        user: &UserRecord,
        by: &Means,
        device: Option<Device>,
        now: OffsetDateTime,
    ) -> Result<(), LoginRefusal> {
        let rules = std::sync::Arc::clone(&self.policy.cache().login_rules);
        match rules.admit(&asked(user, Some(by), caller.address(), device), now) {
            Ok(()) => Ok(()),
            Err(denied) => {
                let event = caller.event(Code::LoginDenied).user(user.name.as_str());
                let event = event.message(denied.message.clone());
                let event = event.field("rule", denied.rule.clone().unwrap_or_default());
                // A client with one good password can be refused as often as it likes.
                self.journal.note_caused(caller, by.on(event), user.name.as_str()).await?;
                Err(refusal(Status::permission_denied(denied.message), "a login rule"))
            }
        }
    }
}
