//! Who may log in, by rules.

use sallyport_access::{
    ClaimsRead, Device, DeviceCustody, DeviceId, LoginAsked, LoginClaims, LoginRule, LoginRules, RoleName,
    Traits, UserName,
};
use time::OffsetDateTime;
use time::macros::datetime;

/// A Tuesday.
const NOON: OffsetDateTime = datetime!(2026-03-03 12:00:00 UTC);

fn rule(name: &str, then: &str, when: &str, more: &str) -> LoginRule {
    let when = when.replace('\n', "\n    ");
    let text = format!(
        "kind: login_rule\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  then: {then}\n  when: |\n    {when}\n{more}"
    );
    LoginRule::parse(&text).unwrap_or_else(|error| panic!("{text}{error}"))
}

struct Person {
    user: UserName,
    roles: Vec<RoleName>,
    traits: Traits,
}

fn alice() -> Person {
    Person {
        user: UserName::new("alice").unwrap(),
        roles: vec![RoleName::new("dev").unwrap()],
        traits: Traits::from([("team".to_owned(), vec!["db".to_owned()])]),
    }
}

impl Person {
    fn asked(&self) -> LoginAsked<'_> {
        LoginAsked {
            user: &self.user,
            roles: &self.roles,
            traits: &self.traits,
            address: Some("192.0.2.7".parse().unwrap()),
            way: "password",
            factor_kind: "totp",
            second_factor: true,
            user_verified: false,
            single_sign_on: false,
            renewal: false,
            device: None,
            connector: "",
            claims: None,
        }
    }
}

#[test]
fn conditions_look_at_all_that_is_known_of_a_login() {
    let alice = alice();
    let office = "  networks: {office: [192.0.2.0/24], home: ['2001:db8::/32']}\n";
    for (when, expected) in [
        ("context.user == \"alice\"", true),
        ("context.roles.contains(\"dev\") && !context.roles.contains(\"ops\")", true),
        ("principal.hasTag(\"team\") && principal.getTag(\"team\").contains(\"db\")", true),
        ("principal.hasTag(\"group\")", false),
        ("context.networks.contains(\"office\")", true),
        ("context.networks.contains(\"home\")", false),
        ("context.way == \"passkey\" || context.user_verified", false),
        ("context.factor_kind == \"totp\" && context.second_factor", true),
        ("context.weekday == 2 && context.hour >= 8 && context.hour < 18 && context.minute == 0", true),
        ("context.device.trusted || context.device.hardware", false),
        ("context.renewal || context.single_sign_on", false),
        ("context.connector == \"\" && context.device.id == \"\" && context.device.custody == \"\"", true),
        ("context has claims", false),
        ("context has claims && context.claims.hasTag(\"groups\")", false),
        ("true // a comment at the end", true),
    ] {
        let rules = LoginRules::compile(vec![rule("one", "deny", when, office)]).unwrap();
        let outcomes = rules.outcomes(&alice.asked(), NOON);
        assert_eq!(outcomes[0].meets.as_ref().ok(), Some(&expected), "{when}");
        assert_eq!(rules.admit(&alice.asked(), NOON).is_err(), expected, "{when}");
    }
}

#[test]
fn conditions_see_the_device_that_a_login_comes_from() {
    let alice = alice();
    let rules = |when| LoginRules::compile(vec![rule("one", "deny", when, "")]).unwrap();
    let soft = rules("context.device.trusted && !context.device.hardware");
    let none = rules("!context.device.trusted");
    for (custody, is_soft, is_none) in [
        (None, false, true),
        (Some(DeviceCustody::File), true, false),
        (Some(DeviceCustody::Hardware), false, false),
    ] {
        let device = custody.map(|custody| Device { id: DeviceId::new(), custody });
        let asked = LoginAsked { device, ..alice.asked() };
        assert_eq!(soft.admit(&asked, NOON).is_err(), is_soft, "{custody:?}");
        assert_eq!(none.admit(&asked, NOON).is_err(), is_none, "{custody:?}");
    }
}

#[test]
fn conditions_name_the_device_and_the_connector() {
    let alice = alice();
    let device = Device { id: DeviceId::new(), custody: DeviceCustody::File };
    for (when, expected) in [
        (format!("context.device.id == \"{}\"", device.id), true),
        (format!("context.device.id == \"{}\"", DeviceId::new()), false),
        ("context.device.custody == \"file\"".to_owned(), true),
        ("context.device.custody == \"hardware\"".to_owned(), false),
        ("context.connector == \"corp\"".to_owned(), true),
        ("context.connector != \"corp\"".to_owned(), false),
    ] {
        let rules = LoginRules::compile(vec![rule("one", "deny", &when, "")]).unwrap();
        let asked = LoginAsked { device: Some(device), connector: "corp", ..alice.asked() };
        assert_eq!(rules.admit(&asked, NOON).is_err(), expected, "{when}");
        assert!(!rules.reads().is_any(), "{when}");
    }
}

const GROUPS: &str = "context has claims && context.claims.hasTag(\"groups\") && context.claims.getTag(\"groups\").contains(\"guests\")";

#[test]
fn conditions_look_at_the_claims_of_the_login() {
    let alice = alice();
    let said = |groups: &[&str]| {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let said = [("groups".to_owned(), groups), ("realm_access.roles".to_owned(), vec!["a".to_owned()])];
        LoginClaims::new(said, ["teams".to_owned()], false)
    };
    let rules = |then, when| LoginRules::compile(vec![rule("guests", then, when, "")]).unwrap();
    let (guest, staff) = (said(&["guests", "x"]), said(&["staff"]));
    for (claims, denied) in [(None, false), (Some(&guest), true), (Some(&staff), false)] {
        let asked = LoginAsked { claims, ..alice.asked() };
        assert_eq!(rules("deny", GROUPS).admit(&asked, NOON).is_err(), denied);
        assert_eq!(rules("allow", GROUPS).admit(&asked, NOON).is_ok(), denied);
    }
    let asked = LoginAsked { claims: Some(&guest), ..alice.asked() };
    let meets = |when| rules("deny", when).outcomes(&asked, NOON).remove(0).meets.ok();
    assert_eq!(meets("context has claims && context.claims.hasTag(\"realm_access.roles\")"), Some(true));
    assert_eq!(meets("context has claims && context.claims.hasTag(\"nothing\")"), Some(false));
    assert_eq!(meets("context has claims"), Some(true));
    // What is not known is not taken for what was not said: it denies, and allows nothing.
    for when in [
        "context has claims && context.claims.hasTag(\"teams\")",
        "context has claims && !context.claims.hasTag(\"teams\")",
        "context has claims && !context.claims.hasTag(\"teams.name\")",
        // Which one it looks at is computed.
        "context has claims && !context.claims.hasTag(if context.renewal then \"groups\" else \"teams\")",
    ] {
        assert_eq!(meets(when), None, "{when}");
        let (denied, allowed) = (rules("deny", when), rules("allow", when));
        let told = denied.admit(&asked, NOON).unwrap_err().message;
        assert!(told.contains("not known in full") && told.contains("\"guests\""), "{told}");
        assert!(allowed.admit(&asked, NOON).is_err(), "{when}");
        // A login in another way has no claims, and nothing of them is unknown.
        assert!(denied.admit(&alice.asked(), NOON).is_ok(), "{when}");
    }
    let unknown = LoginClaims::unknown();
    let asked = LoginAsked { claims: Some(&unknown), ..alice.asked() };
    assert!(rules("deny", GROUPS).admit(&asked, NOON).is_err());
    assert!(rules("deny", "context.hour == 3").admit(&asked, NOON).is_ok(), "a rule without claims goes on");
    // What a login keeps is what the rules look at.
    let read = rules("deny", GROUPS).reads();
    assert_eq!(read, ClaimsRead::These(["groups".to_owned()].into()));
    let kept = guest.only(&read);
    let asked = LoginAsked { claims: Some(&kept), renewal: true, ..alice.asked() };
    assert!(rules("deny", GROUPS).admit(&asked, NOON).is_err());
    let other = rules("deny", "context has claims && context.claims.hasTag(\"realm_access.roles\")");
    assert!(other.admit(&asked, NOON).unwrap_err().message.contains("realm_access.roles"));
}

#[test]
fn a_rule_denies_whatever_others_allow_and_where_rules_allow_one_has_to() {
    let alice = alice();
    let admits = |rules: Vec<LoginRule>| {
        let rules = LoginRules::compile(rules).unwrap();
        rules.admit(&alice.asked(), NOON).map_err(|denied| (denied.rule, denied.message))
    };
    let (yes, no) = ("context.user == \"alice\"", "context.user == \"bob\"");
    assert_eq!(admits(vec![]), Ok(()));
    assert_eq!(admits(vec![rule("a", "deny", no, "")]), Ok(()));
    assert_eq!(admits(vec![rule("a", "allow", no, ""), rule("b", "allow", yes, "")]), Ok(()));
    let (named, message) =
        admits(vec![rule("a", "allow", yes, ""), rule("b", "deny", yes, "  message: not from here\n")])
            .unwrap_err();
    assert_eq!(
        (named.as_deref(), message.as_str()),
        (Some("b"), "the login rule \"b\" refuses it: not from here")
    );
    let (named, message) = admits(vec![rule("a", "allow", no, ""), rule("b", "deny", no, "")]).unwrap_err();
    assert!(named.is_none() && message.contains("(\"a\")"), "{message}");
    // What cannot be evaluated denies, and allows nothing.
    let overflow = "context.hour + 9223372036854775807 > 0";
    let (named, message) = admits(vec![rule("c", "deny", overflow, "")]).unwrap_err();
    assert!(named.as_deref() == Some("c") && message.contains("could not be evaluated"), "{message}");
    assert!(admits(vec![rule("c", "allow", overflow, "")]).is_err());
}

#[test]
fn a_condition_that_is_none_is_refused_with_its_rule() {
    for when in [
        "context.",
        "context.nothing",
        "context.claims.hasTag(\"groups\")",
        "context has claims && context.claims.getTag(\"groups\").contains(\"x\")",
        "context has claims && context.claims.groups == \"x\"",
        "context.device.serial == \"x\"",
        "context.hour == \"noon\"",
        "principal.getTag(\"team\").contains(\"db\")",
        "resource in Role::\"x\"",
        "true }; permit (principal, action, resource) when { true",
        "true }; forbid (principal, action, resource",
        "context.user like 7",
        &"(".repeat(4_000),
        &format!("{}true", "!".repeat(4_000)),
    ] {
        let refused = LoginRules::compile(vec![rule("odd", "allow", when, "")]).unwrap_err();
        assert_eq!(refused.rule, "odd", "{when}");
    }
}

/// What an earlier release has taken and this one does not understand keeps out as the strictest reading of it would, names itself, and
/// leaves the other rules as they are.
#[test]
fn a_kept_rule_that_is_none_any_more_denies_or_allows_nothing() {
    let alice = alice();
    let kept = |rules: &[(&str, &str, &str)]| {
        let text = |then: &str, when: &str| {
            format!(
                "kind: login_rule\nversion: v1\nmetadata: {{name: any}}\nspec:\n  then: {then}\n  when: '{when}'\n"
            )
        };
        LoginRules::kept(
            rules
                .iter()
                .map(|(name, then, when)| ((*name).to_owned(), text(then, when).replace("any", name))),
        )
    };
    let admits = |rules: &LoginRules| rules.admit(&alice.asked(), NOON);
    let old = "context.posture == 1";
    let denying = kept(&[("old", "deny", old), ("good", "deny", "context.hour == 3")]);
    let denied = admits(&denying).unwrap_err();
    assert_eq!(denied.rule.as_deref(), Some("old"));
    assert!(
        denied.message.contains("login rule \"old\"") && denied.message.contains("understand it any more"),
        "{denied:?}"
    );
    assert_eq!(denying.broken().map(|broken| broken.rule.as_str()).collect::<Vec<_>>(), ["old"]);
    // A broken rule that is there to allow keeps out the users whom no other rule lets in.
    assert!(admits(&kept(&[("old", "allow", old)])).unwrap_err().message.contains("\"old\""));
    assert!(admits(&kept(&[("old", "allow", old), ("good", "allow", "context.second_factor")])).is_ok());
    // Of which the text is none, it is not known what it was for.
    for (then, when) in [("warn", "true"), ("allow", "context"), ("deny", "")] {
        assert!(admits(&kept(&[("old", then, when)])).is_err(), "{then} {when}");
    }
    let gone = LoginRules::kept([("old".to_owned(), "kind: login_rule\nversion: v9\n".to_owned())]);
    let denied = admits(&gone).unwrap_err();
    assert_eq!((denied.rule.as_deref(), gone.len(), gone.broken().count()), (Some("old"), 1, 1));
    assert_eq!(kept(&[("good", "deny", "context.hour == 3")]).broken().count(), 0);
}
