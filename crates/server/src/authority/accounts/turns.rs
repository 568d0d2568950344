//! Proofs of one account come one after the other, so that guesses made at once are refused by the lockout as those in a row are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

/// Accounts that are proven at a time.
const MOST: usize = 1_024;
/// Proofs of one account at a time, with the one whose turn it is.
const QUEUE: usize = 64;
/// How long one waits at the most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whose turn it is, by the account's key. Of a name that no user has they are as those of a user.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    accounts: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// Waits for a turn, which lasts until the guard is dropped.
    ///
    /// # Errors
    /// Too many wait.
    pub(crate) async fn take(&self, account: &str) -> Result<OwnedMutexGuard<()>, Status> {
        let busy = || Status::resource_exhausted("too many logins of this user at this moment; try again");
        let turn = {
            let mut accounts = self.accounts.lock();
            if accounts.len() >= MOST {
                accounts.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            if accounts.len() >= MOST && !accounts.contains_key(account) {
                return Err(busy());
            }
            let turn = accounts.entry(account.to_owned()).or_default();
            // One of them is the table's.
            if Arc::strong_count(turn) > QUEUE {
                return Err(busy());
            }
            Arc::clone(turn)
        };
        tokio::time::timeout(PATIENCE, turn.lock_owned()).await.map_err(|_| busy())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_of_an_account_follow_each_other_and_are_bounded() {
        let turns = Arc::new(Turns::default());
        let first = turns.take("alice").await.unwrap();
        turns.take("bob").await.unwrap();
        let second = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take("alice").await.map(drop) })
        };
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "it waits for the first");
        drop(first);
        second.await.unwrap().unwrap();

        let mut held = Vec::new();
        for number in 0..MOST {
            held.push(turns.take(&number.to_string()).await.unwrap());
        }
        assert_eq!(turns.take("more").await.unwrap_err().code(), tonic::Code::ResourceExhausted);
        held.pop();
        turns.take("more").await.unwrap();
    }
}
