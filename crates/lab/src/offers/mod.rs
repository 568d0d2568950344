//! What an SSH server offers, item by item: what is wrong with it, and why.

mod asking;
mod greeting;
mod verdict;

pub use asking::{ask_address, ours};
pub(crate) use greeting::{GREETING, greet, read_offer};
pub use verdict::{Finding, Level, judge};
