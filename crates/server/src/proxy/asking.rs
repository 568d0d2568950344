//! Users whose clients cannot ask them for a second factor (stock `ssh -J`, and psql straight to this proxy): the authority makes the
//! page, and the refusal that their client shows says where it is.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_access::factor::place_of;
use sallyport_access::text::Foreign;
use sallyport_access::{Identity, SessionTarget};
use sallyport_ssh::jump::{Answered, Question};
use sallyport_wire::stream_header::UserCertificate;
use sallyport_wire::v1::{
    AwaitSessionFactorForRequest, BeginSessionFactorForRequest, ProveSessionFactorForRequest,
    SessionFactorAsked, ShownCertificate,
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

/// Whose client it was, and from where, as a proof serves there.
type Key = (Uuid, IpAddr);

/// What a user was asked last.
#[derive(Debug, Clone)]
struct Kept {
    since: Instant,
    challenge: String,
    /// What the user has to do.
    words: String,
    /// Which sessions this proxy has asked for, and what they are called.
    sessions: Vec<(SessionTarget, String)>,
}

impl Kept {
    /// The question of one who connects now: it names all that has been asked for, of whom the user may be one.
    fn question(&self) -> Question {
        let names: Vec<&str> = self.sessions.iter().map(|(_, name)| name.as_str()).collect();
        Question {
            words: format!("A second factor is demanded for {}:\n{}", names.join(", "), self.words),
            challenge: self.challenge.clone(),
            sessions: self.sessions.iter().map(|(session, _)| session.clone()).collect(),
        }
    }
}

/// Asks users for a second factor whose clients cannot.
#[derive(Clone)]
pub(crate) struct Asking {
    client: AuthorityClient,
    /// This proxy's own address, as browsers reach it.
    address: Arc<str>,
    kept: Arc<Mutex<HashMap<Key, Kept>>>,
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

    /// Has the authority ask for a factor for a session with this, which is called so, and gives what the user has to do. None: it cannot be
    /// asked now.
    pub(crate) async fn words(
        &self,
        identity: &Identity,
        (certificate, client): (&UserCertificate, SocketAddr),
        (target, name): (SessionTarget, &str),
    ) -> Option<String> {
        let request = BeginSessionFactorForRequest {
            certificate: shown(certificate),
            address: client.ip().to_string(),
            target: Some(session_factors::target(&target)),
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
        keep(&mut self.kept.lock(), key(identity, client), (challenge, &words), (target, name));
        Some(words)
    }

    /// What the user of a client was asked, and has not proven or refused.
    pub(crate) fn question(&self, identity: &Identity, client: SocketAddr) -> Option<Question> {
        let kept = self.kept.lock();
        let kept = kept.get(&key(identity, client))?;
        (kept.since.elapsed() < KEPT).then(|| kept.question())
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
            let (otp, shown) =
                (typed.to_owned(), question.sessions.iter().map(session_factors::target).collect());
            let request = ProveSessionFactorForRequest { challenge, certificate, address, otp, shown };
            authority.prove_for(request).await
        };
        match stands.map(|stands| stands.into_inner().state) {
            Ok(state) if state == "pending" => Answered::Again(question.words.clone()),
            Ok(_) => {
                self.kept.lock().retain(|_, kept| kept.challenge != question.challenge);
                Answered::Done
            }
            Err(status)
                if matches!(
                    status.code(),
                    Code::PermissionDenied | Code::InvalidArgument | Code::FailedPrecondition | Code::Aborted
                ) =>
            {
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

/// Keeps what a user was asked, with what else was asked for by the same challenge.
fn keep(
    kept: &mut HashMap<Key, Kept>,
    key: Key,
    (challenge, words): (String, &str),
    (target, name): (SessionTarget, &str),
) {
    if kept.len() >= MOST_KEPT {
        kept.retain(|_, kept| kept.since.elapsed() < KEPT);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
    }
    let known = kept.remove(&key).filter(|known| known.challenge == challenge);
    let mut sessions = known.map(|known| known.sessions).unwrap_or_default();
    if !sessions.iter().any(|(known, _)| known.covers(&target)) {
        let named = SessionTarget { resource: name.to_owned(), ..target.clone() };
        sessions.push((target, Foreign::new(named.to_string()).into()));
    }
    kept.insert(key, Kept { since: Instant::now(), challenge, words: words.to_owned(), sessions });
}

fn key(identity: &Identity, client: SocketAddr) -> Key {
    (identity.login_id, place_of(client.ip()))
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

    /// What another has asked for with the same key, from behind the same address, stands in the question, and what is asked for after it
    /// was shown is in none of its answers.
    #[test]
    fn a_question_names_every_session_that_its_answer_is_for() {
        let session = |name: &str| SessionTarget::any(sallyport_access::Kind::Node, name);
        let kept = Mutex::new(HashMap::new());
        let key = (Uuid::from_u128(1), "192.0.2.1".parse().unwrap());
        let keep = |challenge: &str, name: &str| {
            super::keep(&mut kept.lock(), key, (challenge.to_owned(), "open it"), (session(name), name));
        };
        let question = || kept.lock().get(&key).unwrap().question();
        keep("one", "web-1");
        keep("one", "web-1");
        let before = question();
        assert_eq!(before.words, "A second factor is demanded for node web-1:\nopen it");
        keep("one", "db-1\u{1b}[2J");
        let both = question();
        assert_eq!(both.sessions, [session("web-1"), session("db-1\u{1b}[2J")]);
        assert!(both.words.contains("for node web-1, node db-1\u{fffd}[2J:\n"), "{}", both.words);
        assert_eq!(before.sessions, [session("web-1")]);
        keep("two", "web-2");
        assert_eq!(question().sessions, [session("web-2")], "of another challenge");
    }

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
