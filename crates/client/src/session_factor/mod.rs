//! The second factor that roles demand for each session: one question to the person for all that ask at a time.
//!
//! What was refused for want of a factor comes to [`Asking::prove`] with an [`Asker`], which knows how a person is reached. However
//! many come at a time, one of them asks the authority and the person, for all of them; the others wait for what comes of it.
//! Each then tries once more what was refused.

mod asking;
mod authority;
mod conversing;
mod pre_auth;
mod question;

pub use asking::Asking;
pub use pre_auth::{PreAuth, pre_auth};
pub use question::{Asker, Question};
