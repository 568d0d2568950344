//! People, roles and a moment, as the tests of decisions make them.

use std::collections::BTreeMap;
use std::time::Duration;

use sallyport_access::{Identity, Policies, Principal, Role, RoleName, UserName};
use time::OffsetDateTime;
use uuid::Uuid;

pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000)
}

pub(crate) fn user(name: &str, roles: &[&str], traits: &[(&str, &[&str])]) -> Identity {
    let traits: BTreeMap<String, Vec<String>> = traits
        .iter()
        .map(|(name, values)| ((*name).to_owned(), values.iter().map(|value| (*value).to_owned()).collect()))
        .collect();
    Identity {
        principal: Principal::User {
            name: UserName::new(name).unwrap(),
            roles: roles.iter().map(|role| RoleName::new(*role).unwrap()).collect(),
            logins: Vec::new(),
            traits,
        },
        login_id: Uuid::nil(),
        device: None,
        pinned_to: None,
        valid_after: now() - Duration::from_secs(60),
        valid_before: now() + Duration::from_secs(3600),
    }
}

pub(crate) fn role(name: &str, spec: &str) -> Role {
    Role::parse(&format!("kind: role\nversion: v1\nmetadata: {{name: {name}}}\nspec: {spec}\n"))
        .unwrap_or_else(|errors| panic!("{errors}"))
}

pub(crate) fn policies(roles: &[Role]) -> Policies {
    Policies::compile(roles).unwrap()
}
