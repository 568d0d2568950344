//! Programs that wait for a challenge to be proven.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::Status;

/// Challenges that are waited for at a time: more than strangers may have open, so that they keep no user from waiting.
const MOST: usize = 3 * super::bounds::MOST;

/// Who waits, by the challenge's key.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    waiting: Mutex<HashMap<String, watch::Sender<()>>>,
}

impl Waiting {
    /// A place from which the next change of a challenge is heard, for a caller who was seen to be the one that may wait for it. What
    /// is read of the challenge is read again after this.
    ///
    /// # Errors
    /// Too many wait.
    pub(crate) fn wait(&self, key: &str) -> Result<watch::Receiver<()>, Status> {
        let mut waiting = self.waiting.lock();
        if let Some(sender) = waiting.get(key) {
            return Ok(sender.subscribe());
        }
        if waiting.len() >= MOST {
            waiting.retain(|_, sender| sender.receiver_count() > 0);
        }
        if waiting.len() >= MOST {
            return Err(Status::resource_exhausted(
                "too many programs wait for a login at this moment; try again in a few seconds",
            ));
        }
        let (sender, receiver) = watch::channel(());
        waiting.insert(key.to_owned(), sender);
        Ok(receiver)
    }

    /// A challenge has changed.
    pub(crate) fn changed(&self, key: &str) {
        let mut waiting = self.waiting.lock();
        if let Some(sender) = waiting.get(key)
            && sender.send(()).is_err()
        {
            waiting.remove(key);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_heard_and_those_who_left_make_room() {
        let waiting = Waiting::default();
        let mut heard = waiting.wait("one").unwrap();
        waiting.changed("other");
        waiting.changed("one");
        heard.changed().await.unwrap();
        let places: Vec<_> = (1..MOST).map(|number| waiting.wait(&number.to_string()).unwrap()).collect();
        assert_eq!(waiting.wait("more").unwrap_err().code(), tonic::Code::ResourceExhausted);
        drop(places);
        waiting.wait("more").unwrap();
        assert_eq!(waiting.waiting.lock().len(), 2, "the one that is heard, and the new one");
    }
}
