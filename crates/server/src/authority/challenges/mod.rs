//! Challenges: what a person has to prove at a page, by which rules, and what is then done.

mod administrators;
mod admissions;
pub(crate) mod approvals;
mod asking;
pub(crate) mod bounds;
pub(crate) mod browser;
pub(crate) mod ceremony;
pub(crate) mod changes;
pub(crate) mod enrolments;
mod first;
pub(crate) mod invited;
pub(crate) mod kept;
mod key_logins;
pub(crate) mod logins;
mod making;
pub(crate) mod opening;
pub(crate) mod pages;
mod passkeys;
mod passwords;
pub(crate) mod records;
mod shown_factors;
pub(crate) mod terminal;
pub(crate) mod waiting;
