//! The trusted device that this machine is: its key, and its word at a login.
//!
//! ```text
//! ~/.sallyport/devices/CLUSTER.json   which device this is, and where its key is
//!                      CLUSTER.key    the key, where it is in a file: PKCS#8 in PEM
//! ```
//!
//! They are apart from logins, since a device stays enrolled when its user logs out.

mod key;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use sallyport_access::{ClusterName, DeviceCustody, DeviceId, UserName};
use sallyport_ca::DeviceAct;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::{
    Device, DeviceChallengeRequest, DeviceProof, EnrollDeviceRequest, ListOwnDevicesRequest,
    ListOwnDevicesResponse,
};
use serde::{Deserialize, Serialize};

pub use key::{AskPin, DeviceKey, NewKey, PinPlace, TokenName};

use crate::authority::{Authority, FirstTrust, login};
use crate::channel::Channel;
use crate::error::{Doing, Error, Result};
use crate::profile::{Profiles, private_directory, write_private};

/// What this machine is to clusters, for one user of it.
#[derive(Clone)]
pub struct Devices {
    /// Where it is written down; none where logins come from no device.
    directory: Option<PathBuf>,
    ask: AskPin,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// What is written down of one cluster.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    device: DeviceId,
    custody: DeviceCustody,
    key: key::KeptKey,
}

/// This machine as a trusted device of one cluster, with its key at hand.
#[derive(Debug, Clone)]
pub struct OwnDevice {
    id: DeviceId,
    key: Arc<dyn DeviceKey>,
}

/// What a machine says of itself; nothing proves it.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// Its name.
    pub name: String,
    /// Its operating system.
    pub os: String,
    /// Its serial number.
    pub serial: String,
}

impl Devices {
    /// Those of a user of this machine. `ask` is for the PIN of a token that has none written down.
    ///
    /// # Errors
    /// There is no home directory.
    pub fn of(profiles: &Profiles, ask: AskPin) -> Result<Self> {
        Ok(Self { directory: Some(profiles.home()?.join("devices")), ask })
    }

    /// None: logins come from no trusted device.
    #[must_use]
    pub fn none() -> Self {
        Self { directory: None, ask: |_| None }
    }

    /// What this machine is to a cluster; none where it was not enrolled there.
    ///
    /// # Errors
    /// What is written down is damaged, or the key cannot be used.
    pub fn open<'a>(&'a self, cluster: &'a str) -> BoxFuture<'a, Result<Option<OwnDevice>>> {
        Box::pin(async move {
            let Some(kept) = self.kept(cluster)? else { return Ok(None) };
            let (directory, ask) = (self.directory.clone().unwrap_or_default(), self.ask);
            // A token takes its time.
            let opened = tokio::task::spawn_blocking(move || kept.key.open(&directory, ask));
            let key = opened.await.doing("use the key of this device")??;
            Ok(Some(OwnDevice { id: kept.device, key }))
        })
    }

    /// Which device this machine is to a cluster, and where its key is.
    ///
    /// # Errors
    /// What is written down is damaged.
    pub fn enrolled(&self, cluster: &str) -> Result<Option<(DeviceId, DeviceCustody)>> {
        Ok(self.kept(cluster)?.map(|kept| (kept.device, kept.custody)))
    }

    /// Forgets what this machine is to a cluster. A key in a token stays there.
    ///
    /// # Errors
    /// The files cannot be removed.
    pub fn forget(&self, cluster: &str) -> Result {
        let Some(directory) = &self.directory else { return Ok(()) };
        let name = file_name(cluster)?;
        for path in [format!("{name}.json"), format!("{name}.key")].map(|name| directory.join(name)) {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).doing(format!("remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn kept(&self, cluster: &str) -> Result<Option<Kept>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let path = directory.join(format!("{}.json", file_name(cluster)?));
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let kept = serde_json::from_str(&text);
                kept.map(Some).doing(format!("read {}, which says which device this is", path.display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing(format!("read {}", path.display())),
        }
    }

    /// Enrolls this machine for the user who is logged in: makes a key, and has the authority take it, at once with a token. What this
    /// machine was to the cluster before is forgotten when that has been done.
    ///
    /// # Errors
    /// The key cannot be made, or the authority refuses.
    pub fn enroll<'a>(
        &'a self,
        authority: &'a Authority,
        (proxy, first): (&'a str, &'a FirstTrust),
        (cluster, user): (&'a ClusterName, &'a UserName),
        new: NewKey,
        token: &'a str,
        said: Said,
    ) -> BoxFuture<'a, Result<Device>> {
        Box::pin(async move {
            let directory = self.directory.clone().ok_or(Error::NoHome)?;
            private_directory(&directory)?;
            let name = file_name(cluster.as_str())?.to_owned();
            let ask = self.ask;
            let made = tokio::task::spawn_blocking(move || new.make(&name, ask));
            let key::Made { key, kept, write } = made.await.doing("make the key of this device")??;
            let custody = key.custody();
            let mut client = login(proxy, first).await?;
            let challenge = challenge(&mut client).await?;
            let public_key = key.signer().public_key().spki_der();
            let signature = {
                let (key, cluster, challenge) = (Arc::clone(&key), cluster.clone(), challenge.clone());
                let (user, token) = (user.clone(), token.to_owned());
                tokio::task::spawn_blocking(move || {
                    let act = DeviceAct::Enroll { user: &user, custody, token: &token };
                    act.sign(key.signer(), cluster.as_str(), &challenge)
                })
                .await
                .doing("sign with the key of this device")?
                .doing("sign with the key of this device")?
            };
            let request = EnrollDeviceRequest {
                challenge: challenge.into(),
                public_key: public_key.into(),
                signature: signature.into(),
                custody: custody.as_str().to_owned(),
                token: token.to_owned(),
                name: said.name,
                os: said.os,
                serial: said.serial,
            };
            let answer = authority.devices().enroll(request).await;
            let answer = answer.map_err(|status| Error::answered("enroll this device", status))?.into_inner();
            let device = answer.device.ok_or(Error::Lacking("device"))?;
            let id = device.id.parse::<DeviceId>().doing("understand the authority's answer")?;
            write(&directory)?;
            let text = serde_json::to_string_pretty(&Kept { device: id, custody, key: kept })
                .doing("write down which device this is")?;
            write_private(&directory.join(format!("{}.json", file_name(cluster.as_str())?)), &text)?;
            Ok(device)
        })
    }
}

/// The devices of the user who is logged in.
///
/// # Errors
/// The authority does not answer.
pub fn list(authority: &Authority) -> BoxFuture<'_, Result<ListOwnDevicesResponse>> {
    Box::pin(async move {
        let answer = authority.devices().list_own(ListOwnDevicesRequest {}).await;
        Ok(answer.map_err(|status| Error::answered("list your devices", status))?.into_inner())
    })
}

impl OwnDevice {
    /// The word of this device for a call: over a fresh challenge, and what the call is about.
    ///
    /// # Errors
    /// The authority gives no challenge, or the key does not sign.
    pub(crate) fn word<'a>(
        &'a self,
        client: &'a mut LoginClient<Channel>,
        cluster: &'a str,
        about: About,
    ) -> BoxFuture<'a, Result<DeviceProof>> {
        Box::pin(async move {
            let challenge = challenge(client).await?;
            let (key, cluster, device) = (Arc::clone(&self.key), cluster.to_owned(), self.id);
            let signed = challenge.clone();
            let signature = tokio::task::spawn_blocking(move || {
                let act = match &about {
                    About::Login { ssh_public_key, tls_public_key } => {
                        DeviceAct::LogIn { device, ssh_public_key, tls_public_key }
                    }
                    About::Renewal { ssh_certificate, tls_certificate_pem } => {
                        DeviceAct::Renew { device, ssh_certificate, tls_certificate_pem }
                    }
                };
                act.sign(key.signer(), &cluster, &signed)
            });
            let signature = signature
                .await
                .doing("sign with the key of this device")?
                .doing("sign with the key of this device")?;
            Ok(DeviceProof {
                device: self.id.to_string(),
                challenge: challenge.into(),
                signature: signature.into(),
            })
        })
    }
}

/// What a device gives its word about.
#[derive(Debug)]
pub(crate) enum About {
    Login { ssh_public_key: String, tls_public_key: Vec<u8> },
    Renewal { ssh_certificate: String, tls_certificate_pem: String },
}

async fn challenge(client: &mut LoginClient<Channel>) -> Result<Vec<u8>> {
    let answer = client.device_challenge(DeviceChallengeRequest {}).await;
    let answer = answer.map_err(|status| Error::answered("begin with a trusted device", status))?;
    Ok(answer.into_inner().challenge.to_vec())
}

/// A cluster's name as the name of a file: the name comes from a server, and leads nowhere else.
fn file_name(cluster: &str) -> Result<&str> {
    let name = ClusterName::new(cluster).doing("use this name of a cluster")?;
    match Path::new(cluster).components().count() {
        1 if name.as_str() == cluster && !cluster.starts_with('.') => Ok(cluster),
        _ => Err(Error::Address(cluster.to_owned())),
    }
}
