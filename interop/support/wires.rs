//! A cluster whose parts have a wire of their own to the proxy each, which can be cut.

use super::{Cluster, PROGRAM, Process, User, Wire, ok};

/// Authority, node `web-1` and a client, each at the end of a wire, and the proxy in their midst.
pub struct Wired {
    pub cluster: Cluster,
    pub to_authority: Wire,
    pub to_node: Wire,
    pub to_client: Wire,
}

impl Wired {
    /// `None` where this machine does not allow it.
    pub fn new() -> Option<Self> {
        let (to_authority, to_node, to_client) = (Wire::new()?, Wire::new()?, Wire::new()?);
        let mut cluster = Cluster::apart_over(&to_authority, &to_client);
        let token = cluster.token(&[]);
        let config = cluster.node_config("web-1", "env: prod", Some(&token));
        let node = std::fs::read_to_string(&config).expect("the node's configuration");
        let wire = format!("proxy_server: {}:{}", to_node.here(), cluster.port);
        let node = node.replace(&format!("proxy_server: 127.0.0.1:{}", cluster.port), &wire);
        std::fs::write(&config, node).expect("write the configuration");
        let process = Process::spawn(
            to_node.inside(PROGRAM).args(["start", "-c"]).arg(&config),
            cluster.path("node-web-1.log"),
        );
        cluster.nodes.push(("web-1".to_owned(), process));
        cluster.wait_online("web-1");
        Some(Self { cluster, to_authority, to_node, to_client })
    }

    /// A user who is logged in at the proxy's address on the client's wire.
    pub fn add_far_user(&self, name: &str) -> User {
        let mut user = self.cluster.add_user_without_login(name, "access", &super::me());
        user.proxy = format!("{}:{}", self.to_client.here(), self.cluster.port);
        ok(user.login(&[]));
        user
    }
}
