//! Where in a resource an operation works.

use crate::error::{ScimError, shortened};
use crate::filter::condition::Condition;
use crate::filter::parser::{ValuePath, value_path};
use crate::kind::Kind;
use crate::path::{Named, Target};
use crate::schema::row::{Attribute, Mutability, Schema, Type};

/// What a path names.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// The resource with its core attributes.
    Core,
    /// An extension as a whole.
    Extension(&'static Schema),
    /// An attribute, or a sub-attribute of one that has a single value.
    Attribute(Target),
    /// Some of an attribute's values, all if there is no condition, and of these a sub-attribute, if one is named.
    Values { target: Target, chosen: Option<Condition>, sub: Option<&'static Attribute> },
}

impl Place {
    pub(super) fn parse(kind: Kind, text: &str) -> Result<Self, ScimError> {
        let ValuePath { path, filter, sub } = value_path(text)?;
        let named = path.resolve(kind);
        let named = named.ok_or_else(|| ScimError::path(text, format!("a {kind} has no such attribute")))?;
        let target = match (named, &filter) {
            (Named::Core, None) => return Ok(Self::Core),
            (Named::Extension(schema), None) => return Ok(Self::Extension(schema)),
            (Named::Attribute(target), _) => target,
            (Named::Core | Named::Extension(_), Some(_)) => {
                return Err(ScimError::path(text, "a schema has no values to choose from"));
            }
        };
        let attribute = target.attribute;
        let Some(filter) = filter else {
            if !attribute.multi_valued {
                return Ok(Self::Attribute(target));
            }
            let whole = Target { sub: None, ..target };
            return Ok(Self::Values { target: whole, chosen: None, sub: target.sub });
        };
        if !attribute.multi_valued || attribute.kind != Type::Complex || target.sub.is_some() {
            return Err(ScimError::path(text, "only an attribute with several complex values has brackets"));
        }
        let condition = filter.bind_inside(attribute)?;
        let sub = match sub {
            None => None,
            Some(sub) => {
                let found = sub.resolve_inside(attribute);
                Some(found.ok_or_else(|| ScimError::path(text, format!("{} has no {sub}", attribute.name)))?)
            }
        };
        Ok(Self::Values { target, chosen: Some(condition), sub })
    }

    /// Whether clients may write there at all.
    pub(super) fn is_writable(&self) -> bool {
        match self {
            Self::Core | Self::Extension(_) => true,
            Self::Attribute(target) => is_writable(target.attribute, target.sub),
            Self::Values { target, sub, .. } => is_writable(target.attribute, *sub),
        }
    }

    /// That clients may write there (RFC 7644 §3.5.2: `mutability`).
    pub(super) fn writable(&self, path: &str) -> Result<(), ScimError> {
        if self.is_writable() {
            return Ok(());
        }
        Err(ScimError::Mutability { attribute: shortened(path), reason: "clients cannot change it" })
    }
}

/// An immutable sub-attribute is changed with the value that it is of, never by itself.
fn is_writable(attribute: &Attribute, sub: Option<&Attribute>) -> bool {
    attribute.mutability == Mutability::ReadWrite
        && sub.is_none_or(|sub| sub.mutability == Mutability::ReadWrite && !sub.computed)
}
