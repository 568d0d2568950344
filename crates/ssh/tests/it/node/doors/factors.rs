//! The second factor that roles demand before each session, through every door.

use sallyport_access::{Login, SessionTarget};
use sallyport_audit::Code;
use sallyport_session::factor::Shown;
use sallyport_ssh::client::{Endpoint, Program, SessionRequest, Terminal, WindowSize};

use super::{ALL, Way, connection, exec, run};
use crate::world::{World, role};

/// Whatever is asked for on a connection without a proof is refused, in words that say what to do, and nothing runs; the same with one
/// is done, and the record says by which factor.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_before_the_factor_is_proven_that_roles_demand() {
    for way in ALL {
        for demand in ["yes", "hardware"] {
            let world = World::with(&format!("require_session_mfa: {demand}"), |_| {}).await;
            let refused = connection(&world, way).await;
            let mut shell = SessionRequest::new(Program::Shell);
            shell.terminal =
                Some(Terminal { term: "vt100".to_owned(), size: WindowSize::default(), modes: Vec::new() });
            let mark = world.path("ran");
            for request in [
                SessionRequest::exec(format!("touch {}", mark.display()).as_str()),
                SessionRequest::new(Program::Subsystem("sftp".to_owned())),
                shell,
            ] {
                let ran = run(&refused, request, b"").await;
                let told = format!("require_session_mfa: {demand}");
                assert!(
                    ran.stderr.contains(&told) && ran.stderr.contains("mfa pre-auth"),
                    "{way:?}: {ran:?}"
                );
            }
            let origin = ([127, 0, 0, 1], 5).into();
            let closed = Endpoint::Port { host: "127.0.0.1".to_owned(), port: 9 };
            let forward = refused.open_to(&closed, origin).await.unwrap_err().to_string();
            assert!(!forward.contains("cannot connect"), "{way:?}: it was tried: {forward}");
            assert!(!mark.exists() && world.events(&Code::SessionStart).is_empty(), "{way:?}");
            let event = world.event(&Code::SessionRefused).await;
            assert!(event.message.contains("second factor"), "{way:?}: {event:?}");
            refused.disconnect().await;

            *world.cluster.factors.proven.lock() = Some("phone");
            let let_in = connection(&world, way).await;
            assert_eq!(exec(&let_in, "echo in").await.stdout, "in\n", "{way:?}");
            assert_eq!(exec(&let_in, "echo again").await.stdout, "again\n", "{way:?}");
            let start = world.event(&Code::SessionStart).await;
            assert_eq!(start.fields["session_factor"], "phone", "{way:?}");

            let asked = world.cluster.factors.asked.lock().clone();
            assert_eq!(asked.len(), 2, "{way:?}: once for a connection");
            let login = Login::new(world.own.name.as_str()).unwrap();
            for wanted in asked {
                let node = sallyport_ssh::node::Directory::node(&*world.cluster).id;
                assert_eq!(wanted.demand.target, SessionTarget::node(node, &login), "{way:?}");
                assert_eq!(wanted.demand.rule.factor.as_str(), demand, "{way:?}");
                assert_eq!(wanted.client.map(|client| client.ip().is_loopback()), Some(true), "{way:?}");
                match (way, wanted.certificate) {
                    (Way::Ssh, Shown::Ssh(line)) => assert!(line.contains("-cert-v01@openssh.com"), "{line}"),
                    (Way::Native | Way::Relayed, Shown::Tls(der)) => assert!(!der.is_empty()),
                    (_, other) => panic!("{way:?}: {other:?}"),
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_user_is_asked_where_no_role_demands_a_factor() {
    for way in ALL {
        let world = World::with("require_session_mfa: no", |_| {}).await;
        assert_eq!(exec(&connection(&world, way).await, "echo in").await.stdout, "in\n", "{way:?}");
        assert!(world.cluster.factors.asked.lock().is_empty(), "{way:?}");
        assert!(!world.event(&Code::SessionStart).await.fields.contains_key("session_factor"), "{way:?}");
    }
}

/// A connection that was let in with less begins no session any more once roles demand more.
#[tokio::test(flavor = "multi_thread")]
async fn what_roles_demand_meanwhile_is_demanded_of_the_next_session() {
    for way in [Way::Ssh, Way::Native] {
        let world = World::with("", |_| {}).await;
        let connection = connection(&world, way).await;
        assert_eq!(exec(&connection, "echo in").await.stdout, "in\n", "{way:?}");
        let demanding = |demand| role("dev", &[&world.own.name], &format!("require_session_mfa: {demand}"));
        world.cluster.put_roles(&[demanding("hardware")]);
        let ran = exec(&connection, "echo in").await;
        assert!(ran.stdout.is_empty() && ran.stderr.contains("hardware"), "{way:?}: {ran:?}");
        world.cluster.put_roles(&[demanding("no")]);
        assert_eq!(exec(&connection, "echo in").await.stdout, "in\n", "{way:?}");
    }
}
