//! Times and durations between protobuf and Rust.

use std::time::Duration;

use time::OffsetDateTime;

/// A time as protobuf has it.
#[must_use]
pub fn time_to_proto(at: OffsetDateTime) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.unix_timestamp(),
        nanos: i32::try_from(at.nanosecond()).unwrap_or(0),
    }
}

/// A protobuf time, unless it is out of range.
#[must_use]
pub fn time_from_proto(at: &prost_types::Timestamp) -> Option<OffsetDateTime> {
    let nanos = u32::try_from(at.nanos).ok()?;
    OffsetDateTime::from_unix_timestamp(at.seconds).ok()?.replace_nanosecond(nanos).ok()
}

/// A span as protobuf has it; what does not fit becomes the longest that does.
#[must_use]
pub fn duration_to_proto(span: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: i32::try_from(span.subsec_nanos()).unwrap_or(0) }
}

/// A protobuf span, unless it is negative or malformed.
#[must_use]
pub fn duration_from_proto(span: &prost_types::Duration) -> Option<Duration> {
    let nanos = u32::try_from(span.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(span.seconds).ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let at = OffsetDateTime::UNIX_EPOCH + Duration::new(1_900_000_000, 123_456_789);
        assert_eq!(time_from_proto(&time_to_proto(at)), Some(at));
        let span = Duration::new(7, 5);
        assert_eq!(duration_from_proto(&duration_to_proto(span)), Some(span));
        assert_eq!(time_from_proto(&prost_types::Timestamp { seconds: i64::MAX, nanos: 0 }), None);
        assert_eq!(time_from_proto(&prost_types::Timestamp { seconds: 0, nanos: -1 }), None);
        assert_eq!(duration_from_proto(&prost_types::Duration { seconds: -1, nanos: 0 }), None);
        assert_eq!(duration_from_proto(&prost_types::Duration { seconds: 1, nanos: 2_000_000_000 }), None);
    }
}
