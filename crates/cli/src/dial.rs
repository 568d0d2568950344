//! Connections to nodes for programs that measure them, past any resident helper.

use std::path::Path;
use std::sync::Arc;

use sallyport_ssh::client::{Connection, Credentials, Settings};

use crate::error::{CliError, CliResult, Context};
use crate::global::Global;
use crate::profile::{self, Stored};
use crate::transport;

/// Makes connections as one user of one cluster, each with a connection to the proxy of its own.
#[derive(Debug)]
pub struct Dialler {
    stored: Stored,
}

impl Dialler {
    /// By the profile of a login.
    ///
    /// # Errors
    /// When nobody is logged in there, or not any more.
    pub fn of(home: &Path, proxy: &str) -> CliResult<Self> {
        let global = Global { home: Some(home.to_owned()), proxy: Some(proxy.to_owned()), log: None };
        Ok(Self { stored: profile::load_valid(&global)? })
    }

    /// Connects to a node by SSH and logs in.
    ///
    /// # Errors
    /// What the cluster or the node refuses, and what fails on the way.
    pub async fn connect(&self, node: &str, login: &str) -> CliResult<Connection> {
        let stored = &self.stored;
        let credentials =
            Credentials::from_openssh(&stored.read("ssh_key")?, &stored.read("ssh_key-cert.pub")?)
                .doing("use the SSH certificate")?;
        let settings = Settings {
            login: login.to_owned(),
            host: node.to_owned(),
            trust: Arc::new(stored.trust()?),
            keepalive: None,
            agent: None,
        };
        let channel = crate::connect::proxy(stored).await?;
        let (stream, ending) = transport::open(channel, &Arc::new(stored.clone()), node, login);
        let connected = sallyport_ssh::client::connect(stream, &credentials, settings).await;
        connected
            .map_err(|error| ending.error(node, login).unwrap_or_else(|| CliError::new(error.to_string())))
    }
}
