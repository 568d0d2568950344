//! What a program says of its cryptography: its own word, which nothing proves.

use tonic::metadata::AsciiMetadataValue;
use tonic::{Request, Status};

/// The header of calls by a program that takes all cryptography from a FIPS module.
pub const FIPS_HEADER: &str = "sallyport-fips";

/// A call that says so, where it is so.
#[must_use]
pub fn saying<T>(message: T, fips: bool) -> Request<T> {
    let mut request = Request::new(message);
    if fips {
        request.metadata_mut().insert(FIPS_HEADER, AsciiMetadataValue::from_static("1"));
    }
    request
}

/// Whether a call says so.
#[must_use]
pub fn says<T>(request: &Request<T>) -> bool {
    request.metadata().get(FIPS_HEADER).is_some_and(|said| said == "1")
}

/// The refusal of a program that has not said so, by a cluster that demands it.
#[must_use]
pub fn refusal(message: impl Into<String>) -> Status {
    let mut status = Status::failed_precondition(message);
    status.metadata_mut().insert(FIPS_HEADER, AsciiMetadataValue::from_static("required"));
    status
}

/// Whether a call was refused because the cluster demands FIPS mode.
#[must_use]
pub fn is_refusal(status: &Status) -> bool {
    status.metadata().get(FIPS_HEADER).is_some_and(|said| said == "required")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_others_of_its_code() {
        assert!(is_refusal(&refusal("this cluster requires FIPS mode")));
        assert!(!is_refusal(&Status::failed_precondition("this cluster requires FIPS mode")));
    }

    #[test]
    fn only_who_says_so_has_said_it() {
        assert!(says(&saying((), true)));
        assert!(!says(&saying((), false)));
        let mut other = Request::new(());
        other.metadata_mut().insert(FIPS_HEADER, AsciiMetadataValue::from_static("0"));
        assert!(!says(&other));
    }
}
