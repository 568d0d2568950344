//! What a run of the tests comes to.

use std::fmt;

/// How many tests ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// Of those that passed: they failed beside the others, and passed by themselves.
    pub(crate) unsteady: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.unsteady += other.unsteady;
    }
}

/// The closing line that machines read, too.
impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_to_the_closing_line() {
        let mut counts = Counts { passed: 3, failed: 0, skipped: 1, unsteady: 0 };
        counts.add(&Counts { passed: 2, failed: 1, skipped: 0, unsteady: 1 });
        assert_eq!(counts.to_string(), "5 passed, 1 failed, 1 skipped");
        assert_eq!(counts.unsteady, 1);
    }
}
