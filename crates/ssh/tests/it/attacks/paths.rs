//! An account that swaps what root made for it, so that root removes another's file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use tokio::process::Command;

use crate::display::display;
use crate::node::limits::Agent;
use crate::world::{World, accounts, is_root, ok, output, role, text, until};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Puts a link to root's directory where the session's own was, and says where that is now.
fn swap(variable: &str, target: &Path) -> String {
    format!(
        "d=${{{variable}%/*}}; mv \"$d\" \"$d.mine\" && ln -s {} \"$d\" && echo \"$d.mine\"",
        target.display()
    )
}

/// A node that serves an account, and a directory of root's with a file of each name that the node gives its own.
struct Ground {
    login: String,
    world: World,
    roots: TempDir,
}

impl Ground {
    /// None for who may neither make accounts nor run as them.
    async fn new(options: &str) -> Option<Self> {
        if !is_root() {
            eprintln!("left out: needs root, to become another account");
            return None;
        }
        let login = format!("sp-paths-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let made = accounts("useradd", &["-M", "-d", "/", "-s", "/bin/sh", &login]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let world = World::with_roles(&[role("dev", &[&login], options)], |_| {}).await;
        let mut card = world.card("alice");
        card.logins = vec![login.clone()];
        world.issue("alice", &card);
        let roots = tempfile::tempdir().unwrap();
        std::fs::set_permissions(roots.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["agent", "cookies"] {
            std::fs::write(roots.path().join(name), "root's").unwrap();
        }
        Some(Self { login, world, roots })
    }

    /// Runs the attack, waits until the node has removed what it made, and shows that this is all.
    async fn attack(&self, mut client: Command, variable: &str, name: &str) {
        client.arg(format!("{}@127.0.0.1", self.login)).arg(swap(variable, self.roots.path()));
        let shown = output(client).await;
        let moved = ok(&shown).trim().to_owned();
        assert!(moved.ends_with(".mine"), "{moved} {}", text(&shown.stderr));
        let (own, another) = (Path::new(&moved).join(name), self.roots.path().join(name));
        until("the end of what the node made", || (!own.exists() || !another.exists()).then_some(())).await;
        assert!(another.exists(), "root has removed a file of its own by the account's link");
        let _ = std::fs::remove_file(moved.trim_end_matches(".mine"));
        let _ = std::fs::remove_dir_all(moved);
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        accounts("userdel", &["-f", &self.login]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn root_removes_nothing_by_a_link_in_place_of_an_agents_directory() {
    let Some(ground) = Ground::new("forward_agent: true").await else { return };
    let agent = Agent::start(&ground.world).await;
    let mut client = ground.world.client("ssh", "alice");
    client.env("SSH_AUTH_SOCK", &agent.socket).arg("-A");
    ground.attack(client, "SSH_AUTH_SOCK", "agent").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_removes_nothing_by_a_link_in_place_of_a_displays_directory() {
    let Some(ground) = Ground::new("permit_x11_forwarding: true").await else { return };
    let (_listener, name) = display(&ground.world.path("xauthority")).await;
    let mut client = ground.world.client("ssh", "alice");
    client.env("DISPLAY", &name).env("XAUTHORITY", ground.world.path("xauthority")).arg("-Y");
    ground.attack(client, "XAUTHORITY", "cookies").await;
}
