//! The host's words about channels that it refuses.
//!
//! russh answers an opening with the refusal's number, and gives the words to a callback of the connection: neither names
//! the other. So the words wait here for the openings under way, and no more of them than there are such openings.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::request::REFUSAL_BYTES;

/// How long to wait for the words that belong to a refused channel.
pub(super) const REFUSAL_TEXT_WAIT: Duration = Duration::from_secs(1);

/// The words of one connection's refusals. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Openings that the host has not answered, or whose words are waited for.
    openings: usize,
    /// In the order of refusal.
    words: VecDeque<String>,
}

/// One opening under way.
#[derive(Debug)]
pub(super) struct Opening(Refusals);

impl Refusals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// To be called before a channel is asked for.
    pub(super) fn opening(&self) -> Opening {
        self.state().openings += 1;
        Opening(self.clone())
    }

    /// The host has refused a channel with these words. They are dropped where as many wait as there are openings: the
    /// channel's own has been given up.
    pub(super) fn came(&self, words: &str) {
        let mut state = self.state();
        if state.words.len() < state.openings {
            let end = words.floor_char_boundary(REFUSAL_BYTES);
            state.words.push_back(words.get(..end).unwrap_or_default().to_owned());
            drop(state);
            self.0.came.notify_one();
        }
    }
}

impl Opening {
    /// The words of this refusal. When several channels are refused at the same moment they may be those of another one
    /// of them. `None` when none come in time.
    pub(super) async fn words(self) -> Option<String> {
        let words = async {
            loop {
                let came = self.0.0.came.notified();
                let words = self.0.state().words.pop_front();
                match words {
                    Some(words) => break words,
                    None => came.await,
                }
            }
        };
        timeout(REFUSAL_TEXT_WAIT, words).await.ok()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.openings = state.openings.saturating_sub(1);
        let most = state.openings;
        while state.words.len() > most {
            state.words.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_words_wait_than_there_are_openings() {
        let refusals = Refusals::default();
        refusals.came("for no opening");
        assert!(refusals.state().words.is_empty());
        let (first, second) = (refusals.opening(), refusals.opening());
        for words in ["one", "two", "three"] {
            refusals.came(words);
        }
        assert_eq!(refusals.state().words, ["one", "two"]);
        assert_eq!(first.words().await.as_deref(), Some("one"));
        // The opening of "two" is given up, and what the host has said of it with it.
        drop(second);
        assert!(refusals.state().words.is_empty());
        let third = refusals.opening();
        refusals.came(&"é".repeat(REFUSAL_BYTES));
        assert_eq!(third.words().await.map(|words| words.len()), Some(REFUSAL_BYTES));
    }

    #[tokio::test(start_paused = true)]
    async fn words_are_waited_for_and_not_for_ever() {
        let refusals = Refusals::default();
        let (told, untold) = (refusals.opening(), refusals.opening());
        let telling = async {
            tokio::task::yield_now().await;
            refusals.came("no");
        };
        let ((), words) = tokio::join!(telling, told.words());
        assert_eq!(words.as_deref(), Some("no"));
        assert_eq!(untold.words().await, None);
    }
}
