//! Trusted devices: what roles and the cluster demand, and locks on one.

use sallyport_access::{
    Device, DeviceCustody, DeviceId, Identity, JoinMode, JoinTarget, Lock, LockTarget, Policies,
    SessionPolicy,
};

use crate::decide::{login, node};
use crate::people::{now, policies, role, user};

#[test]
fn a_device_is_asked_for_by_the_roles_that_grant_and_by_the_cluster() {
    let file = Device { id: DeviceId::new(), custody: DeviceCustody::File };
    let hardware = Device { id: DeviceId::new(), custody: DeviceCustody::Hardware };
    let everywhere = "allow: {logins: [x], node_labels: {'*': '*'}}";
    let asking = |how: &str| format!("{{{everywhere}, options: {{device_trust: {how}}}}}");
    let roles = [
        role("open", &format!("{{{everywhere}}}")),
        role("any", &asking("required")),
        role("hard", &asking("required-hardware")),
        role(
            "elsewhere",
            "{allow: {logins: [y], node_labels: {'*': '*'}}, options: {device_trust: required-hardware}}",
        ),
    ];
    let target = node("n", &[]);
    let decide = |policies: &Policies, held: &[&str], device: Option<Device>| {
        let identity = Identity { device, ..user("u", held, &[]) };
        policies
            .decide(&identity, &target, &login("x"), &[], now())
            .map_err(|refusal| refusal.public_message())
    };
    let compiled = policies(&roles);
    for (held, none, in_file) in [
        (&["open"][..], true, true),
        (&["any"], false, true),
        (&["hard"], false, false),
        (&["open", "any"], false, true),
        (&["any", "hard"], false, false),
        // What a role asks that does not grant this login counts for nothing here.
        (&["open", "elsewhere"], true, true),
    ] {
        assert_eq!(decide(&compiled, held, None).is_ok(), none, "{held:?}");
        assert_eq!(decide(&compiled, held, Some(file)).is_ok(), in_file, "{held:?}");
        assert!(decide(&compiled, held, Some(hardware)).is_ok(), "{held:?}");
    }
    let refused = decide(&compiled, &["hard"], Some(file)).unwrap_err();
    assert!(
        refused.contains("the key of this one is in a file") && refused.contains("--module"),
        "{refused}"
    );
    assert!(refused.contains("role \"hard\" options.device_trust"), "{refused}");

    let cluster = SessionPolicy::parse(
        "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {device_trust: required}\n",
    )
    .unwrap();
    let compiled = Policies::compile_with(&roles, cluster).unwrap();
    assert!(decide(&compiled, &["open"], None).is_err() && decide(&compiled, &["open"], Some(file)).is_ok());
    // To take part in a session is as to log in there.
    let session = JoinTarget { node: &target, owner: "u", owner_roles: &[] };
    let join = |device| {
        let identity = Identity { device, ..user("u", &["any"], &[]) };
        compiled.may_join(&identity, session, JoinMode::Observer, &[], now()).is_ok()
    };
    assert!(!join(None) && join(Some(file)));
}

#[test]
fn a_lock_on_a_device_covers_its_logins_alone() {
    let device = Device { id: DeviceId::new(), custody: DeviceCustody::Hardware };
    let text = format!(
        "kind: lock\nversion: v1\nmetadata: {{name: lost}}\nspec: {{target: {{device: {}}}, message: lost}}\n",
        device.id
    );
    let lock = Lock::parse(&text).unwrap();
    assert_eq!(lock.target, LockTarget::Device(device.id));
    assert_eq!(Lock::parse(&lock.to_yaml()).unwrap(), lock);
    let other = Device { id: DeviceId::new(), ..device };
    for (device, covered) in [(Some(device), true), (Some(other), false), (None, false)] {
        let identity = Identity { device, ..user("u", &[], &[]) };
        assert_eq!(lock.covers(&identity, None, None, now()), covered, "{device:?}");
    }
    assert!(Lock::parse(&text.replace(&device.id.to_string(), "laptop")).is_err());
}
