//! Administrators prove a factor for what is dangerous: what a thief of an administrator's certificate **and** key holds, and what not.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use sallyport_server::config::{AdminFactor, AuthenticationSection};
use sallyport_wire::acts::{self, Weight};
use sallyport_wire::admin_factor::Wanted;
use sallyport_wire::v1::admin_client::AdminClient;
use tonic::Code;

use super::*;
use crate::auth_api;

fn document(kind: &str, name: &str, spec: &str) -> String {
    format!("kind: {kind}\nversion: v1\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

async fn create(admin: &mut AdminClient<Channel>, yaml: String, replace: bool) -> Result<(), Status> {
    admin.create_resource(v1::CreateResourceRequest { yaml, replace }).await.map(drop)
}

/// A user who may do everything with everything, with a password and no factor.
pub(super) async fn administrator(bench: &Bench<'_>, name: &str) -> User {
    let mut local = bench.cluster.admin().await;
    let yaml = format!(
        "kind: role\nversion: v1\nmetadata: {{name: {name}-role}}\nspec:\n  allow:\n    logins: [root]\n    rules:\n      \
         - resources: ['*']\n        verbs: ['*']\n"
    );
    let user = support::user(&mut local, &bench.cluster.proxy(), name, &["root"]).await;
    create(&mut local, yaml, true).await.unwrap();
    user
}

async fn admin_of(user: &User) -> AdminClient<Channel> {
    AdminClient::new(user.authority().await)
}

/// Something dangerous.
async fn add_user(admin: &mut AdminClient<Channel>, name: &str) -> Result<(), Status> {
    let request = v1::CreateUserRequest { name: name.to_owned(), ..Default::default() };
    admin.create_user(request).await.map(drop)
}

async fn prove(channel: Channel, by: Proof) -> Result<(), Status> {
    let request = v1::ProveAdministratorRequest { proof: proof(by) };
    FactorsClient::new(channel).prove_administrator(request).await.map(drop)
}

fn is_demanded(outcome: Result<(), Status>) {
    let refused = outcome.expect_err("a factor is demanded");
    assert_eq!(Wanted::of(&refused), Some(Wanted::Prove), "{refused:?}");
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("sallyport admin prove"), "{refused:?}");
}

/// The table of methods is what is done: each that is dangerous is refused, and no other is for want of a factor.
#[tokio::test(flavor = "multi_thread")]
async fn every_dangerous_method_wants_a_proof_and_no_other_does() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    bench.first_passkey(&root).await;
    let channel = root.authority().await;
    let (mut demanded, mut dangerous) = (BTreeSet::new(), BTreeSet::new());
    for method in auth_api::methods() {
        match acts::of_method(&method) {
            Weight::Dangerous => dangerous.insert(method.clone()),
            // Their own test.
            Weight::Documents => continue,
            Weight::Reading | Weight::Ordinary => false,
        };
        let asked = tokio::time::timeout(PATIENCE, auth_api::call(&channel, &method, Vec::new())).await;
        let answer = asked.unwrap_or_else(|_| panic!("{method} does not answer"));
        if answer.is_err_and(|status| Wanted::of(&status).is_some()) {
            demanded.insert(method);
        }
    }
    assert_eq!(demanded, dangerous);
    assert!(dangerous.len() >= 10, "{dangerous:?}");
    // What was refused is on record, each by its name.
    let events = bench.events("SP1090W", "root").await;
    let named: BTreeSet<&str> =
        events.iter().filter_map(|event| event["fields"]["method"].as_str()).collect();
    let missing: Vec<_> = dangerous.iter().filter(|method| !named.contains(method.as_str())).collect();
    assert!(missing.is_empty(), "refused, but not on record: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_document_wants_a_proof_but_to_lock_and_to_void_a_token() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    let mut local = cluster.admin().await;
    let written = |kind: &str| match kind {
        "role" => document(kind, "dev", "{allow: {logins: [dev]}}"),
        "user" => document(kind, "dev", "{roles: [root-role]}"),
        "session_policy" => document(kind, "default", "{max_sessions: 3}"),
        "oidc" => document(
            kind,
            "corp",
            "{issuer: 'https://idp.example', client_id: x, private_key_jwt: {algorithm: ES256}, mapping: {roles: [{claim: sub, roles: [access]}]}}",
        ),
        "github" => document(
            kind,
            "hub",
            "{client_id: x, client_secret_file: /nowhere, organizations: [acme], mapping: {roles: [{claim: teams, value: acme/ops, roles: [access]}]}}",
        ),
        "gitlab" => document(
            kind,
            "lab",
            "{client_id: x, client_secret_file: /nowhere, mapping: {roles: [{claim: groups, value: acme/ops, roles: [access]}]}}",
        ),
        "node" => document(kind, "dev", "{address: '192.0.2.1:22'}")
            .replace("kind: node", "kind: node\nsub_kind: openssh"),
        "db" => document(kind, "dev", "{address: '192.0.2.1:5432'}"),
        "login_rule" => document(kind, "dev", "{then: deny, when: 'context.user == \"mallory\"'}"),
        other => document(other, "dev", "{uri: 'tcp://192.0.2.1:80'}"),
    };
    let kinds =
        ["app", "db", "github", "gitlab", "login_rule", "node", "oidc", "role", "session_policy", "user"];
    // The list of kinds is whole: it is what the authority says.
    let unknown = v1::ListResourcesRequest { kind: "nothing".to_owned(), ..Default::default() };
    let said = local.list_resources(unknown).await.unwrap_err().message().to_owned();
    let mut all: Vec<&str> = kinds.into_iter().chain(["lock", "token"]).collect();
    all.sort_unstable();
    assert!(said.ends_with(&all.join(", ")), "{said}");

    bench.first_passkey(&root).await;
    let mut admin = admin_of(&root).await;
    let remove =
        |kind: &str, name: &str| v1::DeleteResourceRequest { kind: kind.to_owned(), name: name.to_owned() };
    for kind in kinds {
        for replace in [false, true] {
            is_demanded(create(&mut admin, written(kind), replace).await);
        }
        let update = v1::UpdateResourceRequest { yaml: written(kind), revision: 1 };
        is_demanded(admin.update_resource(update).await.map(drop));
        is_demanded(admin.delete_resource(remove(kind, "dev")).await.map(drop));
        let none = v1::GetResourceRequest { kind: kind.to_owned(), name: "dev".to_owned() };
        assert_eq!(
            admin.get_resource(none).await.unwrap_err().code(),
            Code::NotFound,
            "{kind} was not written"
        );
    }
    // An emergency does not wait; to lift a lock does, and to write another in its place.
    cluster.user("mallory", &["root"]).await;
    for (lock, replace) in [("one", false), ("two", true)] {
        let yaml = document("lock", lock, "{target: {user: mallory}, message: stop}");
        create(&mut admin, yaml.clone(), replace).await.unwrap();
        is_demanded(create(&mut admin, yaml, true).await);
        is_demanded(admin.delete_resource(remove("lock", lock)).await.map(drop));
    }
    let token = v1::CreateTokenRequest { role: "node".to_owned(), ..Default::default() };
    local.create_token(token).await.unwrap();
    let listed = v1::ListResourcesRequest { kind: "token".to_owned(), ..Default::default() };
    let tokens = admin.list_resources(listed).await.unwrap().into_inner().resources;
    admin.delete_resource(remove("token", &tokens[0].name)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_serves_its_own_login_from_where_it_was_given() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    let mallory = administrator(&bench, "mallory").await;
    let mut key = bench.first_passkey(&root).await;
    let mut rival = bench.first_passkey(&mallory).await;
    let mut admin = admin_of(&root).await;
    is_demanded(add_user(&mut admin, "bob").await);

    let id = bench.begin_proof(&root, Purpose::Administer(true)).await.unwrap();
    let shown = bench.web.clone().describe_approval(at(&id)).await.unwrap().into_inner();
    assert_eq!(shown.purpose, "administer");
    let details: Vec<&str> = shown.details.iter().map(|detail| detail.value.as_str()).collect();
    assert!(details[0].contains("five minutes"), "{details:?}");
    assert_eq!(details[1], "create user (Admin.CreateUser)", "what it is asked for");
    let early = prove(root.authority().await, Proof::Challenge(id.clone())).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "it is not proven yet: {early:?}");
    bench.approve(&id, &mut key).await.unwrap();
    // Proven at the page alone it serves nothing: the program that asked comes with it.
    is_demanded(add_user(&mut admin, "bob").await);
    let anothers = prove(mallory.authority().await, Proof::Challenge(id.clone())).await.unwrap_err();
    assert_eq!(anothers.code(), Code::NotFound, "it is root's: {anothers:?}");
    let elsewhere = support::authority_from(&root, Ipv4Addr::new(127, 0, 0, 9)).await;
    let moved = prove(elsewhere.clone(), Proof::Challenge(id.clone())).await.unwrap_err();
    assert!(moved.message().contains("another address"), "{moved:?}");
    prove(root.authority().await, Proof::Challenge(id.clone())).await.unwrap();
    add_user(&mut admin, "bob").await.unwrap();
    let twice = prove(root.authority().await, Proof::Challenge(id)).await.unwrap_err();
    assert_eq!(twice.code(), Code::FailedPrecondition, "{twice:?}");

    // Not from elsewhere, not by another login of the same person, not by another user.
    is_demanded(add_user(&mut AdminClient::new(elsewhere), "carol").await);
    let second = bench.logged_in(&mut key).await;
    is_demanded(add_user(&mut admin_of(&second).await, "carol").await);
    is_demanded(add_user(&mut admin_of(&mallory).await, "carol").await);
    add_user(&mut admin, "carol").await.unwrap();

    // A factor of another user destroys what was asked for.
    let id = bench.begin_proof(&second, Purpose::Administer(true)).await.unwrap();
    bench.approve(&id, &mut rival).await.unwrap_err();
    bench.approve(&id, &mut key).await.unwrap_err();
    let proven = bench.events("SP1090I", "root").await;
    assert_eq!((proven.len(), &proven[0]["fields"]["factor"]), (1, &"laptop".into()), "{proven:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_proven_for_one_purpose_serves_no_other() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    let mut key = bench.first_passkey(&root).await;
    let mut admin = admin_of(&root).await;
    let codes = bench.begin_proof(&root, Purpose::RecoveryCodes(true)).await.unwrap();
    bench.approve(&codes, &mut key).await.unwrap();
    let other = prove(root.authority().await, Proof::Challenge(codes.clone())).await.unwrap_err();
    assert_eq!(other.code(), Code::FailedPrecondition, "{other:?}");
    is_demanded(add_user(&mut admin, "bob").await);

    let administer = bench.begin_proof(&root, Purpose::Administer(true)).await.unwrap();
    bench.approve(&administer, &mut key).await.unwrap();
    let request = v1::MakeRecoveryCodesRequest { proof: proof(Proof::Challenge(administer.clone())) };
    let other = factors(&root).await.make_recovery_codes(request).await.unwrap_err();
    assert_eq!(other.code(), Code::FailedPrecondition, "{other:?}");
    let add = bench.add_codes(&root, "phone", Proof::Challenge(administer.clone())).await.unwrap_err();
    assert_eq!(add.code(), Code::FailedPrecondition, "{add:?}");
    // And the cached proof changes no factor: each of those wants its own.
    prove(root.authority().await, Proof::Challenge(administer)).await.unwrap();
    let request = v1::MakeRecoveryCodesRequest { proof: None };
    let none = factors(&root).await.make_recovery_codes(request).await.unwrap_err();
    assert_eq!(none.code(), Code::FailedPrecondition, "{none:?}");
    let password = prove(root.authority().await, Proof::Password(PASSWORD.to_owned())).await.unwrap_err();
    assert_eq!(password.code(), Code::FailedPrecondition, "{password:?}");

    // Codes serve, once each.
    let proven = Proof::Challenge(codes);
    let request = v1::MakeRecoveryCodesRequest { proof: proof(proven) };
    let recovery = factors(&root).await.make_recovery_codes(request).await.unwrap().into_inner().codes;
    let second = bench.logged_in(&mut key).await;
    let code = || Proof::RecoveryCode(recovery[0].clone());
    prove(second.authority().await, code()).await.unwrap();
    add_user(&mut admin_of(&second).await, "bob").await.unwrap();
    prove(second.authority().await, code()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_ends_with_a_lock_a_removed_factor_and_a_reset() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    let mut local = cluster.admin().await;
    let mut key = bench.first_passkey(&root).await;
    let secret = {
        let id = bench.begin_proof(&root, Purpose::AddFactor(to_add("totp", "phone"))).await.unwrap();
        bench.approve(&id, &mut key).await.unwrap();
        bench.add_codes(&root, "phone", Proof::Challenge(id)).await.unwrap()
    };
    let mut admin = admin_of(&root).await;
    prove(root.authority().await, Proof::Otp(next_code(&secret))).await.unwrap();
    add_user(&mut admin, "one").await.unwrap();

    // A lock that is lifted again brings no proof back.
    let lock = document("lock", "stop", "{target: {user: root}, message: stop}");
    create(&mut local, lock, false).await.unwrap();
    let locked = add_user(&mut admin, "two").await.unwrap_err();
    assert_eq!((locked.code(), Wanted::of(&locked)), (Code::PermissionDenied, None), "{locked:?}");
    let lift = v1::DeleteResourceRequest { kind: "lock".to_owned(), name: "stop".to_owned() };
    local.delete_resource(lift).await.unwrap();
    is_demanded(add_user(&mut admin, "two").await);

    // What was proven by a factor goes with it.
    let by_page = async |key: &mut Authenticator| {
        let id = bench.begin_proof(&root, Purpose::Administer(true)).await.unwrap();
        bench.approve(&id, key).await.unwrap();
        prove(root.authority().await, Proof::Challenge(id)).await.unwrap();
    };
    by_page(&mut key).await;
    add_user(&mut admin, "two").await.unwrap();
    let listed = factors(&root).await.list(v1::ListFactorsRequest {}).await.unwrap().into_inner();
    let laptop = listed.factors.iter().find(|factor| factor.name == "laptop").unwrap().id.clone();
    let id = bench.begin_proof(&root, Purpose::RemoveFactor(laptop.clone())).await.unwrap();
    bench.approve(&id, &mut key).await.unwrap();
    let request = v1::RemoveFactorRequest { id: laptop, proof: proof(Proof::Challenge(id)) };
    factors(&root).await.remove(request).await.unwrap();
    is_demanded(add_user(&mut admin, "three").await);

    // A reset ends the login itself.
    local.reset_user(v1::ResetUserRequest { name: "root".to_owned() }).await.unwrap();
    let reset = add_user(&mut admin, "three").await.unwrap_err();
    assert_eq!(Wanted::of(&reset), None, "{reset:?}");
}

/// An administrator without a factor: the certificate is all that is asked for, which is on record, unless the cluster requires more. The
/// first factor takes the password, so that a thief adds none.
#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_without_a_factor_is_told_of_and_a_thief_adds_none() {
    for mode in [AdminFactor::Enrolled, AdminFactor::Required, AdminFactor::Off] {
        let cluster =
            cluster_with(|config| config.auth.as_mut().unwrap().authentication.admin_factor = mode).await;
        let bench = Bench::at(&cluster).await;
        let root = administrator(&bench, "root").await;
        let mut admin = admin_of(&root).await;
        let first = add_user(&mut admin, "bob").await;
        let unproven = bench.events("SP1091W", "root").await;
        let mut client =
            v1::cluster_client::ClusterClient::new(support::admin_channel(&cluster.data_dir()).await);
        let status = client.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
        assert_eq!(status.admin_factor, mode.name());
        match mode {
            AdminFactor::Enrolled => {
                first.unwrap();
                assert_eq!(unproven[0]["fields"]["method"], "Admin.CreateUser", "{unproven:?}");
                assert_eq!(
                    (status.administrators_without_factor, &status.without_factor[..]),
                    (1, &["root".to_owned()][..])
                );
            }
            AdminFactor::Required => {
                let refused = first.unwrap_err();
                assert_eq!(Wanted::of(&refused), Some(Wanted::Enrol), "{refused:?}");
                assert!(refused.message().contains("sallyport mfa add"), "{refused:?}");
                assert!(unproven.is_empty(), "{unproven:?}");
            }
            AdminFactor::Off => {
                first.unwrap();
                assert!(unproven.is_empty() && status.without_factor.is_empty(), "{unproven:?}");
            }
        }
        // The thief has the certificate and its key. No factor without the password, and no proof without a factor.
        for by in [Proof::Password("not the password".to_owned()), Proof::Otp("000000".to_owned())] {
            bench.add_codes(&root, "thief", by).await.unwrap_err();
        }
        let none = prove(root.authority().await, Proof::Password(PASSWORD.to_owned())).await.unwrap_err();
        assert_eq!(none.code(), Code::FailedPrecondition, "a password is no factor: {none:?}");
        // The administrator enrols, and from then on the certificate alone is nothing.
        let secret = bench.add_codes(&root, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
        if mode == AdminFactor::Off {
            add_user(&mut admin, "carol").await.unwrap();
            continue;
        }
        is_demanded(add_user(&mut admin, "carol").await);
        let itself = v1::ResetUserRequest { name: "root".to_owned() };
        is_demanded(admin.reset_user(itself).await.map(drop));
        let link = v1::LinkUserRequest { name: "root".to_owned(), ..Default::default() };
        is_demanded(admin.link_user(link).await.map(drop));
        let unlink = v1::UnlinkUserRequest { name: "root".to_owned() };
        is_demanded(admin.unlink_user(unlink).await.map(drop));
        prove(root.authority().await, Proof::Otp(next_code(&secret))).await.unwrap();
        add_user(&mut admin, "carol").await.unwrap();
    }
}

/// The default, where the configuration says nothing of it: an administrator proves a factor, or comes by the authority's own socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_configured_with_nothing_lets_no_administrator_change_anything_without_a_factor() {
    let cluster = cluster_with(|config| {
        let default = AuthenticationSection::default().admin_factor;
        config.auth.as_mut().unwrap().authentication.admin_factor = default;
    })
    .await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    let mut admin = admin_of(&root).await;
    let role = || document("role", "dev", "{allow: {logins: [dev]}}");
    for refused in [
        add_user(&mut admin, "bob").await,
        create(&mut admin, role(), false).await,
        admin.reset_user(v1::ResetUserRequest { name: "root".to_owned() }).await.map(drop),
        admin.create_token(v1::CreateTokenRequest::default()).await.map(drop),
    ] {
        let refused = refused.expect_err("a factor is demanded");
        assert_eq!(Wanted::of(&refused), Some(Wanted::Enrol), "{refused:?}");
        for way in ["sallyport mfa add NAME", "sallyport admin --data-dir DIR"] {
            assert!(refused.message().contains(way), "{refused:?}");
        }
    }
    // What is read takes none, nor does a lock, which cannot wait.
    let listed = v1::ListResourcesRequest { kind: "user".to_owned(), ..Default::default() };
    assert_eq!(admin.list_resources(listed).await.unwrap().into_inner().resources.len(), 1);
    // The socket asks for none.
    add_user(&mut cluster.admin().await, "bob").await.unwrap();
    create(&mut admin, document("lock", "stop", "{target: {user: bob}}"), false).await.unwrap();
    // With a factor the administrator goes on.
    let secret = bench.add_codes(&root, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    is_demanded(create(&mut admin, role(), false).await);
    prove(root.authority().await, Proof::Otp(next_code(&secret))).await.unwrap();
    create(&mut admin, role(), false).await.unwrap();
}

/// Nobody locks a cluster out: the authority's own socket asks for no factor, and what comes by it is an event of its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_socket_of_the_authority_asks_for_no_factor_and_is_on_record() {
    let cluster = cluster_with(|config| {
        config.auth.as_mut().unwrap().authentication.admin_factor = AdminFactor::Required;
    })
    .await;
    let bench = Bench::at(&cluster).await;
    add_user(&mut cluster.admin().await, "bob").await.unwrap();
    let events = bench.events("SP1092I", "@local").await;
    let made = events.iter().find(|event| event["fields"]["method"] == "Admin.CreateUser").unwrap();
    assert_eq!(made["message"], "create user", "{made:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_proofs_closes_the_account_and_opens_nothing() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    let secret = bench.add_codes(&root, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let mut admin = admin_of(&root).await;
    let mut last = None;
    for _ in 0..12 {
        last = prove(root.authority().await, Proof::Otp("000000".to_owned())).await.err();
    }
    assert_eq!(last.unwrap().code(), Code::ResourceExhausted);
    let right = prove(root.authority().await, Proof::Otp(next_code(&secret))).await.unwrap_err();
    assert_eq!(right.code(), Code::ResourceExhausted, "the account is closed: {right:?}");
    assert_eq!(bench.events("SP1001W", "root").await.len(), 1);
    // As many approvals as a user may have open, and what is asked for again and again is counted.
    let mut refused = None;
    for _ in 0..25 {
        refused = bench.begin_proof(&root, Purpose::Administer(true)).await.err();
    }
    assert_eq!(refused.unwrap().code(), Code::ResourceExhausted);
    for _ in 0..40 {
        is_demanded(add_user(&mut admin, "bob").await);
    }
    let demanded = bench.events("SP1090W", "root").await;
    assert!(demanded.len() < 40, "{}", demanded.len());
}

/// A lock that is new is ordinary, and one that is changed is dangerous. Of many who write the same one at a moment, one has made it, and
/// no other changes it by what was right before it was there.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_lock_that_was_made_meanwhile_is_not_replaced_without_a_proof() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    bench.first_passkey(&root).await;
    let admin = admin_of(&root).await;
    for round in 0..4 {
        let name = format!("lock-{round}");
        let writing = (0..12).map(|number| {
            let mut admin = admin.clone();
            let yaml = document("lock", &name, &format!("{{target: {{login: thief-{number}}}}}"));
            async move { create(&mut admin, yaml, true).await }
        });
        let outcomes = futures::future::join_all(writing).await;
        let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(made, 1, "{outcomes:?}");
        for refused in outcomes.into_iter().filter_map(Result::err) {
            let is_demanded = Wanted::of(&refused) == Some(Wanted::Prove);
            assert!(is_demanded || refused.code() == Code::Aborted, "{refused:?}");
        }
    }
}
