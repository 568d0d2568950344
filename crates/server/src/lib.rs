//! The services: authority, proxy and agent behind one listener.
//!
//! [`run::run`] starts what a [`config::Config`] names and stops on a signal; [`run::start`] does the same inside
//! another program, such as a test or the quickstart, and hands back a [`run::Running`].

pub mod authority;
pub mod config;
pub mod error;
pub mod openssh;
mod reach;
pub mod run;

mod agent;
mod authority_listener;
mod backoff;
mod crypto;
mod dialling;
mod files;
mod health;
mod listener;
mod local;
mod local_authority;
mod logging;
mod member;
mod open_files;
mod outgoing;
mod places;
mod proxy;
mod reloading;
mod routes;
mod sessions;
mod signals;
mod tasks;
mod telemetry;
mod tls_settings;
mod user_certificate;

pub use config::{Config, ConfigErrors};
pub use error::ServerError;
pub use logging::filter as log_filter;
pub use run::{Draining, Running, run, start};
