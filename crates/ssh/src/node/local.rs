//! The node's own machine as the back end.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use russh::server::Handle;
use sallyport_access::Identity;
use sallyport_access::permit::Permit;
use ssh_key::Certificate;
use tokio::net::TcpStream;

use super::agent::AgentSocket;
use super::backend::{Asked, BackEnd, Place, Reach, Target};
use crate::BoxedStream;
use crate::session::{self, Account, Ended, Helper, Input, Output, Request, Tap};

/// This machine and its accounts.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) helper: Helper,
}

/// One account of this machine.
#[derive(Debug)]
struct LocalPlace {
    account: Account,
    helper: Helper,
}

#[async_trait]
impl BackEnd for Local {
    async fn enter(&self, _: &Identity, _: &Certificate, permit: &Permit) -> Result<Arc<dyn Place>, String> {
        let login = permit.login().to_string();
        match tokio::task::spawn_blocking(move || Account::find(&login)).await {
            Ok(Ok(account)) => Ok(Arc::new(LocalPlace { account, helper: self.helper.clone() })),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => {
                tracing::error!(%error, "cannot look up an account");
                Err("this node is stopping".to_owned())
            }
        }
    }
}

#[async_trait]
impl Place for LocalPlace {
    async fn run(
        &self,
        session: Asked,
        input: Box<dyn Input>,
        output: Arc<dyn Output>,
        tap: Arc<dyn Tap>,
    ) -> Ended {
        let Asked { kind, terminal, environment } = session;
        let request = Request { account: self.account.clone(), kind, terminal, environment };
        match session::start(&request, &self.helper) {
            Ok(running) => session::run(running, input, output, tap).await,
            Err(error) => {
                tracing::error!(%error, "cannot start a session");
                Ended { exit: None, bytes_in: 0, bytes_out: 0, cut: Some(error.to_string()) }
            }
        }
    }

    async fn agent(&self, client: Handle) -> io::Result<Reach> {
        let socket = AgentSocket::open(&self.account, client)?;
        let path = socket.path().to_string_lossy().into_owned();
        let environment = vec![("SSH_AUTH_SOCK".to_owned(), path)];
        Ok(Reach { environment, _guard: Box::new(socket) })
    }

    async fn connect(&self, target: &Target) -> io::Result<BoxedStream> {
        match target {
            Target::Port { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
        }
    }
}
