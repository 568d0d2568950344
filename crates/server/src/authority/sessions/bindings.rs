//! Which host a session belongs to, where its id does not say so.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use sallyport_access::{HostId, SessionId};

/// Sessions whose ids do not name their host, as those of earlier releases, that are remembered with their host.
const MOST_BOUND: usize = 100_000;

/// Which host a session belongs to, where its id does not say so: the first that reported it.
#[derive(Debug, Default)]
pub(crate) struct Bindings(Mutex<Bound>);

#[derive(Debug, Default)]
struct Bound {
    of: HashMap<SessionId, HostId>,
    order: VecDeque<SessionId>,
}

impl Bindings {
    /// The host that reported a session first: this one, unless another has.
    pub(crate) fn first(&self, session: SessionId, host: HostId) -> HostId {
        let mut bound = self.0.lock();
        if let Some(first) = bound.of.get(&session) {
            return *first;
        }
        if bound.order.len() >= MOST_BOUND
            && let Some(oldest) = bound.order.pop_front()
        {
            bound.of.remove(&oldest);
        }
        bound.of.insert(session, host);
        bound.order.push_back(session);
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_belongs_to_the_first_host_that_speaks_of_it() {
        let bindings = Bindings::default();
        let (one, two, session) = (HostId::new(), HostId::new(), SessionId::new());
        assert_eq!(bindings.first(session, one), one);
        assert_eq!(bindings.first(session, two), one);
        assert_eq!(bindings.first(SessionId::new(), two), two);
        for _ in 0..MOST_BOUND {
            bindings.first(SessionId::new(), one);
        }
        let bound = bindings.0.lock();
        assert!(bound.of.len() == MOST_BOUND && bound.order.len() == MOST_BOUND);
    }
}
