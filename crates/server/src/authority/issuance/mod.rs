//! The certificate authorities, what they present and sign, and the list of issued certificates.

pub(crate) mod authorities;
pub(crate) mod custodies;
pub(crate) mod in_force;
pub(crate) mod index;
pub(crate) mod issued;
pub(crate) mod list;
pub(crate) mod presented;
pub(crate) mod words;
