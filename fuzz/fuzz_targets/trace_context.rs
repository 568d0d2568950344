//! The `traceparent` header of a peer: what is understood means the same when it is written again.

use sallyport_wire::trace_context::TraceContext;

fuzz_target!(|data: &[u8]| {
    let Ok(header) = std::str::from_utf8(data) else { return };
    if let Some(context) = TraceContext::parse(header) {
        assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
    }
});
