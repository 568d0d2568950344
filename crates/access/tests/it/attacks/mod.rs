//! Attacks on the decision itself: expressions that match more than they say, and rights that are handed out by an
//! administrator who lacks them.

mod holding;
mod labels;
