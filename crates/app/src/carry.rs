//! The bytes of a session, in both directions, each until its own end.

use std::io;
use std::pin::Pin;

use sallyport_session::serving::Carried;
use sallyport_session::{Activity, End};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most that is under way in one direction, besides what the streams themselves hold.
const BUFFER_BYTES: usize = 32 * 1024;

/// Whose end of a session has failed.
enum Failed {
    Client(io::Error),
    Upstream(io::Error),
}

pub(crate) fn carry(carried: Carried<'_>) -> Pin<Box<dyn Future<Output = End> + Send + '_>> {
    Box::pin(async move {
        let Carried { client, upstream, session, tally } = carried;
        let activity = session.activity();
        let ((mut from_client, mut to_client), (mut from_upstream, mut to_upstream)) =
            (tokio::io::split(client), tokio::io::split(upstream));
        let up = async {
            let up = copy(&mut from_client, &mut to_upstream, activity, |bytes| tally.from_client(bytes));
            up.await.map_err(|(reading, error)| match reading {
                true => Failed::Client(error),
                false => Failed::Upstream(error),
            })
        };
        let down = async {
            let down = copy(&mut from_upstream, &mut to_client, activity, |bytes| tally.to_client(bytes));
            down.await.map_err(|(reading, error)| match reading {
                true => Failed::Upstream(error),
                false => Failed::Client(error),
            })
        };
        match tokio::try_join!(up, down) {
            Ok(_) => End::Done("both sides have said everything".to_owned()),
            Err(Failed::Client(error)) => End::Lost(format!("the user's program is gone: {error}")),
            Err(Failed::Upstream(error)) => End::Lost(format!("the application is gone: {error}")),
        }
    })
}

/// Copies until the end, and says it on. An error says whether it was the reading that failed.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
    passed: impl Fn(usize),
) -> Result<(), (bool, io::Error)> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await.map_err(|error| (true, error))?;
        if count == 0 {
            // The other side may have gone after it had said everything.
            let _ = to.shutdown().await;
            return Ok(());
        }
        let bytes = buffer.get(..count).unwrap_or_default();
        to.write_all(bytes).await.map_err(|error| (false, error))?;
        to.flush().await.map_err(|error| (false, error))?;
        activity.note();
        passed(count);
    }
}
