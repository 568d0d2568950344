//! What documents may say when they are written. Stored ones are read as they are: what an earlier release has taken stays
//! in force.

use sallyport_access::text::check;
use sallyport_access::{LockTarget, Traits};
use tonic::Status;

use crate::authority::resources::documents::Document;

/// Refuses text that would show something else to an administrator who lists it, in messages, names of traits and their like.
pub(crate) fn check_document(document: &Document) -> Result<(), Status> {
    match document {
        Document::Lock(lock) => {
            texts([("the lock's name", lock.name.as_str()), ("the lock's message", lock.message.as_str())])?;
            match &lock.target {
                LockTarget::Resource(_, name) => texts([("the lock's target", name.as_str())]),
                _ => Ok(()),
            }
        }
        Document::User(user) => check_traits(&user.traits),
        Document::LoginRule(rule) => texts([
            ("the rule's description", rule.description.as_str()),
            ("the rule's message", rule.message.as_str()),
            ("the rule's condition", &rule.when.replace('\n', " ")),
        ]),
        Document::Listed(listed) => texts([("the description", listed.description.as_str())]),
        Document::Role(_)
        | Document::SessionPolicy(_)
        | Document::Connector(_)
        | Document::Node(_)
        | Document::Database(_) => Ok(()),
    }
}

/// The same of the names of a user's traits. What a value may be is for those to say who make a login or a name of it.
pub(crate) fn check_traits(traits: &Traits) -> Result<(), Status> {
    texts(traits.keys().map(|name| ("the name of a trait", name.as_str())))
}

fn texts<'a>(texts: impl IntoIterator<Item = (&'static str, &'a str)>) -> Result<(), Status> {
    texts
        .into_iter()
        .try_for_each(|(what, text)| check(what, text))
        .map_err(|hidden| Status::invalid_argument(hidden.to_string()))
}
