//! Cancel requests (§53.2.8): a connection of their own, which says nothing back.

use std::time::Duration;

use sallyport_audit::{Code, Event};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::Span;

use super::connect;
use super::running::{self, Entry, Running};
use super::shared::Shared;
use crate::postgres::startup::{self, CancelKey};

/// How long the server may take to close the connection of a cancel request.
const PATIENCE: Duration = Duration::from_secs(5);

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
pub(crate) async fn forward(shared: &Shared, entry: &Entry) -> Result<(), String> {
    let Some(Running { database, tls, key: Some(key) }) = entry.upstream.get() else {
        return Err("there is nothing to cancel yet".to_owned());
    };
    let patience = shared.settings.patience;
    let mut stream = connect::dial(database, tls.clone(), patience, &Span::none())
        .await
        .map_err(|error| error.to_string())?;
    let sent = tokio::time::timeout(PATIENCE, async {
        stream.write_all(&startup::cancel(key)).await?;
        stream.flush().await?;
        // The server answers by closing, once it has signalled the process.
        let _ = stream.read(&mut [0; 16]).await;
        // As libpq does: with close_notify, and not before, so that nothing unread is in the server's way.
        let _ = stream.shutdown().await;
        std::io::Result::Ok(())
    });
    match sent.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the database does not take the request".to_owned()),
    }
}
