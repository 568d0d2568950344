//! Connections of local programs, carried by the helper where one can be had, else by connections to the proxy of this
//! process's own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::end_to_end::Own;
use super::endpoint::{Endpoint, Taken, Waiting};
use super::ends::{Ends, Input, Output};
use super::request::Request;
use super::setting::Setting;
use super::transports::{Login, Transports};
use crate::error::Result;
use sallyport_client::error::Doing;
use sallyport_client::profile::{Profiles, Stored};
use sallyport_client::session_factor::Asker;

/// How connections to one cluster are carried.
pub(super) struct LocalClients {
    profiles: Profiles,
    stored: Stored,
    /// Ask the helper first.
    helper: Setting,
    pub(super) transports: Transports,
    pub(super) own: Own,
    asker: Option<Arc<dyn Asker>>,
}

impl std::fmt::Debug for LocalClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalClients").field("proxy", &self.stored.profile.proxy).finish_non_exhaustive()
    }
}

impl LocalClients {
    /// With a connection of its own, which is made with the first client and kept for the others.
    pub(super) fn new(profiles: &Profiles, stored: &Stored) -> Self {
        // Of several logins it is this one, whatever becomes the current one meanwhile.
        let profiles = profiles.at(&stored.profile.proxy);
        let transports = Transports::new(profiles.clone(), stored.directory.clone());
        let (helper, own, asker) = (Setting::Off, Own::default(), None);
        Self { profiles, stored: stored.clone(), helper, transports, own, asker }
    }

    /// By the helper, for a program that stays only for a moment: the helper's connection is there already.
    pub(super) fn by_the_helper(profiles: &Profiles, stored: &Stored) -> Self {
        // The helper has chosen its cryptography already.
        let chosen = std::env::var_os("SALLYPORT_CRYPTO").is_some_and(|value| !value.is_empty());
        let helper = if chosen { Setting::Off } else { Setting::here() };
        Self { helper, ..Self::new(profiles, stored) }
    }

    /// The same, with a way to the person.
    pub(super) fn asking(self, asker: Arc<dyn Asker>) -> Self {
        Self { asker: Some(asker), ..self }
    }

    /// The way to the person.
    pub(super) fn asker(&self) -> Option<&dyn Asker> {
        self.asker.as_deref()
    }

    /// Waits until a connection that the helper has taken over ends.
    pub(super) async fn wait(&self, taken: Taken) -> Result {
        Waiting::of(taken).to_the_end(self.asker()).await
    }

    /// Has the helper carry a client (input and output) to what a request names, where it does.
    pub(super) async fn hand_over(&self, request: Request, client: [&OwnedFd; 2]) -> Option<Taken> {
        let Setting::On { idle } = self.helper else { return None };
        let [input, output] = client;
        let (input, output) = (input.try_clone().ok()?, output.try_clone().ok()?);
        let (directory, proxy) = (self.stored.directory.clone(), self.stored.profile.proxy.clone());
        let asks = self.asker().is_some_and(Asker::can_ask);
        // Starting one takes a moment, in which other clients want to be served.
        let asked = tokio::task::spawn_blocking(move || {
            let endpoint = Endpoint { directory: &directory, proxy: &proxy, idle };
            endpoint.ask(&request, asks, [input.as_fd(), output.as_fd()])
        });
        asked.await.ok().flatten()
    }

    pub(super) fn login(&self) -> Result<Arc<Stored>> {
        match self.transports.login() {
            Login::Valid(stored) => Ok(stored),
            // In the words of a program that looks for the first time.
            Login::Unusable => Ok(Arc::new(self.profiles.load_valid()?)),
        }
    }
}

/// A client's input and output, to be waited for by this process.
pub(super) fn open(input: OwnedFd, output: OwnedFd) -> Result<(Input, Output)> {
    Ok(Ends::new(vec![input, output]).and_then(Ends::open).doing("take the client's connection")?)
}
