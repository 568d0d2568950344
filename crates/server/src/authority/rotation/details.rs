//! Everything about one CA and its rotation, for administrators.

use sallyport_ca::CaKind;
use sallyport_ca::rotation::{Mode, Phase};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::issuance::authorities::Authorities;
use crate::authority::issuance::words::ca_status;
use crate::authority::issuance::words::rotation;
use crate::authority::rotation::by_hand::chores;
use crate::authority::rotation::confirmations::Lagging;
use crate::authority::rotation::steps::Rotations;

impl Rotations {
    /// Everything about one CA, and how many hosts there are.
    pub(crate) async fn details(
        &self,
        authorities: &Authorities,
        kind: CaKind,
    ) -> Result<(v1::CaDetails, usize), Status> {
        let now = OffsetDateTime::now_utc();
        let entry = authorities
            .entry(kind)
            .ok_or_else(|| Status::unavailable(format!("there is no {kind} CA yet")))?;
        let state = &entry.state;
        let current = state.rotation();
        let (behind, hosts) = self.confirmations.hosts_behind(state, now).await?;
        let trust = authorities.trust();
        let (mode, grace) = match current.mode {
            Mode::Manual => ("manual", None),
            Mode::Automatic { grace } => ("automatic", std::time::Duration::try_from(grace).ok()),
        };
        // In standby no rotation waits for a host.
        let behind = if current.phase == Phase::Standby { Vec::new() } else { behind };
        let details = v1::CaDetails {
            ca: Some(ca_status(self.issuance.custodies(), &entry.signer, trust)),
            other: entry.also_trusted.first().map(|other| ca_status(self.issuance.custodies(), other, trust)),
            mode: mode.to_owned(),
            grace: grace.map(convert::duration_to_proto),
            started: Some(convert::time_to_proto(current.started)),
            phase_since: Some(convert::time_to_proto(current.phase_since)),
            due: current.due().map(convert::time_to_proto),
            next_phase: current.phase.next().name().to_owned(),
            lagging: behind.iter().map(lagging).collect(),
            by_hand: chores(state),
        };
        Ok((details, hosts))
    }
}

fn lagging(host: &Lagging) -> v1::LaggingHost {
    v1::LaggingHost {
        id: host.id.to_string(),
        name: host.name.to_string(),
        role: host.role.name().to_owned(),
        applied: host.applied.map(rotation),
        last_seen: host.seen.map(convert::time_to_proto),
        valid_until: Some(convert::time_to_proto(host.valid_until)),
        old_certificate: host.old_certificate,
    }
}
