//! Statements that the agent runs itself: as the account that makes users, or as the user of a session to end it.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::rustls::ClientConfig;
use tracing::Span;

use super::connect::{self, ConnectError, Upstream, Wire};
use super::{Shared, Wanted};
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::Told;
use crate::postgres::message::{Fields, encode};
use crate::postgres::startup::{CancelKey, Startup};

/// Roles belong to the whole server, and advisory locks to one of its databases: everybody who makes users meets in this one.
pub(super) const MEETING: &str = "postgres";
/// Most rows of an answer.
const MOST_ROWS: usize = 4096;

/// A connection of that account.
pub(super) struct Admin<S = Upstream> {
    wire: Wire<S>,
}

impl Admin {
    /// Logs in as the account of `wanted`.
    pub(super) async fn connect(shared: &Shared, wanted: &Wanted) -> Result<Self, ConnectError> {
        let tls = connect::tls_for(shared, wanted).await?;
        Self::log_in(shared, wanted, tls, MEETING).await
    }

    /// Logs in as the user of `wanted`, with this configuration and to this database of the server.
    pub(super) async fn log_in(
        shared: &Shared,
        wanted: &Wanted,
        tls: Option<Arc<ClientConfig>>,
        database: &str,
    ) -> Result<Self, ConnectError> {
        let parameters = [
            ("user", wanted.user()),
            ("database", database),
            ("application_name", "sallyport"),
            ("client_encoding", "UTF8"),
            // What is run here must not depend on what the account or the database has set.
            ("search_path", "pg_catalog"),
            ("standard_conforming_strings", "on"),
            ("lock_timeout", "10s"),
            ("statement_timeout", "20s"),
        ];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let key = CancelKey { process: 0, secret: Vec::new() };
        let opened =
            connect::open(shared, wanted, tls, &Startup { minor: 0, parameters }, &key, &Span::none())
                .await?;
        Ok(Self { wire: Wire::new(opened.stream, opened.rest, wanted.database.address.as_str()) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Admin<S> {
    /// Over a stream on which the account is logged in.
    pub(super) fn over(stream: S) -> Self {
        Self { wire: Wire::new(stream, BytesMut::new(), "the database") }
    }

    /// Runs one statement. The values of its rows are text.
    ///
    /// # Errors
    /// [`ConnectError::Server`] when the server refuses it.
    pub(super) async fn run(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, ConnectError> {
        self.wire.send(&encode(b'Q', &[sql.as_bytes(), b"\0"].concat())).await?;
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let (kind, content) = self.wire.message().await?;
            match kind {
                b'D' if rows.len() < MOST_ROWS => rows.push(values(&content)),
                b'E' => {
                    let Told { code, message, .. } = Told::read(&content, Encoding::Utf8);
                    let fatal = Some(ConnectError::Server { code, message, bytes: encode(kind, &content) });
                    failed = failed.or(fatal);
                }
                b'Z' => return failed.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Ends the connection in order.
    pub(super) async fn close(self) {
        let mut wire = self.wire;
        let _ = wire.send(&encode(b'X', b"")).await;
        let (mut stream, _) = wire.into_parts();
        let _ = stream.shutdown().await;
    }
}

fn values(content: &[u8]) -> Vec<Option<String>> {
    let mut fields = Fields::new(content);
    let count = fields.u16().unwrap_or_default();
    let value = |value: Option<&[u8]>| value.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (0..count).map_while(|_| fields.value().map(value)).collect()
}

/// A name as SQL takes it, whatever is in it.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL takes it, with `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_end_their_quotes() {
        assert_eq!(identifier(r#"a"; drop role b; --"#), r#""a""; drop role b; --""#);
        assert_eq!(literal(r"o'; drop\"), r"'o''; drop\'");
    }
}
