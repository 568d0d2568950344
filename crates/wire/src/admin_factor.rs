//! How the authority says that an administrator has to prove a factor before it does what was asked for.

use tonic::Status;
use tonic::codegen::http::HeaderMap;
use tonic::metadata::AsciiMetadataValue;

/// The header of such refusals.
pub const ADMIN_FACTOR_HEADER: &str = "sallyport-admin-factor";

/// What the authority wants first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A proof of one of the caller's factors, by `Factors.ProveAdministrator`. The same call is let in afterwards.
    Prove,
    /// A factor, of which the caller has none.
    Enrol,
}

impl Wanted {
    fn word(self) -> &'static str {
        match self {
            Self::Prove => "prove",
            Self::Enrol => "enrol",
        }
    }

    /// What the headers of an answer want. A word of a newer release is none.
    #[must_use]
    pub fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let said = headers.get(ADMIN_FACTOR_HEADER)?.as_bytes();
        [Self::Prove, Self::Enrol].into_iter().find(|wanted| wanted.word().as_bytes() == said)
    }

    /// What a refusal wants.
    #[must_use]
    pub fn of(status: &Status) -> Option<Self> {
        let said = status.metadata().get(ADMIN_FACTOR_HEADER)?;
        [Self::Prove, Self::Enrol].into_iter().find(|wanted| said == wanted.word())
    }
}

/// The refusal of what wants this first.
#[must_use]
pub fn refusal(wanted: Wanted, message: impl Into<String>) -> Status {
    let mut status = Status::permission_denied(message);
    status.metadata_mut().insert(ADMIN_FACTOR_HEADER, AsciiMetadataValue::from_static(wanted.word()));
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_it_wants_and_others_want_nothing() {
        for wanted in [Wanted::Prove, Wanted::Enrol] {
            let status = refusal(wanted, "prove a factor first");
            assert_eq!(Wanted::of(&status), Some(wanted));
            let headers = status.into_http::<()>().into_parts().0.headers;
            assert_eq!(Wanted::of_headers(&headers), Some(wanted));
        }
        assert_eq!(Wanted::of(&Status::permission_denied("no role allows it")), None);
        assert_eq!(Wanted::of_headers(&HeaderMap::new()), None);
        let mut newer = HeaderMap::new();
        newer.insert(ADMIN_FACTOR_HEADER, "dance".parse().unwrap_or_else(|_| unreachable!()));
        assert_eq!(Wanted::of_headers(&newer), None);
    }
}
