//! Connections of local database clients.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::future::LocalBoxFuture;

use super::database_session::DatabaseSession;
use super::forwarder::refusal;
use super::local_clients::{LocalClients, open};
use super::request::Request;
use crate::error::Result;
use sallyport_client::error::Doing;
use sallyport_client::profile::{Profiles, Stored};
use sallyport_client::session_factor::Asker;

/// Carries the connections of local clients to databases of one cluster.
#[derive(Debug)]
pub struct Databases(LocalClients);

impl Databases {
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

    /// Carries one connection to its end. `early` is what the client has said already, its first packet at least.
    ///
    /// # Errors
    /// When it could not be made, which the client has been told too, or was lost.
    pub fn carry<'a>(
        &'a self,
        database: &'a str,
        early: Vec<u8>,
        client: OwnedFd,
    ) -> LocalBoxFuture<'a, Result> {
        Box::pin(async move {
            let request = Request::Database { name: database.to_owned(), early: early.clone() };
            match self.0.hand_over(request, [&client, &client]).await {
                Some(taken) => self.0.wait(taken).await,
                None => self.alone(database, early, client).await,
            }
        })
    }

    async fn alone(&self, database: &str, early: Vec<u8>, client: OwnedFd) -> Result {
        let twice = client.try_clone().doing("take the client's connection")?;
        let (input, output) = open(twice, client)?;
        let stored = match self.0.login() {
            Ok(stored) => stored,
            Err(error) => {
                let _ = output.write_all(refusal(&error).into()).await;
                return Err(error);
            }
        };
        let (transports, own, database) = (&self.0.transports, &self.0.own, database.to_owned());
        let (program, asker) = (None, self.0.asker());
        DatabaseSession { own, transports, database, early, input, output, program, asker }.run(stored).await
    }
}
