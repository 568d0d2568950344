//! What a person is told of what they do not get, and would otherwise have to guess.

use std::process::Stdio;

use sallyport_ssh::client::SessionRequest;
use tokio::process::Command;

use super::doors::{Way, connected, run, settings};
use crate::world::{World, ok, output, text};

#[tokio::test(flavor = "multi_thread")]
async fn variables_past_the_bounds_are_named() {
    let world = World::new().await;
    for way in [Way::Ssh, Way::Native, Way::Relayed] {
        let connection = connected(&world, way, "alice", settings(&world, &world.own.name)).await;
        let mut many = SessionRequest::exec("env | grep -o '^LC_[0-9]*' | sort -V | tr '\\n' ' '");
        many.environment = (0..70).map(|number| (format!("LC_{number}"), "x".to_owned())).collect();
        // What the setting does not name is left out as sshd does it.
        many.environment.insert(0, ("SECRET".to_owned(), "x".to_owned()));
        let ran = run(&connection, many, b"").await;
        let first: String = (0..64).map(|number| format!("LC_{number} ")).collect();
        assert_eq!(ran.stdout, first, "{way:?}");
        assert_eq!(
            ran.stderr,
            "sallyport: a session takes 64 variables of 32 KiB altogether, so these of yours are not set: LC_64, LC_65, \
             LC_66 and 3 more; send fewer (SendEnv)\r\n",
            "{way:?}"
        );
        let mut long = SessionRequest::exec("echo ${LC_LONG-none} $LC_SHORT");
        long.environment =
            [("LC_LONG", "x".repeat(32 * 1024)), ("LC_SHORT", "there".to_owned())].map(own).into();
        let ran = run(&connection, long, b"").await;
        assert_eq!(ran.stdout, "none there\n", "{way:?}");
        assert!(ran.stderr.contains("not set: LC_LONG; "), "{way:?}: {}", ran.stderr);
    }
}

fn own((name, value): (&str, String)) -> (String, String) {
    (name.to_owned(), value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_say_it_knows_certificates_reads_what_to_do() {
    const WORDS: &str = "prove themselves here by OpenSSH certificates, which OpenSSH_";
    let world = World::new().await;
    let mut plain = Command::new("ssh");
    plain.args(["-F/dev/null", "-oBatchMode=yes", "-oStrictHostKeyChecking=no", "-oIdentitiesOnly=yes"]);
    plain.args(["-oUserKnownHostsFile=/dev/null", "-oHostKeyAlgorithms=ssh-ed25519,rsa-sha2-512"]);
    plain.args(["-i", "/dev/null", "-p", &world.address.port().to_string(), &world.destination(), "true"]);
    plain.env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
    let refused = output(plain).await;
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(255));
    assert!(said.contains(WORDS) && said.contains("sallyport config"), "{said}");
    // Others are not told: most programs show a banner to everybody.
    let fine = output(world.ssh(&["-v"], &["true"])).await;
    ok(&fine);
    assert!(!text(&fine.stderr).contains("prove themselves"), "{}", text(&fine.stderr));
}
