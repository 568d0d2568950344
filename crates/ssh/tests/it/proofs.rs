//! Second factors, as a test says that they are proven.

use parking_lot::Mutex;
use sallyport_session::factor::{Answer, Factors, Missing, Proven, Wanted};

/// Which second factor is proven, and what was asked.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    pub(crate) proven: Mutex<Option<&'static str>>,
    pub(crate) asked: Mutex<Vec<Wanted>>,
}

impl Factors for Proofs {
    fn proven(&self, wanted: Wanted) -> Answer<'_> {
        let demanded = wanted.demand.rule.factor;
        self.asked.lock().push(wanted);
        let proven = *self.proven.lock();
        let answer = proven.map(|name| Proven { factor: name.to_owned() });
        Box::pin(async move { answer.ok_or(Missing::Unproven(demanded)) })
    }
}
