//! Login rules about the device that a login comes from.

use super::*;

async fn write(cluster: &Cluster, when: &str) {
    let yaml = format!(
        "kind: login_rule\nversion: v1\nmetadata: {{name: device}}\nspec:\n  then: deny\n  when: '{when}'\n  message: not from here\n"
    );
    let request = v1::CreateResourceRequest { yaml, replace: true };
    cluster.admin().await.create_resource(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_rule_looks_at_the_device_and_is_tried_with_one() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let (mut laptop, mut desk) = (Machine::new(), Machine::new());
    for (machine, custody) in [(&mut laptop, DeviceCustody::File), (&mut desk, DeviceCustody::Hardware)] {
        machine.enroll(&alice, custody, &token(&cluster, &["alice"], false).await).await.unwrap();
    }
    let bob = cluster.user("bob", &["root"]).await;
    let mut theirs = Machine::new();
    theirs.enroll(&bob, DeviceCustody::File, &token(&cluster, &["bob"], false).await).await.unwrap();
    let mut logins = LoginsClient::new(admin_channel(&cluster.data_dir()).await);
    let mut tried = async |device: &str| {
        let request = v1::TestLoginRulesRequest {
            user: "alice".to_owned(),
            way: "password".to_owned(),
            device: device.to_owned(),
            ..Default::default()
        };
        logins.test_rules(request).await.map(|answer| answer.into_inner().allowed)
    };
    write(&cluster, &format!(r#"context.device.id == "{}""#, laptop.id)).await;
    let refused = laptop.log_in(&bench, &alice).await.map(drop).unwrap_err();
    assert_eq!(refused.message(), r#"the login rule "device" refuses it: not from here"#);
    desk.log_in(&bench, &alice).await.unwrap();
    assert!(!tried(&laptop.id).await.unwrap() && tried(&desk.id).await.unwrap());
    assert!(tried("").await.unwrap() && tried("file").await.unwrap());

    write(&cluster, r#"context.device.custody != "hardware""#).await;
    laptop.log_in(&bench, &alice).await.map(drop).unwrap_err();
    desk.log_in(&bench, &alice).await.unwrap();
    assert!(tried("hardware").await.unwrap() && tried(&desk.id).await.unwrap());
    assert!(!tried("file").await.unwrap() && !tried("").await.unwrap() && !tried(&laptop.id).await.unwrap());

    let odd = tried("software").await.unwrap_err();
    assert!(is(&odd, Code::InvalidArgument, "neither file nor hardware"), "{odd:?}");
    let unknown = tried(&DeviceId::new().to_string()).await.unwrap_err();
    assert!(is(&unknown, Code::NotFound, "sallyport admin devices ls"), "{unknown:?}");
    let others = tried(&theirs.id).await.unwrap_err();
    assert!(is(&others, Code::FailedPrecondition, "not one of alice's"), "{others:?}");
}
