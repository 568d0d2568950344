//! Statements that the agent runs itself: as the account that makes users, or as the user of a session to end it.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;
use tracing::Span;

use super::asked::{MEETING, Wanted};
use super::connect::{self, ConnectError, Upstream, Wire};
use super::shared::Shared;
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::Told;
use crate::postgres::message::{Fields, encode};
use crate::postgres::startup::{CancelKey, Startup};

/// Most rows of an answer, and most bytes of them: roles of a user and numbers of processes are few and short.
const MOST_ROWS: usize = 4096;
const MOST_ROW_BYTES: usize = 1 << 20;
/// Most bytes of an answer with all that comes before its end, such as notices and rows beyond those.
const MOST_ANSWER_BYTES: usize = 16 << 20;
/// How long the server may take to close a connection that has said goodbye.
const CLOSING: Duration = Duration::from_secs(2);

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
    /// [`ConnectError::Server`] when the server refuses it; [`ConnectError::Protocol`] where it answers with more than is asked for,
    /// after which the connection is of no use.
    pub(super) async fn run(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, ConnectError> {
        self.wire.send(&encode(b'Q', &[sql.as_bytes(), b"\0"].concat())).await?;
        let (mut rows, mut failed) = (Vec::new(), None);
        let (mut kept, mut read) = (0, 0);
        loop {
            let (kind, content) = self.wire.message().await?;
            read += content.len();
            if read > MOST_ANSWER_BYTES {
                return Err(self.wire.wrong("an answer that is longer than any that is asked for"));
            }
            match kind {
                b'D' => {
                    let row = values(&content);
                    let length = |value: &Option<String>| value.as_ref().map_or(0, String::len);
                    kept += row.iter().map(|value| size_of_val(value) + length(value)).sum::<usize>();
                    if rows.len() == MOST_ROWS || kept > MOST_ROW_BYTES {
                        // What is decided by half of an answer is decided wrongly.
                        return Err(self.wire.wrong("more rows than are asked for"));
                    }
                    rows.push(row);
                }
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
        let closing = async {
            let _ = stream.shutdown().await;
            // The server counts the connection until its process ends, which closes it.
            let mut waste = [0; 256];
            while let Ok(1..) = stream.read(&mut waste).await {}
        };
        let _ = timeout(CLOSING, closing).await;
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

    /// What comes of an answer with so many rows of so many bytes, and notices before them.
    async fn answered(notices: usize, rows: usize, bytes: usize) -> Result<usize, ConnectError> {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let server = async move {
            let length = u32::try_from(bytes).unwrap().to_be_bytes();
            let row = encode(b'D', &[&[0, 1][..], &length, &vec![b'x'; bytes]].concat());
            let notice = encode(b'N', &vec![b'x'; 8000]);
            for message in std::iter::repeat_n(&notice, notices).chain(std::iter::repeat_n(&row, rows)) {
                // It is not read to its end where it is too long.
                if theirs.write_all(message).await.is_err() {
                    return;
                }
            }
            let _ = theirs.write_all(&encode(b'Z', b"I")).await;
        };
        let client = async move { Admin::over(ours).run("select").await.map(|rows| rows.len()) };
        tokio::join!(client, server).0
    }

    #[tokio::test]
    async fn an_answer_is_bounded_by_rows_and_by_bytes() {
        assert_eq!(answered(1, 4096, 63).await.unwrap(), 4096);
        for (notices, rows, bytes) in [(0, 4097, 63), (0, 4000, 8000), (0, 140, 8000), (3000, 1, 1)] {
            let refused = answered(notices, rows, bytes).await.unwrap_err();
            assert!(matches!(refused, ConnectError::Protocol { .. }), "{rows} of {bytes}: {refused}");
        }
        // A row of many values, which take more than their bytes.
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let row = encode(b'D', &[&4000_u16.to_be_bytes()[..], &[0xff; 16_000]].concat());
        let rows = std::iter::repeat_n(row, 20).flatten().collect::<Vec<u8>>();
        let end = encode(b'Z', b"I");
        theirs.write_all(&[rows, end].concat()).await.unwrap();
        assert!(Admin::over(ours).run("select").await.is_err());
    }

    #[test]
    fn names_cannot_end_their_quotes() {
        assert_eq!(identifier(r#"a"; drop role b; --"#), r#""a""; drop role b; --""#);
        assert_eq!(literal(r"o'; drop\"), r"'o''; drop\'");
    }
}
