//! A database client whose user has as many connections, or as many sessions with the database, as one may have.

use bytes::BytesMut;
use sallyport_databases::postgres::error::{Refusal, SqlState};
use sallyport_databases::postgres::startup::First;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::greeting::{LAST_WORDS, first_packet, say};
use super::ways::Databases;
use crate::listener::Crowded;
use crate::proxy::client::{Native, Target as _};
use crate::proxy::open::ClientContext;
use crate::proxy::proving;

/// What a user may do who has too many of something.
pub(super) const CROWDED_HINT: &str = "close some of your connections and try again, use fewer in your program's pool, or ask \
                                       an administrator to raise the limit";

impl Databases {
    /// Tells a user on a connection of one's own that it is one too many. A statement may be cancelled all the same: that takes no
    /// place at a database, and may make one.
    pub(crate) async fn refuse_crowded<T>(&self, context: ClientContext, crowded: Crowded, stream: T)
    where
        T: AsyncRead + AsyncWrite + Send,
    {
        let mut client = Native::new(stream);
        let mut ahead = BytesMut::new();
        let first = match crowded.tell {
            true => timeout(LAST_WORDS, first_packet(&mut client, &mut ahead)).await,
            false => {
                return proving::refused(&*self.opener.sink, &context.identity, context.address, crowded);
            }
        };
        match first {
            Ok(Ok(Some(First::Cancel(key)))) => {
                self.cancel(&key, context.address);
                let _ = timeout(LAST_WORDS, client.finish()).await;
            }
            Ok(Ok(Some(First::Startup(_)))) => {
                proving::refused(&*self.opener.sink, &context.identity, context.address, crowded);
                let refusal = Refusal::new(SqlState::TooManyConnections, crowded.message());
                say(client, &refusal.hint(CROWDED_HINT)).await;
            }
            _ => {}
        }
    }
}
