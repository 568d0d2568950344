//! What each change of a document is as far as proofs of a factor are concerned, and who administers the cluster.
//!
//! What each method is stands beside the API: [`sallyport_wire::acts`].

use sallyport_access::role::RESOURCES;
use sallyport_access::{Identity, Policies, Verb};
use sallyport_wire::acts::Weight;

/// What it is to do this with a document of this kind. Documents say who reaches what, so that each change of one is dangerous but for two:
/// a lock that is new, and a token that is removed, take rights away alone.
pub(crate) fn of_document(kind: &str, verb: Verb) -> Weight {
    match (kind, verb) {
        (_, Verb::Read | Verb::List) => Weight::Reading,
        ("lock", Verb::Create) | ("token", Verb::Delete) => Weight::Ordinary,
        (_, Verb::Create | Verb::Update | Verb::Delete) => Weight::Dangerous,
    }
}

/// Kinds whose change lets no one in by itself: what is read, sessions, and the catalogue. Every other kind is administration.
const HARMLESS: [&str; 7] = ["access", "app", "db", "event", "node", "recording", "session"];

/// Whether an identity may change who gets in.
pub(crate) fn administers(policies: &Policies, identity: &Identity) -> bool {
    use sallyport_access::Verb::{Create, Delete, Update};
    let may = |kind: &&str| {
        [Create, Update, Delete].into_iter().any(|verb| policies.may(identity, kind, verb).is_ok())
    };
    policies.administers(identity) || RESOURCES.iter().filter(|kind| !HARMLESS.contains(kind)).any(may)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::resources::documents::KINDS;

    #[test]
    fn every_kind_of_document_is_dangerous_to_change_but_to_lock_and_to_void_a_token() {
        let mut ordinary = Vec::new();
        for kind in KINDS.iter().copied() {
            for verb in [Verb::Create, Verb::Update, Verb::Delete] {
                match of_document(kind, verb) {
                    Weight::Ordinary => ordinary.push((kind, verb)),
                    weight => assert_eq!(weight, Weight::Dangerous, "{kind} {verb:?}"),
                }
            }
            for verb in [Verb::Read, Verb::List] {
                assert_eq!(of_document(kind, verb), Weight::Reading, "{kind} {verb:?}");
            }
        }
        assert_eq!(ordinary, [("lock", Verb::Create), ("token", Verb::Delete)]);
    }

    /// A kind that is new is sorted here: whether who may change it has headless logins, and is an administrator.
    #[test]
    fn every_kind_is_administration_or_harmless() {
        let mut sorted = vec![
            "ca",
            "certificate",
            "cluster",
            "device",
            "github",
            "gitlab",
            "lock",
            "login_rule",
            "oidc",
            "role",
            "session_policy",
            "token",
            "user",
        ];
        assert!(sorted.iter().all(|kind| !HARMLESS.contains(kind)));
        sorted.extend(HARMLESS);
        sorted.sort_unstable();
        assert_eq!(sorted, RESOURCES);
    }
}
