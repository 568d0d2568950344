//! Cancel requests (§53.2.8): a connection of their own, which says nothing back.

use std::time::Duration;

use sallyport_audit::{Code, Event};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::Span;

use super::connect::{self, ConnectError};
use super::running::{self, Entry, Running};
use super::shared::Shared;
use crate::postgres::startup::{self, CancelKey};

/// How long the server may take to close the connection of a cancel request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a cancel request did not reach the database.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CancelError {
    /// The session has no connection to the database yet, or the server has given it no key.
    #[error("there is nothing to cancel yet")]
    Early,
    /// There is no connection to send it by.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] std::io::Error),
    /// The server has not closed the connection in time.
    #[error("the database does not take the request")]
    Silent,
}

/// Cancels what the session with this key does, for a client at this address.
pub(crate) async fn cancel(shared: &Shared, key: &CancelKey, client: &str) {
    let Some(entry) = running::of_key(&shared.sessions, key) else { return };
    let failed = forward(shared, &entry).await.err();
    let about = entry.about.metadata();
    let message = match &failed {
        None => "the client asked to have its statement cancelled".to_owned(),
        Some(problem) => format!("the client asked to have its statement cancelled: {problem}"),
    };
    let event = Event::new(Code::DatabaseCancel, OffsetDateTime::now_utc())
        .user(about.user.as_str())
        .login(about.login.as_str())
        .node(about.node.as_str())
        .session(about.session_id)
        .source(client)
        .source_by_proxy()
        .message(message)
        .field("session_source", about.source.as_str())
        .field("success", failed.is_none());
    shared.settings.sink.emit(event);
}

/// Passes a cancel request on to the server. When this returns, the server has taken it.
pub(crate) async fn forward(shared: &Shared, entry: &Entry) -> Result<(), CancelError> {
    let Some(Running { database, tls, key: Some(key) }) = entry.upstream.get() else {
        return Err(CancelError::Early);
    };
    let patience = shared.settings.patience;
    let mut stream = connect::dial(database, tls.clone(), patience, &Span::none()).await?;
    let sent = tokio::time::timeout(PATIENCE, async {
        stream.write_all(&startup::cancel(key)).await?;
        stream.flush().await?;
        // The server answers by closing, once it has signalled the process.
        let _ = stream.read(&mut [0; 16]).await;
        // As libpq does: with close_notify, and not before, so that nothing unread is in the server's way.
        let _ = stream.shutdown().await;
        std::io::Result::Ok(())
    });
    Ok(sent.await.map_err(|_| CancelError::Silent)??)
}
