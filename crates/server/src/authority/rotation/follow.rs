//! Users' programs that follow a rotation: the trust in force, and certificates of the CA that has taken over.

use sallyport_access::{Identity, UserName};
use sallyport_audit::Code;
use sallyport_ca::{CaError, CaKind, DeviceAct, UserPair};
use sallyport_store::Op;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::Caller;
use crate::authority::devices::challenges::Good;
use crate::authority::issuance::issued::with_certificates;
use crate::authority::issuance::words::wire_bundle;
use crate::authority::records::UserRecord;
use crate::authority::rotation::steps::Rotations;
use crate::authority::storage::storage;

impl Rotations {
    /// The trust, and new certificates where the caller's were signed by a CA that does not sign any more. They are of
    /// the same login, keys and rights, and end when the old ones would have: no user gains a minute by it.
    pub(crate) async fn follow_rotation(
        &self,
        caller: &Caller,
        identity: &Identity,
        request: &v1::FollowRequest,
    ) -> Result<v1::FollowResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let Some(user) = identity.user() else {
            return Err(Status::permission_denied("hosts renew their own certificates; this is for users"));
        };
        let authorities = self.issuance.authorities();
        let trust = authorities.trust();
        let mut answer = v1::FollowResponse {
            trust: Some(wire_bundle(trust)),
            version: trust.version(),
            ..v1::FollowResponse::default()
        };
        if request.ssh_certificate.is_empty() && request.tls_certificate_pem.is_empty() {
            return Ok(answer);
        }
        let pair = UserPair::verify(trust, &request.ssh_certificate, &request.tls_certificate_pem, now)
            .map_err(|error| Status::permission_denied(error.to_string()))?;
        if pair.identity().login_id == identity.login_id && pair.identity().principal != identity.principal {
            return Err(Status::permission_denied(
                "your rights have changed since this login; log in again: sallyport login",
            ));
        }
        if pair.identity().login_id != identity.login_id {
            return Err(Status::permission_denied(
                "these certificates are not of the login that this connection was made with",
            ));
        }
        let signer = authorities.signer(CaKind::User)?;
        if pair.is_signed_by(signer) {
            return Ok(answer);
        }
        let known =
            self.store.get::<UserRecord>(user.as_str(), now).await.map_err(|error| storage(&error))?;
        if known.is_none() {
            return Err(Status::permission_denied(format!("there is no user {user} any more")));
        }
        self.logins.admit_renewal(caller, identity, now).await?;
        let spent = self.word_of_device(&pair, user, request, now).await?;
        let issued = match pair.reissue(signer, now) {
            Ok(issued) => issued,
            // What is left of them is over before it matters.
            Err(CaError::BadLifetime { .. }) => return Ok(answer),
            Err(error) => {
                tracing::error!(%error, "a user's certificates were not signed anew");
                return Err(Status::unavailable(
                    "the certificates cannot be signed; the authority's log says why",
                ));
            }
        };
        if !spent.is_empty() {
            self.store.backend().transact(spent, now).await.map_err(|error| match error {
                error if Good::was_used(&error) => {
                    Status::permission_denied("what the device has signed was used already; log in again")
                }
                error => storage(&error),
            })?;
        }
        let event = caller
            .event(Code::CertIssued)
            .user(user.as_str())
            .field("login_id", identity.login_id.to_string())
            .field("ssh_serial", issued.serials.ssh.to_string())
            .field("tls_serial", issued.serials.tls.clone())
            .field("ssh_fingerprint", issued.ssh_fingerprint.clone())
            .field("ttl_seconds", (issued.valid_before - now).whole_seconds())
            .field("reissued", true);
        let event = with_certificates(event, &issued.issued);
        self.journal.record(vec![event]).await?;
        answer.ssh_certificate = issued.ssh;
        answer.tls_certificate_pem = issued.tls_pem;
        Ok(answer)
    }

    /// What uses the word of the device that a login came from: its certificates go on as those of that device, so that they are signed anew
    /// for that device alone, while it is its user's.
    async fn word_of_device(
        &self,
        pair: &UserPair,
        user: &UserName,
        request: &v1::FollowRequest,
        now: OffsetDateTime,
    ) -> Result<Vec<Op>, Status> {
        let Some(from) = pair.identity().device else { return Ok(Vec::new()) };
        let act = |device| DeviceAct::Renew {
            device,
            ssh_certificate: &request.ssh_certificate,
            tls_certificate_pem: &request.tls_certificate_pem,
        };
        let word = self.devices.heard(request.device.as_ref(), act, now).await.map_err(|not| not.status)?;
        let word = word.filter(|word| word.device == from.id).ok_or_else(|| {
            Status::permission_denied(
                "these certificates are of a login from a trusted device, which has to sign for new ones: log in again, sallyport login",
            )
        })?;
        let (device, seen) = self.devices.admit(word.device, user, now).await.map_err(|not| not.status)?;
        if device != from {
            return Err(Status::permission_denied(
                "the device is another one now than the certificates say: log in again, sallyport login",
            ));
        }
        Ok([seen].into_iter().chain(word.spent).collect())
    }
}
