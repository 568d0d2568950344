//! One question to the person, however many ask.

use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use sallyport_wire::v1::SessionTarget;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Code;

use super::authority::{Authority, Ended, Proves, ended};
use super::question::{Asker, Question, all_shown};
use crate::demanded::{Demanded, shown};
use crate::error::{Error, Result, was_reached};
use crate::profile::Stored;

/// How long the authority lets something be proven.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long to wait before the authority is asked again that has gone for a moment.
const PAUSE: Duration = Duration::from_secs(1);
/// What begins together, such as the forks of Ansible, comes to one question within this.
const GATHER: Duration = Duration::from_millis(80);
/// Targets of one question; the authority takes no more.
const MOST_TARGETS: usize = 1_000;

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
        self.lead(authority.await, demanded, wanted, asker).await
    }

    /// Asks the authority and the person, for all that wait.
    async fn lead(
        &self,
        authority: Result<impl Proves>,
        demanded: &Demanded,
        wanted: &[SessionTarget],
        asker: &dyn Asker,
    ) -> Result {
        tokio::time::sleep(GATHER).await;
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

    /// What waits besides these.
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

/// Asks for a factor for sessions with these, up to the end of the question; gives what it was about in the end: what comes to `others`
/// meanwhile joins it, where the authority lets it.
pub(super) async fn converse(
    authority: &dyn Proves,
    asker: &dyn Asker,
    mut targets: Vec<SessionTarget>,
    what: &str,
    others: Option<&Asking>,
) -> Result<(Ended, Vec<SessionTarget>)> {
    let asked = authority.begin(targets.clone()).await?;
    if asked.state == "none" {
        return Ok((Ended::Proven(None), targets));
    }
    let challenge = asked.page.as_ref().map(|page| page.challenge.clone()).unwrap_or_default();
    let mut question = Question::of(&asked, what.to_owned(), authority.proxy())?;
    if !asker.can_ask() {
        return Err(Error::NoOneToAsk);
    }
    let deadline = Instant::now() + PATIENCE;
    let more = || async {
        match others {
            Some(others) => others.more.notified().await,
            None => std::future::pending().await,
        }
    };
    // What another question would be about waits for the end of this one.
    let mut apart: Vec<SessionTarget> = Vec::new();
    loop {
        let mut typed = asker.ask(&question);
        let code = loop {
            let mut stands = authority.wait(&challenge);
            tokio::select! {
                stands = &mut stands => match stands {
                    Ok(state) => if let Some(ended) = ended(&state) {
                        return Ok((ended, targets));
                    },
                    // An authority that goes while the connection stays is asked again.
                    Err(status) if status.code() == Code::Unavailable && was_reached(&status) && Instant::now() < deadline => {
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(status) => return Err(Error::answered("wait for the second factor", status)),
                },
                code = &mut typed => break code,
                () = more() => {
                    let known = [targets.as_slice(), apart.as_slice()].concat();
                    let new = others.map(|others| others.beside(&known)).unwrap_or_default();
                    if new.is_empty() || targets.len() + new.len() > MOST_TARGETS {
                        apart.extend(new);
                        continue;
                    }
                    match authority.begin(new.clone()).await {
                        Ok(joined) if joined.page.as_ref().is_none_or(|page| page.challenge == challenge) => {
                            targets.extend(new);
                        }
                        // Each of them asks anew, and hears of this by itself.
                        Ok(_) | Err(_) => apart.extend(new),
                    }
                }
                () = tokio::time::sleep_until(deadline) => return Ok((Ended::Refused, targets)),
            }
        };
        drop(typed);
        match authority.prove(&challenge, code).await {
            Ok(state) => {
                if let Some(ended) = ended(&state) {
                    return Ok((ended, targets));
                }
            }
            // The person may type another; how many they may, the authority says.
            Err(status) if matches!(status.code(), Code::PermissionDenied | Code::InvalidArgument) => {
                question.wrong = Some(status.message().to_owned());
            }
            Err(status) => return Err(Error::answered("prove the second factor", status)),
        }
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
        /// Answers of `begin` that come before those of the challenge.
        first: Mutex<VecDeque<Result<SessionFactorAsked>>>,
    }

    impl Default for Fake {
        fn default() -> Self {
            Self {
                stands: watch::Sender::new("pending"),
                asked: Mutex::default(),
                right: "123456",
                first: Mutex::default(),
            }
        }
    }

    impl Fake {
        fn state(state: &str) -> SessionFactorState {
            SessionFactorState { state: state.to_owned(), until: None }
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
        ) -> BoxFuture<'a, Result<SessionFactorState, Status>> {
            async move {
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
            let typed = self.types.lock().pop_front();
            async move {
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
        assert_eq!(person.questions.lock()[0].what, "web-0, web-1, web-2 and 17 more");
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
    async fn what_is_proven_already_asks_no_person() {
        let (asking, fake, person) = (Asking::default(), Fake::default(), Person::default());
        let none = SessionFactorAsked { state: "none".to_owned(), ..SessionFactorAsked::default() };
        fake.first.lock().push_back(Ok(none));
        prove(&asking, &fake, "web-1", &person).await.unwrap();
        assert_eq!(person.asked.load(Ordering::Relaxed), 0);
    }
}
