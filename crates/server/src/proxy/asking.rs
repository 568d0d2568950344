//! Users whose clients cannot ask them for a second factor (stock `ssh -J`, and psql straight to this proxy): the authority makes the
//! page, and the refusal that their client shows says where it is.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_access::Identity;
use sallyport_ssh::jump::{Answered, Question};
use sallyport_wire::stream_header::UserCertificate;
use sallyport_wire::v1::{
    AwaitSessionFactorForRequest, BeginSessionFactorForRequest, ProveSessionFactorForRequest,
    SessionFactorAsked, SessionTarget, ShownCertificate,
};
use tonic::{Code, Status};
use tracing::{debug, info};
use uuid::Uuid;

use crate::member::authority_client::AuthorityClient;
use crate::member::session_factors;
use crate::user_certificate;

/// How long the authority may take: a client that waits in vain is better told without the page.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a user who has said that it is proven at the page is waited for.
const PROVING: Duration = Duration::from_secs(60);
/// As long as the authority lets a factor be proven.
const KEPT: Duration = Duration::from_secs(600);
/// Users and addresses that are remembered; past it those that are over are forgotten, and then all.
const MOST_KEPT: usize = 10_000;
/// What an answer is that the authority gives no reason for.
const WRONG: &str = "the code was not taken";

/// Whose client it was, and from where.
type Key = (Uuid, IpAddr);

/// Asks users for a second factor whose clients cannot.
#[derive(Clone)]
pub(crate) struct Asking {
    client: AuthorityClient,
    /// This proxy's own address, as browsers reach it.
    address: Arc<str>,
    kept: Arc<Mutex<HashMap<Key, (Instant, Question)>>>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Asking {
    /// `address` is the proxy's first public one.
    pub(crate) fn new(client: AuthorityClient, address: &str) -> Self {
        let address = address.strip_suffix(":443").unwrap_or(address);
        Self { client, address: format!("https://{address}").into(), kept: Arc::default() }
    }

    /// Has the authority ask for a factor for a session with this, and gives what the user has to do. None: it cannot be asked now.
    pub(crate) async fn words(
        &self,
        identity: &Identity,
        (certificate, client): (&UserCertificate, SocketAddr),
        target: SessionTarget,
    ) -> Option<String> {
        let request = BeginSessionFactorForRequest {
            certificate: shown(certificate),
            address: client.ip().to_string(),
            target: Some(target),
        };
        let mut authority = self.client.session_factors();
        let asked = match tokio::time::timeout(PATIENCE, authority.begin_for(request)).await {
            Ok(Ok(asked)) => asked.into_inner(),
            Ok(Err(status)) => {
                info!(user = %identity.display_name(), %status, "a second factor cannot be asked for");
                // Such as that the user has refused a moment ago.
                return (status.code() == Code::PermissionDenied).then(|| status.message().to_owned());
            }
            Err(_) => return None,
        };
        let words = words(&asked, &self.address)?;
        let challenge = asked.page.map(|page| page.challenge).unwrap_or_default();
        self.keep(key(identity, client), Question { words: words.clone(), challenge });
        Some(words)
    }

    fn keep(&self, key: Key, question: Question) {
        let mut kept = self.kept.lock();
        if kept.len() >= MOST_KEPT {
            kept.retain(|_, (since, _)| since.elapsed() < KEPT);
            if kept.len() >= MOST_KEPT {
                kept.clear();
            }
        }
        kept.insert(key, (Instant::now(), question));
    }

    /// What the user of a client was asked, and has not proven or refused.
    pub(crate) fn question(&self, identity: &Identity, client: SocketAddr) -> Option<Question> {
        let kept = self.kept.lock();
        let (since, question) = kept.get(&key(identity, client))?;
        (since.elapsed() < KEPT).then(|| question.clone())
    }

    /// What came of the answer of a user.
    pub(crate) async fn answer(
        &self,
        question: &Question,
        typed: &str,
        certificate: &str,
        client: SocketAddr,
    ) -> Answered {
        let certificate = shown(&UserCertificate::Ssh(certificate.into()));
        let (challenge, address) = (question.challenge.clone(), client.ip().to_string());
        let mut authority = self.client.session_factors();
        let stands = if typed.is_empty() {
            let request = AwaitSessionFactorForRequest { challenge, certificate, address };
            let waiting = tokio::time::timeout(PROVING, authority.await_for(request)).await;
            waiting.unwrap_or_else(|_| Err(Status::deadline_exceeded("not proven")))
        } else {
            let otp = typed.to_owned();
            authority.prove_for(ProveSessionFactorForRequest { challenge, certificate, address, otp }).await
        };
        match stands.map(|stands| stands.into_inner().state) {
            Ok(state) if state == "pending" => Answered::Again(question.words.clone()),
            Ok(_) => {
                self.kept.lock().retain(|_, (_, kept)| kept.challenge != question.challenge);
                Answered::Done
            }
            Err(status) if matches!(status.code(), Code::PermissionDenied | Code::InvalidArgument) => {
                let why = if status.message().is_empty() { WRONG } else { status.message() };
                Answered::Again(format!("{why}\n{}", question.words))
            }
            Err(status) => {
                debug!(%status, "a second factor was not proven");
                Answered::Done
            }
        }
    }
}

fn key(identity: &Identity, client: SocketAddr) -> Key {
    (identity.login_id, client.ip())
}

fn shown(certificate: &UserCertificate) -> Option<ShownCertificate> {
    user_certificate::shown(certificate).ok().map(session_factors::shown)
}

/// What a user reads; none where nothing has to be proven.
fn words(asked: &SessionFactorAsked, own: &str) -> Option<String> {
    let page = asked.page.as_ref()?;
    let origin = match page.origins.first() {
        Some(first) if !page.origins.iter().any(|origin| origin == own) => first,
        _ => own,
    };
    let code = match asked.code.as_str() {
        "" => String::new(),
        code => format!(" and type {code} there"),
    };
    Some(format!("open {origin}{}{code}, then connect again", page.path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_wire::v1::ChallengePage;

    use super::*;

    #[test]
    fn a_user_reads_the_page_at_which_passkeys_work() {
        let page = ChallengePage { path: "/approve#x".to_owned(), ..ChallengePage::default() };
        let code = "BCDF-GHJK".to_owned();
        let mut asked = SessionFactorAsked { page: Some(page), code, ..SessionFactorAsked::default() };
        let told = words(&asked, "https://a.example").unwrap();
        assert_eq!(told, "open https://a.example/approve#x and type BCDF-GHJK there, then connect again");
        asked.page.as_mut().unwrap().origins = vec!["https://b.example".to_owned()];
        asked.code.clear();
        assert_eq!(
            words(&asked, "https://a.example").unwrap(),
            "open https://b.example/approve#x, then connect again"
        );
        asked.page = None;
        assert_eq!(words(&asked, "https://a.example"), None);
    }
}
