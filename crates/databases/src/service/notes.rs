//! Frames on their way into a recording.

use std::pin::Pin;

use parking_lot::Mutex;
use sallyport_audit::recording::Frame;
use sallyport_session::Unrecordable;

/// Records frames; the error is why the session has to end.
pub(crate) type Noting<'a> = Pin<Box<dyn Future<Output = Result<(), Unrecordable>> + Send + 'a>>;

/// Frames that are no longer with the observer and not yet in the recording. The task that waits for them may be dropped
/// half way, when something else ends the session: the next task goes on with what is here then, in order.
#[derive(Default)]
pub(crate) struct Notes<'a> {
    /// What is to be recorded, and its size.
    taken: Mutex<(Vec<Frame>, usize)>,
    /// What is being recorded.
    noting: tokio::sync::Mutex<Option<Noting<'a>>>,
}

impl<'a> Notes<'a> {
    /// Records these, after all that came before.
    pub(crate) async fn put(
        &self,
        frames: Vec<Frame>,
        size: usize,
        record: impl Fn(Vec<Frame>, usize) -> Noting<'a>,
    ) -> Result<(), Unrecordable> {
        {
            let mut taken = self.taken.lock();
            taken.0.extend(frames);
            taken.1 += size;
        }
        let mut noting = self.noting.lock().await;
        loop {
            if let Some(first) = noting.as_mut() {
                let noted = first.await;
                *noting = None;
                noted?;
            }
            let (frames, size) = std::mem::take(&mut *self.taken.lock());
            if frames.is_empty() {
                return Ok(());
            }
            *noting = Some(record(frames, size));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_audit::recording::Body;
    use sallyport_audit::recording::database::DatabaseFrame;
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_was_given_up_half_way_is_recorded_by_the_next_in_order() {
        let (disk, recorded) = (Semaphore::new(0), Mutex::new(Vec::new()));
        let record = |frames: Vec<Frame>, size: usize| -> Noting<'_> {
            let (disk, recorded) = (&disk, &recorded);
            Box::pin(async move {
                let _permit = disk.acquire().await;
                recorded.lock().extend(frames.iter().map(|frame| (frame.at.as_secs(), size)));
                Ok(())
            })
        };
        let frame = |at| {
            let body = Body::Database(Box::new(DatabaseFrame::CopyFail { reason: String::new() }));
            vec![Frame { at: Duration::from_secs(at), body }]
        };
        let notes = Notes::default();
        let soon = Duration::from_millis(10);
        assert!(timeout(soon, notes.put(frame(1), 10, record)).await.is_err());
        assert!(timeout(soon, notes.put(frame(2), 20, record)).await.is_err());
        disk.add_permits(1);
        assert_eq!(notes.put(Vec::new(), 0, record).await, Ok(()));
        assert_eq!(*recorded.lock(), [(1, 10), (2, 20)]);
    }
}
