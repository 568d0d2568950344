//! What is asked for that the catalogue keeps.

use sallyport_access::HostId;
use sallyport_wire::v1;
use sallyport_wire::v1::proxy_resource_request::Frame;
use sallyport_wire::v1::transport_client::TransportClient;
use tonic::{Code, Status};

use super::rig::Rig;

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
