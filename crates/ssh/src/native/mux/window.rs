//! How much the far end may send on a channel before it hears back.
//!
//! A window begins small and grows while its reader keeps up, so that a long line is filled; one whose reader does not
//! stays as it is. What windows have beyond their beginning comes out of one budget of the connection, so that what may
//! come together is bounded.

/// The widest window: at 100 ms, more than a gigabit a second.
const WIDEST_BYTES: u32 = 16 << 20;
/// What the windows of a connection may have together beyond what each begins with.
const BUDGET_BYTES: u32 = 32 << 20;
/// How much a window grows at once, until it is [`QUICK_BYTES`]; then it doubles.
const QUICK_FACTOR: u32 = 4;
const QUICK_BYTES: u32 = 2 << 20;

/// What windows may still grow by.
#[derive(Debug)]
pub(super) struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(BUDGET_BYTES)
    }
}

impl Budget {
    /// Windows stay as wide as they begin.
    pub(super) const NONE: Self = Self(0);

    fn take(&mut self, bytes: u32) -> u32 {
        let taken = bytes.min(self.0);
        self.0 -= taken;
        taken
    }

    /// A channel is over.
    pub(super) fn give_back(&mut self, window: &Window) {
        self.0 = self.0.saturating_add(window.size - window.first).min(BUDGET_BYTES);
    }
}

/// The window of one channel.
#[derive(Debug)]
pub(super) struct Window {
    first: u32,
    /// What may be under way or wait for the reader altogether.
    size: u32,
    /// What the far end may send now.
    left: u32,
    /// What was read, or added, and is not granted yet.
    due: u32,
}

impl Window {
    pub(super) fn new(first: u32) -> Self {
        Self { first, size: first, left: first, due: 0 }
    }

    /// So much has come. False when it was more than was granted.
    pub(super) fn came(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// The reader has taken so much.
    pub(super) fn taken(&mut self, bytes: usize, budget: &mut Budget) {
        let room = self.size - self.left - self.due;
        self.due += u32::try_from(bytes).unwrap_or(u32::MAX).min(room);
        let waits = self.size - self.left - self.due;
        // Used up to the half, and read: it may as well be wider.
        if self.is_due() && waits <= self.size / 8 && self.size < WIDEST_BYTES {
            let factor = if self.size < QUICK_BYTES { QUICK_FACTOR } else { 2 };
            let wider = self.size.saturating_mul(factor).min(WIDEST_BYTES.max(self.first));
            let more = budget.take(wider - self.size);
            self.size += more;
            self.due += more;
        }
    }

    /// Whether it is time to grant more.
    pub(super) fn is_due(&self) -> bool {
        self.due > 0 && self.due >= self.size / 2
    }

    /// What to grant now.
    pub(super) fn grant(&mut self) -> Option<u32> {
        self.is_due().then(|| {
            self.left += self.due;
            std::mem::take(&mut self.due)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = 128 * 1024;

    #[test]
    fn a_window_grows_while_its_reader_keeps_up() {
        let (mut window, mut budget) = (Window::new(FIRST), Budget::default());
        let mut granted = 0;
        let mut passed = 0_u64;
        while window.size < WIDEST_BYTES {
            assert!(window.came(32 * 1024));
            window.taken(32 * 1024, &mut budget);
            passed += 32 * 1024;
            granted += u32::from(window.grant().is_some());
        }
        assert!(granted < 8 && passed < 16 << 20, "{granted} {passed}");
        budget.give_back(&window);
        assert_eq!(budget.0, BUDGET_BYTES);
    }

    #[test]
    fn a_reader_that_is_behind_gets_no_more_room() {
        let (mut window, mut budget) = (Window::new(FIRST), Budget::default());
        assert!(window.came(FIRST as usize));
        assert!(!window.came(1));
        for _ in 0..8 {
            window.taken(8 * 1024, &mut budget);
        }
        let granted = window.grant().unwrap();
        assert_eq!(granted, 64 * 1024);
        assert_eq!((window.size, window.left), (FIRST, granted));
        assert_eq!(budget.0, BUDGET_BYTES);
    }

    #[test]
    fn all_windows_together_are_bounded() {
        let mut budget = Budget::default();
        let mut all = 0_u64;
        for _ in 0..300 {
            let mut window = Window::new(FIRST);
            for _ in 0..1000 {
                let bytes = window.left.min(64 * 1024) as usize;
                assert!(window.came(bytes));
                window.taken(bytes, &mut budget);
                window.grant();
            }
            all += u64::from(window.size);
        }
        assert_eq!(all, 300 * u64::from(FIRST) + u64::from(BUDGET_BYTES));
    }
}
