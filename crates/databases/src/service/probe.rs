//! Whether a database answers, asked so that its log has nothing to say of it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::Database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::rustls::ClientConfig;
use tracing::Span;

use super::connect::{self, ConnectError};

/// How long a server may take to close a connection that has ended in order.
const CLOSING: Duration = Duration::from_secs(2);

/// Makes a connection as a session does, with the server's certificate checked as `tls` says, and ends it in order before it
/// says who it is. Where sessions go without TLS there is no `tls`, and this goes without, too: then it shows that something listens
/// there, and no more.
///
/// All of it takes `patience` at most, and a little longer where the server does not close the connection.
///
/// A server writes nothing of that, but for a line where it logs every connection (`log_connections`). One that left after the
/// answer to the question for TLS it would complain of.
///
/// # Errors
/// Why no session could begin.
pub fn probe(
    database: &Database,
    tls: Option<Arc<ClientConfig>>,
    patience: Duration,
) -> Pin<Box<dyn Future<Output = Result<(), ConnectError>> + Send + '_>> {
    Box::pin(async move {
        let end = Instant::now() + patience;
        let untraced = Span::none();
        let dialling = connect::dial(database, tls, patience, &untraced);
        let mut stream = timeout_at(end, dialling).await.map_err(|_| connect::late(database, patience))??;
        let closing = async {
            stream.shutdown().await?;
            // Were it dropped now, what the server still says would be answered with a reset, of which it writes.
            let mut waste = [0; 1024];
            while stream.read(&mut waste).await? > 0 {}
            io::Result::Ok(())
        };
        // The question is answered already, however long this takes.
        let _ = timeout(CLOSING, closing).await;
        Ok(())
    })
}
