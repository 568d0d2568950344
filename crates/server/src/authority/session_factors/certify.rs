//! Certificates of a minute that say what was proven for which sessions: evidence for hosts that cannot ask.

use sallyport_access::{Identity, SessionProof, SessionTarget};
use sallyport_audit::Code;
use sallyport_ca::{CaKind, UserPair};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::{Caller, NOWHERE};
use crate::authority::challenges::records::State;
use crate::authority::issuance::issued::with_certificates;
use crate::authority::session_factors::asked::{SessionFactors, own_of};

/// Sessions that one certificate names: it goes along with every handshake.
const MOST_TARGETS: usize = 16;

fn named(target: &SessionTarget) -> v1::SessionTarget {
    v1::SessionTarget {
        kind: target.kind.row().document.to_owned(),
        resource: target.resource.clone(),
        account: target.account.clone().unwrap_or_default(),
        db_name: target.db_name.clone().unwrap_or_default(),
    }
}

impl SessionFactors {
    /// Certifies the keys of the caller's login for a minute, with what was proven by a challenge of that login and still serves.
    pub(crate) async fn certify(
        &self,
        caller: &Caller,
        user: &Identity,
        request: &v1::CertifySessionRequest,
    ) -> Result<v1::CertifySessionResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let own = own_of(user)?;
        let stored = self.asked(caller, &own, &request.challenge, now).await?;
        let asked =
            stored.value.purpose.sessions().filter(|_| matches!(stored.value.state, State::Proven(_)));
        let asked = asked.ok_or_else(|| {
            Status::failed_precondition("this approval is not proven; open its page, or give a one-time code")
        })?;
        if asked.all || asked.targets.len() > MOST_TARGETS {
            return Err(Status::failed_precondition(format!(
                "a certificate names at most {MOST_TARGETS} sessions; what you have proven serves without one"
            )));
        }
        let authorities = self.issuance.with_signer(CaKind::User).await?;
        let pair = UserPair::verify(
            authorities.trust(),
            &request.ssh_certificate,
            &request.tls_certificate_pem,
            now,
        )
        .map_err(|error| Status::permission_denied(format!("the certificates: {error}")))?;
        if pair.identity().login_id != user.login_id {
            return Err(Status::permission_denied(
                "these certificates are not of the login that this connection was made with",
            ));
        }
        let address = caller.address().unwrap_or(NOWHERE.ip()).to_canonical();
        let (mut name, mut targets) = (None, Vec::new());
        let mut proofs = self.proofs(&own, address, now);
        for asked in asked.targets.iter().map(|named| &named.target) {
            let request = named(asked);
            let with = self.targets.find(&request)?;
            let Some(demand) = self.targets.demand(user, &with, &request, now)? else { continue };
            let Some((factor, _)) = proofs.of(&demand).await? else {
                return Err(Status::failed_precondition(
                    "what you have proven serves no more, or not from here; prove it anew",
                ));
            };
            name = Some(factor);
            targets.push(asked.clone());
        }
        let Some(name) = name else {
            return Err(Status::failed_precondition("no role demands a factor for these sessions any more"));
        };
        let proof = SessionProof { factor: asked.factor, targets, address, name };
        let issued = pair.for_sessions(authorities.signer(CaKind::User)?, now, &proof).map_err(|error| {
            Status::failed_precondition(format!(
                "your certificates end too soon: {error}; log in again: sallyport login"
            ))
        })?;
        let event = caller
            .event(Code::CertIssued)
            .field("login_id", user.login_id.to_string())
            .field("ttl_seconds", (issued.valid_before - now).whole_seconds())
            .field("session_factor", proof.name.clone())
            .field("sessions", proof.targets.len());
        self.journal.record(vec![with_certificates(event, &issued.issued)]).await?;
        Ok(v1::CertifySessionResponse {
            ssh_certificate: issued.ssh,
            tls_certificate_pem: issued.tls_pem,
            expires: Some(convert::time_to_proto(issued.valid_before)),
        })
    }
}
