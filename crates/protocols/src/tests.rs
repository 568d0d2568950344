use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;

fn docs(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Two rows that a listener cannot tell apart would take each other's clients.
#[test]
fn every_kind_has_a_row_and_no_two_rows_are_told_by_the_same() {
    for kind in Kind::ALL {
        let rows: Vec<_> = ALL.iter().filter(|row| row.kind == *kind).collect();
        assert_eq!(rows.len(), 1, "{kind:?}");
        assert_eq!(rows[0].catalogued.is_some(), kind.is_listed(), "{kind:?}");
    }
    let mut asked = BTreeSet::new();
    for alpn in ALL.iter().flat_map(|row| [row.alpn, row.inner_alpn]).flatten() {
        assert!(asked.insert(alpn), "two rows have {:?}", String::from_utf8_lossy(alpn));
    }
    for verdict in [Verdict::Ssh, Verdict::Tls, Verdict::Http, Verdict::Postgres] {
        let rows = ALL.iter().filter(|row| row.first_bytes == Some(verdict)).count();
        assert!(rows <= 1, "{verdict:?}");
    }
    // TLS and HTTP are how several protocols come, and none by itself.
    assert!(by_first_bytes(Verdict::Tls).is_none() && by_first_bytes(Verdict::Http).is_none());
}

/// What the one port offers by itself belongs to no protocol, and what stays between a program and a host to no listener.
#[test]
fn a_listener_chooses_what_comes_to_it_alone() {
    use sallyport_wire::alpn::{AUTH, H2, HTTP11, RELAY, TUNNEL};
    for cluster in [AUTH, TUNNEL, RELAY, H2, HTTP11] {
        assert!(by_alpn(cluster).is_none(), "{:?}", String::from_utf8_lossy(cluster));
    }
    for row in ALL {
        assert!(row.inner_alpn.is_none_or(|inner| by_alpn(inner).is_none()), "{:?}", row.kind);
        if row.catalogued.is_some() {
            assert!(row.inner_alpn.is_some(), "a user proves the certificate to the agent: {:?}", row.kind);
        }
    }
}

#[test]
fn the_guide_and_the_catalogues_name_what_there_is() {
    let (audit, operations) = (docs("audit.md"), docs("operations.md"));
    for row in ALL {
        let guides: String = row.guides.iter().map(|guide| docs(guide)).collect();
        assert!(!row.commands.is_empty() && !row.codes.is_empty() && !row.metrics.is_empty());
        for command in row.commands {
            assert!(guides.contains(&format!("sallyport {command}")), "{:?} lacks {command}", row.guides);
        }
        for code in row.codes {
            assert!(audit.contains(code.as_str()), "audit.md lacks {}", code.as_str());
        }
        for metric in row.metrics {
            assert!(operations.contains(metric), "operations.md lacks {metric}");
        }
        if let Some(serving) = row.catalogued {
            for code in [
                &serving.codes.start,
                &serving.codes.end,
                &serving.codes.refused,
                &serving.codes.cut,
                &serving.lost,
            ] {
                assert!(row.codes.contains(code), "{code:?} is none of {:?}", row.kind);
                assert!(guides.contains(code.kind()), "{:?} lacks {}", row.guides, code.kind());
            }
            for key in serving.spec.keys {
                assert!(guides.contains(&format!("`{key}`")), "{:?} lacks the key {key}", row.guides);
            }
        }
    }
}
