//! Filters that are held against resources: what they name is found, and what they compare can be compared.

use std::borrow::Cow;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::syntax::{Filter, Literal, Operator};
use crate::backend::Narrow;
use crate::error::ScimError;
use crate::kind::Kind;
use crate::path::{AttributePath, Named, Target};
use crate::schema::row::{Attribute, Type};
use crate::text::fold;

/// A filter for one kind of resource, or for the values of one attribute.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    Or(Vec<Condition>),
    And(Vec<Condition>),
    Not(Box<Condition>),
    /// The attribute has a value, or has none.
    Present(Target, bool),
    /// A value compares so.
    Test(Target, Test),
    /// One value meets the condition.
    Has(Target, Box<Condition>),
    /// About an attribute that only other kinds of resource have (RFC 7644 §3.4.2.1).
    Unknown,
}

/// A comparison with a value of the attribute's type.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    Text { operator: Operator, text: String, compared: String, exact: bool },
    Boolean { equal: bool, value: bool },
    Moment { operator: Operator, at: OffsetDateTime },
}

/// What a condition is held against.
pub(crate) trait Record {
    /// The value of an attribute, if it has one.
    fn value(&self, target: &Target) -> Option<Cow<'_, Value>>;
}

/// A value of a complex attribute: its sub-attributes are what is named.
impl Record for Map<String, Value> {
    fn value(&self, target: &Target) -> Option<Cow<'_, Value>> {
        self.get(target.attribute.name).map(Cow::Borrowed)
    }
}

/// How the names in a filter are found.
trait Names {
    /// The attribute, none where another kind of resource has it.
    fn find(&self, path: &AttributePath) -> Result<Option<Target>, ScimError>;
}

struct OfKind(Kind);

impl Names for OfKind {
    fn find(&self, path: &AttributePath) -> Result<Option<Target>, ScimError> {
        match path.resolve(self.0) {
            Some(Named::Attribute(target)) => Ok(Some(target)),
            Some(Named::Core | Named::Extension(_)) => {
                Err(ScimError::filter(format!("{path} is a schema, expected an attribute")))
            }
            None if Kind::ALL.iter().any(|kind| path.resolve(*kind).is_some()) => Ok(None),
            None => Err(ScimError::filter(format!("there is no attribute {path}"))),
        }
    }
}

struct Inside(&'static Attribute);

impl Names for Inside {
    fn find(&self, path: &AttributePath) -> Result<Option<Target>, ScimError> {
        let sub = path.resolve_inside(self.0);
        let sub = sub.ok_or_else(|| ScimError::filter(format!("{} has no {path}", self.0.name)))?;
        Ok(Some(Target { extension: None, attribute: sub, sub: None }))
    }
}

impl Filter {
    /// Makes a filter for a kind of resource.
    pub(crate) fn bind(&self, kind: Kind) -> Result<Condition, ScimError> {
        self.with(&OfKind(kind))
    }

    /// Makes a filter for the values of an attribute.
    pub(crate) fn bind_inside(&self, attribute: &'static Attribute) -> Result<Condition, ScimError> {
        self.with(&Inside(attribute))
    }

    fn with(&self, names: &dyn Names) -> Result<Condition, ScimError> {
        let all = |parts: &[Self]| parts.iter().map(|part| part.with(names)).collect::<Result<Vec<_>, _>>();
        Ok(match self {
            Self::Or(parts) => Condition::Or(all(parts)?),
            Self::And(parts) => Condition::And(all(parts)?),
            Self::Not(inner) => Condition::Not(Box::new(inner.with(names)?)),
            Self::Present(path) => {
                names.find(path)?.map_or(Condition::Unknown, |target| Condition::Present(target, true))
            }
            Self::Compare(path, operator, literal) => match names.find(path)? {
                Some(target) => compare(target, *operator, literal)?,
                None => Condition::Unknown,
            },
            Self::Has(path, inner) => match names.find(path)? {
                None => Condition::Unknown,
                Some(target) if target.sub.is_none() && target.attribute.kind == Type::Complex => {
                    Condition::Has(target, Box::new(inner.bind_inside(target.attribute)?))
                }
                Some(target) => {
                    return Err(ScimError::filter(format!("{target} has no attributes to put in brackets")));
                }
            },
        })
    }
}

fn compare(target: Target, operator: Operator, literal: &Literal) -> Result<Condition, ScimError> {
    if *literal == Literal::Null {
        return match operator {
            Operator::Equal => Ok(Condition::Present(target, false)),
            Operator::NotEqual => Ok(Condition::Present(target, true)),
            _ => Err(ScimError::filter(format!("null has no order, so that {target} cannot be compared so"))),
        };
    }
    // A complex attribute is compared by its value.
    let target = match target.row() {
        row if row.kind == Type::Complex && target.sub.is_none() => {
            let value = row.value();
            let value = value.ok_or_else(|| {
                ScimError::filter(format!("{target} has no value of its own: compare an attribute of it"))
            })?;
            Target { sub: Some(value), ..target }
        }
        _ => target,
    };
    let row = target.row();
    let wrong = |expected: &str| {
        ScimError::filter(format!(
            "{target} cannot be compared with {literal} by {}: {expected}",
            operator.word()
        ))
    };
    let test = match (row.kind, literal) {
        (Type::Text | Type::Reference, Literal::Text(text)) => {
            // Addresses are made when a resource is shown: none is stored that could be compared.
            if row.computed && row.name != "type" {
                return Err(ScimError::filter(format!(
                    "{target} is not compared: it is made when it is shown"
                )));
            }
            let exact = row.case_exact;
            let compared = if exact { text.clone() } else { fold(text) };
            Test::Text { operator, text: text.clone(), compared, exact }
        }
        (Type::Text | Type::Reference, _) => return Err(wrong("it is a text")),
        (Type::Boolean, literal) => {
            let value = match literal {
                Literal::Boolean(value) => Some(*value),
                Literal::Text(text) => boolean_text(text),
                Literal::Null | Literal::Number(_) => None,
            };
            let value = value.ok_or_else(|| wrong("it is true or false"))?;
            let equal = match operator {
                Operator::Equal => true,
                Operator::NotEqual => false,
                _ => return Err(wrong("a boolean has no order")),
            };
            Test::Boolean { equal, value }
        }
        (Type::Moment, Literal::Text(text)) => {
            let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| wrong("it is a time of RFC 3339"))?;
            if matches!(operator, Operator::Contains | Operator::StartsWith | Operator::EndsWith) {
                return Err(wrong("a time has no parts"));
            }
            Test::Moment { operator, at }
        }
        _ => return Err(wrong("the types differ")),
    };
    Ok(Condition::Test(target, test))
}

/// A boolean; Microsoft Entra writes it as a text, with a capital.
pub(crate) fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::String(text) => boolean_text(text),
        _ => None,
    }
}

fn boolean_text(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

impl Condition {
    /// Whether it holds.
    pub(crate) fn holds(&self, record: &dyn Record) -> bool {
        match self {
            Self::Or(parts) => parts.iter().any(|part| part.holds(record)),
            Self::And(parts) => parts.iter().all(|part| part.holds(record)),
            Self::Not(inner) => !inner.holds(record),
            Self::Present(target, expected) => is_present(target, record) == *expected,
            Self::Test(target, test) => {
                let Some(value) = record.value(target) else { return test.holds_of_nothing() };
                test.holds(&value, target.sub)
            }
            Self::Has(target, inner) => record.value(target).is_some_and(|value| match value.as_ref() {
                Value::Array(items) => {
                    items.iter().filter_map(Value::as_object).any(|item| inner.holds(item))
                }
                Value::Object(object) => inner.holds(object),
                _ => false,
            }),
            Self::Unknown => false,
        }
    }

    /// Whether it asks for an attribute.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        match self {
            Self::Or(parts) | Self::And(parts) => parts.iter().any(|part| part.mentions(name)),
            Self::Not(inner) => inner.mentions(name),
            Self::Present(target, _) | Self::Test(target, _) | Self::Has(target, _) => {
                target.extension.is_none() && target.attribute.name == name
            }
            Self::Unknown => false,
        }
    }

    /// Which resources can meet it, as far as an index could tell: no others do.
    pub(crate) fn narrow(&self) -> Narrow {
        match self {
            Self::And(parts) => parts
                .iter()
                .map(Self::narrow)
                .find(|narrow| !matches!(narrow, Narrow::All))
                .unwrap_or(Narrow::All),
            Self::Test(target, Test::Text { operator: Operator::Equal, text, compared, .. })
                if target.extension.is_none() =>
            {
                match (target.attribute.name, target.sub.map(|sub| sub.name)) {
                    ("id", None) => Narrow::Id(text.clone()),
                    ("userName", None) => Narrow::UserName(compared.clone()),
                    ("externalId", None) => Narrow::ExternalId(text.clone()),
                    ("members", Some("value")) => Narrow::Members([text.clone()].into()),
                    _ => Narrow::All,
                }
            }
            Self::Has(target, inner) if target.attribute.is_members() => match inner.as_ref() {
                Self::Test(inside, Test::Text { operator: Operator::Equal, text, .. })
                    if inside.attribute.name == "value" =>
                {
                    Narrow::Members([text.clone()].into())
                }
                _ => Narrow::All,
            },
            _ => Narrow::All,
        }
    }

    /// How many comparisons it takes to know whether it holds.
    pub(crate) fn comparisons(&self) -> usize {
        match self {
            Self::Or(parts) | Self::And(parts) => parts.iter().map(Self::comparisons).sum(),
            Self::Not(part) | Self::Has(_, part) => part.comparisons(),
            Self::Present(..) | Self::Test(..) | Self::Unknown => 1,
        }
    }

    /// The value that it describes, where it is a list of equalities: what `emails[type eq "work"]` would have made.
    pub(crate) fn described(&self) -> Option<Map<String, Value>> {
        let mut value = Map::new();
        self.describe(&mut value).then_some(value)
    }

    fn describe(&self, value: &mut Map<String, Value>) -> bool {
        let (name, said) = match self {
            Self::And(parts) => return parts.iter().all(|part| part.describe(value)),
            Self::Test(target, Test::Text { operator: Operator::Equal, text, .. }) => {
                (target.attribute.name, Value::String(text.clone()))
            }
            Self::Test(target, Test::Boolean { equal, value }) => {
                (target.attribute.name, Value::Bool(*value == *equal))
            }
            _ => return false,
        };
        value.insert(name.to_owned(), said).is_none()
    }
}

fn is_present(target: &Target, record: &dyn Record) -> bool {
    let Some(value) = record.value(target) else { return false };
    match target.sub {
        None => is_something(&value),
        Some(sub) => parts(&value, Some(sub)).any(is_something),
    }
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => items.iter().any(is_something),
        Value::Object(members) => members.values().any(is_something),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// The values in a value: of a list each, and of those the sub-attribute, if one is meant.
fn parts<'a>(value: &'a Value, sub: Option<&'static Attribute>) -> impl Iterator<Item = &'a Value> + use<'a> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    items.iter().filter_map(move |item| match sub {
        Some(sub) => item.get(sub.name),
        None => Some(item),
    })
}

impl Test {
    /// An attribute without a value is not equal to any, and has no order (RFC 7644 §3.4.2.2).
    fn holds_of_nothing(&self) -> bool {
        match self {
            Self::Text { operator, .. } | Self::Moment { operator, .. } => *operator == Operator::NotEqual,
            Self::Boolean { equal, .. } => !equal,
        }
    }

    /// Whether it holds of any of the values.
    fn holds(&self, value: &Value, sub: Option<&'static Attribute>) -> bool {
        let mut values = parts(value, sub).peekable();
        if values.peek().is_none() {
            return self.holds_of_nothing();
        }
        values.any(|value| self.holds_of(value))
    }

    fn holds_of(&self, value: &Value) -> bool {
        match self {
            Self::Text { operator, compared, exact, .. } => value.as_str().is_some_and(|text| {
                let text = if *exact { Cow::Borrowed(text) } else { Cow::Owned(fold(text)) };
                match operator {
                    Operator::Contains => text.contains(compared.as_str()),
                    Operator::StartsWith => text.starts_with(compared.as_str()),
                    Operator::EndsWith => text.ends_with(compared.as_str()),
                    _ => operator.ordered(text.as_ref(), compared.as_str()),
                }
            }),
            Self::Boolean { equal, value: expected } => {
                value.as_bool().is_some_and(|value| (value == *expected) == *equal)
            }
            Self::Moment { operator, at } => value
                .as_str()
                .and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok())
                .is_some_and(|value| operator.ordered(&value, at)),
        }
    }
}

impl Operator {
    /// Whether two values compare so; false for those that are about parts of a text.
    fn ordered<T: Ord + ?Sized>(self, value: &T, with: &T) -> bool {
        match self {
            Self::Equal => value == with,
            Self::NotEqual => value != with,
            Self::Greater => value > with,
            Self::GreaterOrEqual => value >= with,
            Self::Less => value < with,
            Self::LessOrEqual => value <= with,
            Self::Contains | Self::StartsWith | Self::EndsWith => false,
        }
    }
}
