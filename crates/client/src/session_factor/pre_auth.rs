//! A factor that is proven before the sessions that demand it.

use futures::future::BoxFuture;
use sallyport_wire::v1::SessionTarget;
use time::OffsetDateTime;

use super::authority::{Authority, Ended};
use super::conversing::converse;
use super::question::{Asker, all_shown};
use crate::demanded;
use crate::error::{Error, Result};
use crate::profile::Stored;

/// For what a factor is proven beforehand.
#[derive(Debug, Clone, PartialEq)]
pub enum PreAuth {
    /// All that the user may use.
    All,
    /// These.
    Targets(Vec<SessionTarget>),
}

/// Proves a factor beforehand, for so long as the roles allow and at most for `seconds`; gives until when it serves new sessions. None:
/// the roles demand nothing there, or it is proven already.
///
/// # Errors
/// It was refused, the person cannot be asked, or the authority does not answer.
pub fn pre_auth<'a>(
    stored: &'a Stored,
    targets: PreAuth,
    seconds: u32,
    asker: &'a dyn Asker,
) -> BoxFuture<'a, Result<Option<OffsetDateTime>>> {
    Box::pin(async move {
        let (all, targets) = match targets {
            PreAuth::All => (true, Vec::new()),
            PreAuth::Targets(targets) => {
                let cluster = &stored.profile.cluster;
                (false, targets.into_iter().map(|target| demanded::at(target, cluster)).collect())
            }
        };
        let authority = Authority { pre_auth_seconds: seconds, all, ..Authority::of(stored).await? };
        let what = match (all, seconds) {
            (false, _) => all_shown(&targets),
            (true, 0) => "every session, for as long as your roles allow".to_owned(),
            (true, seconds) => format!("every session that begins within {seconds} s"),
        };
        match converse(&authority, asker, targets, &what, None).await?.0 {
            Ended::Proven(until) => Ok(until),
            Ended::Refused => Err(Error::FactorRefused { what }),
        }
    })
}
