//! The machine's name, and pins of authorities.

use sallyport_access::{ClusterName, IdError, NodeName};

/// Checks `sha256:` and 64 hexadecimal digits.
pub(crate) fn check_pin(text: &str) -> Result<String, &'static str> {
    sallyport_ca::tls::parse_pin(text).map_err(
        |_| "is not sha256: and 64 hexadecimal digits, nor several such pins with commas between them",
    )
}

/// The machine's name, made fit for a node name.
///
/// # Errors
/// When nothing makes it fit.
pub fn host_name() -> Result<NodeName, IdError> {
    let system = rustix::system::uname();
    NodeName::new(system.nodename().to_string_lossy().to_ascii_lowercase())
}

/// The machine's name as a node of this cluster has it: the cluster's name, which clients put behind it, left off.
///
/// # Errors
/// When nothing makes it fit.
pub(crate) fn node_name(cluster: &ClusterName) -> Result<NodeName, IdError> {
    let name = host_name()?;
    match name.as_str().strip_suffix(cluster.as_str()).and_then(|name| name.strip_suffix('.')) {
        Some(own) => NodeName::new(own),
        None => Ok(name),
    }
}
