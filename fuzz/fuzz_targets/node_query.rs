//! A query that a client sent: it is read or refused with a place in it, and one that is read writes back to itself.

use sallyport_access::{Labels, Query, query::Subject};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match Query::parse(&text) {
        Ok(query) => {
            let written = query.to_string();
            if written.len() <= sallyport_access::query::LONGEST_QUERY_BYTES {
                assert_eq!(Query::parse(&written).as_ref(), Ok(&query));
            }
            let labels: Labels = [("env", "prod")].into_iter().collect();
            let subject = Subject {
                id: "1",
                name: "web-1",
                labels: &labels,
                version: "",
                os_user: "root",
                kind: "sallyport",
                logins: &[],
                online: true,
            };
            let _ = query.holds(&subject);
        }
        Err(error) => assert!(error.column() <= text.chars().count() + 1),
    }
});
