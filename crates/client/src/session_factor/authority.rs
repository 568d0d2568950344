//! The authority, as it is asked for a factor for sessions.

use futures::future::BoxFuture;
use sallyport_wire::convert::time_from_proto;
use sallyport_wire::v1::session_factors_client::SessionFactorsClient;
use sallyport_wire::v1::{
    AwaitSessionFactorRequest, BeginSessionFactorRequest, ProveSessionFactorRequest, SessionFactorAsked,
    SessionFactorState, SessionTarget,
};
use time::OffsetDateTime;
use tonic::Status;

use crate::channel::Channel;
use crate::connect;
use crate::error::{Error, Result};
use crate::profile::Stored;

/// What is asked of the authority.
pub(super) trait Proves: Send + Sync {
    /// Where its pages are.
    fn proxy(&self) -> &str;

    /// Asks for a factor for sessions with these, or joins what is asked already.
    fn begin(&self, targets: Vec<SessionTarget>) -> BoxFuture<'_, Result<SessionFactorAsked>>;

    /// Answers when it changes how that stands, or after a while.
    fn wait<'a>(&'a self, challenge: &'a str) -> BoxFuture<'a, Result<SessionFactorState, Status>>;

    /// Proves it by a code, for the sessions that the person has read.
    fn prove<'a>(
        &'a self,
        challenge: &'a str,
        code: String,
        shown: Vec<SessionTarget>,
    ) -> BoxFuture<'a, Result<SessionFactorState, Status>>;
}

/// The authority of a login.
pub(super) struct Authority {
    pub(super) proxy: String,
    pub(super) client: SessionFactorsClient<Channel>,
    /// So long a proof is to serve, in seconds; 0: as the roles say.
    pub(super) pre_auth_seconds: u32,
    /// All that the user may use.
    pub(super) all: bool,
}

impl Authority {
    pub(super) async fn of(stored: &Stored) -> Result<Self> {
        let services = connect::services(stored).await?;
        let client = services.session_factors();
        Ok(Self { proxy: stored.profile.proxy.clone(), client, pre_auth_seconds: 0, all: false })
    }
}

/// What this machine calls itself.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Proves for Authority {
    fn proxy(&self) -> &str {
        &self.proxy
    }

    fn begin(&self, targets: Vec<SessionTarget>) -> BoxFuture<'_, Result<SessionFactorAsked>> {
        let mut client = self.client.clone();
        let request = BeginSessionFactorRequest {
            targets,
            all: self.all,
            host_name: host_name(),
            pre_auth_seconds: self.pre_auth_seconds,
        };
        Box::pin(async move {
            let answer = client.begin(request).await;
            Ok(answer.map_err(|status| Error::answered("ask for a second factor", status))?.into_inner())
        })
    }

    fn wait<'a>(&'a self, challenge: &'a str) -> BoxFuture<'a, Result<SessionFactorState, Status>> {
        let mut client = self.client.clone();
        let request = AwaitSessionFactorRequest { challenge: challenge.to_owned() };
        Box::pin(async move { Ok(client.r#await(request).await?.into_inner()) })
    }

    fn prove<'a>(
        &'a self,
        challenge: &'a str,
        otp: String,
        shown: Vec<SessionTarget>,
    ) -> BoxFuture<'a, Result<SessionFactorState, Status>> {
        let mut client = self.client.clone();
        let request = ProveSessionFactorRequest { challenge: challenge.to_owned(), otp, shown };
        Box::pin(async move { Ok(client.prove(request).await?.into_inner()) })
    }
}

/// How a question has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is proven, and serves new sessions until then.
    Proven(Option<OffsetDateTime>),
    /// It was refused at the page, or ended after wrong answers.
    Refused,
}

/// How a state ends a question, where it does.
pub(super) fn ended(state: &SessionFactorState) -> Option<Ended> {
    match state.state.as_str() {
        "pending" => None,
        "proven" => Some(Ended::Proven(state.until.as_ref().and_then(time_from_proto))),
        _ => Some(Ended::Refused),
    }
}
