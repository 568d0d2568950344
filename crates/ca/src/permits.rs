//! What an SSH certificate says that it lets its holder do, as people read it.

use ssh_key::Certificate;

use crate::CaError;

/// What an SSH certificate allows, and what binds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshPermits {
    /// Those of its extensions that permit something, such as `permit-pty`.
    pub allows: Vec<String>,
    /// Its critical options with their values, such as `source-address`.
    pub bound: Vec<(String, String)>,
}

impl SshPermits {
    /// Reads an OpenSSH certificate line. Nothing is verified: this is for the holder of the certificate to read.
    ///
    /// # Errors
    /// [`CaError::Malformed`] when it is none.
    pub fn read(line: &str) -> Result<Self, CaError> {
        let certificate = Certificate::from_openssh(line.trim()).map_err(|error| CaError::Malformed {
            reason: format!("the SSH certificate cannot be read: {error}"),
        })?;
        // Ours say whose it is, and allow nothing.
        let allows = certificate.extensions().keys().filter(|name| !name.ends_with("@sallyport"));
        let bound = certificate.critical_options().iter().map(|(name, value)| (name.clone(), value.clone()));
        Ok(Self { allows: allows.cloned().collect(), bound: bound.collect() })
    }
}
