//! Which challenges programs wait for.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Who waits for one challenge.
#[derive(Debug, Default)]
struct Waits {
    calls: usize,
    /// How often the last one has left.
    left: u64,
}

/// Which challenges programs wait for here, by their keys. One stays until it is seen that no program comes back.
#[derive(Debug, Default)]
pub(super) struct Awaited(Mutex<HashMap<String, Waits>>);

impl Awaited {
    pub(super) fn comes(&self, key: &str) {
        self.0.lock().entry(key.to_owned()).or_default().calls += 1;
    }

    /// A call has left; which leaving that was, where it was the last one.
    pub(super) fn leaves(&self, key: &str) -> Option<u64> {
        let mut all = self.0.lock();
        let waits = all.get_mut(key)?;
        waits.calls = waits.calls.saturating_sub(1);
        if waits.calls > 0 {
            return None;
        }
        waits.left += 1;
        Some(waits.left)
    }

    /// Whether no program has come since. Then it is forgotten.
    pub(super) fn is_gone(&self, key: &str, left: u64) -> bool {
        let mut all = self.0.lock();
        let is_gone = all.get(key).is_some_and(|waits| waits.calls == 0 && waits.left == left);
        if is_gone {
            all.remove(key);
        }
        is_gone
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_is_gone_when_the_last_has_left_and_no_program_has_come_since() {
        let awaited = Awaited::default();
        awaited.comes("one");
        awaited.comes("one");
        assert_eq!(awaited.leaves("one"), None, "another waits");
        let first = awaited.leaves("one").unwrap();
        awaited.comes("one");
        assert!(!awaited.is_gone("one", first), "it has come back");
        let second = awaited.leaves("one").unwrap();
        assert!(!awaited.is_gone("one", first), "it came back in between");
        assert!(awaited.is_gone("one", second) && awaited.0.lock().is_empty());
        assert_eq!(awaited.leaves("other"), None);
    }
}
