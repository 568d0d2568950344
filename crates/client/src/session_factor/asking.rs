//! One question to the person, however many ask.

use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use sallyport_wire::v1::SessionTarget;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::authority::{Authority, Ended, Proves};
use super::conversing::{MOST_TARGETS, Others, converse};
use super::question::{Asker, all_shown};
use crate::demanded::{Demanded, shown};
use crate::error::{Error, Result};
use crate::profile::Stored;

/// What begins together, such as the forks of Ansible, comes to one question: it is asked once no more has come for so long,
const GATHER: Duration = Duration::from_millis(80);
/// and after so long at the latest.
const GATHERED: Duration = Duration::from_secs(1);

/// What of one login waits for a factor.
#[derive(Debug, Default)]
pub struct Asking {
    /// Held by the one that asks the person.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// One more waits.
    more: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// How many have come so far.
    came: u64,
    waiting: Vec<(u64, SessionTarget)>,
    last: Option<Outcome>,
}

/// What came of the question before.
#[derive(Debug)]
struct Outcome {
    /// It is about what came up to this one.
    until: u64,
    targets: Vec<SessionTarget>,
    came_to: Result<Ended>,
}

/// One that waits, until it is dropped.
struct Waits<'a> {
    asking: &'a Asking,
    number: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.asking.state.lock().waiting.retain(|(number, _)| *number != self.number);
    }
}

impl Asking {
    /// Has a factor proven for what was refused, and for what else is `wanted`; returns when it is worth to try again. With an asker that
    /// reaches no person it waits for a question that the person has been asked, and for nothing else.
    ///
    /// # Errors
    /// The person cannot be asked or has refused, or the authority does not answer.
    pub fn prove<'a>(
        &'a self,
        stored: &'a Stored,
        demanded: &'a Demanded,
        wanted: &'a [SessionTarget],
        asker: &'a dyn Asker,
    ) -> BoxFuture<'a, Result> {
        Box::pin(async move {
            let demanded = demanded.at(&stored.profile.cluster);
            self.prove_at(Authority::of(stored), &demanded, wanted, asker).await
        })
    }

    /// The same at an authority that is reached where it has to be asked.
    async fn prove_at(
        &self,
        authority: impl Future<Output = Result<impl Proves>>,
        demanded: &Demanded,
        wanted: &[SessionTarget],
        asker: &dyn Asker,
    ) -> Result {
        let waits = self.wait(&demanded.target);
        if !asker.can_ask() && self.turn.try_lock().is_ok() {
            return Err(wanted_of(demanded));
        }
        let _turn = self.turn.lock().await;
        if let Some(came_to) = self.came_of(&waits, &demanded.target) {
            return judged(came_to, demanded);
        }
        if !asker.can_ask() {
            return Err(wanted_of(demanded));
        }
        self.lead(authority, demanded, wanted, asker).await
    }

    /// Asks the authority and the person, for all that wait.
    async fn lead(
        &self,
        authority: impl Future<Output = Result<impl Proves>>,
        demanded: &Demanded,
        wanted: &[SessionTarget],
        asker: &dyn Asker,
    ) -> Result {
        // The authority is connected to while more may come.
        let (authority, ()) = tokio::join!(authority, self.gather());
        let mut targets = self.beside(&[]);
        targets.extend(wanted.iter().filter(|target| !targets.contains(target)).cloned().collect::<Vec<_>>());
        targets.truncate(MOST_TARGETS);
        let what = all_shown(&targets);
        let (came_to, targets) = match authority {
            Ok(authority) => match converse(&authority, asker, targets, &what, Some(self)).await {
                Ok((ended, targets)) => (Ok(ended), targets),
                Err(error) => (Err(error), self.beside(&[])),
            },
            Err(error) => (Err(error), targets),
        };
        let mut state = self.state.lock();
        state.last = Some(Outcome { until: state.came, targets, came_to: came_to.clone() });
        drop(state);
        judged(came_to, demanded)
    }

    /// Waits for what begins together.
    async fn gather(&self) {
        let until = Instant::now() + GATHERED;
        let mut known = self.beside(&[]);
        loop {
            tokio::time::sleep(GATHER).await;
            let new = self.beside(&known);
            if new.is_empty() || Instant::now() >= until {
                return;
            }
            known.extend(new);
        }
    }

    fn wait(&self, target: &SessionTarget) -> Waits<'_> {
        let mut state = self.state.lock();
        state.came += 1;
        let number = state.came;
        state.waiting.push((number, target.clone()));
        drop(state);
        self.more.notify_one();
        Waits { asking: self, number }
    }

    /// What came of a question that was about this one, too.
    fn came_of(&self, waits: &Waits<'_>, target: &SessionTarget) -> Option<Result<Ended>> {
        let state = self.state.lock();
        let last = state.last.as_ref()?;
        (last.until >= waits.number && last.targets.contains(target)).then(|| last.came_to.clone())
    }
}

impl Others for Asking {
    fn more(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.more.notified())
    }

    fn beside(&self, known: &[SessionTarget]) -> Vec<SessionTarget> {
        let state = self.state.lock();
        let mut targets: Vec<SessionTarget> = Vec::new();
        for (_, target) in &state.waiting {
            if !known.contains(target) && !targets.contains(target) {
                targets.push(target.clone());
            }
        }
        targets
    }
}

/// What a program is told that has no person to ask.
fn wanted_of(demanded: &Demanded) -> Error {
    Error::FactorWanted { demanded: Box::new(demanded.clone()) }
}

fn judged(came_to: Result<Ended>, demanded: &Demanded) -> Result {
    match came_to? {
        Ended::Proven(_) => Ok(()),
        Ended::Refused => Err(Error::FactorRefused { what: shown(&demanded.target) }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures::FutureExt;
    use sallyport_wire::v1::{ChallengePage, SessionFactorAsked, SessionFactorState};
    use tokio::sync::watch;
    use tonic::Status;

    use super::super::question::Question;
    use super::*;

    fn target(name: &str) -> SessionTarget {
        SessionTarget { kind: "node".to_owned(), resource: name.to_owned(), ..SessionTarget::default() }
    }

    fn demanded(name: &str) -> Demanded {
        Demanded { target: target(name), hardware: false }
    }

    /// An authority with one challenge at a time.
    struct Fake {
        stands: watch::Sender<&'static str>,
        asked: Mutex<Vec<Vec<SessionTarget>>>,
        right: &'static str,
        /// What the person had read, each time that they typed a code.
        read: Mutex<Vec<Vec<SessionTarget>>>,
        /// Answers of `begin` that come before those of the challenge.
        first: Mutex<VecDeque<Result<SessionFactorAsked>>>,
    }

    impl Default for Fake {
        fn default() -> Self {
            Self {
                stands: watch::Sender::new("pending"),
                asked: Mutex::default(),
                right: "123456",
                read: Mutex::default(),
                first: Mutex::default(),
            }
        }
    }

    impl Fake {
        fn state(state: &str) -> SessionFactorState {
            let (state, partly) = match state.strip_prefix("partly ") {
                Some(state) => (state, true),
                None => (state, false),
            };
            SessionFactorState { state: state.to_owned(), until: None, partly }
        }

        fn pending() -> SessionFactorAsked {
            let page = ChallengePage { challenge: "one".to_owned(), ..ChallengePage::default() };
            SessionFactorAsked {
                state: "pending".to_owned(),
                page: Some(page),
                code: "BCDF-GHJK".to_owned(),
                codes: true,
                ..SessionFactorAsked::default()
            }
        }
    }

    impl Proves for &Fake {
        fn proxy(&self) -> &str {
            "a.example:443"
        }

        fn begin(&self, targets: Vec<SessionTarget>) -> BoxFuture<'_, Result<SessionFactorAsked>> {
            self.asked.lock().push(targets);
            let first = self.first.lock().pop_front();
            std::future::ready(first.unwrap_or_else(|| Ok(Fake::pending()))).boxed()
        }

        fn wait<'a>(&'a self, challenge: &'a str) -> BoxFuture<'a, Result<SessionFactorState, Status>> {
            async move {
                assert_eq!(challenge, "one");
                let mut stands = self.stands.subscribe();
                let state = *stands.wait_for(|state| *state != "pending").await.unwrap();
                Ok(Fake::state(state))
            }
            .boxed()
        }

        fn prove<'a>(
            &'a self,
            _: &'a str,
            code: String,
            shown: Vec<SessionTarget>,
        ) -> BoxFuture<'a, Result<SessionFactorState, Status>> {
            async move {
                self.read.lock().push(shown);
                if code == "late" {
                    self.stands.send_replace("proven");
                    return Err(Status::failed_precondition("this is proven already"));
                }
                if code != self.right {
                    return Err(Status::permission_denied("the code is wrong"));
                }
                self.stands.send_replace("proven");
                Ok(Fake::state("proven"))
            }
            .boxed()
        }
    }

    /// A person, and what they type.
    #[derive(Default)]
    struct Person {
        away: AtomicBool,
        asked: AtomicUsize,
        questions: Mutex<Vec<Question>>,
        types: Mutex<VecDeque<&'static str>>,
        /// What they type first, when they do.
        slow: Mutex<Option<tokio::sync::oneshot::Receiver<&'static str>>>,
        shown: Notify,
    }

    impl Asker for Person {
        fn can_ask(&self) -> bool {
            !self.away.load(Ordering::Relaxed)
        }

        fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, String> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.questions.lock().push(question.clone());
            self.shown.notify_one();
            let slow = self.slow.lock().take();
            let typed = if slow.is_some() { None } else { self.types.lock().pop_front() };
            async move {
                if let Some(slow) = slow {
                    return slow.await.unwrap().to_owned();
                }
                match typed {
                    Some(typed) => typed.to_owned(),
                    None => std::future::pending().await,
                }
            }
            .boxed()
        }
    }

    async fn prove(asking: &Asking, fake: &Fake, name: &str, person: &Person) -> Result {
        asking.prove_at(async { Ok(fake) }, &demanded(name), &[], person).await
    }

    fn typing(codes: &[&'static str]) -> Person {
        Person { types: Mutex::new(codes.iter().copied().collect()), ..Person::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_at_once_are_one_question() {
        let (asking, fake, person) = (Asking::default(), Fake::default(), typing(&["123456"]));
        let names: Vec<String> = (0..50).map(|number| format!("web-{}", number % 20)).collect();
        let proving = names.iter().map(|name| prove(&asking, &fake, name, &person));
        for came_to in futures::future::join_all(proving).await {
            came_to.unwrap();
        }
        let asked = fake.asked.lock();
        assert_eq!((asked.len(), asked[0].len()), (1, 20), "{asked:?}");
        assert_eq!(person.asked.load(Ordering::Relaxed), 1);
        let what = person.questions.lock()[0].what.clone();
        assert!(what.starts_with("20 sessions: web-0, web-1, ") && what.ends_with(", web-19"), "{what}");
        assert_eq!(*fake.read.lock(), [asked[0].clone()], "the code is for what was read");
        assert!(asking.state.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_later_joins_and_a_wrong_code_is_asked_for_again() {
        let (asking, fake, person) = (Asking::default(), Fake::default(), typing(&["000000"]));
        let first = prove(&asking, &fake, "web-1", &person);
        let later = async {
            person.shown.notified().await;
            prove(&asking, &fake, "web-2", &person).await
        };
        let page = async {
            while fake.asked.lock().len() < 2 || person.asked.load(Ordering::Relaxed) < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            fake.stands.send_replace("proven");
        };
        let (first, later, ()) = tokio::join!(first, later, page);
        first.unwrap();
        later.unwrap();
        let questions = person.questions.lock();
        assert_eq!(questions.len(), 2, "{questions:?}");
        assert_eq!(questions[1].wrong.as_deref(), Some("the code is wrong"));
        assert_eq!(*fake.asked.lock(), [vec![target("web-1")], vec![target("web-2")]]);
        assert_eq!(*fake.read.lock(), [vec![target("web-1")]]);
    }

    /// What joins while the person reads is not in what they have read: a code proves it when it is asked for by itself, and where they
    /// type another they read it, too.
    #[tokio::test(start_paused = true)]
    async fn attacks_a_code_is_for_what_was_read_where_it_was_typed() {
        let (asking, fake) = (Asking::default(), Fake::default());
        let (typed, code) = tokio::sync::oneshot::channel::<&'static str>();
        let person = Person { slow: Mutex::new(Some(code)), ..Person::default() };
        let first = prove(&asking, &fake, "web-1", &person);
        let later = async {
            person.shown.notified().await;
            let later = prove(&asking, &fake, "db-1", &person);
            let types = async {
                while fake.asked.lock().len() < 2 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                typed.send("123456").unwrap();
            };
            tokio::join!(later, types).0
        };
        let (first, later) = tokio::join!(first, later);
        first.unwrap();
        later.unwrap();
        assert_eq!(*fake.read.lock(), [vec![target("web-1")]]);
        let questions = person.questions.lock();
        assert_eq!(questions.iter().map(|asked| asked.what.as_str()).collect::<Vec<_>>(), ["web-1", "db-1"]);
    }

    /// Another program of the login typed a code, for what it had asked for itself.
    #[tokio::test(start_paused = true)]
    async fn what_was_proven_elsewhere_for_other_sessions_is_asked_for_anew() {
        let (asking, fake, person) = (Asking::default(), Fake::default(), Person::default());
        let elsewhere = async {
            person.shown.notified().await;
            let none = SessionFactorAsked { state: "none".to_owned(), ..SessionFactorAsked::default() };
            fake.first.lock().push_back(Ok(none));
            fake.stands.send_replace("partly proven");
        };
        let (came_to, ()) = tokio::join!(prove(&asking, &fake, "web-1", &person), elsewhere);
        came_to.unwrap();
        assert_eq!(*fake.asked.lock(), [vec![target("web-1")], vec![target("web-1")]]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_or_fails_is_so_for_all_that_waited() {
        let (asking, person) = (Asking::default(), Person::default());
        let fake = Fake { stands: watch::Sender::new("refused"), ..Fake::default() };
        let proving = ["web-1", "web-2"].map(|name| prove(&asking, &fake, name, &person));
        for came_to in futures::future::join_all(proving).await {
            assert!(matches!(came_to, Err(Error::FactorRefused { .. })), "{came_to:?}");
        }
        assert_eq!((fake.asked.lock().len(), person.asked.load(Ordering::Relaxed)), (1, 1));
        // One that comes after that asks anew, and the authority says whether the person is asked.
        let said = Error::answered("ask", Status::permission_denied("refused a moment ago"));
        fake.first.lock().push_back(Err(said));
        let came_to = prove(&asking, &fake, "web-1", &person).await.unwrap_err();
        assert_eq!(came_to.told(), "refused a moment ago");
        assert_eq!((fake.asked.lock().len(), person.asked.load(Ordering::Relaxed)), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_person_is_nothing_is_asked_or_waited_for() {
        let (asking, fake, away) = (Asking::default(), Fake::default(), Person::default());
        away.away.store(true, Ordering::Relaxed);
        let before = Instant::now();
        let error = prove(&asking, &fake, "web-1", &away).await.unwrap_err();
        assert_eq!((before.elapsed(), fake.asked.lock().len()), (Duration::ZERO, 0));
        let advice = error.advice().unwrap();
        assert!(advice.contains("sallyport mfa pre-auth --for 15m --hosts web-1"), "{advice}");
        // A question that a person sees is waited for.
        let person = Person::default();
        let silent = async {
            person.shown.notified().await;
            let waiting = prove(&asking, &fake, "web-1", &away);
            let proven = async { fake.stands.send_replace("proven") };
            tokio::join!(waiting, proven).0
        };
        let (asks, silent) = tokio::join!(prove(&asking, &fake, "web-1", &person), silent);
        asks.unwrap();
        silent.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_one_that_asks_has_gone_the_next_asks() {
        let asking = Arc::new(Asking::default());
        let (fake, first, second) = (Fake::default(), Person::default(), typing(&["123456"]));
        let gone = async {
            tokio::select! {
                _ = prove(&asking, &fake, "web-1", &first) => panic!("the person has proven nothing"),
                () = async {
                    first.shown.notified().await;
                    while asking.state.lock().waiting.len() < 2 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                } => {}
            }
        };
        let waits = async {
            while first.asked.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            prove(&asking, &fake, "web-2", &second).await
        };
        let ((), came_to) = tokio::join!(gone, waits);
        came_to.unwrap();
        assert_eq!(second.asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_that_comes_when_the_page_has_proven_it_is_no_failure() {
        let (asking, fake, person) = (Asking::default(), Fake::default(), typing(&["late"]));
        prove(&asking, &fake, "web-1", &person).await.unwrap();
        assert_eq!((fake.asked.lock().len(), person.asked.load(Ordering::Relaxed)), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_authority_is_connected_to_while_more_may_come() {
        let (asking, fake, person) = (Asking::default(), Fake::default(), typing(&["123456"]));
        let before = Instant::now();
        let far = async {
            tokio::time::sleep(GATHER).await;
            Ok(&fake)
        };
        asking.prove_at(far, &demanded("web-1"), &[], &person).await.unwrap();
        assert_eq!(before.elapsed(), GATHER);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_proven_already_asks_no_person() {
        let (asking, fake, person) = (Asking::default(), Fake::default(), Person::default());
        let none = SessionFactorAsked { state: "none".to_owned(), ..SessionFactorAsked::default() };
        fake.first.lock().push_back(Ok(none));
        prove(&asking, &fake, "web-1", &person).await.unwrap();
        assert_eq!(person.asked.load(Ordering::Relaxed), 0);
    }
}
