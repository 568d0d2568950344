//! Attacks through the services' API: each takes what a thief would hold, does what a thief would do, and shows what is
//! refused.

mod audit;
mod counted;
mod database_sessions;
mod databases;
mod denied;
mod documents;
mod explained;
mod following;
mod hidden;
mod limits;
mod listed_hosts;
mod lists;
mod names;
mod odd;
mod once;
mod people;
mod registered_servers;
mod removed;
mod rights;
mod stand_ins;
mod stolen;
mod strangers;
mod taken_proxies;
mod told;
mod unread;
