//! What every place asks before it opens a session, whatever the protocol, besides what the permit says: that the login is used from where
//! it counts, and that the second factor is proven which the permit demands. [`Evidence`] is made by
//! [`Evidence::gather`] alone, and no session has a record without it ([`About::new`](crate::About::new)).

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
use sallyport_access::{Elsewhere, FactorDemand, Identity, SessionFactor};

/// A user's certificate, as it was presented to the host that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// OpenSSH, one line.
    Ssh(String),
    /// X.509, DER.
    Tls(Bytes),
}

/// A session that needs a factor.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What is demanded, and of which session.
    pub demand: FactorDemand,
    /// Whose session it would be.
    pub certificate: Shown,
    /// Where the client is, as the proxy tells it.
    pub client: Option<SocketAddr>,
}

/// A factor that is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// As its user calls it, for the record.
    pub factor: String,
}

/// Why a session does not begin that a permit allows. `Display` is for the person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// None is proven for it.
    #[error(
        "a second factor has to be proven before this session (require_session_mfa: {}), and none is: run \
         sallyport mfa pre-auth, and connect again",
        .0.as_str()
    )]
    Unproven(SessionFactor),
    /// The login is pinned to another address.
    #[error(transparent)]
    Elsewhere(#[from] Elsewhere),
    /// What would know is not to be had.
    #[error(
        "a second factor has to be proven before this session (require_session_mfa), and whether one is cannot be asked \
         now: {0}; try again in a moment"
    )]
    Unasked(String),
}

impl Missing {
    /// What is demanded, where proving it lets the session begin.
    #[must_use]
    pub fn demanded(&self) -> Option<SessionFactor> {
        match self {
            Self::Unproven(factor) => Some(*factor),
            Self::Elsewhere(_) | Self::Unasked(_) => None,
        }
    }

    /// A stable word for events and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unproven(_) => "factor_missing",
            Self::Elsewhere(_) => Elsewhere::REASON,
            Self::Unasked(_) => "factor_unknown",
        }
    }
}

/// What comes of asking.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Proven, Missing>> + Send + 'a>>;

/// What knows which factors are proven: the authority.
pub trait Factors: Send + Sync {
    /// Whether one is proven for this session.
    fn proven(&self, wanted: Wanted) -> Answer<'_>;
}

/// For a place whose sessions others decide about: no factor is ever proven.
#[derive(Debug, Clone, Copy)]
pub struct NoFactors;

impl Factors for NoFactors {
    fn proven(&self, _: Wanted) -> Answer<'_> {
        Box::pin(async { Err(Missing::Unasked("this place asks no authority".to_owned())) })
    }
}

/// That a session may begin: its user comes from where the login counts, and a factor is proven where one is demanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    worth: SessionFactor,
    factor: Option<String>,
}

impl Evidence {
    /// Looks at where the client is, and asks for the factor that a permit demands. Nothing is asked where it demands none.
    ///
    /// # Errors
    /// The login is pinned elsewhere, no factor is proven, or that cannot be known now.
    pub async fn gather(
        identity: &Identity,
        demand: Option<&FactorDemand>,
        factors: &dyn Factors,
        certificate: impl FnOnce() -> Result<Shown, String>,
        client: Option<SocketAddr>,
    ) -> Result<Self, Missing> {
        identity.comes_from(client.map(|client| client.ip()))?;
        let Some(demand) = demand else { return Ok(Self { worth: SessionFactor::No, factor: None }) };
        let certificate = certificate().map_err(Missing::Unasked)?;
        let Proven { factor } =
            factors.proven(Wanted { demand: demand.clone(), certificate, client }).await?;
        Ok(Self { worth: demand.rule.factor, factor: Some(factor) })
    }

    /// For tests of what begins with it.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self { worth: SessionFactor::No, factor: None }
    }

    /// Whether it is enough for what is decided now: roles may demand more than they did when it was gathered.
    ///
    /// # Errors
    /// It is not.
    pub fn meets(&self, demand: Option<&FactorDemand>) -> Result<(), Missing> {
        match demand {
            Some(demand) if demand.rule.factor > self.worth => Err(Missing::Unproven(demand.rule.factor)),
            _ => Ok(()),
        }
    }

    /// The factor as its user calls it.
    #[must_use]
    pub fn factor(&self) -> Option<&str> {
        self.factor.as_deref()
    }
}
