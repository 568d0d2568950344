//! Connections to nodes for programs that measure them, past any helper daemon.

use std::path::Path;
use std::sync::Arc;

use sallyport_ssh::client::{Connection, Settings};

use crate::error::{CliError, CliResult};
use sallyport_client::profile::{Profiles, Stored};
use sallyport_client::{connect, ssh_credentials, transport};

/// Makes connections as one user of one cluster, each with a connection to the proxy of its own.
#[derive(Debug)]
pub struct Dialler {
    stored: Stored,
}

impl Dialler {
    /// By the profile of a login.
    ///
    /// # Errors
    /// When there is no login, or one that has expired.
    pub fn of(home: &Path, proxy: &str) -> CliResult<Self> {
        let profiles = Profiles { home: Some(home.to_owned()), proxy: Some(proxy.to_owned()) };
        Ok(Self { stored: profiles.load_valid()? })
    }

    /// Connects to a node by SSH and logs in.
    ///
    /// # Errors
    /// What the cluster or the node refuses, and what fails on the way.
    pub async fn connect(&self, node: &str, login: &str) -> CliResult<Connection> {
        let stored = &self.stored;
        let credentials = ssh_credentials::credentials(stored).await?;
        let settings = Settings {
            login: login.to_owned(),
            host: node.to_owned(),
            trust: Arc::new(stored.trust()?),
            keepalive: None,
            agent: None,
        };
        let channel = connect::proxy(stored).await?;
        let (stream, ending) = transport::open(channel, &Arc::new(stored.clone()), node, login);
        let connected = sallyport_ssh::client::connect(stream, &credentials, settings).await;
        connected.map_err(|error| {
            ending.error(node, login).map_or_else(|| CliError::new(error.to_string()), CliError::from)
        })
    }
}
