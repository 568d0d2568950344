//! What leaves an event: each method is called once, by who may.

use super::*;

/// Calls what nodes call; gives the session whose recording it uploaded.
pub(super) async fn as_a_node(cluster: &Cluster, node: &Node) -> SessionId {
    let mut fleet = FleetClient::new(node.channel.clone());
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "web-1").unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let renew = v1::RenewHostRequest {
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        public_names: Vec::new(),
    };
    fleet.renew_host(renew).await.unwrap();
    let kinds = ["role", "lock", "node", "session_policy", "db", "trust"].map(str::to_owned).to_vec();
    let mut watch = fleet.watch(v1::WatchRequest { kinds }).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    let yaml = "kind: db\nversion: v1\nmetadata: {name: reports}\nspec: {address: 'db:5432'}\n".to_owned();
    let databases = vec![v1::DatabaseReport { yaml }];
    let beat = v1::HeartbeatRequest { databases, ..v1::HeartbeatRequest::default() };
    assert!(fleet.heartbeat(beat).await.unwrap().into_inner().problems.is_empty());
    let mut rotation = RotationClient::new(node.channel.clone());
    rotation.confirm(v1::ConfirmRequest::default()).await.unwrap();
    let event =
        sallyport_audit::Event::new(sallyport_audit::Code::SessionPortForward, OffsetDateTime::now_utc());
    let events_json = vec![event.to_json()];
    fleet.emit_events(v1::EmitEventsRequest { events_json: events_json.clone() }).await.unwrap();
    fleet.emit_events(v1::EmitEventsRequest { events_json }).await.unwrap();
    let twice = all_events(cluster).await.iter().filter(|have| have["id"] == event.id.to_string()).count();
    assert_eq!(twice, 1, "an event that is sent twice is written once");

    let client = v1::SeenClient {
        kind: "ssh".to_owned(),
        software: "OpenSSH_9.2p1".to_owned(),
        key_exchange: vec!["curve25519-sha256".to_owned()],
        count: 2,
        users: vec!["alice".to_owned()],
        // Not for a host to say: the authority knows who reports.
        seen_by: vec!["proxy:somewhere-else".to_owned()],
        ..Default::default()
    };
    let clients = vec![client.clone(), client.clone()];
    fleet.report_clients(v1::ReportClientsRequest { clients }).await.unwrap();
    let unknown = v1::SeenClient { kind: "telnet".to_owned(), ..client.clone() };
    for clients in [vec![unknown], vec![client; 257]] {
        let status = fleet.report_clients(v1::ReportClientsRequest { clients }).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }

    // What only the authority may say is not taken from a node.
    let forged = sallyport_audit::Event::new(sallyport_audit::Code::UserLogin, OffsetDateTime::now_utc());
    let status = fleet.emit_events(v1::EmitEventsRequest { events_json: vec![forged.to_json()] }).await;
    assert_eq!(status.unwrap_err().code(), Code::PermissionDenied);

    report_a_session(fleet.clone()).await;

    let session = SessionId::new();
    let spool = tempfile::tempdir().unwrap();
    let key = cluster.running.authority().unwrap().trust().recording_key().unwrap();
    let recorders = Recorders::open(spool.path(), key).unwrap();
    let metadata = SessionMetadata {
        session_id: session,
        cluster: support::CLUSTER.to_owned(),
        user: "alice".to_owned(),
        login: "alice".to_owned(),
        node: "web-1".to_owned(),
        node_id: String::new(),
        source: String::new(),
        started: OffsetDateTime::now_utc(),
        kind: "exec".to_owned(),
        command: Some("true".to_owned()),
        term: None,
        size: None,
        application: None,
    };
    let recorder = recorders.start(&metadata, sallyport_access::RecordPolicy::Strict).unwrap();
    recorder.output(Bytes::from_static(b"hello\n")).await.unwrap();
    recorder.finish(Exit::Status(0)).await.unwrap();
    let file = spool.path().join(format!("{session}.rec"));
    until("the recording", || async { (!recorders.is_live(&session)).then_some(()) }).await;
    let data = Bytes::from(std::fs::read(file).unwrap());
    let session_id = session.to_string();
    let (head, tail) = (data.slice(..20), data.slice(20..));
    let part = |offset, data, complete| v1::UploadRecordingRequest {
        session_id: session_id.clone(),
        offset,
        data,
        complete,
    };
    fleet.upload_recording(tokio_stream::once(part(0, head, false))).await.unwrap();
    let ask = v1::RecordingOffsetRequest { session_id: session_id.clone() };
    let held = fleet.recording_offset(ask.clone()).await.unwrap().into_inner();
    assert_eq!((held.offset, held.complete), (20, false), "an interrupted upload goes on where it stopped");
    let gap = fleet.upload_recording(tokio_stream::once(part(30, tail.clone(), false))).await;
    assert!(gap.is_err(), "a gap is refused");
    fleet.upload_recording(tokio_stream::once(part(20, tail, true))).await.unwrap();
    assert!(fleet.recording_offset(ask).await.unwrap().into_inner().complete);
    session
}

/// A session of alice's that a proxy opens to the agent of a database, and the agent begins.
pub(super) async fn begin_a_database_session(cluster: &Cluster, admin: &mut AdminClient<Channel>) {
    let agent = Joining::new("node", "db-1").join(cluster).await.unwrap();
    let gate = Joining::new("proxy", "gate").join(cluster).await.unwrap();
    agent.beat(v1::HeartbeatRequest::default()).await.unwrap();
    let dana = cluster.user("dana", &[]).await;
    for yaml in [
        "kind: db\nversion: v1\nmetadata: {name: ledger, labels: {env: dev}}\nspec: {address: 'db:5432', via: db-1}\n",
        "kind: role\nversion: v1\nmetadata: {name: dana-role}\nspec: {allow: {db_labels: {env: dev}, db_names: [app], \
         db_users: [reader]}}\n",
    ] {
        let request = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: true };
        admin.create_resource(request).await.unwrap();
    }
    let certificate = CertificateDer::from_pem_slice(dana.tls_chain.as_bytes()).unwrap().to_vec();
    let opening = Opening {
        agent: agent.id.parse().unwrap(),
        database: "ledger",
        db_user: "reader",
        db_name: "app",
        user_certificate: &certificate,
    };
    let request = v1::PermitDatabaseSessionRequest {
        database: "ledger".to_owned(),
        db_user: "reader".to_owned(),
        db_name: "app".to_owned(),
        user_certificate: certificate.clone().into(),
        opened: Some(member::word(&gate, &opening)),
    };
    DatabasesClient::new(agent.channel.clone()).permit_database_session(request).await.unwrap();
    let remove = v1::DeleteResourceRequest { kind: "db".to_owned(), name: "ledger".to_owned() };
    admin.delete_resource(remove).await.unwrap();
}

/// Tells of one session, as long as the test lasts, and ends it when that is asked for.
pub(super) async fn report_a_session(mut fleet: FleetClient<Channel>) {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let told = v1::LiveSession {
        session_id: SessionId::new().to_string(),
        user: "alice".to_owned(),
        login: "alice".to_owned(),
        // Not for a node to say.
        node: "db-1".to_owned(),
        served_by: "node:db-1".to_owned(),
        terminal: true,
        ..Default::default()
    };
    let all = v1::ReportSessionsRequest {
        put: vec![told.clone()],
        reset: true,
        complete: true,
        ..Default::default()
    };
    sender.send(all).await.unwrap();
    let messages = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut orders = fleet.report_sessions(messages).await.unwrap().into_inner();
    assert!(orders.message().await.unwrap().unwrap().report_within.is_some());
    tokio::spawn(async move {
        while let Ok(Some(order)) = orders.message().await {
            let Some(end) = order.end else { continue };
            assert_eq!(
                (end.session_id, end.reason.as_str()),
                (told.session_id.clone(), "ended by @local: lunch")
            );
            let outcomes = vec![v1::OrderOutcome { order: end.order, done: true }];
            let ended = vec![told.session_id.clone()];
            let said = v1::ReportSessionsRequest { ended, outcomes, ..Default::default() };
            sender.send(said).await.unwrap();
        }
    });
}

pub(super) async fn as_an_administrator(
    cluster: &Cluster,
    admin: &mut AdminClient<Channel>,
    session: SessionId,
) {
    let mut client = ClusterClient::new(admin_channel(&cluster.data_dir()).await);
    client.get_status(v1::GetStatusRequest {}).await.unwrap();
    client.list_nodes(v1::ListNodesRequest::default()).await.unwrap();
    let explain = v1::ExplainAccessRequest {
        user: "alice".to_owned(),
        login: "alice".to_owned(),
        node: "web-1".to_owned(),
    };
    let why = client.explain_access(explain).await.unwrap().into_inner();
    assert!(why.allowed && !why.summary.is_empty(), "{why:?}");
    let listed = client.list_recordings(v1::ListRecordingsRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.recordings.len(), 1);
    assert_eq!(listed.recordings[0].state, "complete");
    let play = v1::PlayRecordingRequest { session_id: session.to_string(), from: None };
    let mut frames = client.play_recording(play).await.unwrap().into_inner();
    assert!(frames.message().await.unwrap().is_some());

    let mut sessions = SessionsClient::new(admin_channel(&cluster.data_dir()).await);
    let live =
        sessions.list_sessions(v1::ListSessionsRequest::default()).await.unwrap().into_inner().sessions;
    assert_eq!(live.len(), 1, "{live:?}");
    assert_eq!((live[0].node.as_str(), live[0].served_by.as_str()), ("web-1", "node:web-1"));
    let end = v1::EndSessionRequest { session_id: live[0].session_id.clone(), reason: "lunch".to_owned() };
    let ended = sessions.end_session(end.clone()).await.unwrap().into_inner().session.unwrap();
    assert_eq!(ended.user, "alice");
    assert_eq!(sessions.end_session(end).await.unwrap_err().code(), Code::NotFound);

    // What is held stays; what is released can go, and is gone.
    let recording = || session.to_string();
    let hold = |hold| v1::HoldRecordingRequest { session_id: recording(), hold };
    let remove = || v1::RemoveRecordingRequest { session_id: recording() };
    sessions.hold_recording(hold(true)).await.unwrap();
    let held = sessions.remove_recording(remove()).await.unwrap_err();
    assert!(held.message().contains("is held; release it first"), "{held:?}");
    sessions.hold_recording(hold(false)).await.unwrap();
    assert!(sessions.remove_recording(remove()).await.unwrap().into_inner().bytes > 0);
    assert_eq!(sessions.remove_recording(remove()).await.unwrap_err().code(), Code::NotFound);
    let listed = client.list_recordings(v1::ListRecordingsRequest::default()).await.unwrap().into_inner();
    assert!(listed.recordings.is_empty());

    let mut databases = DatabasesClient::new(admin_channel(&cluster.data_dir()).await);
    let listed = databases.list_databases(v1::ListDatabasesRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.databases.len(), 1, "{listed:?}");
    let explain = v1::ExplainDatabaseAccessRequest {
        user: "alice".to_owned(),
        database: "reports".to_owned(),
        db_user: "alice".to_owned(),
        db_name: "reports".to_owned(),
    };
    let why = databases.explain_database_access(explain).await.unwrap().into_inner();
    assert!(!why.allowed && why.summary.contains("no role allows it"), "{why:?}");

    // Of a kind that the catalogue does not have there is nothing, and that it was asked is on record.
    let mut catalogue = CatalogueClient::new(admin_channel(&cluster.data_dir()).await);
    let kind = || "mainframe".to_owned();
    let list = catalogue.list(v1::ListCatalogueRequest { kind: kind(), ..Default::default() }).await;
    let explain = v1::ExplainCatalogueAccessRequest { kind: kind(), ..Default::default() };
    let explained = catalogue.explain_access(explain).await;
    for status in [list.unwrap_err(), explained.unwrap_err()] {
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }

    let mut suites = SuitesClient::new(admin_channel(&cluster.data_dir()).await);
    let known = suites.list_suites(v1::ListSuitesRequest {}).await.unwrap().into_inner();
    assert_eq!((known.current.as_str(), known.suites.len()), ("balanced-v1", 5));
    let seen = suites.list_clients(v1::ListClientsRequest { kinds: vec!["ssh".to_owned()] }).await.unwrap();
    let seen = seen.into_inner().clients;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((seen[0].count, seen[0].users.as_slice()), (4, &["alice".to_owned()][..]));
    assert_eq!(seen[0].seen_by, ["node:web-1"]);
    let to = |name: &str| v1::PreflightSuiteRequest { to: name.to_owned() };
    let preflight = suites.preflight_suite(to("pq-v1")).await.unwrap().into_inner();
    assert_eq!((preflight.from.as_str(), preflight.breaks.len()), ("balanced-v1", 1), "{preflight:?}");
    assert!(preflight.breaks[0].reason.starts_with("offers no mlkem768x25519-sha256"), "{preflight:?}");
    let change = |purpose: &str| {
        let change = preflight.changes.iter().find(|change| change.purpose == purpose).unwrap();
        (change.from.as_str(), change.to.as_str(), change.takes_effect.as_str(), change.command.as_str())
    };
    assert_eq!(change("key-exchange"), ("preferred", "required", "now", ""));
    assert_eq!(change("host-tls"), ("ecdsa-p256", "ml-dsa-65", "now", ""));
    let rotate = "sallyport admin ca rotate --type host";
    assert_eq!(change("host-ca-tls"), ("ecdsa-p256", "ml-dsa-65", "rotation", rotate));
    assert_eq!(suites.preflight_suite(to("best")).await.unwrap_err().code(), Code::InvalidArgument);
    let set = |from: &str, to: &str, accept_breaks| v1::SetSuiteRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        accept_breaks,
    };
    let refused = suites.set_suite(set("balanced-v1", "pq-v1", false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("OpenSSH_9.2p1 offers no mlkem768x25519-sha256"), "{refused:?}");
    let stale = suites.set_suite(set("legacy", "fips-v1", false)).await.unwrap_err();
    assert!(stale.message().contains("the suite is balanced-v1 by now, not legacy"), "{stale:?}");
    for (from, to) in [("balanced-v1", "fips-v1"), ("fips-v1", "balanced-v1")] {
        suites.set_suite(set(from, to, false)).await.unwrap();
        let known = suites.list_suites(v1::ListSuitesRequest {}).await.unwrap().into_inner();
        assert_eq!(known.current, to);
        assert_eq!(cluster.running.authority().unwrap().trust().suite().name(), to);
    }
    let wrong = suites.list_clients(v1::ListClientsRequest { kinds: vec!["telnet".to_owned()] }).await;
    assert!(wrong.unwrap_err().message().contains("known are ssh, tls, sallyport, http"));

    let yaml = support::role("spare", &["nobody"]);
    let made = admin
        .create_resource(v1::CreateResourceRequest { yaml: yaml.clone(), replace: false })
        .await
        .unwrap()
        .into_inner();
    let again = admin.create_resource(v1::CreateResourceRequest { yaml: yaml.clone(), replace: false }).await;
    assert_eq!(again.unwrap_err().code(), Code::AlreadyExists);
    let update =
        v1::UpdateResourceRequest { yaml: support::role("spare", &["other"]), revision: made.revision };
    admin.update_resource(update.clone()).await.unwrap();
    assert_eq!(admin.update_resource(update).await.unwrap_err().code(), Code::Aborted, "a stale revision");
    let broken = yaml.replace("logins", "logns");
    let status =
        admin.create_resource(v1::CreateResourceRequest { yaml: broken, replace: true }).await.unwrap_err();
    assert!(status.message().contains("did you mean logins?"), "{status:?}");
    let name = || ("role".to_owned(), "spare".to_owned());
    let (kind, spare) = name();
    let read = admin.get_resource(v1::GetResourceRequest { kind, name: spare }).await.unwrap().into_inner();
    assert!(read.yaml.contains("other") && read.revision > made.revision, "{read:?}");
    let list = v1::ListResourcesRequest { kind: "role".to_owned(), ..Default::default() };
    assert!(!admin.list_resources(list).await.unwrap().into_inner().resources.is_empty());
    let (kind, spare) = name();
    admin.delete_resource(v1::DeleteResourceRequest { kind, name: spare }).await.unwrap();
    session_policy(cluster, admin).await;
    admin.reset_user(v1::ResetUserRequest { name: "alice".to_owned() }).await.unwrap();
    let export = v1::ExportCaRequest { kind: "user".to_owned(), format: "openssh".to_owned() };
    assert!(admin.export_ca(export).await.unwrap().into_inner().text.contains("ssh-ed25519"));
    let mut rotation = RotationClient::new(admin_channel(&cluster.data_dir()).await);
    assert!(rotation.list_cas(v1::ListCasRequest {}).await.unwrap().into_inner().cas.len() >= 2);
    let step = Some(v1::rotate_ca_request::Step::Phase("init".to_owned()));
    let rotate = v1::RotateCaRequest { kind: "user".to_owned(), step, force: false };
    let ca = rotation.rotate_ca(rotate).await.unwrap().into_inner();
    assert_eq!(ca.next_phase, "update_clients");
    assert!(ca.lagging.iter().any(|host| host.name == "web-1"), "{ca:?}");
    let mut certificates = CertificatesClient::new(admin_channel(&cluster.data_dir()).await);
    let issuance = certificates.get_issuance(v1::GetIssuanceRequest {}).await.unwrap().into_inner();
    assert_eq!(issuance.kinds.len(), 13);
    let svid = v1::SignCertificateRequest {
        kind: "svid".to_owned(),
        subject: "/web".to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..Default::default()
    };
    let made = certificates.sign_certificate(svid).await.unwrap().into_inner();
    let id = made.issued[0].serial.clone();
    certificates.get_certificate(v1::GetCertificateRequest { id: id.clone() }).await.unwrap();
    let reason = "it was a test".to_owned();
    let denied =
        certificates.deny_certificate(v1::DenyCertificateRequest { id, reason }).await.unwrap().into_inner();
    assert_eq!((denied.certificates.len(), denied.lock.as_str()), (1, ""));
    certificates.list_certificates(v1::ListCertificatesRequest::default()).await.unwrap();
    let verified = admin.verify_audit(v1::VerifyAuditRequest::default()).await.unwrap().into_inner();
    assert!(verified.intact, "{verified:?}");
}

/// The cluster has one session policy, which each host that decides about sessions hears of.
pub(super) async fn session_policy(cluster: &Cluster, admin: &mut AdminClient<Channel>) {
    let yaml = |name: &str, spec: &str| v1::CreateResourceRequest {
        yaml: format!("kind: session_policy\nversion: v1\nmetadata: {{name: {name}}}\nspec: {spec}\n"),
        replace: true,
    };
    let other = admin.create_resource(yaml("mine", "{max_sessions: 3}")).await.unwrap_err();
    assert!(other.message().contains("write name: default"), "{other:?}");
    let wrong = admin.create_resource(yaml("default", "{max_session_ttl: 1h}")).await.unwrap_err();
    assert!(wrong.message().contains("max_session_ttl"), "{wrong:?}");
    admin.create_resource(yaml("default", "{message_of_the_day: Be kind., max_sessions: 3}")).await.unwrap();
    let get = || v1::GetResourceRequest { kind: "session_policy".to_owned(), name: "default".to_owned() };
    assert!(admin.get_resource(get()).await.unwrap().into_inner().yaml.contains("Be kind."));
    let list = v1::ListResourcesRequest { kind: "session_policy".to_owned(), ..Default::default() };
    assert_eq!(admin.list_resources(list).await.unwrap().into_inner().resources.len(), 1);
    let remove = v1::DeleteResourceRequest { kind: "session_policy".to_owned(), name: "default".to_owned() };
    admin.delete_resource(remove).await.unwrap();
    assert_eq!(admin.get_resource(get()).await.unwrap_err().code(), Code::NotFound);
    let events = all_events(cluster).await;
    for code in ["SP1215I", "SP1216I"] {
        assert!(events.iter().any(|event| event["code"] == code), "no event {code}");
    }
}

/// Tokens of a SCIM client, and requests that come by a proxy.
pub(super) async fn provision(cluster: &Cluster, admin: &mut AdminClient<Channel>) {
    let yaml = "kind: oidc\nversion: v1\nmetadata: {name: corp}\nspec:\n  issuer: https://idp.example\n  client_id: sallyport\n  \
                private_key_jwt: {algorithm: ES256}\n  mapping: {roles: [{claim: sub, roles: [access]}]}\n";
    let create = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: false };
    admin.create_resource(create).await.unwrap();
    let mut provisioning = ProvisioningClient::new(admin_channel(&cluster.data_dir()).await);
    let add = v1::AddScimTokenRequest { connector: "corp".to_owned(), ttl: None };
    let made = provisioning.add_scim_token(add).await.unwrap().into_inner();
    let proxy = join_as(cluster, "edge-1", "proxy").await;
    let mut handing_on = ProvisioningClient::new(proxy.channel);
    let ask = |token: &str| v1::ScimRequest {
        token: token.to_owned(),
        method: "GET".to_owned(),
        path: "/ServiceProviderConfig".to_owned(),
        client_addr: "192.0.2.7:4711".to_owned(),
        ..Default::default()
    };
    for (token, status) in [(made.token.as_str(), 200), ("corp:guessed-it", 401)] {
        assert_eq!(handing_on.answer_scim(ask(token)).await.unwrap().into_inner().status, status);
    }
    let listed = provisioning.list_scim_tokens(v1::ListScimTokensRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.tokens.len(), 1);
    let remove = v1::RemoveScimTokenRequest { connector: "corp".to_owned(), name: made.name };
    provisioning.remove_scim_token(remove).await.unwrap();
    assert_eq!(handing_on.answer_scim(ask(&made.token)).await.unwrap().into_inner().status, 401);
}
