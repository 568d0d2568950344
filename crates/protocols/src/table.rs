//! The rows.

use sallyport_access::Kind;
use sallyport_audit::Code;
use sallyport_wire::alpn;
use sallyport_wire::detect::Verdict;

use crate::protocol::Protocol;

/// Every protocol. A kind has at most one here.
pub static ALL: &[Protocol] = &[
    Protocol {
        kind: Kind::Node,
        first_bytes: Some(Verdict::Ssh),
        alpn: None,
        inner_alpn: Some(alpn::NATIVE),
        catalogued: None,
        commands: &["ls", "ssh", "scp", "proxy ssh"],
        codes: &[
            Code::SessionStart,
            Code::SessionEnd,
            Code::SessionRefused,
            Code::SessionCut,
            Code::SessionLost,
        ],
        metrics: &["sallyport_sessions_total"],
        guides: &["openssh.md", "copying.md", "node.md"],
    },
    Protocol {
        kind: Kind::Database,
        first_bytes: Some(Verdict::Postgres),
        alpn: Some(alpn::POSTGRESQL),
        inner_alpn: Some(alpn::DATABASE),
        catalogued: None,
        commands: &["db ls", "db login", "db connect", "proxy db"],
        codes: &[
            Code::DatabaseSessionStart,
            Code::DatabaseSessionEnd,
            Code::DatabaseSessionRefused,
            Code::DatabaseSessionCut,
            Code::DatabaseSessionLost,
        ],
        metrics: &["sallyport_sessions_total", "sallyport_database_backends_left_total"],
        guides: &["databases.md"],
    },
    Protocol {
        kind: Kind::App,
        first_bytes: None,
        alpn: None,
        inner_alpn: Some(sallyport_app::ALPN),
        catalogued: Some(&sallyport_app::SERVING),
        commands: &["app ls", "app connect", "proxy app"],
        codes: &[
            Code::AppSessionStart,
            Code::AppSessionEnd,
            Code::AppSessionRefused,
            Code::AppSessionCut,
            Code::AppSessionLost,
        ],
        metrics: &["sallyport_resource_sessions_total"],
        guides: &["apps.md"],
    },
];
