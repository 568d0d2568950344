//! Connections of local programs, carried by the helper where one can be had, else by connections to the proxy of this
//! process's own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::end_to_end::Own;
use super::endpoint::{self, Endpoint, Taken};
use super::ends::{Ends, Input, Output};
use super::request::Request;
use super::setting::Setting;
use super::transports::{Login, Transports};
use crate::error::Result;
use sallyport_client::error::Doing;
use sallyport_client::profile::{Profiles, Stored};

/// How connections to one cluster are carried.
pub(super) struct LocalClients {
    profiles: Profiles,
    stored: Stored,
    /// Ask the helper first.
    helper: Setting,
    pub(super) transports: Transports,
    pub(super) own: Own,
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
        Self { profiles, stored: stored.clone(), helper: Setting::Off, transports, own: Own::default() }
    }

    /// By the helper, for a program that stays only for a moment: the helper's connection is there already.
    pub(super) fn by_the_helper(profiles: &Profiles, stored: &Stored) -> Self {
        // The helper has chosen its cryptography already.
        let chosen = std::env::var_os("SALLYPORT_CRYPTO").is_some_and(|value| !value.is_empty());
        let helper = if chosen { Setting::Off } else { Setting::here() };
        Self { helper, ..Self::new(profiles, stored) }
    }

    /// Has the helper carry a client (input and output) to what a request names, where it does.
    pub(super) async fn hand_over(&self, request: Request, client: [&OwnedFd; 2]) -> Option<Taken> {
        let Setting::On { idle } = self.helper else { return None };
        let [input, output] = client;
        let (input, output) = (input.try_clone().ok()?, output.try_clone().ok()?);
        let (directory, proxy) = (self.stored.directory.clone(), self.stored.profile.proxy.clone());
        // Starting one takes a moment, in which other clients want to be served.
        let asked = tokio::task::spawn_blocking(move || {
            let endpoint = Endpoint { directory: &directory, proxy: &proxy, idle };
            endpoint.ask(&request, [input.as_fd(), output.as_fd()])
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

/// Waits until a connection that the helper has taken over ends.
pub(super) async fn wait(taken: Taken) -> Result {
    let Taken(stream) = taken;
    let doing = "hear from the helper daemon";
    stream.set_read_timeout(None).and_then(|()| stream.set_nonblocking(true)).doing(doing)?;
    let stream = UnixStream::from_std(stream).doing(doing)?;
    let mut said = Vec::new();
    let read = stream.take(64 * 1024).read_to_end(&mut said).await;
    endpoint::understand(read.is_ok().then_some(&said))
}
