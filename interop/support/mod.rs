//! The testbed of these suites, and the program that they test.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each suite uses its part")]

mod browser;
mod helped;

pub use sallyport_testing::fixtures::*;

pub use self::browser::Browser;
pub use self::helped::Helped;
pub use crate::PROGRAM;
