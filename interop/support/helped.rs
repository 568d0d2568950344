//! A user whose helper daemon ends with the test.

use std::ops::Deref;
use std::process::{Child, Stdio};

use sallyport_testing::fixtures::{Cluster, User, json, ok, ssh_command};

/// The user.
pub struct Helped(pub User);

impl Helped {
    /// A cluster with a node, and its user.
    pub fn with_node() -> (Cluster, Self) {
        let (cluster, alice) = Cluster::with_node();
        (cluster, Self(alice))
    }

    /// What the helper says of itself.
    pub fn status(&self) -> serde_json::Value {
        json(&ok(self.run(&["connect", "--status", "--format", "json"])))
    }

    /// Native streams of the helper, and those of them that were begun with a ticket.
    pub fn natives(&self) -> (u64, u64) {
        let status = self.status();
        (status["native"].as_u64().unwrap(), status["early"].as_u64().unwrap())
    }

    /// Stock `ssh` under way.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        let mut ssh = ssh_command(&self.ssh_config(&[]));
        ssh.args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Deref for Helped {
    type Target = User;

    fn deref(&self) -> &User {
        &self.0
    }
}

impl Drop for Helped {
    fn drop(&mut self) {
        let _ = self.run(&["connect", "--stop"]);
    }
}
