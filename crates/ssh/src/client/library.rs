//! A connection whose keys are exchanged, and whose user logs in, by the SSH library.

use std::sync::Arc;

use russh::client::{AuthResult, Handle};
use sallyport_sal::uses::{self, Aside};
use tracing::{Instrument, debug, info_span};

use super::events::{Events, Said};
use super::{ClientError, Credentials, PHASE, phases};
use crate::BoxedStream;

/// Exchanges keys and logs in by the library.
pub(super) async fn enter(
    stream: BoxedStream,
    config: russh::client::Config,
    events: Events,
    credentials: &Credentials,
    login: &str,
) -> Result<Handle<Events>, ClientError> {
    let (host, said) = (events.host.clone(), Arc::clone(&events.said));
    let exchange = phases::Exchange::begin();
    let stream = exchange.watch(stream);
    uses::count(Aside::SshConnection);
    let connecting = russh::client::connect_stream(Arc::new(config), stream, events);
    let mut handle = connecting.await.map_err(|error| match error {
        ClientError::Ssh(source) => ClientError::Handshake { host: host.clone(), source },
        other => other,
    })?;
    debug!("keys exchanged");
    exchange.end();
    if let Some(binding) = handle.agent_session_binding() {
        let _ = said.binding.set(binding.into());
    }
    let proving = credentials.prove(&mut handle, login);
    let answer = proving.instrument(info_span!(target: PHASE, "ssh.authentication")).await;
    match answer {
        Ok(AuthResult::Success) => Ok(handle),
        Err(error @ (ClientError::Signing(_) | ClientError::Agent { .. })) => Err(error),
        // A connection that ended in the middle of it reports itself as a failure without methods.
        _ => Err(not_in(host, login, &said)),
    }
}

/// The login is refused, or the connection ended in the middle of it.
pub(super) fn not_in(host: String, login: &str, said: &Said) -> ClientError {
    let reason = [said.end(), said.banner()].into_iter().find(|text| !text.is_empty());
    ClientError::Authentication { host, login: login.to_owned(), reason: reason.unwrap_or_default() }
}
