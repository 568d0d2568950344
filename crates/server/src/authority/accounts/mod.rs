//! The accounts of users: passwords, links and logins.

pub(crate) mod invites;
pub(crate) mod learned;
pub(crate) mod login;
pub(crate) mod means;
pub(crate) mod opening;
pub(crate) mod passwords;
pub(crate) mod proof;
pub(crate) mod second;
mod turns;
pub(crate) mod users;
