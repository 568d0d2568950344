//! Whether a second factor is proven for a session, as hosts ask that decide about it.

use std::net::IpAddr;

use sallyport_access::Identity;
use sallyport_ca::keys;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::session_factors::asked::{SessionFactors, own_of};

impl SessionFactors {
    /// The user whose certificate a host shows, as they are now, and as they come from where the host says. Where they come from is the host's
    /// word: a certificate that is refused, for whatever reason, counts for this host alone.
    pub(crate) fn shown(
        &self,
        host: &Identity,
        shown: Option<&v1::ShownCertificate>,
        from: Option<IpAddr>,
    ) -> Result<Identity, Status> {
        self.gate.verifies(host, from)?;
        self.user_of(shown, from).inspect_err(|_| self.gate.note_bad(host, from))
    }

    fn user_of(
        &self,
        shown: Option<&v1::ShownCertificate>,
        from: Option<IpAddr>,
    ) -> Result<Identity, Status> {
        let now = OffsetDateTime::now_utc();
        let identity = self.verified(shown, now)?;
        identity.comes_from(from).map_err(|elsewhere| denied(&elsewhere))?;
        self.gate.check_locks(&identity, now)?;
        Ok(self.identities.current(&identity)?.into_owned())
    }

    fn verified(
        &self,
        shown: Option<&v1::ShownCertificate>,
        now: OffsetDateTime,
    ) -> Result<Identity, Status> {
        use v1::shown_certificate::Certificate;
        let authorities = self.issuance.authorities();
        let trust = authorities.trust();
        let identity = match shown.and_then(|shown| shown.certificate.as_ref()) {
            Some(Certificate::Ssh(line)) => {
                let certificate = keys::certificate(line).map_err(|error| denied(&error))?;
                trust.verify_user_ssh(&certificate, now).map_err(|error| denied(&error))?
            }
            Some(Certificate::Tls(der)) => trust.identify_tls(der, now).map_err(|error| denied(&error))?,
            None => return Err(Status::permission_denied("the call shows no certificate of a user")),
        };
        own_of(&identity).map(|_| identity)
    }

    /// Whether a factor is proven for a session about which this host decides.
    pub(crate) async fn check(
        &self,
        host: &Identity,
        request: &v1::CheckSessionFactorRequest,
    ) -> Result<v1::CheckSessionFactorResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let asked = request
            .target
            .as_ref()
            .ok_or_else(|| Status::invalid_argument("the call does not say which session it is about"))?;
        let with = self.targets.find(asked)?;
        if !self.targets.is_decided_by(host, &with) {
            return Err(Status::permission_denied(format!(
                "{} decides about no session with {}",
                host.display_name(),
                with.name()
            )));
        }
        let from = address(&request.address)?;
        let user = self.shown(host, request.certificate.as_ref(), Some(from))?;
        let Some(demand) = self.targets.demand(&user, &with, asked, now)? else {
            return Ok(v1::CheckSessionFactorResponse { satisfied: true, ..Default::default() });
        };
        let own = own_of(&user)?;
        let proven = self.proofs(&own, from, now).of(&demand).await?;
        let result = if proven.is_some() { "proven" } else { "missing" };
        metrics::counter!("sallyport_session_factors_checked_total", "result" => result).increment(1);
        Ok(match proven {
            Some((factor, until)) => v1::CheckSessionFactorResponse {
                satisfied: true,
                demand: String::new(),
                factor,
                until: Some(convert::time_to_proto(until)),
            },
            None => v1::CheckSessionFactorResponse {
                demand: demand.rule.factor.as_str().to_owned(),
                ..Default::default()
            },
        })
    }
}

fn denied(problem: &dyn std::fmt::Display) -> Status {
    Status::permission_denied(format!("the user's certificate: {problem}"))
}

/// An address as a proxy or an agent tells it, with a port or without.
pub(crate) fn address(text: &str) -> Result<IpAddr, Status> {
    let with_port = || text.parse::<std::net::SocketAddr>().map(|address| address.ip());
    text.parse::<IpAddr>().or_else(|_| with_port()).map(|ip| ip.to_canonical()).map_err(|_| {
        Status::invalid_argument("the client's address is no IP address, with or without a port")
    })
}
