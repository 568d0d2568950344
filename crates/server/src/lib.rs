//! The services: authority, proxy and agent behind one listener.
//!
//! [`run::run`] starts what a [`config::Config`] names and stops on a signal; [`run::start`] does the same inside
//! another program, such as a test or the quickstart, and hands back a [`run::Running`].

pub mod config;
pub mod error;
pub mod run;

pub use config::{Config, ConfigErrors};
pub use error::ServerError;
pub use run::{Running, run, start};
