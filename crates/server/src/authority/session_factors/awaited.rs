//! Which challenges programs wait for.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Which calls there are about one challenge.
#[derive(Debug, Default)]
struct Waits {
    calls: usize,
    /// A program has waited for it. One that only begins it and proves it later may take as long as it is open.
    waited: bool,
    /// How often the last one has left.
    left: u64,
    /// It is being ended, and no call comes in time.
    ends: bool,
}

/// What a call does about a challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// It waits until the challenge is proven.
    Waits,
    /// It asks for it or proves it: as long as that takes, the program is there.
    Acts,
}

/// Which challenges programs wait for here, by their keys. One stays until it is seen that no program comes back.
#[derive(Debug, Default)]
pub(super) struct Awaited(Mutex<HashMap<String, Waits>>);

impl Awaited {
    /// A call has come, in time unless the challenge is being ended.
    pub(super) fn comes(&self, key: &str, call: Call) -> bool {
        let mut all = self.0.lock();
        let waits = all.entry(key.to_owned()).or_default();
        if waits.ends {
            return false;
        }
        waits.calls += 1;
        waits.waited |= call == Call::Waits;
        true
    }

    /// A call has left that came in time; which leaving that was, where it was the last one of a challenge that a program has waited for.
    pub(super) fn leaves(&self, key: &str) -> Option<u64> {
        let mut all = self.0.lock();
        let waits = all.get_mut(key)?;
        waits.calls = waits.calls.saturating_sub(1);
        if waits.calls > 0 {
            return None;
        }
        if !waits.waited {
            all.remove(key);
            return None;
        }
        waits.left += 1;
        Some(waits.left)
    }

    /// Whether no program has come since. Then none comes in time any more, until it is [forgotten](Self::forget).
    pub(super) fn is_gone(&self, key: &str, left: u64) -> bool {
        let mut all = self.0.lock();
        let gone = all.get_mut(key).filter(|waits| waits.calls == 0 && waits.left == left);
        gone.map(|waits| waits.ends = true).is_some()
    }

    /// A challenge was ended.
    pub(super) fn forget(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_is_gone_when_the_last_has_left_and_no_program_has_come_since() {
        let awaited = Awaited::default();
        let comes = |call| awaited.comes("one", call);
        assert!(comes(Call::Waits) && comes(Call::Waits));
        assert_eq!(awaited.leaves("one"), None, "another waits");
        let first = awaited.leaves("one").unwrap();
        assert!(comes(Call::Waits));
        assert!(!awaited.is_gone("one", first), "it has come back");
        let second = awaited.leaves("one").unwrap();
        assert!(!awaited.is_gone("one", first), "it came back in between");
        assert!(awaited.is_gone("one", second));
        assert!(!comes(Call::Acts), "it is being ended");
        awaited.forget("one");
        assert!(awaited.0.lock().is_empty());
        assert_eq!(awaited.leaves("other"), None);
    }

    #[test]
    fn one_stays_while_a_call_asks_for_it_or_proves_it_however_long_that_takes() {
        let awaited = Awaited::default();
        awaited.comes("one", Call::Waits);
        let left = awaited.leaves("one").unwrap();
        assert!(awaited.comes("one", Call::Acts));
        assert!(!awaited.is_gone("one", left), "a call about it goes on");
        let left = awaited.leaves("one").unwrap();
        assert!(awaited.is_gone("one", left), "no program came back after that");
        awaited.forget("one");
        // What no program has waited for is not ended by that a call was answered.
        awaited.comes("two", Call::Acts);
        assert_eq!(awaited.leaves("two"), None);
        assert!(awaited.0.lock().is_empty());
    }
}
