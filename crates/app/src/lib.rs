//! Plain TCP applications: whatever a program speaks with `tcp://host:port` goes there as it is, and of what passes only the amount is
//! on record.

mod carry;
mod uri;

use sallyport_access::Listed;
use sallyport_access::listed::Spec;
use sallyport_access::yaml::{Problems, Section};
use sallyport_audit::Code;
use sallyport_session::Codes;
use sallyport_session::serving::Serving;

pub use self::uri::{NoUri, Uri};

/// What users' programs ask for in the TLS that goes on to the agent.
pub const ALPN: &[u8] = b"sallyport-app/1";
/// The key of a document that says where the application is.
const URI: &str = "uri";

/// How agents serve applications.
pub static SERVING: Serving = Serving {
    spec: Spec { keys: &[URI], shown: &[URI], check },
    codes: Codes {
        start: Code::AppSessionStart,
        end: Code::AppSessionEnd,
        refused: Code::AppSessionRefused,
        cut: Code::AppSessionCut,
    },
    lost: Code::AppSessionLost,
    address,
    carry: carry::carry,
};

/// What is wrong with a specification.
fn check(spec: &Section<'_>, problems: &mut Problems) {
    let fix = "write tcp://host:port, such as tcp://grafana.internal:3000";
    let _ = spec.parsed(URI, fix, problems, str::parse::<Uri>);
    if spec.present(URI).is_none() {
        problems.push(spec.at(), &spec.name(URI), "is missing", fix);
    }
}

fn address(listed: &Listed) -> Option<String> {
    listed.text(URI)?.parse::<Uri>().ok().map(|uri| uri.address())
}

#[cfg(test)]
mod tests {
    use sallyport_access::Kind;

    use super::*;

    fn document(spec: &str) -> String {
        format!("kind: app\nversion: v1\nmetadata: {{name: wiki, labels: {{env: dev}}}}\nspec: {spec}\n")
    }

    #[test]
    fn a_document_says_where_and_by_whom_and_no_more() {
        let text = document("{uri: 'tcp://wiki.internal:80', via: [web-1, web-2]}");
        let listed = Listed::parse(Kind::App, &text, &SERVING.spec).unwrap();
        assert_eq!(address(&listed).as_deref(), Some("wiki.internal:80"));
        assert_eq!(Listed::parse(Kind::App, &listed.to_yaml(), &SERVING.spec).unwrap(), listed);
        for (spec, problem) in [
            ("{via: web-1}", "spec.uri: is missing"),
            ("{uri: 'http://wiki:80', via: web-1}", "does not begin with tcp://"),
            ("{uri: 'tcp://wiki', via: web-1}", "has no port"),
            ("{uri: 'tcp://wiki:80/x', via: web-1}", "means nothing to TCP"),
            ("{uri: 'tcp://wiki:80', via: web-1, tls: off}", "tls"),
        ] {
            let said = Listed::parse(Kind::App, &document(spec), &SERVING.spec).unwrap_err().to_string();
            assert!(said.contains(problem), "{spec}: {said}");
        }
    }
}
