//! Database clients at the one port.

use sallyport_databases::postgres::startup::{self, CancelKey, Startup};
use sallyport_wire::alpn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::rig::{PATIENCE, Rig};

#[tokio::test]
async fn a_request_to_cancel_inside_tls_ends_in_order() {
    let rig = Rig::new().await;
    let alice = rig.user("alice");
    let mut stream = rig.tls_to_proxy(Some(&alice), &[alpn::POSTGRESQL]).await.unwrap();
    let key = CancelKey { process: 7, secret: vec![1, 2, 3, 4] };
    stream.write_all(&startup::cancel(&key)).await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    // Without close_notify this is an unexpected end, which libpq tells its user of.
    assert_eq!((ended.unwrap(), rest.len()), (0, 0));
}

#[tokio::test]
async fn direct_tls_without_alpn_is_refused_in_the_words_of_postgresql() {
    let rig = Rig::new().await;
    let alice = rig.user("alice");
    // With a certificate and without, the packet in one piece and byte by byte.
    for (pair, step) in [(Some(&alice), 1000), (None, 1000), (Some(&alice), 1)] {
        let mut stream = rig.tls_to_proxy(pair, &[]).await.unwrap();
        let parameters = vec![("user".to_owned(), "app".to_owned())];
        for part in (Startup { minor: 0, parameters }).to_bytes().chunks(step) {
            stream.write_all(part).await.unwrap();
            stream.flush().await.unwrap();
        }
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
        let said = String::from_utf8_lossy(&rest);
        assert!(said.contains("without ALPN protocol negotiation extension"), "{said}");
        assert!(
            rest.first() == Some(&b'E') && said.contains("08P01") && said.contains("sslnegotiation"),
            "{said}"
        );
    }
    // What is HTTP stays so.
    let mut stream = rig.tls_to_proxy(None, &[]).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 200"), "{rest:?}");
}

#[tokio::test]
async fn encryption_by_gssapi_is_declined_inside_tls_as_well() {
    let rig = Rig::new().await;
    let alice = rig.user("alice");
    let mut stream = rig.tls_to_proxy(Some(&alice), &[alpn::POSTGRESQL]).await.unwrap();
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 48]).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'N');
    let parameters = vec![("user".to_owned(), "app".to_owned())];
    stream.write_all(&Startup { minor: 0, parameters }.to_bytes()).await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("3D000"), "{rest:?}");
}

#[tokio::test]
async fn a_client_that_wants_to_replicate_reads_that_before_what_the_roles_say() {
    let rig = Rig::new().await;
    let alice = rig.user("alice");
    let mut stream = rig.tls_to_proxy(Some(&alice), &[alpn::POSTGRESQL]).await.unwrap();
    // As pg_basebackup says it.
    let said = [
        ("user", "app"),
        ("database", "replication"),
        ("replication", "true"),
        ("options", "-c sallyport.database=prod"),
    ];
    let parameters = said.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    stream.write_all(&Startup { minor: 0, parameters }.to_bytes()).await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    let said = String::from_utf8_lossy(&rest);
    assert!(said.contains("0A000") && said.contains("pg_dump"), "{said}");
}
