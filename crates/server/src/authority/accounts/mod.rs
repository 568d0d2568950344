//! The accounts of users: passwords, links and logins.

pub(crate) mod admitting;
mod breached;
pub(crate) mod choosing;
pub(crate) mod invites;
pub(crate) mod learned;
pub(crate) mod login;
pub(crate) mod means;
pub(crate) mod opening;
pub(crate) mod passwords;
pub(crate) mod proof;
mod rules;
pub(crate) mod second;
pub(crate) mod turns;
pub(crate) mod users;
