//! The bytes of a session, in both directions, each until its own end.

use std::io;
use std::pin::Pin;

use sallyport_session::serving::{Carried, Tally};
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
        both_ways(client, upstream, session.activity(), tally).await
    })
}

async fn both_ways(
    client: impl AsyncRead + AsyncWrite,
    upstream: impl AsyncRead + AsyncWrite,
    activity: &Activity,
    tally: &Tally,
) -> End {
    let ((mut from_client, mut to_client), (mut from_upstream, mut to_upstream)) =
        (tokio::io::split(client), tokio::io::split(upstream));
    let up = async {
        let up = copy(&mut from_client, &mut to_upstream, activity, |bytes| tally.from_client(bytes));
        match up.await {
            Err((true, error)) => Err(Failed::Client(error)),
            // An application may answer before it has read everything, and close. The answer may still be on its way, and
            // whether the application has ended in order is for its own direction to say.
            Ok(()) | Err((false, _)) => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};
    use std::time::Duration;

    use tokio::io::{DuplexStream, ReadBuf};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// An application that takes nothing any more, as a socket that was closed with bytes unread.
    struct Closed(DuplexStream);

    impl AsyncRead for Closed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Closed {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }
    }

    #[tokio::test]
    async fn an_application_that_answers_early_and_closes_is_heard_to_the_end() {
        let (mut client, served) = tokio::io::duplex(1024);
        let (near, mut application) = tokio::io::duplex(1024);
        let carrying = tokio::spawn(async move {
            let (activity, tally) = (Activity::new(), Tally::default());
            let ended = both_ways(served, Closed(near), &activity, &tally).await;
            (ended, tally.counts().bytes_out)
        });
        // The buffer holds less than this, so that it was read, and could not be passed on, before the application answers.
        client.write_all(&[0; 2000]).await.unwrap();
        application.write_all(b"413 too large").await.unwrap();
        drop(application);
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, client.read_to_end(&mut answer)).await.unwrap().unwrap();
        assert_eq!(answer, b"413 too large");
        let (ended, bytes) = carrying.await.unwrap();
        assert!(matches!(ended, End::Done(_)), "{ended:?}");
        assert_eq!(bytes, 13);
    }
}
