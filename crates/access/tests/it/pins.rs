//! Logins that are pinned to the address that they come from.

use std::net::IpAddr;

use sallyport_access::{Identity, JoinMode, JoinTarget, Policies, RoleName, SessionPolicy};

use crate::decide::{login, node};
use crate::people::{now, policies, role, user};

const EVERYWHERE: &str = "allow: {logins: [x], node_labels: {'*': '*'}}";

fn named(roles: &[&str]) -> Vec<RoleName> {
    roles.iter().map(|role| RoleName::new(*role).unwrap()).collect()
}

fn with_cluster(roles: &[sallyport_access::Role], pin: bool) -> Policies {
    let policy = format!(
        "kind: session_policy\nversion: v1\nmetadata: {{name: default}}\nspec: {{pin_source_ip: {pin}}}\n"
    );
    Policies::compile_with(roles, SessionPolicy::parse(&policy).unwrap()).unwrap()
}

/// What a session asks of its login, the login has: whatever of the user's roles grants the session.
#[test]
fn one_role_that_pins_is_enough_and_so_is_the_cluster_where_a_role_is_silent() {
    let pinning = |how: &str| format!("{{{EVERYWHERE}, options: {{pin_source_ip: {how}}}}}");
    let roles = [
        role("open", &format!("{{{EVERYWHERE}}}")),
        role("pins", &pinning("true")),
        role("lets", &pinning("false")),
        role("elsewhere", "{allow: {logins: [y], node_labels: {'*': '*'}}, options: {pin_source_ip: true}}"),
    ];
    let target = node("n", &[]);
    let address: IpAddr = "192.0.2.7".parse().unwrap();
    let decide = |policies: &Policies, held: &[&str], pinned_to: Option<IpAddr>| {
        let identity = Identity { pinned_to, ..user("u", held, &[]) };
        policies
            .decide(&identity, &target, &login("x"), &[], now())
            .map_err(|refusal| refusal.public_message())
    };
    let (alone, demanding) = (policies(&roles), with_cluster(&roles, true));
    // The roles held; whether a login is pinned and an open one let in, by the roles alone and where the cluster pins.
    for (held, by_roles, by_cluster) in [
        (&["open"][..], (false, true), (true, false)),
        (&["pins"], (true, false), (true, false)),
        (&["lets"], (false, true), (false, true)),
        (&["lets", "open"], (false, true), (true, true)),
        (&["lets", "pins"], (true, false), (true, false)),
        // A login is for all that its user may do; a session, for what its roles say.
        (&["open", "elsewhere"], (true, true), (true, false)),
    ] {
        for (policies, (pinned, open_is_let_in)) in [(&alone, by_roles), (&demanding, by_cluster)] {
            assert_eq!(policies.login_limits(&named(held)).pin, pinned, "{held:?}");
            let enough = |pinned_to| policies.pinned_enough(&Identity { pinned_to, ..user("u", held, &[]) });
            assert_eq!((enough(None).is_err(), enough(Some(address))), (pinned, Ok(())), "{held:?}");
            assert_eq!(decide(policies, held, None).is_ok(), open_is_let_in, "{held:?}");
            assert!(decide(policies, held, Some(address)).is_ok(), "{held:?}");
        }
    }
    assert!(demanding.login_limits(&named(&["gone"])).pin && !alone.login_limits(&named(&["gone"])).pin);
    let refused = decide(&alone, &["pins"], None).unwrap_err();
    assert!(refused.contains("pinned to its address") && refused.contains("sallyport login"), "{refused}");
    assert!(refused.contains("role \"pins\" options.pin_source_ip"), "{refused}");
    // To take part in a session is as to log in there.
    let session = JoinTarget { node: &target, owner: "u", owner_roles: &[] };
    let join = |pinned_to| {
        let identity = Identity { pinned_to, ..user("u", &["pins"], &[]) };
        alone.may_join(&identity, session, JoinMode::Observer, &[], now()).is_ok()
    };
    assert!(!join(None) && join(Some(address)));
}

#[test]
fn an_address_is_compared_as_what_it_is() {
    let from = |pinned_to: Option<&str>, from: Option<&str>| {
        let parsed = |text: Option<&str>| text.map(|text| text.parse::<IpAddr>().unwrap());
        let identity = Identity { pinned_to: parsed(pinned_to), ..user("u", &[], &[]) };
        identity.comes_from(parsed(from)).map_err(|elsewhere| elsewhere.to_string())
    };
    for good in ["192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207"] {
        assert_eq!(from(Some("192.0.2.7"), Some(good)), Ok(()), "{good}");
    }
    assert_eq!(from(Some("2001:db8::7"), Some("2001:db8:0:0::7")), Ok(()));
    assert_eq!(from(None, None), Ok(()));
    assert_eq!(from(None, Some("192.0.2.7")), Ok(()));
    // Exactly it: a machine with several addresses of one network has one that counts.
    for bad in ["192.0.2.8", "2001:db8::7", "::192.0.2.7", "::1"] {
        let told = from(Some("192.0.2.7"), Some(bad)).unwrap_err();
        let end =
            format!("and you come from {}: log in again: sallyport login", bad.parse::<IpAddr>().unwrap());
        assert!(told.starts_with("this login is pinned to 192.0.2.7") && told.ends_with(&end), "{told}");
    }
    assert!(from(Some("2001:db8::7"), Some("2001:db8::8")).is_err());
    assert!(from(Some("192.0.2.7"), None).unwrap_err().contains("not known"));
}
