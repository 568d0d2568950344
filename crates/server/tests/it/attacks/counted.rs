//! What a guess costs the authority, which its answer's time tells.

use sallyport_sal::password::{danger, evaluations};
use sallyport_wire::v1;
use tonic::Code;

use super::people::{invited, logged_in, remove, stranger};
use crate::support::Cluster;

/// Each guess at an account that may be guessed at is as slow as any other, whether the account exists or not: counted,
/// where a measurement would depend on what else the machine does. (Plain `cargo test` runs other tests in this process.)
#[tokio::test(flavor = "multi_thread")]
async fn a_guess_costs_the_same_whether_or_not_there_is_such_a_user() {
    let cluster = Cluster::without_node().await;
    cluster.user("alice", &["alice"]).await;
    invited(&cluster, "without-password", &[], &[]).await;
    cluster.user("removed", &["alice"]).await;
    remove(&cluster, "user", "removed").await.unwrap();
    let mut login = stranger(&cluster).await;
    // First those who are not there: what is prepared with the first of them would show.
    let names = [
        "mallory",
        "",
        "no user's name!",
        "removed",
        "without-password",
        "alice",
        "MALLORY",
        "mallory\u{ff10}",
    ];
    for name in names {
        for attempt in 1..=6 {
            let before = evaluations();
            let asked = v1::LoginRequest {
                user: name.to_owned(),
                password: "a wrong password".to_owned(),
                ..Default::default()
            };
            let status = login.login_with_password(asked).await.unwrap_err();
            let cost = evaluations() - before;
            let expected =
                if attempt < 6 { (Code::Unauthenticated, 1) } else { (Code::ResourceExhausted, 0) };
            assert_eq!((status.code(), cost), expected, "guess {attempt} at {name:?}: {status:?}");
        }
    }
}

/// A hash that is weaker than today's, or of another kind, is replaced at a login, and is no reason to refuse one.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_of_before_is_replaced_at_a_login() {
    let cluster = Cluster::without_node().await;
    for name in ["alice", "bob", "carol"] {
        cluster.user(name, &[name]).await;
    }
    // Until now hashes were made that cost next to nothing.
    danger::hash_cheaply(false);
    let costs = async |name: &str| {
        let before = evaluations();
        logged_in(&cluster, name).await.unwrap();
        evaluations() - before
    };
    assert_eq!(
        (costs("alice").await, costs("alice").await),
        (2, 1),
        "one to check it, and one to replace it"
    );

    let (one, other) = tokio::join!(logged_in(&cluster, "bob"), logged_in(&cluster, "bob"));
    one.and(other).unwrap();
    assert_eq!(costs("bob").await, 1);

    // Where there are failures to be forgotten, the login writes the record by itself.
    let guess = v1::LoginRequest {
        user: "carol".to_owned(),
        password: "a wrong password".to_owned(),
        ..Default::default()
    };
    stranger(&cluster).await.login_with_password(guess).await.unwrap_err();
    assert_eq!((costs("carol").await, costs("carol").await), (2, 1));
}
