//! Hosts that a thief has taken over: what such a host says of a place, and a proxy's refusals of its own questions, take nothing of what
//! other hosts and users need.

use super::*;
use crate::support::member::Joining;

/// Where an office's users are.
const OFFICE: &str = "192.0.2.9";
/// More than one place has verified in a minute, twice: the minute may be over meanwhile.
const BEYOND: usize = 240;

fn bad() -> Option<v1::ShownCertificate> {
    Some(v1::ShownCertificate { certificate: Some(Certificate::Ssh("ssh-ed25519 AAAA".to_owned())) })
}

/// What a host hears that asks for a session of a user's.
type Heard = Result<(), Code>;

fn heard<T>(answer: Result<T, Status>) -> Heard {
    answer.map(drop).map_err(|status| status.code())
}

async fn begin_for(
    proxy: &SessionFactorsClient<Channel>,
    certificate: Option<v1::ShownCertificate>,
    address: &str,
) -> Heard {
    let request =
        v1::BeginSessionFactorForRequest { certificate, address: address.to_owned(), target: Some(web_1()) };
    heard(proxy.clone().begin_for(request).await)
}

/// Another proxy of the cluster.
async fn another(cluster: &Cluster) -> SessionFactorsClient<Channel> {
    let edge = Joining::new("proxy", "edge.example.net").join(cluster).await.unwrap();
    SessionFactorsClient::new(edge.channel)
}

/// Calls until the host hears that there were too many; until then the certificate is looked at, and refused.
async fn until_unverified(mut call: impl AsyncFnMut() -> Heard) {
    for _ in 0..BEYOND {
        match call().await {
            Err(Code::PermissionDenied) => {}
            Err(Code::ResourceExhausted) => return,
            other => panic!("{other:?}"),
        }
    }
    panic!("the certificates of one place are verified without end");
}

/// A proxy shows certificates that do not count, from one place: past a few they are not verified, and others' calls go on, those of the same
/// place by another proxy, too.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_bad_certificates_take_no_part_of_what_their_proxy_calls_for_others() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    bench.first_passkey(&alice).await;
    let (proxy, other) = (bench.factors_of_sessions(), another(&cluster).await);
    until_unverified(async || begin_for(&proxy, bad(), OFFICE).await).await;
    let of_place = begin_for(&proxy, shown(&alice), OFFICE).await;
    assert_eq!(of_place, Err(Code::ResourceExhausted), "of the same place, by the same proxy");
    assert_eq!(begin_for(&proxy, shown(&alice), "192.0.2.8").await, Ok(()), "of another place");
    assert_eq!(begin_for(&other, shown(&alice), OFFICE).await, Ok(()), "of the same place, by another proxy");
    assert_eq!(begin_for(&other, bad(), OFFICE).await, Err(Code::PermissionDenied), "it is looked at");
}

/// A thief has the certificate of one node, which decides about its own sessions alone, and says that a bad certificate is shown from the
/// office: the sessions of the office at all other hosts go on.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_one_stolen_node_stops_no_sessions_of_a_place_at_other_hosts() {
    let (cluster, alice) = scene("require_session_mfa: yes, session_mfa_ttl: 5m").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    bench.proves(&alice, &mut key, wanted(&[web_1()])).await;
    let stolen = SessionFactorsClient::new(support::joined_node(&cluster, "stolen").await);
    let check = async |certificate: Option<v1::ShownCertificate>, address: &str| {
        let request = v1::CheckSessionFactorRequest {
            certificate,
            address: address.to_owned(),
            target: Some(to("node", "stolen", &os_login(), "")),
        };
        heard(stolen.clone().check(request).await)
    };
    // Both of a place that has no proof, and of the one where alice has proven hers.
    for office in [OFFICE, "127.0.0.1"] {
        assert_eq!(check(shown(&alice), office).await, Ok(()), "it asks about its own sessions");
        until_unverified(async || check(bad(), office).await).await;
        assert_eq!(check(shown(&alice), office).await, Err(Code::ResourceExhausted), "by the thief");
    }
    assert_eq!(bench.check(&alice, OFFICE, web_1()).await.demand, "yes", "it is asked for, and not refused");
    assert!(bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);
    assert_eq!(begin_for(&bench.factors_of_sessions(), shown(&alice), OFFICE).await, Ok(()));
}

/// A certificate that is good, and whose user is locked: it is refused as a bad one is, and past a few it is not looked at. Each would take
/// a part of what the proxy may call for its pages.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_certificates_of_a_locked_user_count_as_bad_ones_do() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    bench.first_passkey(&alice).await;
    let mallory = cluster.user("mallory", &[&os_login()]).await;
    let lock =
        "kind: lock\nversion: v1\nmetadata: {name: mallory}\nspec: {target: {user: mallory}}\n".to_owned();
    put(&cluster, lock).await;
    let (proxy, other) = (bench.factors_of_sessions(), another(&cluster).await);
    until_unverified(async || begin_for(&proxy, shown(&mallory), OFFICE).await).await;
    assert_eq!(begin_for(&proxy, shown(&alice), "192.0.2.8").await, Ok(()), "of another place");
    assert_eq!(begin_for(&other, shown(&alice), OFFICE).await, Ok(()), "by another proxy");
}

/// A proxy that a thief has taken over has seen the user's certificate: the proxy asks with the user's address, and its page refuses the
/// question, which takes no code.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_proxy_that_refuses_what_it_has_asked_silences_none_of_the_users_own_questions() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let (mut taken, here) = (bench.factors_of_sessions(), "127.0.0.1");
    let request = v1::BeginSessionFactorForRequest {
        certificate: shown(&alice),
        address: here.to_owned(),
        target: Some(web_1()),
    };
    let asked = taken.begin_for(request.clone()).await.unwrap().into_inner();
    bench.web.clone().refuse_approval(at(&asked.page.unwrap().challenge)).await.unwrap();
    let again = taken.begin_for(request).await.unwrap_err();
    assert_eq!(again.code(), Code::PermissionDenied, "{again:?}");
    assert!(again.message().contains("not asked for again for"), "its own are quiet: {again:?}");
    assert_eq!(begin_for(&another(&cluster).await, shown(&alice), here).await, Ok(()), "by another proxy");
    bench.proves(&alice, &mut key, wanted(&[web_1()])).await;
    assert!(bench.check(&alice, here, web_1()).await.satisfied);
}
