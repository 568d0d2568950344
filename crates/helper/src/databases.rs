//! Connections of local database clients, carried by the helper where one can be had, else by connections to the proxy
//! of this process's own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::end_to_end::{EndToEnd, Own};
use super::endpoint::{self, Endpoint, Taken};
use super::ends::Ends;
use super::forwarder::refusal;
use super::request::Request;
use super::setting::Setting;
use super::transports::{Login, Transports};
use crate::error::Result;
use sallyport_client::error::Doing;
use sallyport_client::profile::{Profiles, Stored};

/// Carries the connections of local clients to databases of one cluster.
pub struct Databases {
    profiles: Profiles,
    stored: Stored,
    /// Ask the helper first.
    helper: Setting,
    transports: Transports,
    own: Own,
}

impl std::fmt::Debug for Databases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Databases").field("proxy", &self.stored.profile.proxy).finish_non_exhaustive()
    }
}

impl Databases {
    /// With a connection of its own, which is made with the first client and kept for the others.
    pub fn new(profiles: &Profiles, stored: &Stored) -> Self {
        // Of several logins it is this one, whatever becomes the current one meanwhile.
        let profiles = profiles.at(&stored.profile.proxy);
        let transports = Transports::new(profiles.clone(), stored.directory.clone());
        Self { profiles, stored: stored.clone(), helper: Setting::Off, transports, own: Own::default() }
    }

    /// By the helper, for a program that stays only for a moment: the helper's connection is there already.
    pub fn by_the_helper(profiles: &Profiles, stored: &Stored) -> Self {
        // The helper has chosen its cryptography already.
        let chosen = std::env::var_os("SALLYPORT_CRYPTO").is_some_and(|value| !value.is_empty());
        let helper = if chosen { Setting::Off } else { Setting::here() };
        Self { helper, ..Self::new(profiles, stored) }
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
            match self.hand_over(database, &early, &client).await {
                Some(taken) => wait(taken).await,
                None => self.alone(database, early, client).await,
            }
        })
    }

    async fn hand_over(&self, database: &str, early: &[u8], client: &OwnedFd) -> Option<Taken> {
        let Setting::On { idle } = self.helper else { return None };
        let client = client.try_clone().ok()?;
        let (directory, proxy) = (self.stored.directory.clone(), self.stored.profile.proxy.clone());
        let request = Request::Database { name: database.to_owned(), early: early.to_vec() };
        // Starting one takes a moment, in which other clients want to be served.
        let asked = tokio::task::spawn_blocking(move || {
            let endpoint = Endpoint { directory: &directory, proxy: &proxy, idle };
            endpoint.ask(&request, [client.as_fd(), client.as_fd()])
        });
        asked.await.ok().flatten()
    }

    async fn alone(&self, database: &str, early: Vec<u8>, client: OwnedFd) -> Result {
        let doing = "take the client's connection";
        let twice = client.try_clone().doing(doing)?;
        let (input, output) = Ends::new(vec![twice, client]).and_then(Ends::open).doing(doing)?;
        let stored = match self.login() {
            Ok(stored) => stored,
            Err(error) => {
                let _ = output.write_all(refusal(&error).into()).await;
                return Err(error);
            }
        };
        let (transports, own, database) = (&self.transports, &self.own, database.to_owned());
        EndToEnd { own, transports, database, early, input, output, program: None }.run(stored).await
    }

    fn login(&self) -> Result<Arc<Stored>> {
        match self.transports.login() {
            Login::Valid(stored) => Ok(stored),
            // In the words of a program that looks for the first time.
            Login::Unusable => Ok(Arc::new(self.profiles.load_valid()?)),
        }
    }
}

/// Waits until a connection that the helper has taken over ends.
async fn wait(taken: Taken) -> Result {
    let Taken(stream) = taken;
    let doing = "hear from the helper daemon";
    stream.set_read_timeout(None).and_then(|()| stream.set_nonblocking(true)).doing(doing)?;
    let stream = UnixStream::from_std(stream).doing(doing)?;
    let mut said = Vec::new();
    let read = stream.take(64 * 1024).read_to_end(&mut said).await;
    endpoint::understand(read.is_ok().then_some(&said))
}
