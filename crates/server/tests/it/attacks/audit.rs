//! The audit log: what hosts pour into it, and what is done to its files.

use std::fs;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sallyport_sal::hash::Sha256;
use sallyport_server::Config;
use sallyport_server::config::{AuditSection, AuthSection, Webhook};
use sallyport_wire::v1;
use sallyport_wire::v1::fleet_client::FleetClient;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;
use tonic::transport::Channel;

use crate::support::{self, Cluster, PATIENCE, auth_section, events, proxy_section};

async fn node(cluster: &Cluster, name: &str) -> FleetClient<Channel> {
    FleetClient::new(support::joined_node(cluster, name).await)
}

fn event(message: &str) -> sallyport_audit::Event {
    sallyport_audit::Event::new(sallyport_audit::Code::SessionPortForward, OffsetDateTime::now_utc())
        .message(message)
}

async fn emit(fleet: &mut FleetClient<Channel>, events_json: Vec<String>) -> Result<(), tonic::Status> {
    fleet.emit_events(v1::EmitEventsRequest { events_json }).await.map(drop)
}

/// Ends the cluster in order and starts it again, with something done to its files in between.
async fn restarted(
    cluster: Cluster,
    adjust: impl FnOnce(&mut Config),
    meanwhile: impl FnOnce(&Path),
) -> Cluster {
    let Cluster { directory, running } = cluster;
    running.shutdown(true).await;
    let data = directory.path().join("cluster");
    meanwhile(&data.join("auth/audit"));
    let mut config = support::config(&data);
    config.auth = Some(auth_section());
    config.proxy = Some(proxy_section());
    adjust(&mut config);
    let running = sallyport_server::start(config).await.unwrap();
    running.ready(PATIENCE).await.unwrap();
    Cluster { directory, running }
}

fn log_file(audit: &Path) -> PathBuf {
    audit.join("events-0000000000000001.log")
}

/// The events of a log file.
fn written(audit: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log_file(audit)).unwrap();
    text.lines().map(|line| serde_json::from_str(line.splitn(3, ' ').nth(2).unwrap()).unwrap()).collect()
}

async fn verify(cluster: &Cluster, against: &str) -> v1::VerifyAuditResponse {
    let request = v1::VerifyAuditRequest { against: against.to_owned() };
    cluster.admin().await.verify_audit(request).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_event_of_a_node_takes_no_record_with_it() {
    let cluster = Cluster::without_node().await;
    let mut fleet = node(&cluster, "web-1").await;
    // Small enough for a message, and more than 4 MiB in the log: numbers grow when they are written out.
    let mut large: Value = serde_json::from_str(&event("large").to_json()).unwrap();
    large["fields"] = serde_json::from_str(&format!("{{\"n\":[{}1e15]}}", "1e15,".repeat(300_000))).unwrap();
    let text = large.to_string().replace("1000000000000000.0", "1e15");
    assert!(text.len() < 2 << 20 && large.to_string().len() > 5 << 20);
    emit(&mut fleet, vec![text]).await.unwrap();
    emit(&mut fleet, vec![event(&"long ".repeat(600_000)).to_json()]).await.unwrap();
    emit(&mut fleet, vec![event("after").to_json()]).await.unwrap();
    let records = verify(&cluster, "").await.records;
    let cluster = restarted(cluster, |_| {}, |_| {}).await;
    let found = verify(&cluster, "").await;
    assert!(found.intact && found.records > records, "{found:?}");
    let all = events(&mut cluster.admin().await, "SP2004I").await;
    assert_eq!(all.len(), 3, "records are missing");
    assert!(all.iter().all(|event| event.to_string().len() < 100_000));
    let long = all[1]["message"].as_str().unwrap();
    assert!(long.contains("(cut: 3000000 bytes)"), "{}", &long[long.len() - 60..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_reports_beyond_its_budget_is_one_event_with_a_count() {
    let cluster = Cluster::start(|config| {
        let audit = AuditSection { host_events_per_minute: 100, ..AuditSection::default() };
        config.auth = Some(AuthSection { audit, ..auth_section() });
    })
    .await;
    cluster.running.ready(PATIENCE).await.unwrap();
    let (mut noisy, mut quiet) = (node(&cluster, "noisy").await, node(&cluster, "quiet").await);
    let mut refused = 0;
    for _ in 0..100 {
        let batch = (0..50).map(|_| event("noise").to_json()).collect();
        match emit(&mut noisy, batch).await {
            Ok(()) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                refused += 50;
            }
        }
    }
    assert!(refused >= 4_000, "{refused}");
    emit(&mut quiet, vec![event("heard").to_json()]).await.unwrap();
    let Cluster { directory, running } = cluster;
    running.shutdown(true).await;
    let all = written(&directory.path().join("cluster/auth/audit"));
    let of = |code: &str| all.iter().filter(|event| event["code"] == code).collect::<Vec<_>>();
    assert_eq!(of("SP2004I").len(), 5_000 - refused + 1);
    let surplus = of("SP3111W");
    assert_eq!(surplus.len(), 1, "{surplus:?}");
    assert_eq!(surplus[0]["fields"]["count"], refused);
    assert_eq!(surplus[0]["user"], "node:noisy");
}

/// What an intruder does who can write the files, and knows how they are made.
fn chain_anew_without(audit: &Path, word: &str) {
    let file = log_file(audit);
    let text = fs::read_to_string(&file).unwrap();
    let (mut anew, mut hash, mut number) = (String::new(), [0; 32], 0_u64);
    for line in text.lines().filter(|line| !line.contains(word)) {
        let json = line.splitn(3, ' ').nth(2).unwrap();
        number += 1;
        let mut next = Sha256::new();
        next.update(b"sallyport audit record v1\0");
        next.update(&hash);
        next.update(&number.to_be_bytes());
        next.update(json.as_bytes());
        hash = next.finish();
        anew.push_str(&format!("{number} {} {json}\n", HEXLOWER.encode(&hash)));
    }
    assert!(anew.len() < text.len());
    fs::write(&file, anew).unwrap();
    fs::remove_file(audit.join("checkpoints")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_written_anew_is_named_and_does_not_verify_against_what_was_kept() {
    let cluster = Cluster::without_node().await;
    cluster.user("mallory", &[]).await;
    let genuine = verify(&cluster, "").await;
    let head = format!("{} {}", genuine.records, genuine.head);
    assert!(verify(&cluster, &head).await.intact);
    let other = format!("{} {}", genuine.records, "00".repeat(32));
    let found = verify(&cluster, &other).await;
    assert!(!found.intact && found.problem.contains("as it was kept elsewhere"), "{found:?}");

    let cluster = restarted(cluster, |_| {}, |audit| chain_anew_without(audit, "mallory")).await;
    let said = events(&mut cluster.admin().await, "SP3110E").await;
    assert!(said[0]["message"].as_str().unwrap().contains("with the hash that the state keeps"), "{said:?}");
    let aside = PathBuf::from(said[0]["fields"]["aside"].as_str().unwrap());
    assert!(log_file(&aside).exists(), "what was found is evidence");
    // The authority goes on, and tells every administrator who looks.
    let found = verify(&cluster, "").await;
    assert!(found.intact && found.begins_behind >= genuine.records, "{found:?}");
    assert!(!verify(&cluster, &head).await.intact);
    cluster.user("alice", &[]).await;
    let cluster = restarted(cluster, |_| {}, |_| {}).await;
    assert_eq!(events(&mut cluster.admin().await, "SP3110E").await.len(), 1, "it is said once");
    assert!(verify(&cluster, "").await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_taken_where_an_intruder_is_not() {
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("checkpoints");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (posted, mut bodies) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"}") && stream.read_buf(&mut request).await.unwrap() > 0 {}
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            let _ = posted.send(String::from_utf8(request).unwrap()).await;
        }
    });
    let audit = AuditSection {
        checkpoint_file: Some(file.clone()),
        checkpoint_webhook: Some(Webhook::at(false, address.into(), "/log")),
        ..AuditSection::default()
    };
    let section = AuthSection { audit, ..auth_section() };
    let cluster = Cluster::start(|config| config.auth = Some(section.clone())).await;
    cluster.running.ready(PATIENCE).await.unwrap();
    cluster.user("mallory", &[]).await;
    let records = verify(&cluster, "").await.records;
    let body = tokio::time::timeout(PATIENCE, bodies.recv()).await.unwrap().unwrap();
    assert!(body.starts_with("POST /log HTTP/1.1\r\n"), "{body}");
    let json: Value = serde_json::from_str(body.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&json["cluster"], &json["sequence"]), (&support::CLUSTER.into(), &records.into()));
    let cluster = restarted(cluster, |config| config.auth = Some(section), |_| {}).await;
    let kept = fs::read_to_string(&file).unwrap();
    assert!(kept.lines().count() >= 2, "{kept}");
    for line in kept.lines().chain([json["checkpoint"].as_str().unwrap()]) {
        let found = verify(&cluster, line).await;
        assert!(found.intact, "{found:?}");
    }
    let forged = kept.lines().last().unwrap().replacen(' ', "0 ", 1);
    let request = v1::VerifyAuditRequest { against: forged };
    let refused = cluster.admin().await.verify_audit(request).await.unwrap_err();
    assert!(
        support::is(&refused, Code::InvalidArgument, "not signed with this cluster's key"),
        "{refused:?}"
    );
}
