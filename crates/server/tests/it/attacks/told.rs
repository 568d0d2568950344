//! A host that speaks for others: in events, in the list of sessions, and with recordings.

use bytes::Bytes;
use sallyport_access::{HostId, SessionId};
use sallyport_audit::{Code, Event};
use sallyport_wire::v1;
use sallyport_wire::v1::sessions_client::SessionsClient;
use serde_json::Value;
use time::OffsetDateTime;
use tonic::Status;

use crate::support::member::{Joining, Member};
use crate::support::{Cluster, admin_channel, events, until};

async fn emit(host: &Member, events: &[&Event]) -> Result<(), Status> {
    let events_json = events.iter().map(|event| event.to_json()).collect();
    host.fleet().emit_events(v1::EmitEventsRequest { events_json }).await.map(drop)
}

async fn search(cluster: &Cluster, request: v1::SearchEventsRequest) -> Vec<Value> {
    let mut found = cluster.admin().await.search_events(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(record) = found.message().await.unwrap() {
        events.push(serde_json::from_str(&record.event_json).unwrap());
    }
    events
}

fn on(host: &Member) -> SessionId {
    SessionId::on(&host.id.parse::<HostId>().unwrap())
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_reports_its_own_sessions_and_no_others() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let thief = Joining::new("node", "thief").join(&cluster).await.unwrap();
    let gate = Joining::new("proxy", "gate").join(&cluster).await.unwrap();
    // By its id, and where an earlier release has made the id, by who spoke of it first.
    for session in [on(&web), SessionId::new()] {
        let start = Event::new(Code::SessionStart, now()).user("alice").login("deploy").session(session);
        emit(&web, &[&start]).await.unwrap();
        let forged = |host: &str| {
            let event = Event::new(Code::SessionEnd, now() - time::Duration::days(400));
            event.user("alice").login("root").source("192.0.2.66").node(host).session(session)
        };
        emit(&thief, &[&forged("web-1")]).await.unwrap();
        emit(&gate, &[&forged("web-1")]).await.unwrap();
        let of_session = v1::SearchEventsRequest { session_id: session.to_string(), ..Default::default() };
        let found = search(&cluster, of_session).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0]["origin"].as_str(), found[0]["node"].as_str()),
            (Some("node:web-1"), Some("web-1"))
        );
        // What was claimed is on record as a claim, and is not hidden in the past.
        let since = sallyport_wire::convert::time_to_proto(now() - time::Duration::hours(1));
        let recent = v1::SearchEventsRequest {
            since: Some(since),
            code: "session.end".to_owned(),
            ..Default::default()
        };
        let found = search(&cluster, recent).await;
        for (host, name) in [("node:thief", "thief"), ("proxy:gate", "gate")] {
            let event = found.iter().rfind(|event| event["origin"] == host).unwrap();
            assert_eq!((event["user"].as_str(), event["node"].as_str()), (Some(host), Some(name)), "{event}");
            assert!(event["login"].is_null() && event["source"].is_null(), "{event}");
            assert_eq!(event["fields"]["claimed_session"], session.to_string());
            assert_eq!(event["fields"]["claimed_user"], "alice");
            assert_eq!(event["fields"]["claimed_node"], "web-1");
            assert!(event["received"].is_string() && event["fields"]["reported_time"].is_string(), "{event}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_not_lost_to_another_hosts_of_the_same_id() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let thief = Joining::new("node", "thief").join(&cluster).await.unwrap();
    let event = Event::new(Code::SessionPortForward, now()).user("alice");
    emit(&thief, &[&event]).await.unwrap();
    for _ in 0..2 {
        emit(&web, &[&event]).await.unwrap();
    }
    let found = events(&mut cluster.admin().await, event.code.as_str()).await;
    let origins: Vec<_> = found.iter().map(|event| event["origin"].as_str().unwrap()).collect();
    assert_eq!(origins, ["node:thief", "node:web-1"], "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_names_only_servers_whose_sessions_it_records() {
    let cluster = Cluster::without_node().await;
    Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let server = Joining::new("openssh", "db-1").at("192.0.2.9:22").join(&cluster).await.unwrap();
    let gate = Joining::new("proxy", "gate").join(&cluster).await.unwrap();
    let told = |node: &str| Event::new(Code::SessionStart, now()).user("alice").node(node).session(on(&gate));
    let refused = Event::new(Code::SessionRefused, now()).user("alice").node("web-1");
    emit(&gate, &[&told("web-1"), &told("db-1"), &refused]).await.unwrap();
    let found = events(&mut cluster.admin().await, "session.start").await;
    let nodes: Vec<_> = found.iter().map(|event| event["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["gate", "db-1"]);
    assert_eq!(found[0]["fields"]["claimed_node"], "web-1");
    let refused = events(&mut cluster.admin().await, "session.refused").await;
    assert_eq!(refused[0]["node"], "web-1", "what it refused is its own to say");
    // So are the streams that the proxy opened, which no node may report.
    let opened = Event::new(Code::StreamOpened, now()).user("alice").node("web-1");
    emit(&gate, &[&opened]).await.unwrap();
    let as_node = Joining::new("node", "web-9").join(&cluster).await.unwrap();
    let status = emit(&as_node, &[&opened]).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status:?}");
    let found = events(&mut cluster.admin().await, "stream.opened").await;
    assert_eq!((found.len(), found[0]["origin"].as_str()), (1, Some("proxy:gate")));

    let mut list = SessionsClient::new(admin_channel(&cluster.data_dir()).await);
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let messages = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let put = ["web-1", "db-1"].map(|node| v1::LiveSession {
        session_id: on(&gate).to_string(),
        user: "alice\u{1b}[2J".to_owned(),
        node: node.to_owned(),
        node_id: if node == "db-1" { server.id.clone() } else { HostId::new().to_string() },
        ..Default::default()
    });
    let said =
        v1::ReportSessionsRequest { put: put.to_vec(), reset: true, complete: true, ..Default::default() };
    sender.send(said).await.unwrap();
    let mut orders = gate.fleet().report_sessions(messages).await.unwrap().into_inner();
    orders.message().await.unwrap();
    let listed = until("the session", || {
        let mut list = list.clone();
        async move {
            let listed = list.list_sessions(v1::ListSessionsRequest::default()).await.unwrap().into_inner();
            (!listed.sessions.is_empty()).then_some(listed.sessions)
        }
    })
    .await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((listed[0].node.as_str(), listed[0].user.as_str()), ("db-1", "alice [2J"));
    // Another host's session ends the call, and changes nothing of the list.
    let web = Joining::new("node", "web-2").join(&cluster).await.unwrap();
    let stolen = v1::LiveSession { session_id: listed[0].session_id.clone(), ..Default::default() };
    let said = v1::ReportSessionsRequest { put: vec![stolen], ..Default::default() };
    let mut orders = web.fleet().report_sessions(tokio_stream::once(said)).await.unwrap().into_inner();
    let refused = loop {
        match orders.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the call ended without a word"),
            Err(status) => break status,
        }
    };
    assert!(refused.message().contains("belongs to another host"), "{refused:?}");
    let listed = list.list_sessions(v1::ListSessionsRequest::default()).await.unwrap().into_inner().sessions;
    assert_eq!((listed.len(), listed[0].served_by.as_str()), (1, "proxy:gate"));
}

/// An agent that joined by the API alone, and an application and a database that an administrator gave it.
async fn agent(cluster: &Cluster, name: &str) -> Member {
    let agent = Joining::new("node", name).join(cluster).await.unwrap();
    for (kind, spec) in [("app", "uri: 'tcp://10.0.0.7:80'"), ("db", "address: '10.0.0.8:5432'")] {
        let yaml = format!(
            "kind: {kind}\nversion: v1\nmetadata: {{name: {name}-{kind}}}\nspec: {{{spec}, via: {name}}}\n"
        );
        let request = v1::CreateResourceRequest { yaml, replace: false };
        cluster.admin().await.create_resource(request).await.unwrap();
    }
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_makes_up_no_session_with_what_agents_serve() {
    let cluster = Cluster::without_node().await;
    let tools = agent(&cluster, "tools").await;
    let gate = Joining::new("proxy", "gate").join(&cluster).await.unwrap();
    let of_agents = [
        (Code::AppSessionStart, "tools-app"),
        (Code::AppSessionEnd, "tools-app"),
        (Code::DatabaseSessionStart, "tools-db"),
        (Code::DatabaseSessionEnd, "tools-db"),
        (Code::DatabaseQuery, "tools-db"),
    ];
    for (code, resource) in of_agents {
        for session in [Some(on(&gate)), None] {
            let made_up = Event::new(code.clone(), now()).user("alice").node(resource);
            let made_up = session.into_iter().fold(made_up, Event::session);
            let refused = emit(&gate, &[&made_up]).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{code:?}: {refused:?}");
            let said = format!("proxy:gate may not report {}", code.as_str());
            assert_eq!(refused.message(), said, "what a host takes for final");
        }
        let own = Event::new(code.clone(), now()).user("alice").node(resource).session(on(&tools));
        emit(&tools, &[&own]).await.unwrap();
        let found = events(&mut cluster.admin().await, code.as_str()).await;
        assert_eq!((found.len(), found[0]["origin"].as_str()), (1, Some("node:tools")), "{code:?}");
    }
    // What a proxy sees itself it tells.
    for code in [Code::AppSessionRefused, Code::AppSessionCut, Code::AppSessionLost, Code::DatabaseSessionCut]
    {
        let seen = Event::new(code.clone(), now()).user("alice").node("tools-app");
        emit(&gate, &[&seen]).await.unwrap();
        let found = events(&mut cluster.admin().await, code.as_str()).await;
        assert_eq!((found.len(), found[0]["node"].as_str()), (1, Some("tools-app")), "{code:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_on_record_with_its_resource_when_that_is_taken_away() {
    let cluster = Cluster::without_node().await;
    let tools = agent(&cluster, "tools").await;
    let kinds = [
        ("app", Code::AppSessionStart, Code::AppSessionCut, Code::AppSessionEnd),
        ("db", Code::DatabaseSessionStart, Code::DatabaseSessionCut, Code::DatabaseSessionEnd),
    ];
    for (kind, start, cut, end) in kinds {
        let (resource, session) = (format!("tools-{kind}"), on(&tools));
        let told = |code: &Code, session| {
            Event::new(code.clone(), now()).user("alice").node(resource.as_str()).session(session)
        };
        emit(&tools, &[&told(&start, session)]).await.unwrap();
        let gone = v1::DeleteResourceRequest { kind: kind.to_owned(), name: resource.clone() };
        cluster.admin().await.delete_resource(gone).await.unwrap();
        // Of sessions that did not begin while the agent served it, the agent says nothing in the resource's name.
        let late = on(&tools);
        emit(&tools, &[&told(&cut, session), &told(&end, session), &told(&start, late), &told(&cut, late)])
            .await
            .unwrap();
        for (code, of_session, node) in [
            (&cut, session, resource.as_str()),
            (&end, session, &resource),
            (&start, late, "tools"),
            (&cut, late, "tools"),
        ] {
            let found = events(&mut cluster.admin().await, code.as_str()).await;
            let one = found.iter().find(|event| event["session_id"] == of_session.to_string()).unwrap();
            assert_eq!(one["node"], node, "{one}");
        }
        // It is over, and with it what was known of it.
        emit(&tools, &[&told(&cut, session)]).await.unwrap();
        let found = events(&mut cluster.admin().await, cut.as_str()).await;
        assert_eq!(found.last().unwrap()["node"], "tools", "{found:?}");
    }
}

/// A host of a later version has events that this authority does not know. To refuse them for ever would stop what is behind them.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_later_version_is_kept_as_the_host_s_claim() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let other = Joining::new("node", "web-2").join(&cluster).await.unwrap();
    let later = |code: &str| Event { kind: "user.login".to_owned(), ..Event::new(Code::parse(code), now()) };
    let event = later("SP9998E")
        .user("alice")
        .login("root")
        .node("web-2")
        .session(on(&other))
        .field("module", "AWS-LC-FIPS 9");
    let behind = Event::new(Code::SessionPortForward, now()).user("alice");
    emit(&web, &[&event, &behind]).await.unwrap();
    assert_eq!(events(&mut cluster.admin().await, behind.code.as_str()).await.len(), 1);
    let found = events(&mut cluster.admin().await, "SP9998E").await;
    assert_eq!(found.len(), 1, "{found:?}");
    let kept = &found[0];
    // Nothing of it is taken for more than what this host says.
    assert_eq!(
        (kept["kind"].as_str(), kept["origin"].as_str()),
        (Some("unknown"), Some("node:web-1")),
        "{kept}"
    );
    assert_eq!((kept["user"].as_str(), kept["node"].as_str()), (Some("node:web-1"), Some("web-1")), "{kept}");
    assert!(kept["session_id"].is_null() && kept["login"].is_null(), "{kept}");
    assert_eq!(kept["fields"]["claimed_kind"], "user.login");
    assert_eq!(kept["fields"]["claimed_user"], "alice");
    assert_eq!(kept["fields"]["module"], "AWS-LC-FIPS 9");
    assert!(kept["fields"]["unknown_to"].as_str().unwrap().starts_with("auth "), "{kept}");
    let logins = v1::SearchEventsRequest { code: "user.login".to_owned(), ..Default::default() };
    assert!(search(&cluster, logins).await.is_empty());
    // What only looks like a code is none.
    for odd in ["", "SP1000I ", "sp9998I", "SP9998X", "SP99980I"] {
        let status = emit(&web, &[&later(odd)]).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{odd:?}: {status:?}");
    }
    // And what is the authority's own to say stays so: also by another letter, and by numbers of its own that are not taken yet.
    let login = Code::UserLogin;
    for its_own in [
        login.as_str(),
        "SP1000E",
        "SP1099I",
        "SP1199W",
        "SP1299E",
        "SP3099I",
        "SP3299E",
        "SP2000E",
        "SP3104I",
    ] {
        let status = emit(&web, &[&later(its_own)]).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::PermissionDenied, "{its_own}: {status:?}");
        let said = format!("node:web-1 may not report {its_own}");
        assert_eq!(status.message(), said, "what a host takes for final");
        let asked = v1::SearchEventsRequest { code: its_own.to_owned(), ..Default::default() };
        let found = search(&cluster, asked).await;
        assert!(found.iter().all(|event| event["origin"] != "node:web-1"), "{its_own}: {found:?}");
    }
    // Where hosts speak, those of a later version may say more.
    for more in ["SP2099W", "SP2299I", "SP3199E", "SP3399I", "SP4000I"] {
        emit(&web, &[&later(more)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_belongs_to_the_host_of_its_session() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let thief = Joining::new("node", "thief").join(&cluster).await.unwrap();
    // The rightful host has not uploaded anything yet: it may have been away from the authority all the time.
    let named = on(&web);
    let spoken_of = SessionId::new();
    let start = Event::new(Code::SessionStart, now()).user("alice").session(spoken_of);
    emit(&web, &[&start]).await.unwrap();
    for session in [named, spoken_of] {
        let part = || v1::UploadRecordingRequest {
            session_id: session.to_string(),
            offset: 0,
            data: Bytes::from_static(b"not a recording"),
            complete: false,
        };
        let ask = v1::RecordingOffsetRequest { session_id: session.to_string() };
        for status in [
            thief.fleet().upload_recording(tokio_stream::once(part())).await.unwrap_err(),
            thief.fleet().recording_offset(ask.clone()).await.unwrap_err(),
        ] {
            assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status:?}");
            assert!(status.message().contains("belongs to another host"), "{status:?}");
        }
        assert_eq!(web.fleet().recording_offset(ask.clone()).await.unwrap().into_inner().offset, 0);
        web.fleet().upload_recording(tokio_stream::once(part())).await.unwrap();
        assert_eq!(web.fleet().recording_offset(ask).await.unwrap().into_inner().offset, 15);
    }
    let refused = events(&mut cluster.admin().await, "SP3001W").await;
    assert!(refused.iter().filter(|event| event["user"] == "node:thief").count() >= 4, "{refused:?}");
}
