//! What ssh has to know of a cluster's hosts.

use sallyport_access::ClusterName;
use sallyport_ca::Trust;
use sallyport_ca::keys::SshKeyPair;

pub(super) fn lines(proxy: &str, cluster: &ClusterName, trust: &Trust, local: &SshKeyPair) -> String {
    let host = proxy.rsplit_once(':').map_or(proxy, |(host, _)| host);
    let port = proxy.rsplit_once(':').map_or("", |(_, port)| port);
    let host = host.trim_matches(['[', ']']);
    // As ssh writes it: the port only where it is not the default one.
    let address = if port == "22" { host.to_owned() } else { format!("[{host}]:{port}") };
    let patterns = [format!("*.{}", cluster), cluster.to_string(), address];
    sallyport_ca::known_hosts_lines(trust, &patterns) + &line(cluster, local)
}

/// The line of the key of this machine itself.
pub(super) fn line(cluster: &ClusterName, key: &SshKeyPair) -> String {
    format!("*.{},{} {}\n", cluster, cluster, key.public_line().trim_end())
}
