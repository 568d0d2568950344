//! A profile that follows its cluster: when an answer says that another trust is in force than the one stored, it is
//! fetched beside whatever the command does, with certificates of the CA that has taken over.
//!
//! The keys stay, and old and new certificates are both good while a rotation lasts: a program that reads the files at
//! the same moment gets something that works.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::{DeviceProof, FollowRequest};
use tokio::task::JoinHandle;
use tracing::{debug, info};

use super::authority::FirstTrust;
use super::channel::Follower;
use super::device::{About, Devices};
use super::profile::{self, Profiles, Stored};
use super::ssh_agent::{self, AgentError};
use super::{authority, trust};
use crate::error::{Doing, Error, Result};

/// A command that is done waits so long for the files to be written.
const PATIENCE: Duration = Duration::from_secs(5);

/// The one that this process has started.
static FOLLOWING: Mutex<Option<Following>> = Mutex::new(None);

/// Gives why ssh-agent did not take the certificate that was signed anew, where it did not.
type Following = JoinHandle<Option<AgentError>>;

/// The profile of a login, which follows what it hears.
#[derive(Debug)]
pub(super) struct Profile(pub(super) Arc<Stored>);

impl Follower for Profile {
    fn hear(&self, version: &str) {
        heard(Arc::clone(&self.0), version.to_owned());
    }
}

/// Begins to follow, when there is a newer trust and nothing follows it yet.
fn heard(stored: Arc<Stored>, version: String) {
    let mut following = FOLLOWING.lock();
    // A process that stays follows again and again.
    if following.as_ref().is_some_and(|begun| !begun.is_finished())
        || stored.trust_version().is_some_and(|held| held == version)
    {
        return;
    }
    *following = Some(tokio::spawn(async move {
        match follow(&stored, &version).await {
            Ok(not_taken) => not_taken,
            Err(error) => {
                // The next command tries again, and the old certificates are good for now.
                debug!(error = error.told(), "the profile could not follow its cluster");
                None
            }
        }
    }));
}

/// Lets what was begun come to an end. Gives why ssh-agent, which held the certificate of the login, did not take the one that was signed
/// anew: the profile has followed its cluster all the same, and the user has to hear of it.
pub fn finish() -> BoxFuture<'static, Option<AgentError>> {
    Box::pin(async move {
        let begun = FOLLOWING.lock().take();
        tokio::time::timeout(PATIENCE, begun?).await.ok()?.ok()?
    })
}

async fn follow(stored: &Stored, version: &str) -> Result<Option<AgentError>> {
    let path = stored.directory.join("follow.lock");
    let lock = File::create(&path).doing(format!("write {}", path.display()))?;
    // Of many commands at once, one does it.
    if lock.try_lock().is_err() || stored.trust_version().is_some_and(|held| held == version) {
        return Ok(None);
    }
    let channel = authority::plain(stored).await?;
    let ssh_certificate = stored.read("ssh_key-cert.pub")?.to_string();
    let tls_certificate_pem = stored.read("tls_cert.pem")?.to_string();
    let request = match word(stored, &ssh_certificate, &tls_certificate_pem).await {
        Ok(device) => FollowRequest { ssh_certificate, tls_certificate_pem, device },
        Err(error) => {
            // The trust alone: it must not wait for a person with a PIN.
            info!(
                error = error.told(),
                "the device does not sign for new certificates; the next login has them"
            );
            FollowRequest::default()
        }
    };
    let answer = RotationClient::new(channel)
        .follow(request)
        .await
        .map_err(|status| Error::answered("follow the cluster's certificate authorities", status))?
        .into_inner();
    let trust = answer.trust.ok_or_else(|| Error::Lacking("trust"))?;
    let trust = trust::bundle(trust, &stored.profile.cluster);
    let certificates = (!answer.ssh_certificate.is_empty())
        .then_some((&*answer.ssh_certificate, &*answer.tls_certificate_pem));
    let in_agent = certificates.is_some() && ssh_agent::holds(stored);
    profile::update(stored, &trust, &answer.version, certificates)?;
    debug!(version = answer.version, anew = certificates.is_some(), "the profile follows its cluster");
    if !in_agent {
        return Ok(None);
    }
    // The old certificate ends there by itself.
    let not_taken = ssh_agent::add(stored).await.err();
    if let Some(error) = &not_taken {
        info!(%error, "the certificate that was signed anew is not in ssh-agent");
    }
    Ok(not_taken)
}

/// The word of the trusted device that the login came from, where it came from one. No person is asked for a PIN by a command that does
/// something else: without it, the certificates stay as they are until the next login.
async fn word(
    stored: &Stored,
    ssh_certificate: &str,
    tls_certificate_pem: &str,
) -> Result<Option<DeviceProof>> {
    let home = stored.directory.parent().map(std::path::Path::to_owned);
    let devices = Devices::of(&Profiles { home, proxy: None }, |_| None)?;
    let cluster = stored.profile.cluster.as_str();
    if stored.device().is_none() {
        return Ok(None);
    }
    let Some(device) = devices.open(cluster).await? else { return Ok(None) };
    let trust = Box::new(stored.trust()?);
    let first = FirstTrust::Known { trust, cluster: stored.profile.cluster.clone() };
    let mut client = authority::login(&stored.profile.proxy, &first).await?;
    let about = About::Renewal {
        ssh_certificate: ssh_certificate.to_owned(),
        tls_certificate_pem: tls_certificate_pem.to_owned(),
    };
    device.word(&mut client, cluster, about).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_hears_at_its_end_that_the_agent_did_not_take_the_key() {
        assert!(finish().await.is_none());
        let refused = async { Some(AgentError::Refused("agent refused operation".to_owned())) };
        *FOLLOWING.lock() = Some(tokio::spawn(refused));
        let told = finish().await.unwrap().to_string();
        assert_eq!(told, "ssh-agent did not take the key: agent refused operation");
        assert!(finish().await.is_none(), "once");
    }
}
