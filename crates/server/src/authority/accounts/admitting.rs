//! Logins are held to the cluster's login rules, at each login and when certificates are signed anew.

use std::net::IpAddr;

use sallyport_access::{Device, LoginAsked, LoginClaims};
use sallyport_audit::Event;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::login::{Accounts, LoginRefusal, refusal};
use crate::authority::accounts::means::{Means, Way};
use crate::authority::caller::Caller;
use crate::authority::records::UserRecord;

/// Of a login by single sign-on of which it is not known what the provider said.
pub(crate) static NOT_KNOWN: LoginClaims = LoginClaims::unknown();

/// What a login was proven by and the device that it comes from, as rules see it.
pub(crate) fn asked<'a>(
    user: &'a UserRecord,
    by: Option<&'a Means>,
    address: Option<IpAddr>,
    device: Option<Device>,
) -> LoginAsked<'a> {
    let said = by.and_then(|by| by.said.as_ref());
    let is_sso = by.is_some_and(|by| by.way == Way::SingleSignOn);
    LoginAsked {
        user: &user.name,
        roles: &user.roles,
        traits: &user.traits,
        address,
        way: by.map_or("", |by| by.way.word()),
        factor_kind: by.and_then(|by| by.factor.as_ref()).map_or("", |factor| factor.kind.name()),
        second_factor: by.is_some_and(|by| by.second_factor),
        user_verified: by.is_some_and(|by| by.user_verified),
        single_sign_on: is_sso,
        renewal: false,
        device,
        connector: said.map_or("", |said| said.connector.as_str()),
        claims: is_sso.then(|| said.map_or(&NOT_KNOWN, |said| &said.claims)),
    }
}

impl Accounts {
    /// Refuses what the rules do not let in from there, with the rule on record by this event.
    pub(crate) async fn admit(
        &self,
        (caller, event): (&Caller, Event),
        user: &UserRecord,
        by: &Means,
        (address, device): (Option<IpAddr>, Option<Device>),
        now: OffsetDateTime,
    ) -> Result<(), LoginRefusal> {
        let rules = std::sync::Arc::clone(&self.policy.cache().login_rules);
        match rules.admit(&asked(user, Some(by), address, device), now) {
            Ok(()) => Ok(()),
            Err(denied) => {
                let event = event.user(user.name.as_str());
                let event = event.message(denied.message.clone());
                let event = event.field("rule", denied.rule.clone().unwrap_or_default());
                // A client with one good password can be refused as often as it likes.
                self.journal.note_caused(caller, by.on(event), user.name.as_str()).await?;
                Err(refusal(Status::permission_denied(denied.message), "a login rule"))
            }
        }
    }

    /// By what a login was proven, as its record keeps it: of what a provider said, what the rules look at now.
    pub(super) fn kept(&self, by: &Means) -> Means {
        let mut kept = by.clone();
        if let Some(said) = &mut kept.said {
            said.claims = said.claims.only(&self.policy.cache().login_rules.reads());
        }
        kept
    }
}
