use std::collections::HashSet;

use super::*;

#[test]
fn codes_are_unique_and_well_formed() {
    let mut codes = HashSet::new();
    let mut kinds = HashSet::new();
    for code in Code::ALL {
        let text = code.as_str();
        assert!(codes.insert(text), "{text} twice");
        assert!(kinds.insert(code.kind()), "{} twice", code.kind());
        assert!(Code::is_well_formed(text), "{text}");
        assert_eq!(&Code::parse(text), code);
        assert!(!code.description().is_empty());
    }
    for other in ["", "SP", "SP1234", "SP12345I", "SP123I", "sp1234I", "SP1234X", "SP12x4I", "SP1234I "] {
        assert!(!Code::is_well_formed(other), "{other}");
    }
}

#[test]
fn the_catalogue_lists_every_code() {
    let catalogue = include_str!("../../../../docs/audit.md");
    for code in Code::ALL {
        let row = format!("| `{}` | `{}` | {} |", code.as_str(), code.kind(), code.description());
        assert!(catalogue.contains(&row), "docs/audit.md lacks the row\n{row}");
    }
}

#[test]
fn events_survive_json_with_what_is_unknown() {
    let event = Event::new(Code::SessionStart, OffsetDateTime::UNIX_EPOCH)
        .user("alice")
        .node("web-1")
        .session("s")
        .field("pty", true);
    let text = event.to_json();
    assert_eq!(Event::from_json(&text).unwrap(), event);
    assert!(!text.contains("login"), "{text}");
    let other = text.replace("SP2000I", "SP9999X");
    let unknown = Event::from_json(&other).unwrap();
    assert_eq!(unknown.code, Code::Unknown("SP9999X".to_owned()));
    assert_eq!(unknown.to_json(), other);
}
