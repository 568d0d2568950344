//! The authority's database file, without its seal key and with it.

use super::*;

/// A copy of what a thief took of the authority's directory, made into a directory of an authority.
fn copy(files: &Path, names: &[&str]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let private = std::fs::Permissions::from_mode(0o700);
    let place = support::place();
    let auth = place.path().join("cluster/auth");
    std::fs::create_dir_all(&auth).unwrap();
    for directory in [place.path().join("cluster"), auth.clone()] {
        std::fs::set_permissions(directory, private.clone()).unwrap();
    }
    for name in names {
        std::fs::copy(files.join(name), auth.join(name)).unwrap();
    }
    place
}

async fn start(place: &tempfile::TempDir) -> Result<Running, sallyport_server::ServerError> {
    let mut config = support::config(&place.path().join("cluster"));
    config.auth = Some(support::auth_section());
    sallyport_server::start(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_seal_key_it_holds_no_secret_and_starts_no_authority() {
    let cluster = Cluster::without_node().await;
    cluster.user("alice", &["alice"]).await;
    let (token, _) = support::token(&mut cluster.admin().await, "node").await;
    let files = authority_files(&cluster);
    cluster.running.shutdown(false).await;
    let bytes = std::fs::read(files.join("state.db")).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("alice"), "names are in the clear");
    for secret in [support::PASSWORD, &token, "PRIVATE KEY", "openssh-key-v1"] {
        assert!(!has(secret), "the file holds {secret:?}");
    }
    let problem = start(&copy(&files, &["state.db"])).await.expect_err("no authority").to_string();
    assert!(problem.contains("seal.key"), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_seal_key_it_is_the_cluster() {
    let cluster = Cluster::without_node().await;
    let pin = support::pin(&mut cluster.admin().await).await;
    let files = authority_files(&cluster);
    cluster.running.shutdown(false).await;
    let place = copy(&files, &["state.db", "seal.key"]);
    let stolen = start(&place).await.expect("the row says that this gives everything");
    let again = support::pin(&mut support::admin(&place.path().join("cluster")).await).await;
    assert_eq!(again, pin);
    stolen.shutdown(false).await;
}
