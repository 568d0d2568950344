//! Logins that are pinned to an address, through every door. The client of these tests is at 127.0.0.1.

use std::net::{IpAddr, Ipv4Addr};

use sallyport_access::Identity;
use sallyport_audit::Code;
use sallyport_ssh::client::{Connection, SessionRequest, connect, connect_native};
use sallyport_ssh::node::Relay;

use super::{Way, credentials, exec, identity, run, serve, settings};
use crate::world::{Card, World, role};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Connects as alice with a login that is pinned to an address, or to none.
async fn pinned(world: &World, way: Way, pinned_to: Option<IpAddr>) -> Connection {
    let own = settings(world, &world.own.name);
    world.issue("alice", &Card { pinned_to, ..world.card("alice") });
    let (near, far) = tokio::io::duplex(64 * 1024);
    match way {
        Way::Ssh => {
            let stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
            return connect(stream, &credentials(world, "alice"), own).await.unwrap();
        }
        Way::Native | Way::Relayed => {
            serve(world, far, Identity { pinned_to, ..identity(world, "alice") });
        }
    }
    if way == Way::Native {
        return connect_native(near, own);
    }
    let (client, here) = tokio::io::duplex(8 << 20);
    let relay = Relay::new(&world.host(), world.cluster.trust_now()).unwrap();
    let onward = own.clone();
    tokio::spawn(async move { relay.serve(here, near, onward).await });
    connect(client, &credentials(world, "alice"), own).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_login_has_sessions_from_its_address_alone() {
    for way in super::ALL {
        let world = World::new().await;
        let here = pinned(&world, way, Some(HERE)).await;
        assert_eq!(exec(&here, "echo in").await.stdout, "in\n", "{way:?}");
        here.disconnect().await;
        let before = world.events(&Code::SessionStart).len();
        let elsewhere = pinned(&world, way, Some(ELSEWHERE)).await;
        let mark = world.path("ran");
        for request in [
            SessionRequest::exec(format!("touch {}", mark.display()).as_str()),
            SessionRequest::new(sallyport_ssh::client::Program::Subsystem("sftp".to_owned())),
        ] {
            let ran = run(&elsewhere, request, b"").await;
            let told = "this login is pinned to 192.0.2.7 (pin_source_ip), and you come from 127.0.0.1: log in again: sallyport login";
            assert!(ran.stderr.contains(told), "{way:?}: {ran:?}");
        }
        assert!(!mark.exists() && world.events(&Code::SessionStart).len() == before, "{way:?}");
        let event = world.event(&Code::SessionRefused).await;
        assert!(event.message.contains("pinned to 192.0.2.7"), "{way:?}: {event:?}");
    }
}

/// A role that pins wants a login that is pinned, and cuts off none that is.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_pins_lets_in_no_login_without_an_address() {
    for way in super::ALL {
        let world = World::new().await;
        world.cluster.put_roles(&[role("dev", &[&world.own.name], "pin_source_ip: true")]);
        let open = pinned(&world, way, None).await;
        let ran = exec(&open, "echo in").await;
        assert!(ran.stdout.is_empty() && ran.stderr.contains("sallyport login"), "{way:?}: {ran:?}");
        let here = pinned(&world, way, Some(HERE)).await;
        assert_eq!(exec(&here, "echo in").await.stdout, "in\n", "{way:?}");
    }
}
