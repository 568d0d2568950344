//! A second factor that stock `ssh` is asked for on its way through a proxy.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use sallyport_ssh::jump::JumpConfig;
use tokio::process::Command;

use super::{Stand, text};
use crate::openssh::rig::{Cluster, ssh_program};

#[tokio::test]
async fn a_client_whose_name_asks_for_it_is_asked_for_a_second_factor_and_no_other() {
    let stand = Stand::of(Cluster::new(), JumpConfig::default()).await;
    let user = stand.cluster.user();
    let script = "#!/bin/sh\nprintf '%s\\n' \"$1\" >> \"$0.asked\"\necho ' 123456'\n";
    let askpass = stand.cluster.file("askpass.sh", script);
    std::fs::set_permissions(&askpass, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ssh = |name: &str, more: &[&str]| {
        let mut command = Command::new(ssh_program("ssh"));
        command.arg("-F").arg(stand.config(&user)).args(more);
        command.args(["-W", "web-1:22", "-l", name, "jump"]).stdin(Stdio::null()).kill_on_drop(true);
        command.env("SSH_ASKPASS", &askpass).env("SSH_ASKPASS_REQUIRE", "force");
        command
    };
    let ran = ssh("mfa", &["-oBatchMode=no"]).output().await.unwrap();
    let said = text(&ran.stderr);
    assert!(text(&ran.stdout).starts_with("SSH-2.0-OpenSSH"), "{said}");
    assert!(
        said.contains("alice, open https://a.example/approve#x") && said.contains("the code is wrong"),
        "{said}"
    );
    assert_eq!(*stand.nodes.typed.lock(), ["123456", "123456"]);
    let asked = std::fs::read_to_string(askpass.with_extension("sh.asked")).unwrap();
    assert!(asked.contains("One-time code, or Enter when it is proven at the page:"), "{asked}");
    // A client that cannot answer is not let in as this one; as any other it is asked nothing.
    let ran = ssh("mfa", &[]).output().await.unwrap();
    assert!(text(&ran.stderr).contains("Permission denied (keyboard-interactive)"), "{}", text(&ran.stderr));
    let ran = ssh("alice", &[]).output().await.unwrap();
    assert!(text(&ran.stdout).starts_with("SSH-2.0-OpenSSH"), "{}", text(&ran.stderr));
    // Without a certificate there is nothing to answer.
    let none = ["-oBatchMode=no", "-oPubkeyAuthentication=no"];
    let ran = ssh("mfa", &none).output().await.unwrap();
    assert!(text(&ran.stderr).contains("Permission denied"), "{}", text(&ran.stderr));
    assert_eq!(stand.nodes.typed.lock().len(), 2);
    // Who is wrong again and again has to connect anew.
    std::fs::write(&askpass, "#!/bin/sh\necho wrong\n").unwrap();
    let ran = ssh("mfa", &["-oBatchMode=no"]).output().await.unwrap();
    assert!(text(&ran.stderr).contains("Permission denied"), "{}", text(&ran.stderr));
    assert_eq!(stand.nodes.typed.lock().len(), 2 + 5);
}
