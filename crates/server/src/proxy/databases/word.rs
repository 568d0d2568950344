//! This proxy's word that it has opened a session, signed with its host key.

use std::sync::Arc;

use data_encoding::BASE64;
use parking_lot::Mutex;
use prost::Message;
use sallyport_ca::Opening;
use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::Signer;
use sallyport_wire::v1::DatabaseOpening;
use time::OffsetDateTime;

use crate::ServerError;
use crate::member::host::{Credentials, HostIdentity, certificates};

/// An identity, and the key that was read of it.
type Read = (Arc<HostIdentity>, Arc<dyn Signer>);

/// Signs for the identity in force. Clones share the key that was read.
#[derive(Clone)]
pub(super) struct Words {
    credentials: Credentials,
    signer: Arc<Mutex<Option<Read>>>,
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Words").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl Words {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self { credentials, signer: Arc::default() }
    }

    /// The word for one session, as the agent hands it on.
    pub(super) fn give(&self, opening: &Opening<'_>, now: OffsetDateTime) -> Result<String, ServerError> {
        let identity = self.credentials.identity();
        let signer = self.signer(&identity)?;
        let word = opening
            .sign(&*signer, &identity.ssh_certificate, now)
            .map_err(|error| certificates("cannot sign for a database session", error))?;
        let word = DatabaseOpening {
            certificate: word.certificate,
            at: word.at,
            nonce: word.nonce.into(),
            signature: word.signature.into(),
        };
        Ok(BASE64.encode(&word.encode_to_vec()))
    }

    fn signer(&self, identity: &Arc<HostIdentity>) -> Result<Arc<dyn Signer>, ServerError> {
        let mut held = self.signer.lock();
        if let Some((of, signer)) = held.as_ref()
            && Arc::ptr_eq(of, identity)
        {
            return Ok(Arc::clone(signer));
        }
        let pair = SshKeyPair::from_openssh(identity.ssh_key.expose())
            .map_err(|error| certificates("cannot use this proxy's host key", error))?;
        let signer = pair.signer();
        *held = Some((Arc::clone(identity), Arc::clone(&signer)));
        Ok(signer)
    }
}
