//! The examples of the guide are what the program reads.

use sallyport_access::{Database, Lock, LoginRule, LoginRules, Role, SessionPolicy};

#[test]
fn the_databases_of_the_guide_are_accepted() {
    let guide = include_str!("../../../../docs/databases.md");
    let blocks: Vec<&str> =
        guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    for yaml in &blocks {
        drop(Database::parse(yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}")));
    }
    assert!(!blocks.is_empty());
}

#[test]
fn every_example_of_the_role_guide_is_accepted() {
    let guide = include_str!("../../../../docs/roles.md");
    let mut seen = 0;
    for block in guide.split("```yaml\n").skip(1) {
        let yaml = block.split("```").next().unwrap();
        match yaml.lines().next().unwrap() {
            "kind: role" => drop(Role::parse(yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))),
            "kind: lock" => drop(Lock::parse(yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))),
            "kind: session_policy" => {
                drop(SessionPolicy::parse(yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}")));
            }
            other => panic!("an example begins with {other}"),
        }
        seen += 1;
    }
    assert!(seen >= 2, "{seen} examples");
    for resource in sallyport_access::role::RESOURCES {
        assert!(guide.contains(&format!("`{resource}`")), "the guide does not name {resource}");
    }
}

#[test]
fn the_login_rule_of_the_guide_is_accepted() {
    let guide = include_str!("../../../../docs/logins.md");
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let rules: Vec<LoginRule> = blocks
        .map(|yaml| LoginRule::parse(yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}")))
        .collect();
    assert!(!rules.is_empty());
    drop(LoginRules::compile(rules).unwrap());
}
