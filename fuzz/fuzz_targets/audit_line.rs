//! A line of an audit log that another program wrote.

use sallyport_audit::log::{Filter, parse_line};

fuzz_target!(|data: &[u8]| {
    if let Some(record) = parse_line(&String::from_utf8_lossy(data)) {
        let _ = Filter::default().matches(&record);
    }
});
