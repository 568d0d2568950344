//! What every [`Backend`] must do, as one suite that each implementation runs.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a suite of tests")]

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::backend::{Backend, BackendError, Member, Narrow};
use crate::kind::Kind;
use crate::resource::{Draft, Resource};
use crate::text::fold;
use crate::values;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;
const LATER: OffsetDateTime = NOW.saturating_add(time::Duration::seconds(1));

fn draft(kind: Kind, attributes: Value) -> Draft {
    let mut body = attributes.as_object().unwrap().clone();
    body.insert("schemas".to_owned(), json!([kind.schema().id]));
    values::finished(kind, values::resource(kind, &body).unwrap()).unwrap()
}

fn user(name: &str) -> Draft {
    draft(Kind::User, json!({ "userName": name, "externalId": format!("x-{name}"), "active": true }))
}

fn group(name: &str, members: &[&Resource]) -> Draft {
    let members: Vec<Value> = members.iter().map(|member| json!({ "value": member.id })).collect();
    draft(Kind::Group, json!({ "displayName": name, "members": members }))
}

async fn scanned(backend: &dyn Backend, kind: Kind, narrow: &Narrow) -> Vec<String> {
    let mut found = Vec::new();
    backend.scan(kind, narrow, &mut |resource| found.push(resource.id.clone())).await.unwrap();
    found
}

/// The groups with one of these as a member, each with its name and the member.
async fn groups_with(backend: &dyn Backend, members: &[&Resource]) -> Vec<(String, String, String)> {
    let ids = members.iter().map(|member| member.id.clone()).collect();
    let mut found = Vec::new();
    let mut each = |member: Member<'_>| {
        found.push((member.group.to_owned(), member.name.to_owned(), member.member.to_owned()));
    };
    backend.groups_with(&ids, &mut each).await.unwrap();
    found.sort();
    found
}

/// Runs the suite on two connectors of one directory in which there is nothing but a user of the name `local`, which neither of
/// them made.
///
/// # Panics
/// Where the backend does not do what it must.
pub async fn suite(mine: &dyn Backend, other: &dyn Backend) {
    resources_are_kept(mine).await;
    names_are_unique(mine, other).await;
    connectors_are_apart(mine, other).await;
    members_are_resources(mine).await;
    scans_are_in_order(mine).await;
}

async fn resources_are_kept(mine: &dyn Backend) {
    let made = mine.create(user("kept"), NOW).await.unwrap();
    assert_eq!((made.created, made.modified), (NOW, NOW));
    assert_eq!(made.draft, user("kept"));
    assert_eq!(mine.get(Kind::User, &made.id).await.unwrap().as_ref(), Some(&made));
    assert_eq!(mine.get(Kind::Group, &made.id).await.unwrap(), None, "it is of another kind");
    let after = mine.replace(&made.id, made.revision, user("renamed"), LATER).await.unwrap();
    assert_eq!((after.created, after.modified), (NOW, LATER));
    assert!(after.revision > made.revision && after.id == made.id);
    let stale = mine.replace(&made.id, made.revision, user("stale"), LATER).await;
    assert!(matches!(stale, Err(BackendError::Changed)), "{stale:?}");
    let stale = mine.delete(Kind::User, &made.id, Some(made.revision), LATER).await;
    assert!(matches!(stale, Err(BackendError::Changed)), "{stale:?}");
    assert_eq!(mine.get(Kind::User, &made.id).await.unwrap(), Some(after.clone()));
    mine.delete(Kind::User, &made.id, Some(after.revision), LATER).await.unwrap();
    assert_eq!(mine.get(Kind::User, &made.id).await.unwrap(), None);
    let gone = mine.delete(Kind::User, &made.id, None, LATER).await;
    assert!(matches!(gone, Err(BackendError::NotFound { .. })), "{gone:?}");
    let gone = mine.replace(&made.id, after.revision, user("kept"), LATER).await;
    assert!(matches!(gone, Err(BackendError::NotFound { .. })), "{gone:?}");
    let again = mine.create(user("kept"), NOW).await.unwrap();
    assert_ne!(again.id, made.id, "an identifier is given once");
    mine.delete(Kind::User, &again.id, None, LATER).await.unwrap();
}

async fn names_are_unique(mine: &dyn Backend, other: &dyn Backend) {
    let alice = mine.create(user("Alice"), NOW).await.unwrap();
    for taken in ["alice", "ALICE", "local", "Local"] {
        for backend in [mine, other] {
            let refused = backend.create(user(taken), NOW).await;
            assert!(matches!(refused, Err(BackendError::UserNameTaken)), "{taken}: {refused:?}");
        }
    }
    let bob = mine.create(user("bob"), NOW).await.unwrap();
    let refused = mine.replace(&bob.id, bob.revision, user("aLICE"), NOW).await;
    assert!(matches!(refused, Err(BackendError::UserNameTaken)), "{refused:?}");
    // Its own name in other letters is its own.
    mine.replace(&alice.id, alice.revision, user("alice"), NOW).await.unwrap();
    // Identifiers of clients are theirs to make up, and names of groups are not unique.
    for _ in 0..2 {
        mine.create(group("ops", &[]), NOW).await.unwrap();
    }
    for kind in Kind::ALL {
        for id in scanned(mine, *kind, &Narrow::All).await {
            mine.delete(*kind, &id, None, NOW).await.unwrap();
        }
    }
}

async fn connectors_are_apart(mine: &dyn Backend, other: &dyn Backend) {
    let theirs = other.create(user("theirs"), NOW).await.unwrap();
    let their_group = other.create(group("theirs", &[&theirs]), NOW).await.unwrap();
    for (kind, resource) in [(Kind::User, &theirs), (Kind::Group, &their_group)] {
        assert_eq!(mine.get(kind, &resource.id).await.unwrap(), None);
        assert!(!scanned(mine, kind, &Narrow::Id(resource.id.clone())).await.contains(&resource.id));
        let refused = mine.replace(&resource.id, resource.revision, resource.draft.clone(), NOW).await;
        assert!(matches!(refused, Err(BackendError::NotFound { .. })), "{refused:?}");
        let refused = mine.delete(kind, &resource.id, None, NOW).await;
        assert!(matches!(refused, Err(BackendError::NotFound { .. })), "{refused:?}");
        assert_eq!(other.get(kind, &resource.id).await.unwrap().as_ref(), Some(resource));
    }
    let refused = mine.create(group("mine", &[&theirs]), NOW).await;
    assert!(matches!(refused, Err(BackendError::NoSuchMember { .. })), "{refused:?}");
    other.delete(Kind::Group, &their_group.id, None, NOW).await.unwrap();
    other.delete(Kind::User, &theirs.id, None, NOW).await.unwrap();
}

async fn members_are_resources(mine: &dyn Backend) {
    let alice = mine.create(user("alice"), NOW).await.unwrap();
    let bob = mine.create(user("bob"), NOW).await.unwrap();
    let inner = mine.create(group("inner", &[&alice]), NOW).await.unwrap();
    let outer = mine.create(group("outer", &[&alice, &inner, &bob]), NOW).await.unwrap();
    let kinds: Vec<_> = outer.draft.attributes()["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| member["type"].clone())
        .collect();
    assert_eq!(kinds, ["User", "Group", "User"]);
    let mut stranger = alice.clone();
    stranger.id = "nobody".to_owned();
    let refused = mine.replace(&inner.id, inner.revision, group("inner", &[&alice, &stranger]), NOW).await;
    assert!(matches!(refused, Err(BackendError::NoSuchMember { id }) if id == "nobody"));
    for narrow in [Narrow::Members([bob.id.clone()].into()), Narrow::Members([inner.id.clone()].into())] {
        assert!(scanned(mine, Kind::Group, &narrow).await.contains(&outer.id));
    }
    members_are_found(mine, [&alice, &bob], &inner, &outer).await;
    let [inner, outer] = [&inner, &outer].map(|group| mine.get(Kind::Group, &group.id));
    let (inner, outer) = (inner.await.unwrap().unwrap(), outer.await.unwrap().unwrap());
    // Who is removed is in no group any more, and each of these has changed.
    mine.delete(Kind::User, &alice.id, None, LATER).await.unwrap();
    for before in [&inner, &outer] {
        let after = mine.get(Kind::Group, &before.id).await.unwrap().unwrap();
        assert!(after.draft.members().all(|member| member != alice.id));
        assert!(after.revision > before.revision && after.modified == LATER);
    }
    mine.delete(Kind::Group, &inner.id, None, LATER).await.unwrap();
    assert!(groups_with(mine, &[&alice, &inner]).await.is_empty(), "nothing is left of who was removed");
    let outer = mine.get(Kind::Group, &outer.id).await.unwrap().unwrap();
    assert_eq!(outer.draft.members().collect::<Vec<_>>(), [bob.id.as_str()]);
    mine.delete(Kind::Group, &outer.id, None, LATER).await.unwrap();
    mine.delete(Kind::User, &bob.id, None, LATER).await.unwrap();
}

/// Members are found by what groups say now, however they came to say it.
async fn members_are_found(
    mine: &dyn Backend,
    [alice, bob]: [&Resource; 2],
    inner: &Resource,
    outer: &Resource,
) {
    let found = |group: &Resource, name: &str, member: &Resource| {
        (group.id.clone(), name.to_owned(), member.id.clone())
    };
    let mut both = vec![found(inner, "inner", alice), found(outer, "outer", alice)];
    both.sort();
    assert_eq!(groups_with(mine, &[alice]).await, both);
    assert_eq!(groups_with(mine, &[bob]).await, [found(outer, "outer", bob)]);
    assert_eq!(groups_with(mine, &[inner]).await, [found(outer, "outer", inner)]);
    assert!(groups_with(mine, &[outer]).await.is_empty());
    // A group loses a member and gets another, and is called otherwise.
    let after = mine.replace(&inner.id, inner.revision, group("renamed", &[bob]), NOW).await.unwrap();
    assert_eq!(groups_with(mine, &[alice]).await, [found(outer, "outer", alice)]);
    let mut both = vec![found(inner, "renamed", bob), found(outer, "outer", bob)];
    both.sort();
    assert_eq!(groups_with(mine, &[bob]).await, both);
    mine.replace(&inner.id, after.revision, group("inner", &[alice]), NOW).await.unwrap();
}

async fn scans_are_in_order(mine: &dyn Backend) {
    let mut made = Vec::new();
    for at in 0..20 {
        made.push(mine.create(user(&format!("User{}", (at * 7) % 20)), NOW).await.unwrap());
    }
    let mut ids: Vec<String> = made.iter().map(|resource| resource.id.clone()).collect();
    ids.sort();
    assert_eq!(scanned(mine, Kind::User, &Narrow::All).await, ids);
    assert!(scanned(mine, Kind::Group, &Narrow::All).await.is_empty());
    let one = &made[3];
    let name = one.draft.user_name().unwrap();
    let external_id = one.draft.external_id().unwrap().to_owned();
    for narrow in [Narrow::Id(one.id.clone()), Narrow::UserName(fold(name)), Narrow::ExternalId(external_id)]
    {
        assert!(scanned(mine, Kind::User, &narrow).await.contains(&one.id), "{narrow:?}");
    }
    for id in ids {
        mine.delete(Kind::User, &id, None, NOW).await.unwrap();
    }
}
