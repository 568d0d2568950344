//! Members of the cluster that send what no program sends: choices that are not made, words and numbers that no release
//! knows, fields of a later release.

use std::collections::BTreeMap;
use std::time::Duration;

use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::people::{self, write};
use super::strangers::{field, varint};
use crate::auth_api::{PROTOS, call};
use crate::support::member::Joining;
use crate::support::{Cluster, admin_channel};

const TRANSPORT: &str = include_str!("../../../../wire/proto/sallyport/v1/transport.proto");
/// Fields that no message has: of a choice that is not known, or of a later release.
const UNLISTED: [u32; 2] = [15_000, 536_870_911];
/// How deep messages within messages are filled.
const DEEP: usize = 3;

/// The messages of the API by name, each with the numbers and types of its fields, and the request of each method.
#[derive(Debug, Default)]
struct Api {
    messages: BTreeMap<String, Vec<(u32, String)>>,
    requests: BTreeMap<String, String>,
}

/// The first name of a text.
fn name(text: &str) -> String {
    text.trim().chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
}

impl Api {
    fn read(protos: &[&str]) -> Self {
        let mut api = Self::default();
        for proto in protos {
            let (mut service, mut within) = (String::new(), Vec::<String>::new());
            for line in proto.lines() {
                let line = line.split("//").next().unwrap_or_default().trim();
                assert!(!line.starts_with("enum "), "words that are not known are sent as text: {line}");
                if let Some(rest) = line.strip_prefix("service ") {
                    service = name(rest);
                } else if let Some(rest) = line.strip_prefix("rpc ") {
                    let request = rest.split_once('(').unwrap().1.trim_start_matches("stream ");
                    api.requests.insert(format!("{service}.{}", name(rest)), name(request));
                } else if let Some(rest) = line.strip_prefix("message ") {
                    let (_, body) = rest.split_once('{').unwrap_or((rest, ""));
                    let fields: Vec<_> = body.split(';').filter_map(Self::field).collect();
                    api.messages.entry(name(rest)).or_default().extend(fields);
                    if !body.contains('}') {
                        within.push(name(rest));
                    }
                } else if line.starts_with("oneof ") {
                    within.extend(within.last().cloned());
                } else if line.starts_with('}') {
                    within.pop();
                } else if let (Some(message), Some(field)) = (within.last(), Self::field(line)) {
                    api.messages.entry(message.clone()).or_default().push(field);
                }
            }
        }
        assert!(
            api.requests.len() >= 40 && api.messages.len() >= 60,
            "{} {}",
            api.requests.len(),
            api.messages.len()
        );
        api
    }

    /// Number and type of `TYPE NAME = NUMBER`.
    fn field(line: &str) -> Option<(u32, String)> {
        let (head, number) = line.split_once('=')?;
        let number = number.trim().trim_end_matches([';', '}', ' ']).parse().ok()?;
        let kind = head.trim().trim_start_matches("repeated ").trim_start_matches("optional ").trim();
        let kind = if kind.starts_with("map<") { "map" } else { kind.split(' ').next()? };
        Some((number, kind.to_owned()))
    }

    /// A message with every field set: texts to `text`, numbers to `number`.
    fn filled(&self, message: &str, text: &str, number: u64, depth: usize) -> Vec<u8> {
        let bytes = |value: Vec<u8>| (2, [varint(value.len() as u64), value].concat());
        let mut all = Vec::new();
        for (at, kind) in self.messages.get(message).into_iter().flatten() {
            let (wire, value) = match kind.as_str() {
                "string" => bytes(text.as_bytes().to_vec()),
                "bytes" => bytes(vec![0xff; 3]),
                "bool" => (0, varint(1)),
                "double" | "fixed64" | "sfixed64" => (1, vec![0xff; 8]),
                "float" | "fixed32" | "sfixed32" => (5, vec![0xff; 4]),
                "int32" | "int64" | "uint32" | "uint64" | "sint32" | "sint64" => (0, varint(number)),
                "google.protobuf.Timestamp" | "google.protobuf.Duration" => {
                    bytes([field(1, 0, &varint(number)), field(2, 0, &varint(number & 0x7fff_ffff))].concat())
                }
                inner if depth > 0 => bytes(self.filled(inner, text, number, depth - 1)),
                _ => bytes(Vec::new()),
            };
            all.extend(field(*at, wire, &value));
        }
        all
    }

    /// What is sent in place of a message.
    fn odd(&self, message: &str) -> Vec<Vec<u8>> {
        let unlisted =
            || UNLISTED.iter().flat_map(|number| field(*number, 0, &varint(9_999))).collect::<Vec<u8>>();
        vec![
            Vec::new(),
            unlisted(),
            // Every choice within is left open.
            self.filled(message, "", 0, 0),
            self.filled(message, "no-such-thing", 9_999, DEEP),
            [self.filled(message, "NO SUCH\u{202e}thing\0", u64::MAX, DEEP), unlisted()].concat(),
        ]
    }
}

/// All that an administrator sees, the words of nodes about themselves aside.
async fn state(cluster: &Cluster) -> Vec<String> {
    let channel = admin_channel(&cluster.data_dir()).await;
    let mut all = Vec::new();
    for kind in ["role", "user", "lock", "token", "session_policy", "oidc", "github", "gitlab", "db", "node"]
    {
        let asked = v1::ListResourcesRequest { kind: kind.to_owned(), ..Default::default() };
        let listed = AdminClient::new(channel.clone()).list_resources(asked).await.unwrap().into_inner();
        let shown = |one: v1::Resource| {
            if kind == "node" {
                format!("node {}", one.name)
            } else {
                format!("{kind} {} {}\n{}", one.name, one.revision, one.yaml)
            }
        };
        all.extend(listed.resources.into_iter().map(shown));
    }
    let asked = v1::ListCertificatesRequest::default();
    let certificates =
        CertificatesClient::new(channel.clone()).list_certificates(asked).await.unwrap().into_inner();
    let shown = |one: v1::CertificateInfo| {
        format!("{} of {} to {}: {} {:?}", one.kind, one.subject, one.issued_to, one.serial, one.denied)
    };
    all.extend(certificates.certificates.into_iter().map(shown));
    let cas = RotationClient::new(channel.clone()).list_cas(v1::ListCasRequest::default()).await.unwrap();
    all.push(format!("{:?}", cas.into_inner()));
    all.sort();
    all
}

fn is_clear(status: &Status) -> bool {
    let vague = [
        Code::Unknown,
        Code::Internal,
        Code::DataLoss,
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Unavailable,
    ];
    !vague.contains(&status.code()) && !status.message().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_messages_that_no_program_sends_are_told_so_and_change_nothing() {
    let cluster = Cluster::without_node().await;
    let mallory = cluster.user("mallory", &[]).await;
    write(&cluster, people::role("mallory-role", "{allow: {logins: [nobody]}}")).await;
    let node = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let proxy = Joining::new("proxy", "edge").join(&cluster).await.unwrap();
    node.beat(v1::HeartbeatRequest::default()).await.unwrap();
    let callers = [
        ("a user", mallory.authority().await),
        ("a node", node.channel.clone()),
        ("a proxy", proxy.channel.clone()),
    ];
    let before = state(&cluster).await;
    let api = Api::read(&[PROTOS, [TRANSPORT].as_slice()].concat());
    let (mut calls, mut answered) = (0, Vec::new());
    for (method, message) in &api.requests {
        let through_proxy = method.starts_with("Transport.");
        for (who, channel) in &callers {
            let channel: Channel = match through_proxy {
                true if *who == "a user" => mallory.connect().await.unwrap(),
                true => continue,
                false => channel.clone(),
            };
            for odd in api.odd(message) {
                calls += 1;
                let what = format!("{method} by {who} with {odd:02x?}");
                // Some go on until they are told more, which is an answer.
                let answer =
                    tokio::time::timeout(Duration::from_millis(500), call(&channel, method, odd)).await;
                match answer {
                    Ok(Ok(())) | Err(_) => answered.push(format!("{method} by {who}")),
                    Ok(Err(status)) => assert!(is_clear(&status), "{what}: {status:?}"),
                }
            }
        }
    }
    answered.dedup();
    println!("{calls} calls; answered without a refusal: {answered:?}");
    let after = state(&cluster).await;
    let changed: Vec<_> = after.iter().filter(|one| !before.contains(one)).collect();
    let gone: Vec<_> = before.iter().filter(|one| !after.contains(one)).collect();
    assert!(changed.is_empty() && gone.is_empty(), "changed: {changed:#?}, gone: {gone:#?}");
    // Members are served as before.
    for (who, channel) in callers {
        let asked =
            ClusterClient::new(channel).get_status(v1::GetStatusRequest::default()).await.unwrap_err();
        assert_eq!(asked.code(), Code::PermissionDenied, "{who}: {asked:?}");
    }
    assert_eq!(mallory.open("web-1", "root").await.err().unwrap().code(), Code::PermissionDenied);
}
