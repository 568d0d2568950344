//! What any measurement needs: statistics of samples, reports with pages and pictures, what the machine was, and what
//! processes cost.
//!
//! It knows nothing of Sallyport.

pub mod compare;
pub mod cost;
mod error;
pub mod machine;
pub mod page;
pub mod plot;
pub mod report;
pub mod statistics;
mod talk;

pub use error::{AtFile, BenchError, FileError};
pub use talk::Talk;
