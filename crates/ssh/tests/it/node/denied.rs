//! Who may not enter, and what may not be done.

use std::time::Duration;

use sallyport_audit::Code;
use sallyport_ssh::capabilities::Whose;
use sallyport_ssh::node::Apart;
use sallyport_ssh::session::ShadowFile;
use time::OffsetDateTime;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::world::{World, alive, ok, output, output_of, role, started, text, until};

/// `ssh` with this identity, running `echo in`.
async fn attempt(world: &World, identity: &str, login: &str) -> std::process::Output {
    let mut command = world.client("ssh", identity);
    command.arg(format!("{login}@127.0.0.1")).arg("echo in");
    output(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_are_not_ours_are_refused_outright() {
    let world = World::new().await;
    let own = world.own.name.clone();

    world.issue_by(&world.stranger(), "stranger", &world.card("alice"));
    let refused = attempt(&world, "stranger", &own).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(text(&refused.stderr).contains("Permission denied (publickey)"), "{}", text(&refused.stderr));
    let event = world.event(&Code::SessionRefused).await;
    assert!(event.message.contains("not issued by the user CA"), "{}", event.message);

    // A key without any certificate, one whose certificate is over, and a host's, which ssh itself does not show.
    world.issue_host_key("host");
    std::fs::remove_file(world.path("stranger-cert.pub")).unwrap();
    let mut card = world.card("alice");
    card.issued = OffsetDateTime::now_utc() - time::Duration::hours(2);
    world.issue("late", &card);
    for identity in ["stranger", "late", "host"] {
        let before = world.events(&Code::SessionRefused).len();
        let refused = attempt(&world, identity, &own).await;
        assert_eq!(refused.status.code(), Some(255));
        assert!(text(&refused.stderr).contains("Permission denied"), "{}", text(&refused.stderr));
        until("the event", || (world.events(&Code::SessionRefused).len() == before + 1).then_some(())).await;
        let event = world.event(&Code::SessionRefused).await;
        if identity == "late" {
            assert!(event.message.contains("expired"), "{}", event.message);
            continue;
        }
        assert_eq!(event.message, "the client presented no certificate of this cluster that is valid now");
    }
    assert!(world.events(&Code::SessionStart).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_seen_once_each_with_what_they_can_do() {
    let world = World::new().await;
    ok(&output(world.ssh(&[], &["true"])).await);
    let mut command = world.client("ssh", "alice");
    command.args(["-o", "KexAlgorithms=ecdh-sha2-nistp521"]).arg(world.destination()).arg("true");
    assert_eq!(output(command).await.status.code(), Some(255));
    until("two sightings", || (world.cluster.seen.lock().len() >= 2).then_some(())).await;
    let seen = world.cluster.seen.lock().clone();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!((&seen[0].whose, &seen[0].refused), (&Some(Whose::User("alice".to_owned())), &None));
    assert!(seen[0].offer.software.starts_with("OpenSSH_"), "{seen:?}");
    assert_eq!(seen[1].offer.kex, ["ecdh-sha2-nistp521"]);
    assert!(matches!(seen[1].whose, Some(Whose::Address(_))), "{seen:?}");
    let event = world.event(&Code::SessionRefused).await;
    let reason = seen[1].refused.clone().unwrap();
    assert_eq!(event.message, format!("the client cannot talk to this node: {reason}"));
    assert_eq!(event.fields["client"], seen[1].offer.software.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_no_role_allows_is_explained() {
    let world = World::new().await;
    let mut card = world.card("alice");
    card.logins.push("nobody".to_owned());
    world.issue("alice", &card);
    let refused = attempt(&world, "alice", "nobody").await;
    assert_eq!(refused.status.code(), Some(255));
    assert_eq!(text(&refused.stdout), "");
    let said = text(&refused.stderr);
    assert!(said.starts_with("sallyport: alice may not log in as nobody on web-1"), "{said}");
    assert!(said.contains(&format!("logins you may use there: {}", world.own.name)), "{said}");
    let event = world.event(&Code::SessionRefused).await;
    assert_eq!((event.user.as_str(), event.login.as_str()), ("alice", "nobody"));
    assert_eq!(world.events(&Code::SessionRefused).len(), 1);
    assert!(world.events(&Code::SessionStart).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_without_the_login_is_explained() {
    let world = World::with_roles(
        &[role("dev", &["nobody", &sallyport_ssh::session::Account::own().unwrap().name], "")],
        |_| {},
    )
    .await;
    let refused = attempt(&world, "alice", "nobody").await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(
        text(&refused.stderr).contains("your certificate is not for the login nobody"),
        "{}",
        text(&refused.stderr)
    );
    world.event(&Code::SessionRefused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_the_machine_lacks_is_explained() {
    let login = "nobody-of-that-name";
    let world = World::with_roles(&[role("dev", &[login], "")], |_| {}).await;
    let mut card = world.card("alice");
    card.logins = vec![login.to_owned()];
    world.issue("alice", &card);
    let refused = attempt(&world, "alice", login).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(text(&refused.stderr).contains("this machine has no account"), "{}", text(&refused.stderr));
    world.event(&Code::SessionRefused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_for_the_refused() {
    let world = World::new().await;
    world.set_locks(&[
        "kind: lock\nversion: v1\nmetadata:\n  name: l1\nspec:\n  target: {user: alice}\n  message: away\n",
    ]);
    let marker = world.path("marker");
    let refused = output(world.ssh(&[], &[format!("touch {}", marker.display())])).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(text(&refused.stderr).contains("away"), "{}", text(&refused.stderr));
    let mut sftp = world.client("sftp", "alice");
    sftp.args(["-b", "-", &world.destination()]);
    let refused = output_of(sftp, format!("put /etc/hostname {}\n", marker.display()).into_bytes()).await;
    assert!(!refused.status.success());
    let refused = output(world.ssh(&["-v", "-W127.0.0.1:22"], &[] as &[&str])).await;
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("away"), "{}", text(&refused.stderr));
    assert!(!marker.exists());
    assert!(world.events(&Code::SessionStart).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_cuts_what_runs() {
    let world = World::new().await;
    // Ignores the hang-up, so that only the kill that follows ends it.
    let mut client = started(world.ssh(&[], &["trap '' HUP; echo $$; while :; do sleep 0.2; done"]));
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let pid: u32 = line.trim().parse().unwrap();
    world.set_locks(&[
        "kind: lock\nversion: v1\nmetadata:\n  name: l1\nspec:\n  target: {user: alice}\n  message: see me\n",
    ]);
    let mut said = String::new();
    client.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
    assert_eq!(client.wait().await.unwrap().code(), Some(255));
    assert!(said.contains("user alice is locked: see me"), "{said}");
    until("the end of the command", || (!alive(pid)).then_some(())).await;
    let cut = world.event(&Code::SessionCut).await;
    assert!(cut.message.contains("see me"), "{}", cut.message);
    assert!(world.event(&Code::SessionEnd).await.message.starts_with("cut off"));
    world.recording().await;
    until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_another_user_cuts_nothing() {
    let world = World::new().await;
    let client = started(world.ssh(&[], &["echo on; sleep 2; echo off"]));
    until("the session", || world.events(&Code::SessionStart).pop()).await;
    world.set_locks(&["kind: lock\nversion: v1\nmetadata:\n  name: l1\nspec:\n  target: {user: bob}\n"]);
    let outcome = client.wait_with_output().await.unwrap();
    assert_eq!(ok(&outcome), "on\noff\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_copies_can_be_forbidden() {
    let world = World::with("ssh_file_copy: false", |_| {}).await;
    let file = world.path("file");
    std::fs::write(&file, "data").unwrap();
    let target = format!("{}:{}", world.destination(), world.path("copy").display());
    for mode in ["-O", "-s"] {
        let mut scp = world.client("scp", "alice");
        scp.arg(mode).arg(&file).arg(&target);
        let refused = output(scp).await;
        assert!(!refused.status.success());
        let said = text(&refused.stderr);
        assert!(said.contains("your roles do not allow file copies"), "{mode}: {said}");
    }
    let mut rsync = tokio::process::Command::new("rsync");
    rsync.args(["-e", &world.remote_shell()]).arg(&file).arg(&target);
    let refused = output(rsync).await;
    assert!(
        text(&refused.stderr).contains("your roles do not allow file copies"),
        "{}",
        text(&refused.stderr)
    );
    // Nor by another way to say the same.
    let copy = world.path("copy").display().to_string();
    for hidden in
        ["exec scp -t", "env A=b s\\cp -t", "true; 'scp' -t", "sh -c 'exec scp -t", "LANG=C command scp -t"]
    {
        let quote = if hidden.contains("-c '") { "'" } else { "" };
        let refused = output(world.ssh(&[], &[&format!("{hidden} {copy}{quote}")])).await;
        assert!(!refused.status.success(), "{hidden}");
        let said = text(&refused.stderr);
        assert!(said.contains("your roles do not allow file copies"), "{hidden}: {said}");
    }
    assert!(!world.path("copy").exists());
    assert_eq!(world.events(&Code::SessionRefused).len(), 8);
    assert_eq!(ok(&output(world.ssh(&[], &["echo fine"])).await), "fine\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn port_forwarding_can_be_forbidden() {
    let world = World::with("port_forwarding: false", |_| {}).await;
    let refused =
        output(world.ssh(&["-v", &format!("-W127.0.0.1:{}", world.address.port())], &[] as &[&str])).await;
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains("your roles do not allow port forwarding"), "{said}");
    let event = world.event(&Code::SessionRefused).await;
    assert_eq!(event.fields["target"], format!("127.0.0.1:{}", world.address.port()));
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_forwarding_is_off_unless_a_role_allows_it() {
    let world = World::new().await;
    let agent = crate::node::limits::Agent::start(&world).await;
    let mut command = world.client("ssh", "alice");
    command.env("SSH_AUTH_SOCK", &agent.socket);
    command.args(["-A", &world.destination(), "echo [$SSH_AUTH_SOCK]"]);
    assert_eq!(ok(&output(command).await), "[]\n");
    assert!(world.event(&Code::SessionRefused).await.message.contains("forward_agent"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_logs_in_is_dropped() {
    let world = World::with("", |config| config.login_timeout = Duration::from_secs(1)).await;
    let mut silent = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let mut greeting = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut greeting)).await;
    assert!(read.is_ok(), "still there");
    assert!(greeting.starts_with(b"SSH-2.0-Sallyport_"), "{}", text(&greeting));
    // One that begins the key exchange and stops there, too.
    let mut half = tokio::net::TcpStream::connect(world.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut half, b"SSH-2.0-test\r\n").await.unwrap();
    let read = tokio::time::timeout(Duration::from_secs(10), half.read_to_end(&mut greeting)).await;
    assert!(read.is_ok(), "still there");
    until("the end of the connections", || (world.server.connections_open() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_has_expired_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let (path, refuse_locked) = (directory.path().join("shadow"), true);
    let shadow = ShadowFile { path: path.clone(), refuse_locked };
    let world = World::with("", |config| config.shadow = shadow).await;
    for (fields, why) in
        [("*:1:::::1:", "it has expired (1970-01-02)"), ("!$6$x:1::::::", "its password is locked")]
    {
        std::fs::write(&path, format!("{}:{fields}\n", world.own.name)).unwrap();
        let refused = output(world.ssh(&[], &["echo in"])).await;
        assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(255), ""));
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
        assert!(world.event(&Code::SessionRefused).await.message.contains(why));
        let forwarded = output(world.ssh(&["-W", &world.address.to_string()], &[] as &[&str])).await;
        assert!(!forwarded.status.success());
    }
    std::fs::write(&path, format!("{}:*:1::::::\n", world.own.name)).unwrap();
    assert_eq!(ok(&output(world.ssh(&[], &["echo in"])).await), "in\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_apart_is_not_connected_to() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let apart = Apart { named: Vec::new(), own_ports: vec![port] };
    let world = World::with("", |config| config.apart = apart).await;
    let refused = output(world.ssh(&["-W", &format!("localhost:{port}")], &[] as &[&str])).await;
    assert!(!refused.status.success());
    let told = world.event(&Code::SessionPortForward).await;
    assert!(told.message.contains("the cluster's own listeners are not forwarded to"), "{}", told.message);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}
