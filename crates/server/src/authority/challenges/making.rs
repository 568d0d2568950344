//! Recovery codes that are being made: ten slow hashes, for one call of a user at a time.

use std::collections::HashSet;

use parking_lot::Mutex;
use sallyport_access::UserName;
use tonic::Status;

/// For whom they are being made.
#[derive(Debug, Default)]
pub(super) struct Making {
    users: Mutex<HashSet<UserName>>,
}

/// A user's only call that makes them, until it is dropped.
#[derive(Debug)]
pub(super) struct Only<'m> {
    making: &'m Making,
    user: UserName,
}

impl Making {
    /// # Errors
    /// Another call makes them for this user.
    pub(super) fn begin(&self, user: &UserName) -> Result<Only<'_>, Status> {
        if !self.users.lock().insert(user.clone()) {
            return Err(Status::resource_exhausted(
                "recovery codes are being made for you at this moment; try again in a few seconds",
            ));
        }
        Ok(Only { making: self, user: user.clone() })
    }
}

impl Drop for Only<'_> {
    fn drop(&mut self) {
        self.making.users.lock().remove(&self.user);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_user_makes_them_once_at_a_time() {
        let making = Making::default();
        let (alice, bob) = (UserName::new("alice").unwrap(), UserName::new("bob").unwrap());
        let only = making.begin(&alice).unwrap();
        assert_eq!(making.begin(&alice).unwrap_err().code(), tonic::Code::ResourceExhausted);
        making.begin(&bob).unwrap();
        drop(only);
        making.begin(&alice).unwrap();
    }
}
