//! Roles: what people write down, checked when it is written.

mod definition;
mod matchers;
mod reading;
mod written;

pub use definition::{
    ApiRule, JoinRule, KindLabels, LabelRules, PRESET_ACCESS, PRESET_AUDITOR, PRESET_EDITOR, RESOURCES, Role,
    Rules, Verb,
};
pub(crate) use matchers::whole_value;
pub use matchers::{LoginMatcher, NameMatcher, TraitRef, ValueMatcher};
