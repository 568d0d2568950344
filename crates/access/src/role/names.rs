//! Names in a database server, as roles list them: users, databases and roles.

use super::TraitRef;
use crate::Traits;
use crate::database::check_name;
use crate::yaml::{Problems, Section};

/// A name in a database server, or a template for several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameMatcher {
    /// Exactly this name.
    Literal(String),
    /// Every name.
    Any,
    /// Every value of a trait.
    Trait(TraitRef),
}

impl NameMatcher {
    fn parse(text: &str) -> Result<Self, String> {
        match TraitRef::parse(text) {
            Some(template) => template.map(Self::Trait).map_err(str::to_owned),
            None if text == "*" => Ok(Self::Any),
            None if text.contains(['{', '}']) => Err("is not a whole template".to_owned()),
            None => check_name(text).map(|()| Self::Literal(text.to_owned())).map_err(|bad| bad.to_string()),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Literal(name) => name.clone(),
            Self::Any => "*".to_owned(),
            Self::Trait(reference) => format!("{{{{{}}}}}", reference.name()),
        }
    }

    /// The names that it stands for, for a user with these traits; none for every name.
    pub(crate) fn names<'a>(&'a self, traits: &'a Traits) -> Vec<&'a str> {
        match self {
            Self::Literal(name) => vec![name],
            Self::Any => Vec::new(),
            Self::Trait(reference) => traits
                .iter()
                .filter(|(key, _)| TraitRef::full_name(key) == reference.name())
                .flat_map(|(_, values)| values.iter().map(String::as_str))
                .collect(),
        }
    }
}

/// Reads a list of names. `any` is whether `'*'` may stand in it.
pub(super) fn names(side: &Section<'_>, key: &str, any: bool, problems: &mut Problems) -> Vec<NameMatcher> {
    let fix = match any {
        true => format!("write a name, '*', or a template such as '{{{{internal.{key}}}}}'"),
        false => format!("write a name, or a template such as '{{{{internal.{key}}}}}'"),
    };
    side.several(key, &fix, problems, |text| match NameMatcher::parse(text) {
        Ok(NameMatcher::Any) if !any => Err("nobody can be given every role".to_owned()),
        parsed => parsed,
    })
}
