//! A connection whose keys are exchanged, and whose user is let in, by [`crate::transport`]; the library speaks inside.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use russh::Disconnect;
use russh::server::Config;
use tokio::time::Instant;

use super::handler::Connection;
use super::hold::hold;
use super::login::{self, certified};
use super::shared::Shared;
use crate::BoxedStream;
use crate::inbound::Line;
use crate::node::opening::Phase;
use crate::transport::accept::{Authenticator, Farewell, NotIn, Terms, Verdict, accept};
use crate::transport::server::Offer;

/// How a connection ended before its time.
#[derive(Debug, thiserror::Error)]
enum Early {
    #[error(transparent)]
    NotIn(#[from] NotIn),
    #[error(transparent)]
    Library(#[from] russh::Error),
}

pub(super) async fn supervise(line: BoxedStream, shared: &Arc<Shared>, config: Arc<Config>, terms: Terms) {
    let (farewell, handle) = (Farewell::default(), OnceLock::new());
    let began = Instant::now();
    let mut session = Box::pin(async {
        let mut decides = Decides(shared.clone());
        let (stream, proven) = accept(line, &terms, &mut decides, &farewell).await?;
        let line = Line::new(stream, shared.line.clone(), shared.gate.clone());
        let connection = Connection::new(shared.clone(), proven);
        let session = russh::server::run_stream(config, line, connection).await?;
        let _ = handle.set(session.handle());
        session.await.map_err(Early::from)
    });
    let goodbye = |reason: String| async {
        match handle.get() {
            Some(handle) => {
                let _ = handle.disconnect(Disconnect::ByApplication, reason, String::new()).await;
            }
            None => farewell.say(&reason),
        }
    };
    if let Some(Err(error)) = hold(shared, began, &mut session, goodbye).await {
        tracing::debug!(%error, "the connection ended");
        if let Early::NotIn(NotIn::Breach(breach)) = &error
            && let Some(reason) = breach.nothing_common()
        {
            let _ = shared.no_common.set(reason);
        }
    }
}

/// Whom this server lets in.
struct Decides(Arc<Shared>);

#[async_trait]
impl Authenticator for Decides {
    fn greeted(&mut self) {
        self.0.opening.reached(Phase::KeyExchange);
    }

    fn banner(&mut self) -> Option<String> {
        login::banner(&self.0)
    }

    fn offered(&mut self, offer: &Offer) -> bool {
        login::may_try(&self.0, &offer.user, (&offer.key, &offer.algorithm))
    }

    fn unfit(&mut self, offer: &Offer, reason: &str) {
        login::unfit(&self.0, &offer.user, offer.certificate.as_ref(), reason);
    }

    fn unproven(&mut self, user: &str) -> bool {
        self.0.let_in_undecided(user)
    }

    async fn proven(&mut self, offer: &Offer) -> Verdict {
        match &offer.certificate {
            Some(certificate) => certified(&self.0, &offer.user, certificate).await.into(),
            None => self.0.let_in_undecided(&offer.user).into(),
        }
    }
}
