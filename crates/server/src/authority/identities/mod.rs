//! Who there is: users, hosts, and the logins that are open.

pub(crate) mod grants;
pub(crate) mod known;
pub(crate) mod logins;
pub(crate) mod open;
pub(crate) mod origins;
pub(crate) mod places;
pub(crate) mod rules;
pub(crate) mod uses;

#[cfg(test)]
mod tests;
