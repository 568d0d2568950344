//! A cluster whose parts have a wire of their own to the proxy each, which can be cut.

use std::net::Ipv4Addr;
use std::process::Command;

use super::{Cluster, PROGRAM, Process, User, ok, stderr};

/// A network of two ends: what runs inside has only the wire, which can be pulled. Root's alone.
pub struct Wire {
    name: String,
    outside: String,
    net: u8,
}

impl Wire {
    /// `None` where this machine does not allow it.
    pub fn new() -> Option<Self> {
        let first = std::process::id() % 250;
        let net =
            (0..250_u32).map(|more| u8::try_from((first + more) % 250).expect("less than 250")).find(|net| {
                // The process that makes the name has the number.
                let made = Command::new("ip").args(["netns", "add", &format!("sp-lab-{net}")]).output();
                made.is_ok_and(|output| output.status.success())
            });
        let Some(net) = net else {
            eprintln!("left out: no network namespace can be made here");
            return None;
        };
        let wire = Self { name: format!("sp-lab-{net}"), outside: format!("splab{net}"), net };
        let (name, outside) = (&wire.name, &wire.outside);
        let inside = format!("{outside}i");
        let steps = [
            format!("link add {outside} type veth peer name {inside} netns {name}"),
            format!("addr add 10.213.{net}.1/24 dev {outside}"),
            format!("link set {outside} up"),
            format!("-n {name} addr add 10.213.{net}.2/24 dev {inside}"),
            format!("-n {name} link set {inside} up"),
            format!("-n {name} link set lo up"),
        ];
        for step in &steps {
            let output = Command::new("ip").args(step.split(' ')).output().ok()?;
            if !output.status.success() {
                eprintln!("left out: ip {step}: {}", stderr(&output).trim());
                return None;
            }
        }
        Some(wire)
    }

    /// The end on this side.
    pub fn here(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.net, 1)
    }

    /// The end inside.
    pub fn there(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.net, 2)
    }

    /// What a command begins with that runs inside.
    pub fn prefix(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).into()
    }

    /// A command that runs inside.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// From now on packets vanish in both directions, and neither end is told: each end believes that the other has moved to an address of
    /// the link that nobody has.
    pub fn pull(&self) {
        self.neighbours("replace", &["lladdr", "02:00:00:00:00:01", "nud", "permanent"]);
    }

    /// The wire is whole again.
    pub fn plug_in(&self) {
        self.neighbours("del", &[]);
    }

    fn neighbours(&self, what: &str, more: &[&str]) {
        let (here, there) = (self.here().to_string(), self.there().to_string());
        let inside = format!("{}i", self.outside);
        let near = ["neigh", what, &there, "dev", &self.outside];
        let far = ["-n", &self.name, "neigh", what, &here, "dev", &inside];
        for end in [near.as_slice(), far.as_slice()] {
            ok(Command::new("ip").args(end).args(more).output().expect("run ip"));
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.outside]).output();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

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
