//! What services share of the state: pages, how a document is written, and what a caller may read of a failure.

use sallyport_access::Kind as ResourceKind;
use sallyport_store::{Kind, Op, Store, StoreError, Stored, typed};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::catalogue::kept::of_state;

/// The name of the record of what there is once.
pub(crate) const SELF: &str = "self";

/// Most that is read of one kind at a time. What needs all of a kind goes on behind the last of a page; unit tests have small
/// pages, so that each of them does.
pub(crate) const PAGE: usize = if cfg!(test) { 3 } else { 10_000 };

/// How a document is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Write {
    Create,
    Replace,
    /// As one that may replace, of what was judged as new: what somebody else has made since is not replaced.
    Anew,
    Update(u64),
}

impl Write {
    /// The method that writes so.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Create | Self::Replace | Self::Anew => "Admin.CreateResource",
            Self::Update(_) => "Admin.UpdateResource",
        }
    }
}

pub(crate) fn op<T: sallyport_store::Kind>(
    name: &str,
    value: &T,
    expires: Option<OffsetDateTime>,
    write: Write,
) -> Result<sallyport_store::Op, StoreError> {
    match write {
        Write::Create | Write::Anew => typed::create(name, value, expires),
        Write::Replace => typed::put(name, value, expires),
        Write::Update(revision) => typed::update(name, revision, value, expires),
    }
}

/// Steps that remove something whether it is there or not: what expires or was never there is no reason to fail.
pub(crate) fn removed<T: Kind>(name: &str, value: &T) -> Result<[Op; 2], StoreError> {
    Ok([typed::put(name, value, None)?, typed::delete::<T>(name, None)])
}

/// Everything of one kind: a lock that is not read would lock no one out.
pub(crate) async fn every<T: Kind>(store: &Store, now: OffsetDateTime) -> Result<Vec<Stored<T>>, StoreError> {
    let mut found: Vec<Stored<T>> = Vec::new();
    loop {
        let page = store.list(found.last().map(|last| last.name.as_str()), PAGE, now).await?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page);
    }
}

/// Kinds besides those of the catalogue whose names callers write themselves. Keys of others are the authority's own.
const NAMED: [&str; 9] =
    ["db", "lock", "login_rule", "node", "oidc", "role", "session_policy", "token", "user"];

/// A key as people write it: `app/grafana`. None is of a record whose name no caller writes.
fn named(key: &str) -> Option<String> {
    let (kind, name) = of_state(key)?;
    let named = NAMED.contains(&kind) || ResourceKind::of_document(kind).is_some_and(ResourceKind::is_listed);
    named.then(|| format!("{kind}/{name}"))
}

/// What the caller may read of a failing state.
pub(crate) fn storage(error: &StoreError) -> Status {
    let overtaken = || {
        tracing::debug!(%error, "a change was overtaken by another");
        Status::aborted("this was changed at the same moment by another call; ask again")
    };
    match error {
        StoreError::NotFound { key } => named(key)
            .map_or_else(overtaken, |key| Status::not_found(StoreError::NotFound { key }.to_string())),
        StoreError::Exists { key } => named(key)
            .map_or_else(overtaken, |key| Status::already_exists(StoreError::Exists { key }.to_string())),
        StoreError::Conflict { key, expected, found } => named(key).map_or_else(overtaken, |key| {
            let shown = StoreError::Conflict { key, expected: *expected, found: *found };
            Status::aborted(shown.to_string())
        }),
        StoreError::Full { .. } => {
            tracing::error!(%error, "the state cannot be changed");
            Status::resource_exhausted(
                "the authority's disk is full: make room on it. Locks, ends of sessions and deletions still work",
            )
        }
        StoreError::MemoryFull { .. } => {
            tracing::debug!(%error, "what is being proven takes too much memory");
            Status::resource_exhausted(
                "too many logins are being proven at this moment; try again in some minutes",
            )
        }
        StoreError::NoInode { .. } => {
            tracing::error!(%error, "the state cannot be changed");
            Status::resource_exhausted(
                "the authority's disk is full, since it has no free inode (df -i): remove files from it. Locks, ends of sessions and \
                 deletions still work",
            )
        }
        other => {
            tracing::error!(error = %other, "the state cannot be used");
            Status::unavailable("the authority cannot use its state; its log says why")
        }
    }
}
