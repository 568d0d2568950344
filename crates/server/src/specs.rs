//! What the kinds of the catalogue say of their specifications.

use sallyport_access::Kind;
use sallyport_access::listed::Spec;

/// What this kind says of specifications; none for a kind that has code of its own at the authority.
pub(crate) fn spec(kind: Kind) -> Option<&'static Spec> {
    SPECS.iter().find(|(of, _)| *of == kind).map(|(_, spec)| spec)
}

static SPECS: &[(Kind, Spec)] = &[];
