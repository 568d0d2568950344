//! The testbed of these suites, and the program that they test.
#![allow(unused_imports, unreachable_pub, reason = "each suite uses its part")]

pub use sallyport_testing::fixtures::*;

pub use crate::PROGRAM;
