//! SSH certificates as stock OpenSSH sees them.

use std::fs;

use sallyport_ca::{CaKind, CertificateKind};
use sallyport_sal::Suite;

use crate::issued::world::World;
use crate::programs::run;

#[test]
fn ssh_keygen_reads_what_stock_servers_get() {
    for suite in Suite::ALL {
        let world = World::new(*suite);
        let dir = tempfile::tempdir().unwrap();
        let (user, host) = (world.openssh_user(), world.openssh_host(&["git.example.com", "192.0.2.9"]));
        assert_eq!(user.issued.kind, CertificateKind::OpensshUser);
        fs::write(dir.path().join("user"), &user.line).unwrap();
        fs::write(dir.path().join("host"), &host.line).unwrap();
        let Some((ok, text)) = run("ssh-keygen", &["-L", "-f", "user"], dir.path()) else { return };
        let ca = world.authority(CaKind::Openssh).ssh().unwrap();
        assert!(ok, "{text}");
        for wanted in [
            "user certificate",
            ca.fingerprint(),
            "Key ID: \"alice\"",
            &format!("Serial: {}", user.issued.serial),
            "root",
            "deploy",
            "Critical Options: (none)",
            "permit-pty",
        ] {
            assert!(text.contains(wanted), "{suite}: {wanted} not in\n{text}");
        }
        assert!(!text.contains("UNKNOWN"), "{text}");
        let (ok, text) = run("ssh-keygen", &["-L", "-f", "host"], dir.path()).unwrap();
        let ca = world.authority(CaKind::Host).ssh().unwrap();
        assert!(ok, "{text}");
        for wanted in
            ["host certificate", ca.fingerprint(), "git.example.com", "192.0.2.9", "Extensions: (none)"]
        {
            assert!(text.contains(wanted), "{suite}: {wanted} not in\n{text}");
        }
    }
}
