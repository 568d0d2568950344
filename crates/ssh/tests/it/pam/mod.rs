//! PAM's account management, by the machine's own libpam and modules. Built with the feature `pam`:
//! `cargo test --workspace --features sallyport-ssh/pam --test pam`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sallyport_audit::Code;

use crate::world::{World, accounts, is_root, ok, output, role, text};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A service of PAM, gone with this.
struct Service(PathBuf);

impl Service {
    /// None for who may not write there: only root can ask PAM about others anyway.
    fn new(rules: &str) -> Option<Self> {
        if !is_root() {
            eprintln!("left out: only root can write a PAM service");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/etc/pam.d/sallyport-test-{}-{number}", std::process::id()));
        std::fs::write(&path, rules).unwrap();
        Some(Self(path))
    }

    async fn world(&self) -> World {
        let name = self.0.file_name().unwrap().to_str().unwrap().to_owned();
        World::with("port_forwarding: true", |config| config.pam_account = Some(name)).await
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An account of this machine, gone with this.
struct Account(String);

impl Account {
    fn new(options: &[&str]) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sp-pam-{}-{number}", std::process::id());
        let made = [&["-M", "-d", "/", "-s", "/bin/sh"], options, &[&name]].concat();
        let made = accounts("useradd", &made);
        assert!(made.status.success(), "{}", text(&made.stderr));
        Self(name)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        accounts("userdel", &[&self.0]);
    }
}

/// What `id -un` gives as this account, and what the person reads.
async fn log_in(service: &Service, login: &str) -> (World, std::process::Output) {
    let name = service.0.file_name().unwrap().to_str().unwrap().to_owned();
    let world =
        World::with_roles(&[role("dev", &[login], "")], |config| config.pam_account = Some(name)).await;
    let mut card = world.card("bob");
    card.logins = vec![login.to_owned()];
    world.issue("bob", &card);
    let mut command = world.client("ssh", "bob");
    command.args([&format!("{login}@127.0.0.1"), "id -un"]);
    let shown = output(command).await;
    (world, shown)
}

/// Checks that a user was refused for a reason, which stands in the audit log as well.
async fn refused(world: &World, shown: &std::process::Output, reason: &str) {
    assert_eq!(shown.status.code(), Some(255));
    assert_eq!(text(&shown.stdout), "");
    let said = text(&shown.stderr);
    assert!(said.contains(reason), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let event = world.event(&Code::SessionRefused).await;
    assert!(event.message.contains(reason), "{}", event.message);
    assert!(world.events(&Code::SessionStart).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_come_in_comes_in() {
    let Some(service) = Service::new("account required pam_permit.so\n") else { return };
    let world = service.world().await;
    assert_eq!(ok(&output(world.ssh(&[], &["echo in"])).await), "in\n");
    assert!(world.events(&Code::SessionRefused).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_gets_nothing() {
    let Some(service) = Service::new("account required pam_deny.so\n") else { return };
    let world = service.world().await;
    let shown = output(world.ssh(&[], &["touch /tmp/sallyport-was-here"])).await;
    let reason = format!("this machine refuses the account {} (PAM service ", world.own.name);
    refused(&world, &shown, &reason).await;
    let mut sftp = world.client("sftp", "alice");
    sftp.arg(world.destination());
    assert!(!output(sftp).await.status.success());
    let forwarded =
        output(world.ssh(&["-W", &format!("127.0.0.1:{}", world.address.port())], &[] as &[&str]));
    assert!(!forwarded.await.status.success());
    assert!(world.events(&Code::SessionPortForward).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_has_expired_is_refused() {
    let Some(service) = Service::new("account required pam_unix.so\n") else { return };
    let account = Account::new(&[]);
    let (_, shown) = log_in(&service, &account.0).await;
    assert_eq!(ok(&shown), format!("{}\n", account.0));
    let expired = Account::new(&["-e", "2001-01-01"]);
    let (world, shown) = log_in(&service, &expired.0).await;
    // The module's own words follow.
    refused(&world, &shown, "it has expired: Your account has expired; please contact").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_must_be_changed_is_said() {
    let Some(service) = Service::new("account required pam_unix.so\n") else { return };
    let account = Account::new(&[]);
    let aged = accounts("chage", &["-d", "0", &account.0]);
    assert!(aged.status.success(), "{}", text(&aged.stderr));
    let (world, shown) = log_in(&service, &account.0).await;
    refused(&world, &shown, "its password has expired and has to be changed on the machine first").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_takes_no_logins_says_why() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "down for\nrepairs\n").unwrap();
    let rules = format!("account required pam_nologin.so file={}\n", file.path().display());
    let Some(service) = Service::new(&format!("{rules}account required pam_permit.so\n")) else { return };
    let account = Account::new(&[]);
    let (world, shown) = log_in(&service, &account.0).await;
    refused(&world, &shown, "down for repairs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_from_counts() {
    for (origin, welcome) in [("192.0.2.7", true), ("127.0.0.1", false)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("-:ALL:{origin}\n+:ALL:ALL\n")).unwrap();
        let rules = format!("account required pam_access.so accessfile={}\n", file.path().display());
        let Some(service) = Service::new(&rules) else { return };
        let world = service.world().await;
        let shown = output(world.ssh(&[], &["echo in"])).await;
        if welcome {
            assert_eq!(ok(&shown), "in\n");
        } else {
            refused(&world, &shown, "Permission denied").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_learn_who_comes_from_where() {
    let directory = tempfile::tempdir().unwrap();
    let (seen, script) = (directory.path().join("seen"), directory.path().join("script"));
    std::fs::write(&script, format!("#!/bin/sh\nenv | grep ^PAM_ | sort > {}\n", seen.display())).unwrap();
    executable(&script);
    let Some(service) = Service::new(&format!("account required pam_exec.so quiet {}\n", script.display()))
    else {
        return;
    };
    let world = service.world().await;
    assert_eq!(ok(&output(world.ssh(&[], &["echo in"])).await), "in\n");
    let seen = std::fs::read_to_string(seen).unwrap();
    let expected = format!(
        "PAM_RHOST=127.0.0.1\nPAM_SERVICE={}\nPAM_TTY=ssh\nPAM_TYPE=account\nPAM_USER={}\n",
        service.0.file_name().unwrap().to_str().unwrap(),
        world.own.name
    );
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_cannot_be_asked_lets_no_user_in() {
    let Some(service) = Service::new("account required pam_no_such_module.so\n") else { return };
    let world = service.world().await;
    let shown = output(world.ssh(&[], &["echo in"])).await;
    refused(&world, &shown, "this machine refuses the account").await;
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
