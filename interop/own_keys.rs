//! Logins over an SSH key of the user's own: stock ssh signs with it, in a file, in an agent and in a security key, and our own client by
//! the agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{
    Cluster, SecurityKeyAgent, SshAgent, TOUCHED, User, json, ok, refused, ssh_command, stderr, stdout,
    target, wait_for,
};

/// A key of the user's, made by `ssh-keygen` without a passphrase.
pub(crate) fn keygen(at: PathBuf) -> PathBuf {
    keygen_of("ed25519", at)
}

fn keygen_of(kind: &str, at: PathBuf) -> PathBuf {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", kind, "-N", "", "-C", "a key of mine", "-f"]);
    ok(command.arg(&at).output().unwrap());
    at
}

/// The type of the SSH key that a user's login is over, where that is the user's own.
pub(crate) fn type_of_own_key(user: &User) -> serde_json::Value {
    json(&ok(user.run(&["status", "--format", "json"])))["ssh_key"]["type"].clone()
}

fn public(key: &Path) -> PathBuf {
    PathBuf::from(format!("{}.pub", key.display()))
}

fn profile(user: &User) -> PathBuf {
    user.home.join(user.proxy.replace(':', "_"))
}

fn log_in(user: &User, key: &Path) -> Output {
    ok(user.login(&["--ssh-key", key.to_str().unwrap()]))
}

/// Stock ssh to the node with a configuration, and an agent where there is one. No helper is in between.
fn stock(config: &Path, agent: Option<&Path>) -> Output {
    let mut command = ssh_command(config);
    command.args([&target("web-1"), "echo in"]).env("SALLYPORT_CONNECT", "off");
    if let Some(agent) = agent {
        command.env("SSH_AUTH_SOCK", agent);
    }
    command.output().unwrap()
}

/// Our own client, where it is to go by SSH or as it likes.
fn own(user: &User, front: &str, agent: Option<&Path>) -> Output {
    let mut command = user.command(&["ssh", &target("web-1"), "echo in"]);
    command.env("SALLYPORT_FRONT", front).env("SALLYPORT_CONNECT", "off").env_remove("SSH_AUTH_SOCK");
    if let Some(agent) = agent {
        command.env("SSH_AUTH_SOCK", agent);
    }
    command.output().unwrap()
}

fn is_in(output: Output) {
    assert_eq!(stdout(&ok(output)), "in\n");
}

#[test]
fn a_key_of_the_users_own_is_certified_and_signs_for_stock_ssh_and_for_ours() {
    let (cluster, alice) = Cluster::with_node();
    let key = keygen(cluster.path("id"));
    let kept = profile(&alice).join("ssh_key");
    assert!(kept.exists());

    // Nothing is sent, and nothing stored, for what is no public key.
    let certificate = profile(&alice).join("ssh_key-cert.pub");
    let before = fs::read(&certificate).unwrap();
    fs::write(cluster.path("alone"), fs::read(&key).unwrap()).unwrap();
    for (named, why) in [
        (cluster.path("nothing"), "there is no such file"),
        (cluster.path("alone"), "its public key is not beside it"),
        (certificate.clone(), "it is a certificate"),
    ] {
        let said = refused(&alice.login(&["--ssh-key", named.to_str().unwrap()]), 2);
        assert!(said.contains(why) && said.contains(named.to_str().unwrap()), "{said}");
    }
    let adding = ["login", "--ssh-key", key.to_str().unwrap(), "--add-keys-to-agent", "yes"];
    let said = refused(&alice.run(&adding), 2);
    assert!(said.contains("--add-keys-to-agent") && said.contains("ssh-add"), "{said}");
    assert_eq!(fs::read(&certificate).unwrap(), before);

    let said = stdout(&log_in(&alice, &public(&key)));
    assert!(said.contains(&format!("{} (ssh-ed25519 SHA256:", key.display())), "{said}");
    assert!(!kept.exists(), "the key of the login before is gone");
    let status = ok(alice.run(&["status", "--format", "json"]));
    let anew = ok(alice.login(&["--ssh-key", key.to_str().unwrap(), "--format", "json"]));
    for told in [status, anew] {
        let told = json(&told);
        assert_eq!(told["ssh_key"]["file"], key.to_str().unwrap());
        assert_eq!(told["ssh_key"]["type"], "ssh-ed25519");
    }
    // The comment is the user's, and goes nowhere.
    let files = fs::read_to_string(profile(&alice).join("ssh_key.pub")).unwrap();
    assert!(!files.contains("a key of mine"), "{files}");

    // The private key is in its file.
    let (config, jump) = (alice.ssh_config(&[]), alice.ssh_config(&["--jump"]));
    is_in(stock(&config, None));
    is_in(stock(&jump, None));
    // It is in an agent alone.
    let agent = SshAgent::start(cluster.path("agent"));
    agent.add(&key);
    let away = cluster.path("away");
    fs::rename(&key, &away).unwrap();
    let (config, jump) = (alice.ssh_config(&[]), alice.ssh_config(&["--jump"]));
    is_in(stock(&config, Some(&agent.socket)));
    is_in(stock(&jump, Some(&agent.socket)));
    is_in(own(&alice, "ssh", Some(&agent.socket)));
    // Natively there is no SSH.
    is_in(own(&alice, "native", None));
    fs::rename(&away, &key).unwrap();

    // No agent, and one without the key: our program does not take the file.
    let other = SshAgent::start(cluster.path("other-agent"));
    other.add(&keygen(cluster.path("other")));
    for (socket, why) in [
        (None, "SSH_AUTH_SOCK is not set"),
        (Some(other.socket.as_path()), "the agent does not hold it"),
        (Some(Path::new("/nowhere/agent")), "cannot be reached"),
    ] {
        let said = refused(&own(&alice, "ssh", socket), 255);
        assert!(said.contains(why) && said.contains(&format!("ssh-add {}", key.display())), "{said}");
    }

    // The user's key is the user's after the login, too.
    let mut out = alice.command(&["logout"]);
    ok(out.env("SSH_AUTH_SOCK", &agent.socket).output().unwrap());
    assert!(key.exists() && public(&key).exists());
    let held = Command::new("ssh-add").arg("-l").env("SSH_AUTH_SOCK", &agent.socket).output().unwrap();
    assert!(stdout(&ok(held)).contains("a key of mine"));

    // The next login makes a key again, unless it is told otherwise.
    ok(alice.login(&[]));
    assert!(kept.exists());
    assert!(json(&ok(alice.run(&["status", "--format", "json"])))["ssh_key"].is_null());
    is_in(stock(&alice.ssh_config(&[]), None));
}

#[test]
fn keys_of_other_types_sign_from_an_agent_too() {
    let (cluster, alice) = Cluster::with_node();
    let agent = SshAgent::start(cluster.path("agent"));
    for (kind, name) in [("rsa", "ssh-rsa"), ("ecdsa", "ecdsa-sha2-nistp256")] {
        let key = keygen_of(kind, cluster.path(kind));
        agent.add(&key);
        log_in(&alice, &key);
        assert_eq!(type_of_own_key(&alice), name);
        is_in(own(&alice, "ssh", Some(&agent.socket)));
        is_in(stock(&alice.ssh_config(&[]), None));
    }
}

#[test]
fn attacks_of_two_logins_over_one_key_each_ends_for_itself() {
    let (cluster, alice) = Cluster::with_node();
    let key = keygen(cluster.path("id"));
    let [laptop, desk] = ["laptop", "desk"].map(|name| {
        let home = cluster.path(&format!("home-{name}"));
        User { name: alice.name.clone(), home, proxy: alice.proxy.clone(), otp_uri: None }
    });
    for user in [&laptop, &desk] {
        log_in(user, &key);
    }
    // The laptop's certificate with the connection of the desk's login, so that SSH is all that is judged by the first.
    let old = cluster.path("old-cert.pub");
    fs::copy(profile(&laptop).join("ssh_key-cert.pub"), &old).unwrap();
    let with_old = |arguments: &[&str], name: &str| {
        let text = fs::read_to_string(desk.ssh_config(arguments)).unwrap();
        let own = profile(&desk).join("ssh_key-cert.pub");
        assert!(text.contains(own.to_str().unwrap()), "{text}");
        let path = cluster.path(name);
        fs::write(&path, text.replace(own.to_str().unwrap(), old.to_str().unwrap())).unwrap();
        path
    };
    let (at_node, at_proxy) = (with_old(&[], "old-config"), with_old(&["--jump"], "old-jump"));
    let [config, jump] = [&[][..], &["--jump"]].map(|arguments| desk.ssh_config(arguments));
    for config in [&at_node, &at_proxy, &config, &jump] {
        is_in(stock(config, None));
    }

    ok(laptop.run(&["logout"]));
    let is_out = |config: &Path| {
        let said = wait_for("the certificate to be refused", || {
            let output = stock(config, None);
            (!output.status.success()).then(|| stderr(&output))
        });
        assert!(said.contains("Permission denied (publickey") || said.contains("logged out"), "{said}");
    };
    is_out(&at_node);
    is_out(&at_proxy);
    cluster.wait_event("session.refused", |event| {
        event["node"] == "web-1" && event["message"].as_str().unwrap_or("").contains("logged out")
    });
    let [config, jump] = [&[][..], &["--jump"]].map(|arguments| desk.ssh_config(arguments));
    is_in(stock(&config, None));
    is_in(stock(&jump, None));

    // A login anew over the key, and the old certificate is as ended as before.
    log_in(&laptop, &key);
    is_out(&at_node);
    is_out(&at_proxy);
    // With the desk's, the laptop's goes on.
    ok(desk.run(&["logout"]));
    is_in(stock(&laptop.ssh_config(&[]), None));
}

#[test]
fn a_security_key_signs_each_connection_of_stock_ssh_and_has_to_be_touched() {
    let (cluster, alice) = Cluster::with_node();
    let agent = SecurityKeyAgent::start(cluster.path("agent"));
    let key = cluster.path("id_sk.pub");
    fs::write(&key, agent.public_line()).unwrap();
    let said = stdout(&log_in(&alice, &key));
    assert!(
        said.contains("(sk-ssh-ed25519@openssh.com SHA256:") && said.contains("), which is yours"),
        "{said}"
    );
    let (config, jump) = (alice.ssh_config(&[]), alice.ssh_config(&["--jump"]));
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(key.to_str().unwrap()) && !text.contains("--native"), "{text}");

    // One touch for each connection: the proxy's face is one, and the node behind it another.
    let socket = Some(agent.socket.as_path());
    let mut before = 0;
    for (way, touches) in [("stock", 1), ("jump", 2), ("own", 1)] {
        is_in(match way {
            "stock" => stock(&config, socket),
            "jump" => stock(&jump, socket),
            _ => own(&alice, "ssh", socket),
        });
        assert_eq!(agent.signatures() - before, touches, "{way}");
        before = agent.signatures();
    }
    // The same where a helper may be used, which stays out of it.
    let mut helped = ssh_command(&config);
    is_in(helped.args([&target("web-1"), "echo in"]).env("SSH_AUTH_SOCK", &agent.socket).output().unwrap());
    assert_eq!(agent.signatures() - before, 1);

    agent.say(0);
    for output in [stock(&config, socket), stock(&jump, socket)] {
        let said = refused(&output, 255);
        assert!(said.contains("Permission denied (publickey"), "{said}");
    }
    refused(&own(&alice, "ssh", socket), 255);
    cluster.wait_event("session.refused", |event| {
        event["node"] == "web-1" && event["message"].as_str().unwrap_or("").contains("without being touched")
    });
    agent.say(TOUCHED);
    is_in(stock(&config, socket));
    // Natively nothing of SSH is proven: what lets in is the login's key of TLS.
    let before = agent.signatures();
    is_in(own(&alice, "native", None));
    assert_eq!(agent.signatures(), before);
    let _ = alice.run(&["connect", "--stop"]);
}

#[test]
fn an_agent_keeps_nothing_of_a_login_that_another_has_followed() {
    let (cluster, alice) = Cluster::with_node();
    let agent = SshAgent::start(cluster.path("agent"));
    let held = || {
        let listed = Command::new("ssh-add").arg("-l").env("SSH_AUTH_SOCK", &agent.socket).output().unwrap();
        stdout(&listed).lines().filter(|line| line.contains("SHA256:")).map(str::to_owned).collect::<Vec<_>>()
    };
    ok(alice.login_beside(&agent.socket, &[]));
    let first = held();
    assert_eq!(first.len(), 2, "a key and its certificate: {first:?}");
    ok(alice.login_beside(&agent.socket, &[]));
    let second = held();
    assert_eq!(second.len(), 2, "{second:?}");
    assert!(second.iter().all(|line| !first.contains(line)), "{first:?} {second:?}");
    let key = keygen(cluster.path("id"));
    let output = ok(alice.login_beside(&agent.socket, &["--ssh-key", key.to_str().unwrap()]));
    assert!(stderr(&output).contains("is for another SSH key"), "{}", stderr(&output));
    assert!(held().is_empty(), "{:?}", held());
    // A key that the user has added stays.
    agent.add(&key);
    ok(alice.login_beside(&agent.socket, &[]));
    assert_eq!(held().iter().filter(|line| line.contains("a key of mine")).count(), 1, "{:?}", held());
}
