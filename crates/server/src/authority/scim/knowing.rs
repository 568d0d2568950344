//! What a connector's SCIM client has made is read once, and kept true by every change.

use std::sync::Arc;

use sallyport_access::ResourceName;
use sallyport_scim::{BackendError, Each, Kind, Resource};
use time::OffsetDateTime;

use super::directory::{RESOURCES, state};
use super::held::Held;
use super::known::Known;
use super::provisioning::Provisioning;
use super::records::{ScimRecord, kind_key};

impl Provisioning {
    /// Shows every resource of a kind that the client of a connector has made.
    pub(super) async fn every(
        &self,
        connector: &ResourceName,
        kind: Kind,
        each: &mut Each<'_>,
    ) -> Result<(), BackendError> {
        let now = OffsetDateTime::now_utc();
        let below = kind_key(connector, kind);
        let mut after = None::<String>;
        loop {
            let page = self.store.list_below::<ScimRecord>(&below, after.as_deref(), RESOURCES, now);
            let page = page.await.map_err(state)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.name.clone());
            page.iter().for_each(|stored| each(&stored.value.resource));
        }
    }

    /// What there is. The caller holds `changing`.
    pub(super) async fn known(&self, connector: &ResourceName) -> Result<Arc<Known>, BackendError> {
        if let Some(known) = self.known.lock().get(connector) {
            return Ok(Arc::clone(known));
        }
        let (mut known, mut failed) = (Known::default(), None);
        for kind in Kind::ALL {
            let mut count = |resource: &Resource| {
                match Held::of(resource) {
                    Ok(one) => known.held = known.held.with(one),
                    Err(error) => failed = Some(error),
                }
                known.note(None, Some(resource));
            };
            self.every(connector, *kind, &mut count).await?;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let known = Arc::new(known);
        self.known.lock().insert(connector.clone(), Arc::clone(&known));
        Ok(known)
    }

    /// Takes what is known out, for a change that the caller makes, who holds `changing` written. Unless it is [kept](Self::keep)
    /// after that, it is read anew: what a change has left that failed half-way is not known.
    pub(super) fn out(&self, connector: &ResourceName, known: Arc<Known>) -> Known {
        self.known.lock().remove(connector);
        Arc::unwrap_or_clone(known)
    }

    pub(super) fn keep(&self, connector: &ResourceName, known: Known) {
        self.known.lock().insert(connector.clone(), Arc::new(known));
    }
}
