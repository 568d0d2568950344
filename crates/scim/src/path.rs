//! Paths that name an attribute: `userName`, `name.familyName`, `urn:…:User:department` (RFC 7644 §3.10).

use std::fmt;

use crate::kind::Kind;
use crate::schema::COMMON;
use crate::schema::row::{Attribute, Schema, find};

/// A path as it was written, in parts. What it names, a kind of resource says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributePath {
    schema: Option<String>,
    name: String,
    sub: Option<String>,
}

/// What a path names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Named {
    /// The resource with its core attributes.
    Core,
    /// An extension as a whole.
    Extension(&'static Schema),
    /// An attribute or a sub-attribute.
    Attribute(Target),
}

/// An attribute of a kind of resource, or a sub-attribute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// The extension that it is of; none for core and common ones.
    pub(crate) extension: Option<&'static Schema>,
    pub(crate) attribute: &'static Attribute,
    pub(crate) sub: Option<&'static Attribute>,
}

impl AttributePath {
    /// Reads a path: a name, after the URN of a schema and a colon or not, with a sub-attribute's after a dot or not.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (schema, rest) = match text.rsplit_once(':') {
            Some((schema, rest)) => (Some(schema), rest),
            None => (None, text),
        };
        let (name, sub) = match rest.split_once('.') {
            Some((name, sub)) => (name, Some(sub)),
            None => (rest, None),
        };
        let is_schema = |schema: &str| {
            schema.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("urn:"))
                && schema.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
        };
        let good = is_name(name) && sub.is_none_or(is_name) && schema.is_none_or(is_schema);
        good.then(|| Self {
            schema: schema.map(str::to_owned),
            name: name.to_owned(),
            sub: sub.map(str::to_owned),
        })
    }

    /// What it names among the attributes of a kind of resource.
    pub(crate) fn resolve(&self, kind: Kind) -> Option<Named> {
        if let Some(schema) = &self.schema
            && self.sub.is_none()
        {
            let whole = format!("{schema}:{}", self.name);
            if kind.schema().is(&whole) {
                return Some(Named::Core);
            }
            if let Some(extension) = kind.extensions().iter().find(|known| known.is(&whole)) {
                return Some(Named::Extension(extension));
            }
        }
        let (extension, attribute) = match &self.schema {
            None => (None, core(kind, &self.name)?),
            Some(urn) if kind.schema().is(urn) => (None, core(kind, &self.name)?),
            Some(urn) => {
                let extension = kind.extensions().iter().copied().find(|known| known.is(urn))?;
                (Some(extension), extension.find(&self.name)?)
            }
        };
        let sub = match &self.sub {
            Some(sub) => Some(attribute.sub(sub)?),
            None => None,
        };
        Some(Named::Attribute(Target { extension, attribute, sub }))
    }

    /// What it names inside a value of an attribute.
    pub(crate) fn resolve_inside(&self, attribute: &Attribute) -> Option<&'static Attribute> {
        if self.schema.is_some() || self.sub.is_some() {
            return None;
        }
        attribute.sub(&self.name)
    }
}

fn core(kind: Kind, name: &str) -> Option<&'static Attribute> {
    kind.schema().find(name).or_else(|| find(COMMON, name))
}

/// A name of an attribute (RFC 7643 §2.1), or `$ref`.
fn is_name(name: &str) -> bool {
    let bare = name.strip_prefix('$').unwrap_or(name);
    bare.starts_with(|c: char| c.is_ascii_alphabetic())
        && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

impl Target {
    /// The row of what it names: the sub-attribute's, or the attribute's.
    pub(crate) fn row(&self) -> &'static Attribute {
        self.sub.unwrap_or(self.attribute)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(extension) = self.extension {
            write!(f, "{}:", extension.id)?;
        }
        f.write_str(self.attribute.name)?;
        self.sub.map_or(Ok(()), |sub| write!(f, ".{}", sub.name))
    }
}

impl fmt::Display for AttributePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}:")?;
        }
        f.write_str(&self.name)?;
        self.sub.as_ref().map_or(Ok(()), |sub| write!(f, ".{sub}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> String {
        match AttributePath::parse(text).and_then(|path| path.resolve(Kind::User)) {
            None => "nothing".to_owned(),
            Some(Named::Core) => "core".to_owned(),
            Some(Named::Extension(schema)) => schema.name.to_owned(),
            Some(Named::Attribute(target)) => target.to_string(),
        }
    }

    #[test]
    fn a_path_names_an_attribute_whatever_its_case() {
        assert_eq!(named("USERNAME"), "userName");
        assert_eq!(named("name.FamilyName"), "name.familyName");
        assert_eq!(named("meta.lastModified"), "meta.lastModified");
        assert_eq!(named("groups.$ref"), "groups.$ref");
        assert_eq!(named("urn:ietf:params:scim:schemas:core:2.0:User:emails.type"), "emails.type");
        let enterprise = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
        assert_eq!(named(enterprise), "EnterpriseUser");
        assert_eq!(named(&format!("{enterprise}:manager.value")), format!("{enterprise}:manager.value"));
        assert_eq!(named("URN:ietf:params:scim:schemas:core:2.0:user"), "core");
    }

    #[test]
    fn what_is_no_attribute_names_nothing() {
        for none in [
            "",
            "password",
            "members",
            "name.",
            ".name",
            "name.x",
            "name.givenName.x",
            "user name",
            "1a",
            "department",
            "urn:x:userName",
            "x:userName",
            "userName.value",
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:userName",
            "é",
        ] {
            assert_eq!(named(none), "nothing", "{none}");
        }
    }
}
