//! Connections of local programs to resources of the catalogue.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::future::LocalBoxFuture;

use super::local_clients::{LocalClients, open};
use super::request::Request;
use super::resource_session::ResourceSession;
pub use super::resource_session::Wanted;
use crate::error::Result;
use sallyport_client::profile::{Profiles, Stored};
use sallyport_client::session_factor::Asker;

/// Carries the connections of local programs to resources of one cluster.
#[derive(Debug)]
pub struct Resources(LocalClients);

impl Resources {
    /// With a connection of its own, which is made with the first client and kept for the others.
    pub fn new(profiles: &Profiles, stored: &Stored) -> Self {
        Self(LocalClients::new(profiles, stored))
    }

    /// By the helper, for a program that stays only for a moment: the helper's connection is there already.
    pub fn by_the_helper(profiles: &Profiles, stored: &Stored) -> Self {
        Self(LocalClients::by_the_helper(profiles, stored))
    }

    /// The same, with a way to the person, for second factors that have to be proven first.
    #[must_use]
    pub fn asking(self, asker: Arc<dyn Asker>) -> Self {
        Self(self.0.asking(asker))
    }

    /// Carries one connection until both of its directions have ended. Input and output may be one socket.
    ///
    /// # Errors
    /// When it could not be made, or was lost.
    pub fn carry<'a>(
        &'a self,
        wanted: &'a Wanted,
        input: OwnedFd,
        output: OwnedFd,
    ) -> LocalBoxFuture<'a, Result> {
        Box::pin(async move {
            let (kind, name) = (wanted.kind.row().document.to_owned(), wanted.name.clone());
            if let Some(taken) = self.0.hand_over(Request::Resource { kind, name }, [&input, &output]).await {
                drop((input, output));
                return self.0.wait(taken).await;
            }
            let (transports, own, wanted) = (&self.0.transports, &self.0.own, wanted.clone());
            let stored = self.0.login()?;
            let (input, output) = open(input, output)?;
            let (program, asker) = (None, self.0.asker());
            ResourceSession { own, transports, wanted, input, output, program, asker }.run(stored).await
        })
    }
}
