//! Which trace a request belongs to: the `traceparent` header of W3C Trace Context (Level 1, 2021), in gRPC metadata and at the
//! head of tunnel streams.
//!
//! It is a hint of a peer's and never more: its reader decides alone what it keeps, and a header that is not
//! understood is one that is not there (§3.2: "the implementation SHOULD ignore it and restart the trace").

use std::fmt;

/// The header's name.
pub const TRACEPARENT: &str = "traceparent";

/// Version, 16 bytes, 8 bytes and flags in hexadecimal, with hyphens between them (§3.2.2).
const LENGTH: usize = 55;
/// The only version there is.
const VERSION: u8 = 0;
/// This one means that the header is invalid (§3.2.1).
const FORBIDDEN_VERSION: u8 = 0xff;
/// The caller may have kept its part of the trace (§3.2.2.5.1).
const SAMPLED: u8 = 1;

/// One place in one trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    sampled: bool,
}

impl TraceContext {
    /// A place in a trace; `None` where an id is zero, which is no id (§3.2.2.3, §3.2.2.4).
    #[must_use]
    pub fn new(trace: u128, span: u64, sampled: bool) -> Option<Self> {
        (trace != 0 && span != 0).then_some(Self { trace, span, sampled })
    }

    /// The trace.
    #[must_use]
    pub fn trace(&self) -> u128 {
        self.trace
    }

    /// The span that whatever follows is part of.
    #[must_use]
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Whether the peer says that it keeps its part.
    #[must_use]
    pub fn sampled(&self) -> bool {
        self.sampled
    }

    /// The same place, with another word about what is kept.
    #[must_use]
    pub fn with_sampled(self, sampled: bool) -> Self {
        Self { sampled, ..self }
    }

    /// Reads a header. `None` for whatever is not one: of another shape, with upper case, zeros, or version `ff`.
    /// Of a version that is not known yet, the parts that this one has are read (§4.3).
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let (head, rest) = header.split_at_checked(LENGTH)?;
        let mut parts = head.split('-');
        let mut next = |digits: usize| parts.next().filter(|part| part.len() == digits && is_hex(part));
        let version = u8::from_str_radix(next(2)?, 16).ok()?;
        let trace = u128::from_str_radix(next(32)?, 16).ok()?;
        let span = u64::from_str_radix(next(16)?, 16).ok()?;
        let flags = u8::from_str_radix(next(2)?, 16).ok()?;
        let whole = match version {
            VERSION => rest.is_empty(),
            FORBIDDEN_VERSION => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        if !whole {
            return None;
        }
        Self::new(trace, span, flags & SAMPLED != 0)
    }
}

fn is_hex(part: &str) -> bool {
    part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// As the header has it.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION:02x}-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_specification_is_understood() {
        let context = TraceContext::parse(EXAMPLE).unwrap();
        assert_eq!(context.trace(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span(), 0x00f0_67aa_0ba9_02b7);
        assert!(context.sampled());
        assert_eq!(context.to_string(), EXAMPLE);
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-09-what-the-future-will-be-like";
        assert_eq!(TraceContext::parse(later), Some(context));
    }

    #[test]
    fn what_is_not_one_is_ignored() {
        for header in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47360-0f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e473\u{e9}-0f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(header), None, "{header}");
        }
        assert_eq!(TraceContext::new(0, 1, false), None);
        assert_eq!(TraceContext::new(1, 0, false), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace in 1_u128.., span in 1_u64.., sampled: bool) {
            let context = TraceContext::new(trace, span, sampled).unwrap();
            prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
        }

        #[test]
        fn nothing_makes_it_stumble(header in "\\PC{0,80}") {
            let _ = TraceContext::parse(&header);
        }
    }
}
