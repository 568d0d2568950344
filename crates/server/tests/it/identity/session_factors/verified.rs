//! A session's factor that was touched, and has not verified its user.

use super::super::user_verification::{discouraged, only_with_its_pin};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_stolen_login_and_a_stolen_key_without_its_pin_open_no_session() {
    let (cluster, alice) = scene_with("require_session_mfa: yes", discouraged).await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let id = bench.ask(&alice, wanted(&[web_1()])).await.page.unwrap().challenge;
    key.verifies = false;
    assert!(bench.approve(&id, &mut key).await.is_err());
    assert!(!bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);
    only_with_its_pin(&bench, &id, &mut key).await;
    assert!(bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);
}
