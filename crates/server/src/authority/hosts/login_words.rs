//! Users' words for logins at registered servers: each is good for one certificate.

use std::collections::HashMap;

use parking_lot::Mutex;
use sallyport_access::{ClusterName, Node};
use sallyport_ca::{CaError, LOGIN_WORD_LIFE, LoginWord, SKEW_ALLOWANCE, Trust, WantedLogin, keys};
use sallyport_wire::v1;
use time::OffsetDateTime;
use uuid::Uuid;

/// Words that are remembered; while there are so many, no other is taken.
const MOST_REMEMBERED: usize = 200_000;

/// Why a user's word for a login does not count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unheard {
    #[error("the user's program has given none")]
    None,
    #[error("it is for another server")]
    OtherServer,
    #[error("it was used before")]
    Used,
    #[error(transparent)]
    Wrong(#[from] CaError),
}

/// The words that were used, by login and nonce, for as long as they would count.
#[derive(Debug, Default)]
pub(crate) struct LoginWords(Mutex<HashMap<(Uuid, Vec<u8>), OffsetDateTime>>);

impl LoginWords {
    /// Takes a user's word for one login on one server, which is then used up.
    pub(crate) fn take(
        &self,
        trust: &Trust,
        cluster: &ClusterName,
        asked: (&Node, &str),
        shown: &str,
        word: Option<&v1::LoginWord>,
        now: OffsetDateTime,
    ) -> Result<(), Unheard> {
        let (server, login) = asked;
        let word = word.ok_or(Unheard::None)?;
        if !is_called(server, &word.server, cluster) {
            return Err(Unheard::OtherServer);
        }
        let wanted = WantedLogin { server: &word.server, login };
        let signed =
            LoginWord { at: word.at, nonce: word.nonce.to_vec(), signature: word.signature.to_vec() };
        let user = keys::certificate(shown)
            .and_then(|shown| trust.verify_login_word(&wanted, &shown, &signed, now))?;
        match self.is_first((user.login_id, signed.nonce), now) {
            true => Ok(()),
            false => Err(Unheard::Used),
        }
    }

    fn is_first(&self, used: (Uuid, Vec<u8>), now: OffsetDateTime) -> bool {
        let mut known = self.0.lock();
        if known.len() >= MOST_REMEMBERED {
            known.retain(|_, until| *until > now);
            if known.len() >= MOST_REMEMBERED {
                return false;
            }
        }
        known.insert(used, now + LOGIN_WORD_LIFE + 3 * SKEW_ALLOWANCE).is_none_or(|until| until <= now)
    }
}

/// Whether a user who says this means the server: its name or id, with or without the cluster behind it.
fn is_called(server: &Node, said: &str, cluster: &ClusterName) -> bool {
    let said = said.to_ascii_lowercase();
    let said = said.strip_suffix('.').unwrap_or(&said);
    let is = |text: &str| server.name.as_str().eq_ignore_ascii_case(text) || server.id.to_string() == text;
    let short = said.strip_suffix(cluster.as_str()).and_then(|short| short.strip_suffix('.'));
    is(said) || short.is_some_and(is)
}
