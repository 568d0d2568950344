//! Threads of their own for work that blocks, so that one kind of it cannot take the threads of another. None of it may wait
//! for a peer.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce() + Send>;

/// The work was not done: it panicked, or the threads are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work was not done")]
pub(crate) struct NotDone;

/// A number of threads for one kind of work. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Workers {
    jobs: mpsc::Sender<Job>,
}

impl Workers {
    /// Starts them. Of what is asked for, `waiting` may wait for a thread; who asks beyond that waits to be let in.
    pub(crate) fn new(name: &str, threads: usize, waiting: usize) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>(waiting);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                loop {
                    // Who has the queue waits in it for the next piece of work; the others wait for the queue.
                    let next = queue.lock().blocking_recv();
                    let Some(job) = next else { return };
                    // A thread that is lost would not come back. The caller sees a panic as a missing answer.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            })?;
        }
        Ok(Self { jobs })
    }

    /// Does a piece of work on one of the threads. Work is not begun once its caller has stopped waiting for it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move || {
            if !answer.is_closed() {
                let _ = answer.send(work());
            }
        });
        self.jobs.send(job).await.map_err(|_| NotDone)?;
        answered.await.map_err(|_| NotDone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_and_what_panics_takes_no_thread_along() {
        let workers = Workers::new("test", 1, 1).unwrap();
        assert_eq!(workers.run(|| 1).await, Ok(1));
        assert_eq!(workers.run(|| -> u8 { panic!("on purpose") }).await, Err(NotDone));
        assert_eq!(
            workers.run(|| std::thread::current().name().map(str::to_owned)).await,
            Ok(Some("test".to_owned()))
        );
    }
}
