//! Attacks on the decision itself: expressions that match more than they say.

mod labels;
