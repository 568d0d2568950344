//! The files of the audit log.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_any_record_is_found() {
    let cluster = Cluster::without_node().await;
    cluster.user("alice", &["alice"]).await;
    let mut admin = cluster.admin().await;
    assert!(admin.verify_audit(v1::VerifyAuditRequest::default()).await.unwrap().into_inner().intact);
    let directory = authority_files(&cluster).join("audit");
    let log = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"alice\"")))
        .expect("a file with the user's events");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replace("\"alice\"", "\"malic\"")).unwrap();
    let found = admin.verify_audit(v1::VerifyAuditRequest::default()).await.unwrap().into_inner();
    assert!(!found.intact && !found.problem.is_empty(), "{found:?}");
    // Dropping what would tell is found as well.
    let mut lines: Vec<&str> = text.lines().collect();
    lines.remove(lines.len() / 2);
    std::fs::write(&log, lines.join("\n") + "\n").unwrap();
    assert!(!admin.verify_audit(v1::VerifyAuditRequest::default()).await.unwrap().into_inner().intact);
    cluster.running.shutdown(false).await;
}
