//! `sallyport.yaml`: what this process is to run.
//!
//! Reading reports every mistake at once, each with its line, its column and what to write instead. A key that is
//! not known is a mistake: a misspelt limit must not silently be no limit. No message repeats a secret.

mod audit;
mod authentication;
mod ca_keys;
mod crypto;
pub mod danger;
mod example;
mod host_port;
mod lifetimes;
mod log;
mod names;
mod passwords;
mod read;
mod secret_files;
mod sections;
mod telemetry;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests;

use std::path::Path;

pub use audit::{AuditSection, Bucket, Endpoint, Webhook};
pub use authentication::{
    AdminFactor, AuthenticationSection, DevicesSection, HeadlessLogins, Models, PreferredLogin,
    WebauthnSection,
};
pub use ca_keys::{CaKeysSection, SEALED};
pub(crate) use crypto::rule;
pub use crypto::{Choice, CryptoSection};
pub use host_port::HostPort;
pub use log::{LogConfig, LogFormat};
pub use names::host_name;
pub(crate) use names::node_name;
pub use passwords::PasswordsSection;
pub use sallyport_access::yaml::{Errors as ConfigErrors, Problem as ConfigProblem};
pub use sections::{
    AuthSection, Config, DEFAULT_AUTH_PORT, DEFAULT_PROXY_PORT, HttpsFiles, JoinConfig, LabelCommand, Limits,
    NodeSection, ProxySection, SecondFactor, Secret, TunnelCarrier,
};
pub use telemetry::{Collector, TelemetrySection};

impl Config {
    /// Reads a configuration; `file` is only for messages. No other file is read, but for a measured profile that
    /// `crypto.selection` asks for.
    ///
    /// # Errors
    /// Every mistake at once.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigErrors> {
        read::config(file, text)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// Every mistake at once; a file that cannot be read is one mistake.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&file, &text),
            Err(error) => Err(ConfigErrors {
                file,
                problems: vec![ConfigProblem {
                    line: 0,
                    column: 0,
                    key: String::new(),
                    message: format!("cannot be read: {error}"),
                    fix: "give the path of a configuration file with -c, or write one with `sallyport configure`"
                        .to_owned(),
                }],
            }),
        }
    }

    /// A whole file that explains every key, with the defaults commented out.
    #[must_use]
    pub fn commented_example() -> &'static str {
        example::EXAMPLE
    }
}
