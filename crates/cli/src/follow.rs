//! A profile that follows its cluster: when an answer says that another trust is in force than the one stored, it is
//! fetched beside whatever the command does, with certificates of the CA that has taken over.
//!
//! The keys stay, and old and new certificates are both good while a rotation lasts: a program that reads the files at
//! the same moment gets something that works.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use sallyport_access::ClusterName;
use sallyport_ca::{CaKind, PublicKeys, RotationStatus, TrustBundle};
use sallyport_wire::TRUST_HEADER;
use sallyport_wire::trace_context::TRACEPARENT;
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::{self, FollowRequest};
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport;
use tracing::debug;

use crate::connect;
use crate::error::{CliError, CliResult, Context as _};
use crate::profile::{self, Stored};
use crate::trace;

/// A command that is done waits so long for the files to be written.
const PATIENCE: Duration = Duration::from_secs(5);

/// The one that this process has started.
static FOLLOWING: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// A channel that hears which trust is in force.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    inner: transport::Channel,
    /// Whose profile follows; none where there is no login.
    profile: Option<Arc<Stored>>,
}

impl Channel {
    /// One whose answers change nothing.
    pub(crate) fn plain(inner: transport::Channel) -> Self {
        Self { inner, profile: None }
    }

    /// One that keeps the profile up to date.
    pub(crate) fn following(inner: transport::Channel, stored: &Stored) -> Self {
        Self { inner, profile: Some(Arc::new(stored.clone())) }
    }

    /// Asks whoever is at the other end whether it is there; nothing behind it is asked.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) async fn ask_health(mut self) -> Result<(), transport::Error> {
        poll_fn(|context| self.inner.poll_ready(context)).await?;
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static("/healthz");
        self.inner.call(request).await.map(drop)
    }
}

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let context = trace::context().map(|context| http::HeaderValue::from_str(&context.to_string()));
        if let Some(Ok(context)) = context {
            request.headers_mut().insert(TRACEPARENT, context);
        }
        let profile = self.profile.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let version = answer.headers().get(TRUST_HEADER).and_then(|version| version.to_str().ok());
            if let (Some(stored), Some(version)) = (profile, version) {
                heard(stored, version.to_owned());
            }
            Ok(answer)
        })
    }
}

/// Begins to follow, when there is anything to follow and nobody does yet.
fn heard(stored: Arc<Stored>, version: String) {
    let mut following = FOLLOWING.lock().unwrap_or_else(PoisonError::into_inner);
    // A process that stays follows again and again.
    if following.as_ref().is_some_and(|begun| !begun.is_finished())
        || stored.trust_version().is_some_and(|held| held == version)
    {
        return;
    }
    *following = Some(tokio::spawn(async move {
        if let Err(error) = follow(&stored, &version).await {
            // The next command tries again, and the old certificates are good for now.
            debug!(%error, "the profile could not follow its cluster");
        }
    }));
}

/// Lets what was begun come to an end.
pub(crate) async fn finish() {
    let begun = FOLLOWING.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(begun) = begun {
        let _ = tokio::time::timeout(PATIENCE, begun).await;
    }
}

async fn follow(stored: &Stored, version: &str) -> CliResult {
    let path = stored.directory.join("follow.lock");
    let lock = File::create(&path).doing(format!("write {}", path.display()))?;
    // Of many commands at once, one does it.
    if lock.try_lock().is_err() || stored.trust_version().is_some_and(|held| held == version) {
        return Ok(());
    }
    let channel = connect::authority_plain(stored).await?;
    let request = FollowRequest {
        ssh_certificate: stored.read("ssh_key-cert.pub")?,
        tls_certificate_pem: stored.read("tls_cert.pem")?,
    };
    let answer = RotationClient::new(channel)
        .follow(request)
        .await
        .map_err(|status| CliError::from_status("follow the cluster's certificate authorities", &status))?
        .into_inner();
    let trust = answer.trust.ok_or_else(|| CliError::new("the authority's answer names no trust"))?;
    let trust = bundle(trust, &stored.profile.cluster);
    let certificates = (!answer.ssh_certificate.is_empty())
        .then_some((&*answer.ssh_certificate, &*answer.tls_certificate_pem));
    let in_agent = certificates.is_some() && crate::login::is_in_agent(stored);
    profile::update(stored, &trust, &answer.version, certificates)?;
    debug!(version = answer.version, anew = certificates.is_some(), "the profile follows its cluster");
    if in_agent {
        crate::login::replace_in_agent(stored).await;
    }
    Ok(())
}

/// The wire's bundle as the certificate layer's.
pub(crate) fn bundle(wire: v1::TrustBundle, cluster: &ClusterName) -> TrustBundle {
    TrustBundle {
        cluster: cluster.to_string(),
        user_ssh_keys: wire.user_ssh_keys,
        host_ssh_keys: wire.host_ssh_keys,
        user_tls_certificates: wire.user_tls_certificates,
        host_tls_certificates: wire.host_tls_certificates,
        recording_key: wire.recording_key.to_vec(),
        others: CaKind::keyed(wire.others, |keys| {
            Some(PublicKeys { ssh: keys.ssh, tls: keys.tls, jwt: keys.jwt })
        }),
        suite: wire.suite,
        rotations: CaKind::keyed(wire.rotations, |status| {
            Some(RotationStatus { generation: status.generation, phase: status.phase.parse().ok()? })
        }),
    }
}
