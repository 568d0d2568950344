use super::*;

fn node(status: Status) -> Error {
    Error::Node { node: "web-1".to_owned(), login: "root".to_owned(), status }
}

#[test]
fn answers_have_the_kind_and_the_advice_of_what_was_asked() {
    let refused = || Status::permission_denied("no");
    let answered = Error::answered("list the nodes", refused());
    assert_eq!((answered.kind(), answered.told(), answered.advice()), (Kind::Refused, "no".to_owned(), None));
    let node = node(refused());
    assert_eq!(node.kind(), Kind::Connection);
    assert!(node.advice().unwrap().contains("root is not one of them on web-1"), "{node:?}");
    for (status, kind) in [
        (refused(), Kind::Refused),
        (Status::unauthenticated("who?"), Kind::NotLoggedIn),
        (Status::not_found("none"), Kind::Connection),
    ] {
        let database = Error::Database { database: "prod".to_owned(), status };
        assert_eq!(database.kind(), kind, "{database:?}");
        assert!(database.advice().is_some(), "{database:?}");
    }
    // An authority that was reached says itself what is the matter with it.
    let busy = Error::answered("log in", Status::unavailable("the store is being moved"));
    assert_eq!((busy.told(), busy.advice()), ("cannot log in: the store is being moved".to_owned(), None));
}

#[test]
fn what_is_told_has_the_causes_on_one_line_and_steers_nothing() {
    let failed = Err::<(), _>(std::io::Error::other("a\nb\u{1b}[2J")).doing("read it").unwrap_err();
    let told = failed.told();
    assert!(told.starts_with("cannot read it: a"), "{told:?}");
    assert!(!told.contains(['\n', '\u{1b}']), "{told:?}");
    assert_eq!(failed.kind(), Kind::Failed);
}

#[test]
fn a_document_keeps_its_lines() {
    let wrong = Error::answered("write it", Status::invalid_argument("role: 2 problems\nline 3: a"));
    assert_eq!(wrong.document(), Some("role: 2 problems\nline 3: a"));
    assert_eq!(Error::answered("write it", Status::not_found("none")).document(), None);
}
