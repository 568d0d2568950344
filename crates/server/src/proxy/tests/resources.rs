//! What is asked for that the catalogue keeps.

use std::sync::Arc;

use sallyport_access::{HostId, Kind};
use sallyport_audit::event::MemorySink;
use sallyport_audit::{Code as EventCode, Event};
use sallyport_wire::v1;
use sallyport_wire::v1::proxy_resource_request::Frame;
use sallyport_wire::v1::proxy_resource_response::Frame as Answered;
use sallyport_wire::v1::transport_client::TransportClient;
use time::{Duration, OffsetDateTime};
use tonic::{Code, Status};

use super::rig::{PATIENCE, Rig, role};
use crate::proxy::watcher::{Session, Watcher, WithResource};

async fn asked(rig: &Rig, frame: Frame) -> Status {
    let mut client = TransportClient::new(rig.channel(&rig.user("alice")).await);
    let first = v1::ProxyResourceRequest { frame: Some(frame) };
    client.proxy_resource(tokio_stream::iter([first])).await.expect_err("nothing is opened")
}

fn target(kind: &str, agents: Vec<String>) -> Frame {
    Frame::Target(v1::ResourceTarget { kind: kind.to_owned(), name: "one".to_owned(), agents })
}

#[tokio::test]
async fn what_is_no_kind_or_names_too_much_is_refused_before_anything_is_opened() {
    let rig = Rig::new().await;
    let agent = || HostId::new().to_string();
    // Kinds of which there are none, and those that are asked for otherwise.
    for kind in ["telnet", "node", "db", "", &"k".repeat(100_000)] {
        let status = asked(&rig, target(kind, vec![agent()])).await;
        assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
        assert!(status.message().len() < 500, "{status:?}");
    }
    for (frame, said) in [
        (target("telnet", (0..65).map(|_| agent()).collect()), "65 agents are named, at most 64"),
        (target("telnet", vec!["web-1".to_owned()]), "an agent's id"),
        (Frame::Data(bytes::Bytes::from_static(b"hello")), "the first message must name the target"),
    ] {
        let status = asked(&rig, frame).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(said), "{status:?}");
    }
}

#[tokio::test]
async fn agents_that_serve_it_no_more_are_told_apart_from_such_that_are_away() {
    let rig = Rig::new().await;
    rig.put("role", "dev", &role("dev", "[alice]", "    app_labels: {env: test}\n"));
    let serving = rig.know("web-1");
    rig.put("app", "one", &wiki("web-1").replace("name: wiki", "name: one"));
    let before = HostId::new();
    for (agents, code, said) in [
        (vec![before], Code::FailedPrecondition, "its agents have changed"),
        (vec![serving, before], Code::Unavailable, "no agent of it is connected to this proxy"),
    ] {
        let agents = agents.iter().map(ToString::to_string).collect();
        let status = asked(&rig, target("app", agents)).await;
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(said), "{status:?}");
    }
}

#[tokio::test]
async fn the_agents_are_tried_in_the_order_in_which_the_client_names_them() {
    let rig = Rig::new().await;
    rig.put("role", "dev", &role("dev", "[alice]", "    app_labels: {env: test}\n"));
    let (one, _first) = rig.echo("web-1").await;
    let (two, _second) = rig.echo("web-2").await;
    let away = rig.know("web-3");
    rig.put("app", "one", &wiki("[web-1, web-2, web-3]").replace("name: wiki", "name: one"));
    for (named, led_to) in [(vec![one, two], one), (vec![two, one], two), (vec![away, two, one], two)] {
        let mut client = TransportClient::new(rig.channel(&rig.user("alice")).await);
        let agents = named.iter().map(ToString::to_string).collect();
        let first = v1::ProxyResourceRequest { frame: Some(target("app", agents)) };
        let mut answers = client.proxy_resource(tokio_stream::iter([first])).await.unwrap().into_inner();
        let Some(Answered::Connected(connected)) = answers.message().await.unwrap().unwrap().frame else {
            panic!("the first message says where it is led");
        };
        assert_eq!(connected.agent, led_to.to_string(), "{named:?}");
    }
}

/// A document of the application `wiki`.
fn wiki(via: &str) -> String {
    format!(
        "kind: app\nversion: v1\nmetadata: {{name: wiki, labels: {{env: test}}}}\nspec: {{uri: 'tcp://wiki.internal:80', via: {via}}}\n"
    )
}

#[tokio::test]
async fn a_session_ends_with_what_let_it_in_also_once_the_decision_is_out_of_date() {
    let rig = Rig::new().await;
    rig.put("role", "dev", &role("dev", "[alice]", "    app_labels: {env: test}\n"));
    let (agent, who) = (rig.know("web-1"), rig.user("alice"));
    rig.know("web-2");
    let certificate = sallyport_ca::keys::certificate(&who.ssh_certificate).unwrap();
    let identity = rig.trust().verify_user_ssh(&certificate, OffsetDateTime::now_utc()).unwrap();
    let identity = Arc::new(identity);
    let lock =
        "kind: lock\nversion: v1\nmetadata: {name: stop}\nspec: {target: {app: wiki}, message: not now}\n";
    // Beside the moment until which the decision counts, and what is taken away.
    let past = OffsetDateTime::now_utc() - Duration::minutes(1);
    let coming = OffsetDateTime::now_utc() + Duration::hours(1);
    for valid_until in [coming, past] {
        for why in ["was removed", "does not serve", "not now"] {
            rig.put("app", "wiki", &wiki("web-1"));
            let view = Arc::clone(&rig.service.view);
            let listed = view.listed(Kind::App, "wiki").unwrap();
            let cut = EventCode::AppSessionCut;
            let with = WithResource { identity: Arc::clone(&identity), listed, agent, valid_until, cut };
            let sink = Arc::new(MemorySink::default());
            let tells = |code| Event::new(code, OffsetDateTime::now_utc());
            let session = Session::with_resource(view, with, sink.clone(), tells);
            let mut watcher = Watcher::new(session, None, |_| {});
            // A change that takes nothing away is not the reason.
            rig.put("app", "wiki", &wiki("[web-2, web-1]"));
            tokio::task::yield_now().await;
            match why {
                "was removed" => rig.delete("app", "wiki"),
                "does not serve" => rig.put("app", "wiki", &wiki("web-2")),
                _ => rig.put("lock", "stop", lock),
            }
            let reason = tokio::time::timeout(PATIENCE, watcher.cut()).await;
            let reason = reason.unwrap_or_else(|_| panic!("the session goes on: {why}, {valid_until}"));
            assert!(reason.contains(why), "{reason}");
            assert_eq!(sink.events().len(), 1, "{why}");
            rig.delete("lock", "stop");
        }
    }
}
