//! What the server passes over after an error.

use std::sync::Arc;

use super::names::Kept;
use crate::service::text::Text;

/// Bytes of names and texts among what is passed over that are remembered; others are told of by name alone, or not.
const MOST_OVER_BYTES: usize = 1 << 20;

/// What the server passes over after an error: what it would have been, had it been run.
pub(super) struct Over {
    /// What failed; that is told of as that.
    pub(super) failed: Option<Arc<Text>>,
    pub(super) parsed: Kept<Option<Arc<Text>>>,
    pub(super) bound: Kept<Option<Arc<Text>>>,
}

impl Default for Over {
    fn default() -> Self {
        let kept = || Kept::new(MOST_OVER_BYTES);
        Self { failed: None, parsed: kept(), bound: kept() }
    }
}
