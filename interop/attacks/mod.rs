//! Attacks on running clusters, with the programs that an attacker would use: each takes what a thief would hold, does what a
//! thief would do, and shows what is refused.

mod audit;
mod browser_logins;
mod closed;
mod disk;
mod expired_proxies;
mod floods;
mod hostile_proxy;
mod inherited;
mod own_machine;
mod own_machine_held;
mod registered_servers;
mod signals;
