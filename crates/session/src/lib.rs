//! The life of a recorded session, whatever its kind is.
//!
//! A crate of a protocol knows what its bytes mean; what a session is, is here once:
//!
//! * [`About`]: whose session it is, and what each of its events says.
//! * [`Evidence`]: that its user comes from where the login counts, and the second factor where roles demand one.
//! * [`Record`]: its recording and events, and what follows when it cannot be recorded.
//! * [`LiveSessions`]: the sessions of a host, to be listed, reported and ended.
//! * [`limits`] and [`Activity`]: how long it may last, and be idle.
//! * [`watch`]: the one loop that waits until a session has to end, and says why ([`Stop`]).
//! * [`Roster`]: what is open at a service, and its drain.
//! * [`Session`]: all of this together, for protocols that need no more.
//!
//! Nothing here dials, and nothing decides: a [`Permit`](sallyport_access::Permit) is what a session begins with, and whether it
//! still holds the caller answers ([`Watched`]).

pub mod factor;
pub mod limits;
pub mod serving;
pub mod watch;

mod about;
mod activity;
mod live;
mod record;
mod roster;
mod session;
mod stop;

pub use about::About;
pub use activity::Activity;
pub use factor::Evidence;
pub use live::{Change, EndSession, LiveEntry, LiveSession, LiveSessions, Participant, Served};
pub use record::{How, Record, Unrecordable};
pub use roster::{NotEntered, Patience, Place, Roster};
pub use session::{Codes, Counts, End, Host, NotBegun, Session};
pub use stop::{Denied, Ending, Stop};
pub use watch::{Timed, Watched};
