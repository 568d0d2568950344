//! A program that waits for a proof, and goes.

use super::*;

/// Whether it was ended with Ctrl-C or with its machine: nothing is left that could be proven, and the next session asks anew.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_program_waits_for_any_more_is_proven_by_no_page() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let asked = bench.ask(&alice, wanted(&[web_1()])).await;
    let id = asked.page.unwrap().challenge;
    let wait = |id: String| {
        let alice = alice.clone();
        tokio::spawn(async move {
            let request = v1::AwaitSessionFactorRequest { challenge: id };
            sessions(&alice).await.r#await(request).await.map(tonic::Response::into_inner)
        })
    };
    let waits = async |number: usize| {
        until("the calls that wait", async || {
            let called = bench.events("SP3000I", "alice").await;
            let waiting = called.iter().filter(|event| event["fields"]["method"] == "SessionFactors.Await");
            (waiting.count() >= number).then_some(())
        })
        .await;
    };
    let (first, second) = (wait(id.clone()), wait(id.clone()));
    waits(2).await;
    first.abort();
    second.abort();
    until("the end", async || {
        let refused = bench.events("SP1015W", "alice").await;
        let gone = refused.iter().any(|event| event["message"] == "the program that asked for it has gone");
        gone.then_some(())
    })
    .await;
    assert!(bench.approve(&id, &mut key).await.is_err(), "it has ended");
    assert!(!bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);

    // That was no refusal.
    let again = bench.ask(&alice, wanted(&[web_1()])).await;
    assert_eq!((again.state.as_str(), again.joined), ("pending", false));
    let id = again.page.unwrap().challenge;
    let waiting = wait(id.clone());
    waits(3).await;
    bench.approve(&id, &mut key).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().state, "proven");
}
