//! The keys that a login has certified: a TLS key, which is fresh each time, and an SSH key, which is fresh or the user's own.

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use tokio::task::JoinHandle;

use super::own_ssh_key::OwnSshKey;
use crate::error::{Doing, Result};

/// The keys of one login.
#[derive(Debug)]
pub(crate) struct LoginKeys {
    pub(crate) ssh: SshIdentity,
    pub(crate) tls: TlsKey,
}

/// The SSH key of a login.
#[derive(Debug)]
pub(crate) enum SshIdentity {
    /// Made for this login.
    Fresh(Box<SshKeyPair>),
    /// The user's: the private key is elsewhere.
    Own(OwnSshKey),
}

impl SshIdentity {
    /// The public key as it is sent and certified.
    pub(crate) fn public_line(&self) -> &str {
        match self {
            Self::Fresh(pair) => pair.public_line(),
            Self::Own(own) => own.public_line(),
        }
    }
}

impl LoginKeys {
    /// Begins to make what is fresh: a certificate never outlives the one login that it came from, unless it is of a key that the user has
    /// brought. RSA takes a moment, for which the user does not wait.
    pub(crate) fn making(comment: &str, suite: Suite, own: Option<OwnSshKey>) -> JoinHandle<Result<Self>> {
        let comment = comment.to_owned();
        tokio::task::spawn_blocking(move || {
            let ssh = match own {
                Some(own) => SshIdentity::Own(own),
                None => {
                    let pair = SshKeyPair::generate(suite, &comment).doing("make an SSH key")?;
                    SshIdentity::Fresh(Box::new(pair))
                }
            };
            Ok(Self { ssh, tls: TlsKey::generate(suite).doing("make a TLS key")? })
        })
    }
}
