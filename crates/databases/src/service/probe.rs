//! Whether a database answers, asked so that its log has nothing to say of it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::{Database, DatabaseTlsMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;
use tracing::Span;

use super::connect;

/// How long a server may take to close a connection that has ended in order.
const CLOSING: Duration = Duration::from_secs(2);

/// Makes a connection as a session does, with the server's certificate checked as `tls` says, and ends it in order before it
/// says who it is. Where sessions go without TLS, so does this: then it shows that something listens there, and no more.
///
/// A server writes nothing of that, but for a line where it logs every connection (`log_connections`). One that left after the
/// answer to the question for TLS it would complain of.
///
/// # Errors
/// Why no session could begin, in words.
pub fn probe(
    database: &Database,
    tls: Arc<ClientConfig>,
    patience: Duration,
) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
    Box::pin(async move {
        let tls = (database.tls.mode != DatabaseTlsMode::Disabled).then_some(tls);
        let dialled = connect::dial(database, tls, patience, &Span::none()).await;
        let mut stream = dialled.map_err(|error| error.to_string())?;
        let closing = async {
            stream.shutdown().await?;
            // Were it dropped now, what the server still says would be answered with a reset, of which it writes.
            let mut waste = [0; 1024];
            while stream.read(&mut waste).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = timeout(CLOSING, closing).await;
        Ok(())
    })
}
