//! One question to the person, from the moment that the authority has opened it to its end.

use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_wire::v1::SessionTarget;
use tokio::time::Instant;
use tonic::Code;

use super::authority::{Ended, Proves, ended};
use super::question::{Asker, Question};
use crate::error::{Error, Result, was_reached};

/// How long the authority lets something be proven.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long to wait before the authority is asked again that has gone for a moment.
const PAUSE: Duration = Duration::from_secs(1);
/// Targets of one question; the authority takes no more.
pub(super) const MOST_TARGETS: usize = 1_000;

/// What else of the login waits for a factor.
pub(super) trait Others: Sync {
    /// Ends when one more has come.
    fn more(&self) -> BoxFuture<'_, ()>;

    /// What waits besides these.
    fn beside(&self, known: &[SessionTarget]) -> Vec<SessionTarget>;
}

/// Asks for a factor for sessions with these, up to the end of the question; gives what it was about in the end: what comes to `others`
/// meanwhile joins it, where the authority lets it and it is proven at the page. A code that is typed here is for what the person has read
/// here.
pub(super) async fn converse(
    authority: &dyn Proves,
    asker: &dyn Asker,
    mut targets: Vec<SessionTarget>,
    what: &str,
    others: Option<&dyn Others>,
) -> Result<(Ended, Vec<SessionTarget>)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = authority.begin(targets.clone()).await?;
        if asked.state == "none" {
            return Ok((Ended::Proven(None), targets));
        }
        let mut question = Question::of(&asked, what.to_owned(), authority.proxy())?;
        // A code that is typed is for all of them, those that have joined a question before included: it names them.
        question.names(&targets);
        if !asker.can_ask() {
            return Err(Error::NoOneToAsk);
        }
        let challenge = asked.page.map(|page| page.challenge).unwrap_or_default();
        let asking = Under { authority, asker, challenge: &challenge, others, deadline };
        if let Some(done) = asking.until_it_ends(question, &mut targets).await? {
            return Ok(done);
        }
        // Another program of the login has proven it for what that one had asked for. The rest is asked for anew.
    }
}

/// A question that the person is asked, by one challenge of the authority.
struct Under<'a> {
    authority: &'a dyn Proves,
    asker: &'a dyn Asker,
    challenge: &'a str,
    others: Option<&'a dyn Others>,
    deadline: Instant,
}

impl Under<'_> {
    /// None where it was proven elsewhere, and perhaps not for these.
    async fn until_it_ends(
        &self,
        mut question: Question,
        targets: &mut Vec<SessionTarget>,
    ) -> Result<Option<(Ended, Vec<SessionTarget>)>> {
        let Self { authority, asker, challenge, others, deadline } = *self;
        let more = || async {
            match others {
                Some(others) => others.more().await,
                None => std::future::pending().await,
            }
        };
        // What another question would be about waits for the end of this one.
        let mut apart: Vec<SessionTarget> = Vec::new();
        let mut read = targets.clone();
        loop {
            let mut typed = asker.ask(&question);
            let code = loop {
                let mut stands = authority.wait(challenge);
                tokio::select! {
                    stands = &mut stands => match stands {
                        Ok(state) => match ended(&state) {
                            Some(Ended::Proven(_)) if state.partly => return Ok(None),
                            Some(ended) => return Ok(Some((ended, targets.clone()))),
                            None => {}
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
                    () = tokio::time::sleep_until(deadline) => return Ok(Some((Ended::Refused, targets.clone()))),
                }
            };
            drop(typed);
            match authority.prove(challenge, code, read.clone()).await {
                Ok(state) => {
                    if let Some(ended) = ended(&state) {
                        return Ok(Some((ended, read)));
                    }
                }
                // The person may type another; how many they may, the authority says. What has joined meanwhile they read with it.
                Err(status) if matches!(status.code(), Code::PermissionDenied | Code::InvalidArgument) => {
                    question.wrong = Some(status.message().to_owned());
                    question.names(targets);
                    read.clone_from(targets);
                }
                // It has ended while the code was on its way: at the page, or by another program of the login.
                Err(status) if status.code() == Code::FailedPrecondition => {
                    let stands = tokio::time::timeout(PAUSE, authority.wait(challenge)).await;
                    let state = stands.ok().and_then(Result::ok);
                    match state.as_ref().map(|state| (ended(state), state.partly)) {
                        Some((Some(Ended::Proven(_)), true)) => return Ok(None),
                        Some((Some(ended), _)) => return Ok(Some((ended, targets.clone()))),
                        Some((None, _)) | None => {
                            return Err(Error::answered("prove the second factor", status));
                        }
                    }
                }
                Err(status) => return Err(Error::answered("prove the second factor", status)),
            }
        }
    }
}
