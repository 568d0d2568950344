//! What names of prepared statements and portals stand for, as far as there is room to remember it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::service::text::Text;

/// Most names of a kind that are remembered. Executing others is on record without their text, which their `Parse` has in the
/// recording.
pub(super) const MOST_NAMES: usize = 2048;
/// Bytes of prepared statements, and of portals, that are remembered, with their names.
pub(super) const MOST_NAMED_BYTES: usize = 4 << 20;
/// About what an entry of a table takes besides.
const ENTRY_BYTES: usize = 128;

/// How much memory something keeps from being freed.
pub(super) trait Weight {
    /// In bytes.
    fn weight(&self) -> usize;
}

impl Weight for Arc<Text> {
    fn weight(&self) -> usize {
        // Others may hold it, too; a table does not know for how long.
        self.held_bytes()
    }
}

impl<V: Weight> Weight for Option<V> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(0, Weight::weight)
    }
}

/// A portal's statement.
pub(super) struct Bound {
    pub(super) statement: Box<[u8]>,
    /// Where it is known.
    pub(super) text: Option<Arc<Text>>,
    /// Values were put in.
    pub(super) values: bool,
    /// It has been run to its end: running it again does nothing.
    pub(super) finished: bool,
}

impl Weight for Bound {
    fn weight(&self) -> usize {
        self.statement.len() + self.text.weight()
    }
}

/// What names stand for, up to so many names and bytes. There is always room for what has no name.
pub(super) struct Kept<V> {
    all: HashMap<Box<[u8]>, V>,
    bytes: usize,
    most: usize,
    /// Something had no room: what is not here may be another thing than what was here before.
    pub(super) lost: bool,
}

impl<V: Weight> Kept<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { all: HashMap::new(), bytes: 0, most, lost: false }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&V> {
        self.all.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &[u8]) -> Option<&mut V> {
        self.all.get_mut(name)
    }

    /// In the place of what the name stood for.
    pub(super) fn insert(&mut self, name: Box<[u8]>, value: V) {
        self.remove(&name);
        let more = ENTRY_BYTES + name.len() + value.weight();
        if name.is_empty() || self.all.len() < MOST_NAMES && self.bytes + more <= self.most {
            self.bytes += more;
            self.all.insert(name, value);
        } else {
            self.lost = true;
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some((name, value)) = self.all.remove_entry(name) {
            self.bytes = self.bytes.saturating_sub(ENTRY_BYTES + name.len() + value.weight());
        }
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        (self.bytes, self.lost) = (0, false);
    }

    /// All but what has no name.
    pub(super) fn clear_named(&mut self) {
        let unnamed = self.all.remove_entry(&b""[..]);
        self.clear();
        unnamed.into_iter().for_each(|(name, value)| self.insert(name, value));
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::encoding::Encoding;

    #[test]
    fn names_take_no_more_than_they_may() {
        let text = || Arc::new(Text::of(&[b'x'; 60_000], 1 << 20, Encoding::Utf8));
        let mut kept = Kept::new(MOST_NAMED_BYTES);
        for number in 0..3000_u32 {
            kept.insert(Box::from(number.to_be_bytes()), text());
            assert!(kept.bytes() <= MOST_NAMED_BYTES);
        }
        assert!(
            kept.lost
                && kept.get(&0_u32.to_be_bytes()).is_some()
                && kept.get(&2999_u32.to_be_bytes()).is_none()
        );
        // A name that has no room stands for nothing, and not for what it was.
        kept.insert(Box::from(*b""), text());
        kept.insert(
            Box::from(0_u32.to_be_bytes()),
            Arc::new(Text::of(&[b'y'; 200_000], 1 << 20, Encoding::Utf8)),
        );
        assert!(kept.get(&0_u32.to_be_bytes()).is_none() && kept.get(b"").is_some());
        kept.clear_named();
        assert!(kept.get(b"").is_some() && kept.bytes() < 70_000);
        kept.remove(b"");
        assert_eq!(kept.bytes(), 0);
        (0..3000_u32).for_each(|number| kept.insert(Box::from(number.to_be_bytes()), Arc::default()));
        assert!(kept.get(&3000_u32.to_be_bytes()).is_none() && kept.bytes() < MOST_NAMES * 400);
    }
}
