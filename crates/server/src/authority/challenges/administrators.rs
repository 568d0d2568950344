//! An administrator proves a factor, and may do what is dangerous for some minutes.

use sallyport_audit::{Code, Event};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::Caller;
use crate::authority::challenges::changes::{Own, Spent};
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::records::Purpose;
use crate::authority::gate::administering::how_to_enrol;
use crate::places::Place;

impl Challenges {
    /// Takes a proof of a factor for what is dangerous: for this login, from where it calls. A password is none, so that a user without a
    /// factor proves nothing here.
    pub(crate) async fn prove_administrator(
        &self,
        caller: &Caller,
        own: &Own,
        proof: Option<v1::FactorProof>,
    ) -> Result<v1::ProveAdministratorResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let wanted = Purpose::Administer { asked: None };
        self.accounts.take_over_codes(&own.user, now).await?;
        if self.factors.held(&own.user, now).await?.is_empty() {
            let event = caller.event(Code::ChallengeRefused).message("no factor");
            self.journal.note_caused(caller, event.field("purpose", wanted.word()), "").await?;
            return Err(Status::failed_precondition(format!(
                "you have no factor that you could prove; {}",
                how_to_enrol(self.by_single_sign_on(&own.user))
            )));
        }
        let mut spent = self.prove(caller, own, proof, &wanted, now).await?;
        // On a full disk an administrator removes what fills it.
        spent.urgent = true;
        let factor = spent.means.as_ref().and_then(|means| means.factor.as_ref()).map(|factor| factor.id);
        let at = spent.proven_at;
        // No reset of the user's factors comes between the proof and what it allows.
        let _changing = self.identities.steady().await;
        let event = self.spend_here(caller, own, spent, &wanted, now).await?;
        let until = self.administering.proven(caller, factor, at, now).await?;
        self.journal.record_urgent(vec![event]).await?;
        Ok(v1::ProveAdministratorResponse { until: Some(convert::time_to_proto(until)) })
    }

    /// Spends what an administrator has proven, from where it was begun, and gives what goes on record. The caller holds what
    /// `Identities::steady` gives.
    pub(super) async fn spend_here(
        &self,
        caller: &Caller,
        own: &Own,
        spent: Spent,
        wanted: &Purpose,
        now: OffsetDateTime,
    ) -> Result<Event, Status> {
        self.begun_here(caller, &spent, wanted).await?;
        let means = spent.means.clone();
        self.spend(caller, own, spent, Vec::new(), now).await?;
        let event = caller.event(Code::AdminFactorProven).field("login_id", own.login.to_string());
        Ok(match means {
            Some(means) => means.on(event),
            None => event,
        })
    }

    /// Refuses what was begun at another address than it comes from now.
    pub(super) async fn begun_here(
        &self,
        caller: &Caller,
        spent: &Spent,
        wanted: &Purpose,
    ) -> Result<(), Status> {
        let begun_at = spent.begun_at().map(Place::of);
        if begun_at.is_none_or(|begun| Some(begun) == caller.address().map(Place::of)) {
            return Ok(());
        }
        let event = caller.event(Code::ChallengeRefused).message("begun from another address");
        self.journal.note_caused(caller, event.field("purpose", wanted.word()), "").await?;
        Err(Status::permission_denied(
            "this was begun from another address than it comes from now, and what is proven serves one address; begin again with the \
             command that opened it",
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use sallyport_access::{Identity, UserName, Verb};
    use tonic::Code;
    use uuid::Uuid;

    use super::*;
    use crate::authority::gate::administering::Act;
    use crate::authority::records::{Origin, UserRecord};
    use crate::authority::{AuthConfig, Authority};
    use crate::config::{AdminFactor, AuthenticationSection};
    use crate::dialling::PeerInfo;

    /// An authority whose people prove themselves by these rules.
    pub(in super::super) async fn authority(
        directory: &Path,
        authentication: AuthenticationSection,
    ) -> Authority {
        let config = AuthConfig {
            public_addr: "sallyport.example.org:443".to_owned(),
            authentication,
            ..AuthConfig::of_tests(directory.join("data"))
        };
        Authority::open(config, OffsetDateTime::now_utc()).await.unwrap()
    }

    /// A user of single sign-on, or of the cluster's own.
    pub(in super::super) fn user(name: &str, by_single_sign_on: bool) -> UserRecord {
        let text = || "x".to_owned();
        let origin = Origin { connector: text(), issuer: text(), subject: text() };
        UserRecord {
            name: UserName::new(name).unwrap(),
            roles: Vec::new(),
            traits: Default::default(),
            origin: by_single_sign_on.then_some(origin),
            link: None,
        }
    }

    #[tokio::test]
    async fn administrators_without_a_factor_are_told_the_way_to_one_that_is_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let rules =
            AuthenticationSection { admin_factor: AdminFactor::Required, ..AuthenticationSection::default() };
        let authority = authority(directory.path(), rules).await;
        let identities = &authority.services.identities;
        let challenges = &authority.services.api.factors.challenges;
        let (by_password, by_provider) = ("with your password", "sign in at your provider again");
        for (name, by_single_sign_on, way, not) in
            [("alice", true, by_provider, "password"), ("bob", false, by_password, by_provider)]
        {
            let known = user(name, by_single_sign_on);
            identities.put_user(known.clone(), 1);
            let own = Own { user: known.name.clone(), login: Uuid::new_v4() };
            let identity = identities.identity_of(&known, OffsetDateTime::now_utc());
            let identity = Arc::new(Identity { login_id: own.login, ..identity });
            let caller = Caller::Certified { identity, from: PeerInfo::direct(([192, 0, 2, 1], 7).into()) };
            let act = Act { method: "Admin.CreateUser", verb: Verb::Create, what: "user" };
            let demanded = challenges.administering.demand(&caller, act).await.unwrap_err();
            let proven = challenges.prove_administrator(&caller, &own, None).await.unwrap_err();
            assert_eq!(proven.code(), Code::FailedPrecondition);
            for told in [demanded.message(), proven.message()] {
                assert!(
                    told.contains("add one") && told.contains("sallyport mfa add NAME"),
                    "{name}: {told}"
                );
                assert!(told.contains(way) && !told.contains(not), "{name}: {told}");
            }
        }
    }
}
