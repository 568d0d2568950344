//! Every method of the authority's API: who is refused, and what is written down.
//!
//! The methods come from the .proto files, so that one without a row here fails the tests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod done;

use std::collections::{BTreeMap, BTreeSet};

use self::done::{as_a_node, as_an_administrator, begin_a_database_session, provision};
use crate::identity;
use crate::logins;
use crate::sso;
use crate::support;
use crate::support::member::{self, Joining};
use crate::support::{Cluster, PASSWORD, admin_channel, authority_as, log_in, pin, pinned, until};
use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use sallyport_access::SessionId;
use sallyport_audit::recording::{Exit, Recorders, SessionMetadata};
use sallyport_ca::Opening;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::catalogue_client::CatalogueClient;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::provisioning_client::ProvisioningClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::sessions_client::SessionsClient;
use sallyport_wire::v1::suites_client::SuitesClient;
use serde_json::Value;
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// The files whose services the authority serves.
pub(crate) const PROTOS: &[&str] = &[
    include_str!("../../../wire/proto/sallyport/v1/auth.proto"),
    include_str!("../../../wire/proto/sallyport/v1/rotation.proto"),
    include_str!("../../../wire/proto/sallyport/v1/certificates.proto"),
    include_str!("../../../wire/proto/sallyport/v1/suites.proto"),
    include_str!("../../../wire/proto/sallyport/v1/sessions.proto"),
    include_str!("../../../wire/proto/sallyport/v1/databases.proto"),
    include_str!("../../../wire/proto/sallyport/v1/catalogue.proto"),
    include_str!("../../../wire/proto/sallyport/v1/identity.proto"),
    include_str!("../../../wire/proto/sallyport/v1/logins.proto"),
    include_str!("../../../wire/proto/sallyport/v1/provisioning.proto"),
    include_str!("../../../wire/proto/sallyport/v1/devices.proto"),
    include_str!("../../../wire/proto/sallyport/v1/session_factors.proto"),
];

/// `Service.Method` of every method in the files.
pub(crate) fn methods() -> BTreeSet<String> {
    let mut service = String::new();
    let mut methods = BTreeSet::new();
    for line in PROTOS.iter().flat_map(|proto| proto.lines()) {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("service ") {
            service = rest.trim_end_matches(['{', ' ']).to_owned();
        } else if let Some(rest) = line.strip_prefix("rpc ") {
            methods.insert(format!("{service}.{}", rest.split('(').next().unwrap()));
        }
    }
    assert!(methods.len() >= 27, "{methods:?}");
    methods
}

/// Messages as the bytes that they are.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        *self
    }
    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Calls any method with an encoded message; the first answer or the refusal.
pub(crate) async fn call(channel: &Channel, method: &str, message: Vec<u8>) -> Result<(), Status> {
    let (service, name) = method.split_once('.').unwrap();
    let path: PathAndQuery = format!("/sallyport.v1.{service}/{name}").parse().unwrap();
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let messages = tokio_stream::once(Bytes::from(message));
    let mut answers = grpc.streaming(Request::new(messages), path, Raw).await?.into_inner();
    answers.message().await.map(|_| ())
}

/// What a stranger could ask for, per method.
fn request(method: &str) -> Vec<u8> {
    match method {
        "Fleet.Watch" => v1::WatchRequest { kinds: vec!["role".to_owned()] }.encode_to_vec(),
        "Fleet.RecordingOffset" => {
            v1::RecordingOffsetRequest { session_id: SessionId::new().to_string() }.encode_to_vec()
        }
        "Cluster.PlayRecording" => {
            v1::PlayRecordingRequest { session_id: SessionId::new().to_string(), from: None }.encode_to_vec()
        }
        "Cluster.ExplainAccess" => v1::ExplainAccessRequest {
            user: "somebody-else".to_owned(),
            login: "root".to_owned(),
            node: "web-1".to_owned(),
        }
        .encode_to_vec(),
        "Admin.GetResource" => {
            v1::GetResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() }.encode_to_vec()
        }
        "Admin.ListResources" => {
            v1::ListResourcesRequest { kind: "user".to_owned(), ..Default::default() }.encode_to_vec()
        }
        "Admin.DeleteResource" => {
            v1::DeleteResourceRequest { kind: "role".to_owned(), name: "editor".to_owned() }.encode_to_vec()
        }
        _ => Vec::new(),
    }
}

/// Open to those without a certificate; their own refusals are tested below.
pub(crate) const OPEN: [&str; 10] = [
    "Login.Ping",
    "Login.LoginWithPassword",
    "Login.BeginBrowserLogin",
    "Login.FinishBrowserLogin",
    "Login.BeginKeyLogin",
    "Login.FinishKeyLogin",
    "Login.DeviceChallenge",
    "Login.BeginInvite",
    "Login.FinishInvite",
    "Login.Join",
];
/// Give every user their own part of the answer, and no user another's.
const OWN_PART: [&str; 23] = [
    "Devices.Enroll",
    "Devices.ListOwn",
    "Factors.ProveAdministrator",
    "Logins.List",
    "Logins.End",
    "Factors.List",
    "Factors.BeginProof",
    "Factors.AwaitChallenge",
    "Factors.BeginAdd",
    "Factors.FinishAdd",
    "Factors.Remove",
    "Factors.MakeRecoveryCodes",
    "Factors.ChangePassword",
    "SessionFactors.Begin",
    "SessionFactors.Await",
    "SessionFactors.Prove",
    "SessionFactors.Certify",
    "Cluster.ListNodes",
    "Cluster.ListRecordings",
    "Rotation.Follow",
    "Sessions.ListSessions",
    "Databases.ListDatabases",
    "Catalogue.List",
];
/// For nodes. The CAs' public halves are what they watch anyway.
const FOR_NODES: [&str; 11] = [
    "SessionFactors.Check",
    "Admin.ExportCa",
    "Fleet.RenewHost",
    "Fleet.Watch",
    "Fleet.Heartbeat",
    "Fleet.EmitEvents",
    "Fleet.ReportClients",
    "Fleet.RecordingOffset",
    "Fleet.UploadRecording",
    "Fleet.ReportSessions",
    "Rotation.Confirm",
];

/// A member of the cluster that joined by the API alone.
struct Node {
    channel: Channel,
}

async fn join(cluster: &Cluster, name: &str) -> Node {
    join_as(cluster, name, "node").await
}

async fn join_as(cluster: &Cluster, name: &str, role: &str) -> Node {
    let mut admin = cluster.admin().await;
    let pin = support::pin(&mut admin).await;
    let databases = if role == "node" { vec!["reports".to_owned()] } else { Vec::new() };
    let token = v1::CreateTokenRequest { role: role.to_owned(), databases, ..Default::default() };
    let token = admin.create_token(token).await.unwrap().into_inner().token;
    let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::JoinRequest {
        token,
        name: name.to_owned(),
        role: role.to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        public_names: Vec::new(),
        ..Default::default()
    };
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let issued = login.join(request).await.unwrap().into_inner();
    let trust = cluster.running.authority().unwrap().trust();
    let chain = issued.tls_certificate_pem;
    Node { channel: authority_as(&cluster.proxy(), &trust, &chain, &tls.pkcs8_pem()).await }
}

async fn all_events(cluster: &Cluster) -> Vec<Value> {
    let mut admin = cluster.admin().await;
    let mut found = admin.search_events(v1::SearchEventsRequest::default()).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(record) = found.message().await.unwrap() {
        events.push(serde_json::from_str(&record.event_json).unwrap());
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_refuses_those_who_may_not_and_writes_it_down() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let pin = pin(&mut admin).await;
    let alice = cluster.user("alice", &["alice"]).await;
    let node = join(&cluster, "web-1").await;
    let anonymous = pinned(&cluster.proxy(), &pin).await;
    let powerless = alice.authority().await;
    let mut expected = BTreeSet::new();
    for method in methods() {
        let name = method.as_str();
        if OPEN.contains(&name) {
            continue;
        }
        let status = call(&anonymous, name, request(name)).await.expect_err(name);
        assert_eq!(status.code(), Code::Unauthenticated, "{name} without a certificate: {status:?}");
        assert!(status.message().contains("sallyport login"), "{name}: {status:?}");
        expected.insert((method.clone(), String::new()));

        if !OWN_PART.contains(&name) {
            let status = call(&powerless, name, request(name)).await.expect_err(name);
            assert_eq!(status.code(), Code::PermissionDenied, "{name} without a right: {status:?}");
            assert!(!status.message().is_empty(), "{name}");
            expected.insert((method.clone(), "alice".to_owned()));
        }
        if !FOR_NODES.contains(&name) {
            let status = call(&node.channel, name, request(name)).await.expect_err(name);
            assert_eq!(status.code(), Code::PermissionDenied, "{name} by a node: {status:?}");
            expected.insert((method.clone(), "node:web-1".to_owned()));
        }
    }
    let written: BTreeSet<(String, String)> = all_events(&cluster)
        .await
        .iter()
        .filter(|event| event["code"] == "SP3001W")
        .map(|event| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&event["fields"]["method"]), text(&event["user"]))
        })
        .collect();
    let missing: Vec<_> = expected.difference(&written).collect();
    assert!(missing.is_empty(), "refused, but not written down: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_own_part_of_a_list_is_only_that() {
    let cluster = Cluster::all_in_one().await;
    let without = cluster.user("without-rights", &[]).await;
    let mut client = ClusterClient::new(without.authority().await);
    let nodes = client.list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner().nodes;
    assert!(nodes.iter().all(|node| node.logins.is_empty()), "{nodes:?}");
    let recordings =
        client.list_recordings(v1::ListRecordingsRequest::default()).await.unwrap().into_inner().recordings;
    assert!(recordings.is_empty(), "{recordings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_open_methods_refuse_what_is_wrong_and_write_it_down() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let pin = pin(&mut admin).await;
    cluster.user("alice", &["alice"]).await;
    let channel = pinned(&cluster.proxy(), &pin).await;
    let mut login = LoginClient::new(channel);
    let attempt = |user: &str, password: &str| v1::LoginRequest {
        user: user.to_owned(),
        password: password.to_owned(),
        ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..Default::default()
    };
    let wrong = login.login_with_password(attempt("alice", "wrong password")).await.unwrap_err();
    let unknown = login.login_with_password(attempt("mallory", "wrong password")).await.unwrap_err();
    assert_eq!(wrong.code(), Code::Unauthenticated);
    assert_eq!(
        (wrong.code(), wrong.message()),
        (unknown.code(), unknown.message()),
        "who exists is not told"
    );
    let mut long = attempt("alice", PASSWORD);
    long.ttl = Some(sallyport_wire::convert::duration_to_proto(std::time::Duration::from_secs(999 * 3600)));
    assert!(login.login_with_password(long).await.is_err(), "a lifetime beyond the roles' bound");
    let token = "no-such-token".to_owned();
    assert!(login.begin_invite(v1::BeginInviteRequest { token: token.clone() }).await.is_err());
    let finish = v1::FinishInviteRequest { token, password: PASSWORD.to_owned(), otp: String::new() };
    assert!(login.finish_invite(finish).await.is_err());
    let join = v1::JoinRequest {
        token: "nonsense".to_owned(),
        name: "web-1".to_owned(),
        role: "node".to_owned(),
        ..Default::default()
    };
    assert!(login.join(join).await.is_err());
    let codes: Vec<String> =
        all_events(&cluster).await.iter().map(|event| event["code"].as_str().unwrap().to_owned()).collect();
    let count = |code: &str| codes.iter().filter(|have| *have == code).count();
    assert!(count("SP1000W") >= 2, "{codes:?}");
    assert!(count("SP1007W") >= 2, "{codes:?}");
    assert!(count("SP1300W") >= 1, "{codes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn guessing_locks_an_account_and_a_reset_opens_it() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let pin = pin(&mut admin).await;
    cluster.user("alice", &["alice"]).await;
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let attempt = v1::LoginRequest {
        user: "alice".to_owned(),
        password: "a wrong password".to_owned(),
        ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..Default::default()
    };
    for _ in 0..20 {
        assert!(login.login_with_password(attempt.clone()).await.is_err());
    }
    let refused = log_in(&cluster.proxy(), &pin, "alice", None).await.err().expect("locked out");
    assert_ne!(refused.code(), Code::Ok);
    let codes = all_events(&cluster).await;
    assert!(codes.iter().any(|event| event["code"] == "SP1001W" && event["user"] == "alice"), "{codes:?}");
}

/// The event that a success leaves: a code of its own, or `api.called` with the method's name.
enum Leaves {
    Event(&'static str),
    Called,
    /// Nothing: each node's chatter, several times a minute, would drown the log.
    Nothing,
}

fn leaves() -> BTreeMap<&'static str, Leaves> {
    use Leaves::{Called, Event, Nothing};
    BTreeMap::from([
        ("Login.Ping", Event("SP1008I")),
        ("Login.LoginWithPassword", Event("SP1000I")),
        ("Login.BeginInvite", Event("SP1006I")),
        ("Login.FinishInvite", Event("SP1007I")),
        ("Login.Join", Event("SP1300I")),
        ("Fleet.RenewHost", Event("SP1101I")),
        ("Fleet.Watch", Nothing),
        ("Fleet.Heartbeat", Nothing),
        ("Fleet.EmitEvents", Event("SP2004I")),
        ("Fleet.ReportClients", Nothing),
        ("Fleet.RecordingOffset", Nothing),
        ("Fleet.UploadRecording", Event("SP2100I")),
        ("Fleet.ReportSessions", Nothing),
        ("Sessions.ListSessions", Called),
        ("Sessions.EndSession", Event("SP2030I")),
        ("Sessions.RemoveRecording", Event("SP2106I")),
        ("Sessions.HoldRecording", Event("SP2107I")),
        ("Fleet.CertifyTarget", Event("SP1101I")),
        ("Fleet.CertifyForTarget", Event("SP1100I")),
        ("Cluster.GetStatus", Called),
        ("Cluster.ListNodes", Called),
        ("Cluster.ExplainAccess", Called),
        ("Cluster.ListRecordings", Called),
        ("Cluster.PlayRecording", Event("SP2104I")),
        ("Admin.GetResource", Called),
        ("Admin.ListResources", Called),
        ("Admin.CreateResource", Event("SP1200I")),
        ("Admin.UpdateResource", Event("SP1201I")),
        ("Admin.DeleteResource", Event("SP1202I")),
        ("Admin.CreateUser", Event("SP1002I")),
        ("Admin.ResetUser", Event("SP1005I")),
        ("Admin.LinkUser", Event("SP1016I")),
        ("Admin.UnlinkUser", Event("SP1017I")),
        ("Admin.CreateToken", Event("SP1220I")),
        ("Admin.ExportCa", Event("SP1250I")),
        ("Admin.SearchEvents", Called),
        ("Admin.VerifyAudit", Event("SP3100I")),
        ("Rotation.Confirm", Event("SP1266I")),
        ("Rotation.Follow", Called),
        ("Rotation.ListCas", Called),
        ("Rotation.RotateCa", Event("SP1260I")),
        ("Certificates.ListCertificates", Called),
        ("Certificates.GetCertificate", Called),
        ("Certificates.GetIssuance", Called),
        ("Certificates.SignCertificate", Event("SP1102I")),
        ("Certificates.DenyCertificate", Event("SP1103I")),
        ("Databases.ListDatabases", Called),
        ("Databases.ExplainDatabaseAccess", Called),
        ("Databases.CertifyDatabaseUser", Event("SP1100I")),
        ("Databases.PermitDatabaseSession", Event("SP2205I")),
        ("Catalogue.List", Called),
        ("Catalogue.ExplainAccess", Called),
        ("Login.DeviceChallenge", Called),
        ("Devices.Enroll", Event("SP1071I")),
        ("Devices.ListOwn", Called),
        ("Devices.List", Called),
        ("Devices.AddToken", Event("SP1074I")),
        ("Devices.Assign", Event("SP1072I")),
        ("Devices.Remove", Event("SP1073I")),
        ("Provisioning.AddScimToken", Event("SP1060I")),
        ("Provisioning.ListScimTokens", Called),
        ("Provisioning.RemoveScimToken", Event("SP1061I")),
        ("Provisioning.AnswerScim", Event("SP1064W")),
        ("Suites.ListSuites", Called),
        ("Suites.ListClients", Called),
        ("Suites.PreflightSuite", Called),
        ("Suites.SetSuite", Event("SP1270I")),
        ("Login.BeginBrowserLogin", Event("SP1014I")),
        ("Login.FinishBrowserLogin", Event("SP1000I")),
        ("Login.BeginKeyLogin", Event("SP1014I")),
        ("Login.FinishKeyLogin", Event("SP1000I")),
        ("Logins.List", Called),
        ("Logins.End", Event("SP1040I")),
        ("Logins.ListOf", Called),
        ("Logins.EndOf", Event("SP1040I")),
        ("Logins.TestRules", Called),
        ("Factors.List", Called),
        ("Factors.BeginProof", Event("SP1014I")),
        ("Factors.AwaitChallenge", Called),
        ("Factors.BeginAdd", Event("SP1014I")),
        ("Factors.FinishAdd", Event("SP1010I")),
        ("Factors.Remove", Event("SP1011I")),
        ("Factors.MakeRecoveryCodes", Event("SP1012I")),
        ("Factors.ChangePassword", Event("SP1009I")),
        ("Factors.ProveAdministrator", Event("SP1090I")),
        ("SessionFactors.Begin", Event("SP1014I")),
        ("SessionFactors.Await", Called),
        ("SessionFactors.Prove", Event("SP1015I")),
        ("SessionFactors.Certify", Event("SP1100I")),
        ("SessionFactors.BeginFor", Event("SP1014I")),
        ("SessionFactors.AwaitFor", Called),
        ("SessionFactors.ProveFor", Event("SP1015I")),
        ("SessionFactors.Check", Nothing),
        ("Web.DescribeLogin", Called),
        ("Web.BeginLoginPasskey", Called),
        ("Web.FinishLoginPasskey", Called),
        ("Web.ProveLoginPassword", Called),
        ("Web.BeginLoginSso", Called),
        ("Web.FinishLoginSso", Called),
        ("Web.SsoLogout", Called),
        ("Sso.ListConnectors", Called),
        ("Sso.GetConnectorKeys", Called),
        ("Sso.BeginTest", Event("SP1014I")),
        ("Sso.AwaitTest", Called),
        ("Web.RefuseLogin", Called),
        ("Web.DescribeApproval", Called),
        ("Web.BeginApprovalPasskey", Called),
        ("Web.FinishApprovalPasskey", Called),
        ("Web.ProveApprovalOtp", Called),
        ("Web.RefuseApproval", Called),
        ("Web.DescribeFactors", Called),
        ("Web.ListFactors", Called),
        ("Web.BeginFactorRemoval", Called),
        ("Web.FinishFactorRemoval", Called),
        ("Web.DescribeEnrolment", Called),
        ("Web.BeginEnrolment", Called),
        ("Web.FinishEnrolment", Called),
        ("Web.RefuseEnrolment", Called),
        ("Web.DescribeInvite", Called),
        ("Web.BeginInvitePasskey", Called),
        ("Web.FinishInvitePasskey", Called),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_leaves_its_event() {
    let cluster = Cluster::start(identity::with_passkeys).await;
    cluster.running.ready(support::PATIENCE).await.unwrap();
    let mut admin = cluster.admin().await;
    let pin = pin(&mut admin).await;
    // CreateUser, BeginInvite, FinishInvite, LoginWithPassword, CreateResource, CreateToken.
    let mut alice = cluster.user("alice", &["alice"]).await;
    assert!(!alice.follow().await.unwrap(), "nothing is to be signed anew");
    LoginClient::new(pinned(&cluster.proxy(), &pin).await).ping(v1::PingRequest {}).await.unwrap();
    let node = join(&cluster, "web-1").await;
    let session = as_a_node(&cluster, &node).await;
    begin_a_database_session(&cluster, &mut admin).await;
    identity::as_people(&cluster).await;
    sso::as_people(&cluster).await;
    logins::as_people(&cluster).await;
    as_an_administrator(&cluster, &mut admin, session).await;
    provision(&cluster, &mut admin).await;
    identity::devices::as_people(&cluster).await;

    let table = leaves();
    let rows: BTreeSet<String> = table.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(rows, methods(), "each method has one row here");
    let events = all_events(&cluster).await;
    for (method, leaves) in table {
        let found = match leaves {
            Leaves::Nothing => true,
            Leaves::Event(code) => events.iter().any(|event| event["code"] == code),
            Leaves::Called => {
                events.iter().any(|event| event["code"] == "SP3000I" && event["fields"]["method"] == method)
            }
        };
        assert!(found, "{method} left no event");
    }
}
