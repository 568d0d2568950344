//! A session with a resource of the catalogue: what is asked for goes first, the agent answers whether it is open, and then come the
//! resource's own bytes, each direction until its own end.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use sallyport_access::{HostId, Kind};
use sallyport_client::agents;
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::Asker;
use sallyport_wire::preamble;
use sallyport_wire::v1::{ResourceOpened, ResourceOpening};

use super::end_to_end::{EndToEnd, FromAgent, Login, Own, Speaks};
use super::ends::{Input, Output, gone};
use super::forwarder::Target;
use super::program::Program;
use super::stream_state::StreamState;
use super::transports::Transports;
use crate::error::{Error, Result};

/// Which resource a program wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

/// What a session says, and the protocol in which it does.
struct Says<'a> {
    wanted: &'a Wanted,
    alpn: &'static [u8],
}

impl Wanted {
    fn kind(&self) -> &'static str {
        self.kind.row().document
    }
}

impl Speaks for Says<'_> {
    const HALF_CLOSE: bool = true;

    fn shown(&self) -> String {
        format!("{} {}", self.wanted.kind(), self.wanted.name)
    }

    fn alpn(&self) -> &'static [u8] {
        self.alpn
    }

    fn asked(&self) -> agents::Asked<'_> {
        agents::Asked::Resource { kind: self.wanted.kind(), name: &self.wanted.name }
    }

    fn target(&self, agents: Vec<HostId>) -> Target {
        Target::Resource { kind: self.wanted.kind(), name: self.wanted.name.clone(), agents }
    }

    fn first(&self, _: &Login, _: HostId) -> Result<Vec<u8>> {
        let (kind, name) = (self.wanted.kind().to_owned(), self.wanted.name.clone());
        Ok(preamble::encode(&ResourceOpening { kind, name }))
    }

    fn answer<'a>(&'a self, from_agent: &'a mut FromAgent) -> LocalBoxFuture<'a, Result> {
        async move {
            let lost = |error: std::io::Error| Error::AgentLost { to: self.shown(), why: error.to_string() };
            let ResourceOpened { refused, hint, denied } =
                preamble::read_message(from_agent).await.map_err(lost)?;
            match refused.as_str() {
                "" => Ok(()),
                _ => Err(Error::NotOpened { why: refused, hint, denied }),
            }
        }
        .boxed_local()
    }

    fn passes(&self, _: &[u8]) {}
}

/// One program's connection.
pub(super) struct ResourceSession<'a> {
    pub(super) own: &'a Own,
    pub(super) transports: &'a Transports,
    pub(super) wanted: Wanted,
    pub(super) input: Input,
    pub(super) output: Output,
    /// Ends when the program does; none where the program is this one.
    pub(super) program: Option<&'a Program>,
    /// Reaches the person, where a second factor has to be proven first.
    pub(super) asker: Option<&'a dyn Asker>,
}

impl ResourceSession<'_> {
    /// Carries bytes until both directions have ended.
    pub(super) async fn run(self, stored: Arc<Stored>) -> Result {
        let wanted = &self.wanted;
        let unknown = || Error::UnknownKind(wanted.kind().to_owned());
        let row = sallyport_protocols::row(wanted.kind);
        let alpn = row.and_then(|row| row.inner_alpn).ok_or_else(unknown)?;
        let says = Says { wanted, alpn };
        let known = tokio::select! {
            known = agents::agents(&stored, says.asked()) => known?,
            () = gone(self.program) => return Ok(()),
        };
        if known.is_empty() {
            return Err(Error::NoAgents { to: says.shown(), kind: wanted.kind().to_owned() });
        }
        let (own, transports, program, asker) = (self.own, self.transports, self.program, self.asker);
        let (input, output, early) = (&self.input, &self.output, [].as_slice());
        let end_to_end = EndToEnd { own, transports, speaks: &says, early, input, output, program, asker };
        end_to_end.carry(&stored, &known, &StreamState::late()).await
    }
}
