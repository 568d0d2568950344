//! Key exchange: groups of Diffie and Hellman's kind, ML-KEM, and hybrids of the two.
//!
//! A hybrid is the concatenation of both shares and of both secrets, in the order that its specification fixes
//! (draft-ietf-tls-ecdhe-mlkem §4): ML-KEM comes first with X25519, and second with P-256.

use std::fmt;

use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

use crate::algorithm::{DhGroup, KexGroup};
use crate::provider::{Agreement, Decapsulation, Secret};
use crate::selection::{Mode, RunError, Selection};
use crate::{Primitive, strict};

/// Length of an encapsulation key of ML-KEM-768, in bytes (FIPS 203 table 3).
const ML_KEM_KEY_BYTES: usize = 1184;
/// Length of a ciphertext of ML-KEM-768, in bytes.
const ML_KEM_CIPHERTEXT_BYTES: usize = 1088;

/// Whether some source is eligible for all that a group needs. The self-tests run at the first use.
pub(super) fn is_served(selection: &Selection, group: KexGroup) -> bool {
    let eligible =
        |primitive| selection.ranking(primitive).first().is_some_and(|place| place.obstacle.is_none());
    group.dh().is_none_or(|dh| eligible(Primitive::Agree(dh)))
        && (!group.has_ml_kem() || (eligible(Primitive::Decapsulate) && eligible(Primitive::Encapsulate)))
}

pub(super) fn group(selection: &'static Selection, group: KexGroup) -> &'static dyn SupportedKxGroup {
    Box::leak(Box::new(Group { selection, group }))
}

struct Group {
    selection: &'static Selection,
    group: KexGroup,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group").field(&self.group).finish()
    }
}

impl Group {
    fn dh(&self, dh: DhGroup) -> Result<Box<dyn Agreement>, Error> {
        self.selection
            .run(Primitive::Agree(dh), |provider| provider.start_agreement(dh))
            .map_err(|error| failed(&error))
    }

    fn kem(&self) -> Result<Box<dyn Decapsulation>, Error> {
        self.selection
            .run(Primitive::Decapsulate, |provider| provider.start_decapsulation())
            .map_err(|error| failed(&error))
    }
}

impl SupportedKxGroup for Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let dh = self.group.dh().map(|dh| self.dh(dh)).transpose()?;
        let kem = self.group.has_ml_kem().then(|| self.kem()).transpose()?;
        let share =
            join(self.group, dh.as_ref().map(|side| side.share()), kem.as_ref().map(|key| key.public()));
        Ok(Box::new(Active { group: self.group, dh, kem, share }))
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (peer_dh, peer_kem) = split(self.group, peer, ML_KEM_KEY_BYTES)?;
        let (mut share, mut secret) = (None, None);
        if let (Some(dh), Some(peer)) = (self.group.dh(), peer_dh) {
            let side = self.dh(dh)?;
            share = Some(side.share().to_vec());
            strict::check_share(dh, peer).map_err(|_| refused())?;
            secret = Some(side.finish(peer).map_err(|_| refused())?);
        }
        let kem = peer_kem
            .map(|peer| {
                self.selection.run(Primitive::Encapsulate, |provider| provider.encapsulate(peer)).map_err(
                    |error| match error {
                        RunError::Refused(_) => refused(),
                        RunError::NoSource(_) => failed(&error),
                    },
                )
            })
            .transpose()?;
        let (ciphertext, kem_secret) = kem.unzip();
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: join(self.group, share.as_deref(), ciphertext.as_deref()),
            secret: secrets(self.group, secret.as_ref(), kem_secret.as_ref()),
        })
    }

    fn ffdhe_group(&self) -> Option<rustls::ffdhe_groups::FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::from(self.group.iana_code())
    }

    /// With ML-KEM in it, TLS 1.3 alone can use it.
    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3 || !self.group.has_ml_kem()
    }

    fn fips(&self) -> bool {
        // X25519 alone is not approved; in a hybrid it is what SP 800-56C §2 allows to be mixed in.
        matches!(self.selection.policy().mode, Mode::Fips) && self.group != KexGroup::X25519
    }
}

struct Active {
    group: KexGroup,
    dh: Option<Box<dyn Agreement>>,
    kem: Option<Box<dyn Decapsulation>>,
    share: Vec<u8>,
}

impl ActiveKeyExchange for Active {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let (peer_dh, peer_kem) = split(self.group, peer, ML_KEM_CIPHERTEXT_BYTES)?;
        if let Some((dh, peer)) = self.group.dh().zip(peer_dh) {
            strict::check_share(dh, peer).map_err(|_| refused())?;
        }
        let dh = self.dh.zip(peer_dh).map(|(side, peer)| side.finish(peer)).transpose();
        let kem = self.kem.zip(peer_kem).map(|(key, ciphertext)| key.finish(ciphertext)).transpose();
        let (dh, kem) = (dh.map_err(|_| refused())?, kem.map_err(|_| refused())?);
        Ok(secrets(self.group, dh.as_ref(), kem.as_ref()))
    }

    /// A hybrid's other half serves as a share of its own, so that a server without ML-KEM costs no second flight.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        self.kem.as_ref()?;
        let alone = match self.group.dh()? {
            DhGroup::X25519 => NamedGroup::X25519,
            DhGroup::P256 => NamedGroup::secp256r1,
            DhGroup::P384 => NamedGroup::secp384r1,
        };
        self.dh.as_ref().map(|side| (alone, side.share()))
    }

    fn complete_hybrid_component(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let (side, dh) = self.dh.zip(self.group.dh()).ok_or_else(refused)?;
        strict::check_share(dh, peer).map_err(|_| refused())?;
        side.finish(peer).map(|secret| SharedSecret::from(secret.as_bytes())).map_err(|_| refused())
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<rustls::ffdhe_groups::FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::from(self.group.iana_code())
    }
}

fn ml_kem_first(group: KexGroup) -> bool {
    group == KexGroup::X25519MlKem768
}

/// Both parts of a share, in their order.
fn join(group: KexGroup, dh: Option<&[u8]>, kem: Option<&[u8]>) -> Vec<u8> {
    let (dh, kem) = (dh.unwrap_or_default(), kem.unwrap_or_default());
    if ml_kem_first(group) { [kem, dh].concat() } else { [dh, kem].concat() }
}

type Parts<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// The parts of a peer's share, each of exactly its length.
fn split(group: KexGroup, share: &[u8], kem_bytes: usize) -> Result<Parts<'_>, Error> {
    let dh_bytes = group.dh().map(DhGroup::share_bytes);
    let kem_bytes = group.has_ml_kem().then_some(kem_bytes);
    if share.len() != dh_bytes.unwrap_or_default() + kem_bytes.unwrap_or_default() {
        return Err(refused());
    }
    let first = if ml_kem_first(group) { kem_bytes } else { dh_bytes };
    let (one, two) = share.split_at_checked(first.unwrap_or_default()).ok_or_else(refused)?;
    let (dh, kem) = if ml_kem_first(group) { (two, one) } else { (one, two) };
    Ok((dh_bytes.map(|_| dh), kem_bytes.map(|_| kem)))
}

fn secrets(group: KexGroup, dh: Option<&Secret>, kem: Option<&Secret>) -> SharedSecret {
    let (dh, kem) = (dh.map(Secret::as_bytes), kem.map(Secret::as_bytes));
    // `SharedSecret` wipes the vector it takes.
    SharedSecret::from(join(group, dh, kem))
}

fn refused() -> Error {
    PeerMisbehaved::InvalidKeyShare.into()
}

fn failed(error: &RunError) -> Error {
    Error::General(match error {
        RunError::Refused(reason) => (*reason).to_owned(),
        RunError::NoSource(error) => error.to_string(),
    })
}
