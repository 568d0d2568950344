//! The second factor for each session: whichever way a session is asked for, what roles demand is proven first, and a proof serves what
//! it was given for.

mod gone;
mod hosts;
mod pins;
mod places;
mod shown;
mod verified;
mod watched;
mod ways;

use sallyport_access::{FactorDemand, FactorRule, SessionFactor, SessionTarget};
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::session_factors_client::SessionFactorsClient;
use sallyport_wire::v1::shown_certificate::Certificate;
use tokio::net::TcpListener;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tonic::Code;

use super::*;
use crate::support::{node_section, os_login, until};

/// A role for everything that sessions are with, with these options.
fn role(name: &str, options: &str) -> String {
    format!(
        "kind: role\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  allow:\n    logins: [{}]\n    node_labels: {{'*': '*'}}\n    \
         db_labels: {{'*': '*'}}\n    db_users: ['*']\n    db_names: ['*']\n    app_labels: {{'*': '*'}}\n  options: {{{options}}}\n",
        os_login()
    )
}

async fn put(cluster: &Cluster, yaml: String) {
    let request = v1::CreateResourceRequest { yaml, replace: true };
    cluster.admin().await.create_resource(request).await.unwrap();
}

/// A cluster whose node `web-1` serves the application `wiki` and the database `shop`, and alice with a role of these options.
async fn scene(options: &str) -> (Cluster, User) {
    scene_with(options, |_| {}).await
}

async fn scene_with(options: &str, adjust: impl FnOnce(&mut Config)) -> (Cluster, User) {
    let cluster = cluster_with(|config| {
        config.node = Some(node_section("web-1"));
        devices::file_keys(config);
        adjust(config);
    })
    .await;
    let alice = cluster.user("alice", &[&os_login()]).await;
    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { while let Ok((_stream, _)) = listener.accept().await {} });
    put(
        &cluster,
        format!(
            "kind: app\nversion: v1\nmetadata: {{name: wiki}}\nspec: {{uri: 'tcp://{address}', via: web-1}}\n"
        ),
    )
    .await;
    put(
        &cluster,
        format!(
            "kind: db\nversion: v1\nmetadata: {{name: shop}}\nspec: {{address: '{address}', via: web-1}}\n"
        ),
    )
    .await;
    put(&cluster, role("alice-role", options)).await;
    (cluster, alice)
}

fn to(kind: &str, resource: &str, account: &str, db_name: &str) -> v1::SessionTarget {
    v1::SessionTarget {
        kind: kind.to_owned(),
        resource: resource.to_owned(),
        account: account.to_owned(),
        db_name: db_name.to_owned(),
    }
}

fn web_1() -> v1::SessionTarget {
    to("node", "web-1", &os_login(), "")
}

fn wanted(targets: &[v1::SessionTarget]) -> v1::BeginSessionFactorRequest {
    v1::BeginSessionFactorRequest {
        targets: targets.to_vec(),
        host_name: "laptop".to_owned(),
        ..Default::default()
    }
}

async fn sessions(user: &User) -> SessionFactorsClient<Channel> {
    SessionFactorsClient::new(user.authority().await)
}

fn shown(user: &User) -> Option<v1::ShownCertificate> {
    Some(v1::ShownCertificate { certificate: Some(Certificate::Ssh(user.ssh_certificate.clone())) })
}

/// Calls every method once with success that is about sessions' factors, for a user with this passkey.
pub(super) async fn as_people(bench: &Bench<'_>, user: &User, key: &mut Authenticator) {
    put(bench.cluster, role("wendy-role", "require_session_mfa: yes")).await;
    let app = |name: &str| {
        format!(
            "kind: app\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{uri: 'tcp://127.0.0.1:1', via: web-1}}\n"
        )
    };
    put(bench.cluster, app("desk")).await;
    let desk = || to("app", "desk", "", "");
    let challenge = bench.proves(user, key, wanted(&[desk()])).await;
    let request = v1::CertifySessionRequest {
        challenge,
        ssh_certificate: user.ssh_certificate.clone(),
        tls_certificate_pem: user.tls_chain.clone(),
    };
    sessions(user).await.certify(request).await.unwrap();
    assert!(bench.check(user, "127.0.0.1", desk()).await.satisfied);
    let mut proxy = bench.factors_of_sessions();
    let address = "192.0.2.7".to_owned();
    let asked = v1::BeginSessionFactorForRequest {
        certificate: shown(user),
        address: address.clone(),
        target: Some(desk()),
    };
    let asked = proxy.begin_for(asked).await.unwrap().into_inner();
    let challenge = asked.page.unwrap().challenge;
    let refuse = bench.web.clone().refuse_approval(at(&challenge)).await;
    refuse.unwrap();
    let request = v1::AwaitSessionFactorForRequest { challenge, certificate: shown(user), address };
    assert_eq!(proxy.await_for(request).await.unwrap().into_inner().state, "refused");
}

async fn agent_of(cluster: &Cluster) -> String {
    use sallyport_wire::v1::cluster_client::ClusterClient;
    until("the node", async || {
        let mut listing = ClusterClient::new(support::admin_channel(&cluster.data_dir()).await);
        let nodes = listing.list_nodes(v1::ListNodesRequest::default()).await.ok()?.into_inner().nodes;
        nodes.into_iter().find(|node| node.name == "web-1").map(|node| node.id)
    })
    .await
}

impl Bench<'_> {
    fn factors_of_sessions(&self) -> SessionFactorsClient<Channel> {
        SessionFactorsClient::new(self.proxy.clone())
    }

    async fn ask(&self, user: &User, asked: v1::BeginSessionFactorRequest) -> v1::SessionFactorAsked {
        let asked = sessions(user).await.begin(asked).await.unwrap().into_inner();
        if let Some(page) = &asked.page {
            self.codes.lock().insert(page.challenge.clone(), asked.code.clone());
        }
        asked
    }

    /// Asks, and proves it at the page by a passkey.
    async fn proves(
        &self,
        user: &User,
        key: &mut Authenticator,
        asked: v1::BeginSessionFactorRequest,
    ) -> String {
        let asked = self.ask(user, asked).await;
        assert_eq!(asked.state, "pending");
        let id = asked.page.unwrap().challenge;
        self.approve(&id, key).await.unwrap();
        let awaited = v1::AwaitSessionFactorRequest { challenge: id.clone() };
        assert_eq!(sessions(user).await.r#await(awaited).await.unwrap().into_inner().state, "proven");
        id
    }

    async fn recovery_codes(&self, user: &User, key: &mut Authenticator) -> Vec<String> {
        let id = self.begin_proof(user, Purpose::RecoveryCodes(true)).await.unwrap();
        self.approve(&id, key).await.unwrap();
        let by = v1::MakeRecoveryCodesRequest { proof: proof(Proof::Challenge(id)) };
        factors(user).await.make_recovery_codes(by).await.unwrap().into_inner().codes
    }

    /// What a proxy hears that asks about a session of a user's who comes from an address.
    async fn check(
        &self,
        user: &User,
        address: &str,
        target: v1::SessionTarget,
    ) -> v1::CheckSessionFactorResponse {
        let request = v1::CheckSessionFactorRequest {
            certificate: shown(user),
            address: address.to_owned(),
            target: Some(target),
        };
        self.factors_of_sessions().check(request).await.unwrap().into_inner()
    }
}

/// Each part that a proof is bound to, changed by itself, as the authority answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_proof_serves_its_own_login_place_session_and_kind_until_it_ends() {
    let (cluster, alice) = scene("require_session_mfa: yes, session_mfa_ttl: 5m").await;
    let bench = Bench::at(&cluster).await;
    let mallory = cluster.user("mallory", &[&os_login()]).await;
    put(&cluster, role("mallory-role", "require_session_mfa: yes, session_mfa_ttl: 5m")).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let here = "127.0.0.1";
    let shop = || to("db", "shop", "app", "shop");
    assert_eq!(bench.check(&alice, here, web_1()).await.demand, "yes");
    bench.proves(&alice, &mut key, wanted(&[web_1(), to("db", "shop", "app", "shop")])).await;
    let proven = bench.check(&alice, here, web_1()).await;
    assert!(proven.satisfied && proven.factor == "laptop" && proven.until.is_some(), "{proven:?}");
    assert!(
        bench.check(&alice, "[::ffff:127.0.0.1]:7", shop()).await.satisfied,
        "one address in other words"
    );

    let unproven = async |user: &User, address: &str, target: v1::SessionTarget, what: &str| {
        let answer = bench.check(user, address, target).await;
        assert_eq!((answer.satisfied, answer.demand.as_str()), (false, "yes"), "{what}");
    };
    unproven(&alice, "192.0.2.9", web_1(), "from elsewhere").await;
    unproven(&alice, here, to("app", "wiki", "", ""), "another kind").await;
    unproven(&alice, here, to("node", "web-1", "", ""), "any login").await;
    unproven(&alice, here, to("db", "shop", "root", "shop"), "another database user").await;
    unproven(&alice, here, to("db", "shop", "app", "other"), "another database").await;
    unproven(&mallory, here, web_1(), "another user").await;
    unproven(&bench.logged_in(&mut key).await, here, web_1(), "another login of hers").await;

    // Roles that give no time any more, and those that demand more.
    put(&cluster, role("alice-role", "require_session_mfa: hardware, session_mfa_ttl: 5m")).await;
    assert!(bench.check(&alice, here, web_1()).await.satisfied, "the key does not leave its device");
    put(&cluster, role("alice-role", "require_session_mfa: yes")).await;
    assert!(bench.check(&alice, here, web_1()).await.satisfied, "the minute of the session it was for");

    // What ends the proof: the factor goes, the account is reset, the login is locked.
    let removed = bench.check(&alice, here, web_1()).await;
    assert!(removed.satisfied);
    bench.enrol_more(&alice, &mut key).await;
    unproven(&alice, here, web_1(), "the factor was removed").await;
}

impl Bench<'_> {
    /// Adds one-time codes by a passkey, and removes the passkey by a code.
    async fn enrol_more(&self, user: &User, key: &mut Authenticator) {
        let id = self.begin_proof(user, Purpose::AddFactor(to_add("totp", "phone"))).await.unwrap();
        self.approve(&id, key).await.unwrap();
        let secret = self.add_codes(user, "phone", Proof::Challenge(id)).await.unwrap();
        let mut client = factors(user).await;
        let listed = client.list(v1::ListFactorsRequest {}).await.unwrap().into_inner();
        let id = listed.factors.into_iter().find(|factor| factor.kind == "webauthn").unwrap().id;
        let request = v1::RemoveFactorRequest { id, proof: proof(Proof::Otp(next_code(&secret))) };
        client.remove(request).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_ends_what_was_proven_before() {
    let (cluster, alice) = scene("require_session_mfa: yes, session_mfa_ttl: 5m").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    bench.proves(&alice, &mut key, wanted(&[web_1()])).await;
    assert!(bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);
    put(
        &cluster,
        "kind: lock\nversion: v1\nmetadata: {name: out}\nspec: {target: {user: alice}}\n".to_owned(),
    )
    .await;
    let request = v1::CheckSessionFactorRequest {
        certificate: shown(&alice),
        address: "127.0.0.1".to_owned(),
        target: Some(web_1()),
    };
    let locked = bench.factors_of_sessions().check(request).await.unwrap_err();
    assert_eq!(locked.code(), Code::PermissionDenied, "{locked:?}");
}

/// Fifty at once are one challenge, and what a proxy asks for beside, for stock clients, is one of its own; what a page has shown takes
/// nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_login_asks_for_at_once_is_one_challenge() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let mut asking = tokio::task::JoinSet::new();
    let client = sessions(&alice).await;
    for number in 0..50 {
        let (mut client, mut proxy, alice) = (client.clone(), bench.factors_of_sessions(), alice.clone());
        asking.spawn(async move {
            let app = to("app", "wiki", "", "");
            let asked = match number % 2 {
                0 => client.begin(wanted(&[web_1(), app])).await,
                _ => {
                    let request = v1::BeginSessionFactorForRequest {
                        certificate: shown(&alice),
                        address: "127.0.0.1".to_owned(),
                        target: Some(web_1()),
                    };
                    proxy.begin_for(request).await
                }
            };
            (number % 2 == 0, asked.unwrap().into_inner())
        });
    }
    let (own, by_proxy): (Vec<_>, Vec<_>) = asking.join_all().await.into_iter().partition(|(own, _)| *own);
    let [asked, by_proxy] =
        [own, by_proxy].map(|all| all.into_iter().map(|(_, one)| one).collect::<Vec<_>>());
    let ids: std::collections::BTreeSet<String> =
        asked.iter().map(|asked| asked.page.as_ref().unwrap().challenge.clone()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(asked.iter().filter(|asked| !asked.joined).count(), 1);
    assert!(asked.iter().all(|one| one.code == asked[0].code && one.passkeys && !one.codes));
    let of_proxy: std::collections::BTreeSet<String> =
        by_proxy.iter().map(|asked| asked.page.as_ref().unwrap().challenge.clone()).collect();
    assert!(
        of_proxy.len() == 1 && of_proxy.is_disjoint(&ids),
        "a proxy learns of none of the user's: {of_proxy:?}"
    );
    assert_eq!(
        bench
            .events("SP1014I", "alice")
            .await
            .iter()
            .filter(|event| event["fields"]["purpose"] == "session")
            .count(),
        2
    );

    let id = ids.into_iter().next().unwrap();
    bench.codes.lock().insert(id.clone(), asked[0].code.clone());
    let page = bench.web.clone().describe_approval(at(&id)).await.unwrap().into_inner();
    assert_eq!((page.purpose.as_str(), page.user.as_str()), ("session", "alice"));
    let details: Vec<String> = page.details.iter().map(|detail| detail.value.clone()).collect();
    assert!(details.contains(&format!("node web-1 as {}", os_login())), "{details:?}");
    assert!(details.contains(&"application wiki".to_owned()), "{details:?}");

    // The person has read which they are: another one is asked for by itself.
    let later = bench.ask(&alice, wanted(&[to("db", "shop", "app", "shop")])).await;
    assert!(!later.joined && later.page.unwrap().challenge != id);
    bench.approve(&id, &mut key).await.unwrap();
    assert!(bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);
    assert!(bench.check(&alice, "127.0.0.1", to("app", "wiki", "", "")).await.satisfied);
    assert!(!bench.check(&alice, "127.0.0.1", to("db", "shop", "app", "shop")).await.satisfied);
    assert_eq!(bench.ask(&alice, wanted(&[web_1()])).await.state, "none", "it is proven");
}

/// Refused once, for all who wait, and not asked again for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_one_for_all_and_holds_for_a_while() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    bench.first_passkey(&alice).await;
    let asked = bench.ask(&alice, wanted(&[web_1()])).await;
    let id = asked.page.unwrap().challenge;
    let waits = async || {
        let awaited = v1::AwaitSessionFactorRequest { challenge: id.clone() };
        sessions(&alice).await.r#await(awaited).await.unwrap().into_inner().state
    };
    let request = v1::AwaitSessionFactorForRequest {
        challenge: id.clone(),
        certificate: shown(&alice),
        address: "127.0.0.1".to_owned(),
    };
    let mut proxy = bench.factors_of_sessions();
    let refuse = async { bench.web.clone().refuse_approval(at(&id)).await.unwrap() };
    let (one, other, _) = tokio::join!(waits(), proxy.await_for(request), refuse);
    assert_eq!((one.as_str(), other.unwrap().into_inner().state.as_str()), ("refused", "refused"));
    let again = sessions(&alice).await.begin(wanted(&[web_1()])).await.unwrap_err();
    assert_eq!(again.code(), Code::PermissionDenied);
    assert!(again.message().contains("not asked for again for"), "{again:?}");
}

/// A factor of another user destroys the challenge, and one that can be copied is not worth what hardware is.
#[tokio::test(flavor = "multi_thread")]
async fn the_factor_is_the_users_own_and_of_the_kind_that_is_demanded() {
    let (cluster, alice) = scene("require_session_mfa: hardware").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mallory = cluster.user("mallory", &[&os_login()]).await;
    let mut rival = bench.first_passkey(&mallory).await;
    let secret = bench.add_codes(&alice, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let none = sessions(&alice).await.begin(wanted(&[web_1()])).await.unwrap_err();
    assert!(none.code() == Code::FailedPrecondition && none.message().contains("hardware"), "{none:?}");
    let mut key = bench.enrol(&alice, "key", Proof::Otp(next_code(&secret))).await.unwrap();

    let asked = bench.ask(&alice, wanted(&[web_1()])).await;
    assert_eq!((asked.demand.as_str(), asked.codes, asked.passkeys), ("hardware", false, true));
    let id = asked.page.unwrap().challenge;
    let by_code = v1::ProveSessionFactorRequest {
        challenge: id.clone(),
        otp: "123456".to_owned(),
        shown: vec![web_1()],
    };
    let by_code = sessions(&alice).await.prove(by_code).await.unwrap_err();
    assert_eq!(by_code.code(), Code::FailedPrecondition, "{by_code:?}");
    let anothers = v1::AwaitSessionFactorRequest { challenge: id.clone() };
    assert_eq!(sessions(&mallory).await.r#await(anothers).await.unwrap_err().code(), Code::NotFound);
    let refused = bench.approve(&id, &mut rival).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(bench.approve(&id, &mut key).await.is_err(), "it is destroyed");
    assert!(!bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);
    assert_eq!(bench.events("SP1015W", "alice").await.last().unwrap()["fields"]["factor_of"], "mallory");
}

/// By a code in the terminal, and by one that a stock client's user has typed to the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn codes_prove_it_in_the_terminal_and_through_a_proxy() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let codes = bench.recovery_codes(&alice, &mut key).await;

    let asked = bench.ask(&alice, wanted(&[web_1()])).await;
    let id = asked.page.unwrap().challenge;
    let prove = |otp: &str| v1::ProveSessionFactorRequest {
        challenge: id.clone(),
        otp: otp.to_owned(),
        shown: vec![web_1()],
    };
    let wrong = sessions(&alice).await.prove(prove("000000")).await.unwrap_err();
    assert_eq!(wrong.code(), Code::PermissionDenied, "the person may type another: {wrong:?}");
    let proven = sessions(&alice).await.prove(prove(&codes[0])).await.unwrap().into_inner();
    assert_eq!(proven.state, "proven");
    assert!(bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);

    // One after another, and more than may be open at once: what is proven takes no place.
    let (wiki, mut proxy) = (to("app", "wiki", "", ""), bench.factors_of_sessions());
    for (number, code) in codes[1..7].iter().enumerate() {
        let address = format!("192.0.2.{number}");
        let request = v1::BeginSessionFactorForRequest {
            certificate: shown(&alice),
            address: address.clone(),
            target: Some(wiki.clone()),
        };
        let challenge = proxy.begin_for(request).await.unwrap().into_inner().page.unwrap().challenge;
        let request = v1::ProveSessionFactorForRequest {
            challenge,
            certificate: shown(&alice),
            address: address.clone(),
            otp: code.clone(),
            shown: vec![wiki.clone()],
        };
        assert_eq!(proxy.prove_for(request).await.unwrap().into_inner().state, "proven");
        assert!(bench.check(&alice, &address, wiki.clone()).await.satisfied);
    }
    assert!(!bench.check(&alice, "127.0.0.1", wiki).await.satisfied, "it was asked for from elsewhere");
    let proven = bench.events("SP1015I", "alice").await;
    assert!(
        proven.iter().any(|event| event["fields"]["proxy"] == "proxy:pages"
            && event["fields"]["sessions"][0] == "application wiki"),
        "{proven:?}"
    );
}

/// A host that asks about what it does not serve, and a proxy that makes a user be asked: neither gets more than that.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_ask_about_their_own_sessions_and_proxies_ask_users_a_few_times() {
    let (cluster, alice) = scene("require_session_mfa: yes, session_mfa_ttl: 5m").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    bench.first_passkey(&alice).await;
    let mut hostile = SessionFactorsClient::new(support::joined_node(&cluster, "other").await);
    let server = "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {name: stock}\nspec: {address: '192.0.2.1:22', via: web-1}\n";
    put(&cluster, server.to_owned()).await;
    let stock = to("node", "stock", "", "");
    for target in [web_1(), stock, to("db", "shop", "app", "shop"), to("app", "wiki", "", "")] {
        let request = v1::CheckSessionFactorRequest {
            certificate: shown(&alice),
            address: "127.0.0.1".to_owned(),
            target: Some(target),
        };
        let refused = hostile.check(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    let for_alice = |address: String, target| v1::BeginSessionFactorForRequest {
        certificate: shown(&alice),
        address,
        target: Some(target),
    };
    let refused = hostile.begin_for(for_alice("127.0.0.1".to_owned(), web_1())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "a node asks no user");

    // A flood from addresses that a proxy makes up.
    let mut proxy = bench.factors_of_sessions();
    let mut opened = 0;
    for number in 0..40 {
        match proxy.begin_for(for_alice(format!("192.0.2.{number}"), web_1())).await {
            Ok(_) => opened += 1,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}"),
        }
    }
    assert_eq!(opened, 5, "challenges that proxies have asked one user for");
    let own = bench.ask(&alice, wanted(&[web_1()])).await;
    assert_eq!((own.state.as_str(), own.joined), ("pending", false), "the user's own are not taken");
    let unknown = proxy.begin_for(v1::BeginSessionFactorForRequest::default()).await.unwrap_err();
    assert_eq!(unknown.code(), Code::PermissionDenied, "without a certificate: {unknown:?}");
}

/// Before a day's work: one proof for all, for as long as the roles give.
#[tokio::test(flavor = "multi_thread")]
async fn a_proof_for_all_sessions_serves_where_roles_give_time() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let all = || v1::BeginSessionFactorRequest { all: true, pre_auth_seconds: 900, ..Default::default() };
    let no_time = sessions(&alice).await.begin(all()).await.unwrap_err();
    assert!(no_time.message().contains("session_mfa_ttl"), "{no_time:?}");
    put(&cluster, role("alice-role", "require_session_mfa: yes, session_mfa_ttl: 10m")).await;
    bench.proves(&alice, &mut key, all()).await;
    for target in [web_1(), to("db", "shop", "app", "shop"), to("app", "wiki", "", "")] {
        let proven = bench.check(&alice, "127.0.0.1", target).await;
        let left = proven.until.unwrap().seconds - OffsetDateTime::now_utc().unix_timestamp();
        assert!(proven.satisfied && (500..=600).contains(&left), "{left} s: the roles' time and no more");
    }
    // The role takes its time away.
    put(&cluster, role("alice-role", "require_session_mfa: yes")).await;
    assert!(!bench.check(&alice, "127.0.0.1", web_1()).await.satisfied);
    let too_many = vec![web_1(); 1_001];
    let refused = sessions(&alice).await.begin(wanted(&too_many)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let nothing = sessions(&alice).await.begin(wanted(&[])).await.unwrap_err();
    assert_eq!(nothing.code(), Code::InvalidArgument);
}

/// A certificate of a minute over the same keys says what was proven, and nothing of anything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_minute_says_which_sessions_were_proven() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mallory = cluster.user("mallory", &[&os_login()]).await;
    let mut key = bench.first_passkey(&alice).await;
    let certify = |challenge: &str, of: &User| v1::CertifySessionRequest {
        challenge: challenge.to_owned(),
        ssh_certificate: of.ssh_certificate.clone(),
        tls_certificate_pem: of.tls_chain.clone(),
    };
    let asked = bench.ask(&alice, wanted(&[web_1()])).await;
    let id = asked.page.unwrap().challenge;
    let early = sessions(&alice).await.certify(certify(&id, &alice)).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "it is not proven yet: {early:?}");
    bench.approve(&id, &mut key).await.unwrap();
    let anothers = sessions(&mallory).await.certify(certify(&id, &mallory)).await.unwrap_err();
    assert_eq!(anothers.code(), Code::NotFound, "it is alice's: {anothers:?}");
    let keys_of_another = sessions(&alice).await.certify(certify(&id, &mallory)).await.unwrap_err();
    assert_eq!(keys_of_another.code(), Code::PermissionDenied, "{keys_of_another:?}");
    let certified = sessions(&alice).await.certify(certify(&id, &alice)).await.unwrap().into_inner();

    let trust = cluster.running.authority().unwrap().trust();
    let (now, read) = (OffsetDateTime::now_utc(), sallyport_ca::keys::certificate);
    let line = read(&certified.ssh_certificate).unwrap();
    let before = read(&alice.ssh_certificate).unwrap();
    assert_eq!(line.public_key(), before.public_key(), "the same key");
    let left = certified.expires.unwrap().seconds - now.unix_timestamp();
    assert!((1..=60).contains(&left), "{left} s");
    let der = CertificateDer::from_pem_slice(certified.tls_certificate_pem.as_bytes()).unwrap();
    let by_ssh = trust.session_proof_ssh(&line, now).unwrap().unwrap();
    assert_eq!(trust.session_proof_tls(&der, now).unwrap().unwrap(), by_ssh, "both say the same");
    assert_eq!(trust.session_proof_ssh(&before, now).unwrap(), None, "that of the login says nothing");
    assert_eq!(
        (by_ssh.factor, by_ssh.name.as_str(), by_ssh.targets.len()),
        (SessionFactor::Yes, "laptop", 1)
    );
    let rule = |factor| FactorRule { factor, ..FactorRule::default() };
    let demand = |factor, target: SessionTarget| FactorDemand { rule: rule(factor), target };
    let (target, here) = (by_ssh.targets[0].clone(), "127.0.0.1".parse().unwrap());
    assert!(by_ssh.serves(&demand(SessionFactor::Yes, target.clone()), here));
    assert!(!by_ssh.serves(&demand(SessionFactor::Hardware, target.clone()), here), "worth less");
    assert!(!by_ssh.serves(&demand(SessionFactor::Yes, target.clone()), "192.0.2.1".parse().unwrap()));
    let root = SessionTarget { account: Some("other".to_owned()), ..target };
    assert!(!by_ssh.serves(&demand(SessionFactor::Yes, root), here), "another login");
}

/// Who cannot prove anything is told what to do.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_factor_is_told_to_add_one() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    agent_of(&cluster).await;
    let refused = sessions(&alice).await.begin(wanted(&[web_1()])).await.unwrap_err();
    assert!(refused.message().contains("sallyport mfa add"), "{refused:?}");
    put(&cluster, role("alice-role", "")).await;
    let nothing = sessions(&alice).await.begin(wanted(&[web_1()])).await.unwrap().into_inner();
    assert_eq!(nothing.state, "none", "no role demands it");
}
