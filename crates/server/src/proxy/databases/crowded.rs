//! A database client whose user has as many connections as one may have.

use sallyport_databases::postgres::error::{Refusal, SqlState};
use tokio::io::{AsyncRead, AsyncWrite};

use super::greeting::{Denied, answer_startup};
use super::{Databases, Guest};
use crate::listener::Crowded;
use crate::proxy::proving::TOO_MANY;

/// What a user may do who has too many of something.
pub(super) const CROWDED_HINT: &str = "close some of your connections and try again, use fewer in your program's pool, or ask \
                                       an administrator to raise the limit";

impl Databases {
    /// Tells a user on a connection of one's own that it is one too many.
    pub(crate) async fn refuse_crowded<T>(&self, guest: Guest, crowded: Crowded, stream: T)
    where
        T: AsyncRead + AsyncWrite + Send,
    {
        if !crowded.tell {
            return;
        }
        let refusal = Refusal::new(SqlState::TooManyConnections, crowded.message()).hint(CROWDED_HINT);
        self.put_on_record(&guest, None, None, Denied::new(TOO_MANY, refusal.clone()));
        answer_startup(stream, &refusal).await;
    }
}
