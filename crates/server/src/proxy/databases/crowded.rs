//! A database client whose user has as many connections, or as many sessions with the database, as one may have.

use bytes::BytesMut;
use sallyport_access::DatabasePermit;
use sallyport_databases::postgres::error::{Refusal, SqlState};
use sallyport_databases::postgres::startup::First;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::client::{Native, Target as _};
use super::greeting::{Denied, LAST_WORDS, first_packet, say};
use super::{Databases, Guest};
use crate::listener::Crowded;
use crate::proxy::proving;
use crate::sessions::DatabaseGuard;

/// What a user may do who has too many of something.
pub(super) const CROWDED_HINT: &str = "close some of your connections and try again, use fewer in your program's pool, or ask \
                                       an administrator to raise the limit";

impl Databases {
    /// A place among the user's sessions with the database. Each agent counts those with itself alone.
    pub(super) fn among(&self, permit: &DatabasePermit) -> Result<DatabaseGuard, Denied> {
        let (user, database, most) = (permit.user(), permit.database(), permit.options().max_sessions);
        self.dialler.sessions.begin_with_database(user, database, most).map_err(|too_many| {
            let text = format!(
                "you have {} sessions with {database} through this proxy, as many as one user may have (max_db_sessions)",
                too_many.bound
            );
            Denied::new("too_many_sessions", Refusal::new(SqlState::TooManyConnections, text).hint(CROWDED_HINT))
        })
    }

    /// Tells a user on a connection of one's own that it is one too many. A statement may be cancelled all the same: that takes no
    /// place at a database, and may make one.
    pub(crate) async fn refuse_crowded<T>(&self, guest: Guest, crowded: Crowded, stream: T)
    where
        T: AsyncRead + AsyncWrite + Send,
    {
        let mut client = Native::new(stream);
        let mut ahead = BytesMut::new();
        let first = match crowded.tell {
            true => timeout(LAST_WORDS, first_packet(&mut client, &mut ahead)).await,
            false => return proving::refused(&*self.dialler.sink, &guest.identity, guest.client, crowded),
        };
        match first {
            Ok(Ok(Some(First::Cancel(key)))) => {
                self.cancel(&key, guest.client);
                let _ = timeout(LAST_WORDS, client.finish()).await;
            }
            Ok(Ok(Some(First::Startup(_)))) => {
                proving::refused(&*self.dialler.sink, &guest.identity, guest.client, crowded);
                let refusal = Refusal::new(SqlState::TooManyConnections, crowded.message());
                say(client, &refusal.hint(CROWDED_HINT)).await;
            }
            _ => {}
        }
    }
}
