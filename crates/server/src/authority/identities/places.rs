//! How many logins a user may have open at a time.

use sallyport_access::{RoleName, UserName};
use sallyport_store::{Kind, Op, typed};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::Status;

use crate::authority::identities::logins::{LoginRecord, Logins};
use crate::authority::storage::storage;

/// Longer than any login.
const KEPT: time::Duration = time::Duration::days(8);
/// Logins that a refusal names.
const NAMED: usize = 3;

/// Changes with each login of a user whose logins are counted, under the user's name: of two at once, one counts the other.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PlacesRecord {
    taken: u64,
}

impl Kind for PlacesRecord {
    const KIND: &'static str = "login_places";
}

impl PlacesRecord {
    /// Whether a step failed since another login of the user was opened at the same moment.
    pub(crate) fn is_key(key: &str) -> bool {
        key.strip_prefix(Self::KIND).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Why a user may open no further login.
#[derive(Debug)]
pub(crate) enum NoPlace {
    /// As many are open as a role allows; what the user reads.
    Taken(Status),
    State(Status),
}

impl Logins {
    /// The step that takes a place among so many logins of a user.
    ///
    /// # Errors
    /// There is none, or the state fails.
    pub(crate) async fn place(
        &self,
        user: &UserName,
        (most, role): &(usize, RoleName),
        now: OffsetDateTime,
    ) -> Result<Op, NoPlace> {
        let failed = |error| NoPlace::State(storage(&error));
        // Read before the logins are: one that is opened after this was read is found in the transaction.
        let known = self.store.get::<PlacesRecord>(user.as_str(), now).await.map_err(failed)?;
        let prefix = format!("{}/{user}/", LoginRecord::KIND);
        let open = self.store.backend().list(&prefix, None, *most, now).await.map_err(failed)?;
        if open.len() >= *most {
            let open: Result<Vec<LoginRecord>, _> =
                open.into_iter().map(|item| typed::decode(item).map(|stored| stored.value)).collect();
            return Err(NoPlace::Taken(taken(*most, role, open.map_err(failed)?)));
        }
        let until = Some(now + KEPT);
        match known {
            None => typed::create(user.as_str(), &PlacesRecord::default(), until),
            Some(known) => {
                let next = PlacesRecord { taken: known.value.taken.wrapping_add(1) };
                typed::update(user.as_str(), known.revision, &next, until)
            }
        }
        .map_err(failed)
    }
}

/// The refusal: what is open, the oldest first, and what to do.
fn taken(most: usize, role: &RoleName, mut open: Vec<LoginRecord>) -> Status {
    open.sort_by_key(|login| login.opened.as_ref().map(|opened| opened.at));
    let named: Vec<String> = open
        .iter()
        .take(NAMED)
        .map(|login| match &login.opened {
            Some(opened) => {
                let since = opened.at.replace_nanosecond(0).unwrap_or(opened.at);
                let since = since.format(&Rfc3339).unwrap_or_default();
                let from = opened.address.map(|address| format!(" from {address}")).unwrap_or_default();
                let host = match opened.host_name.as_str() {
                    "" => String::new(),
                    name => format!(", a machine that calls itself {name}"),
                };
                format!("{} (since {since}{from}{host})", login.login_id)
            }
            None => login.login_id.to_string(),
        })
        .collect();
    let more = match open.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Status::failed_precondition(format!(
        "you may have {most} logins at a time (role \"{role}\" options.max_logins), and as many are open: {}{more}. End one where you are \
         logged in (sallyport logout there, or sallyport sessions logins end ID), or ask an administrator (sallyport admin logins end ID)",
        named.join(", ")
    ))
}
