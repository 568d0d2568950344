//! Attacks through the services' API: each takes what a thief would hold, does what a thief would do, and shows what is
//! refused.

mod audit;
mod databases;
mod explained;
mod hidden;
mod limits;
mod names;
mod documents;
mod explained;
mod following;
mod limits;
mod lists;
mod once;
mod people;
mod removed;
mod rights;
mod stand_ins;
mod told;
mod unread;
mod strangers;
mod stolen;
