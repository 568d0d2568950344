use proptest::prelude::*;

use super::expression::{Test, Text};
use super::*;
use crate::{Labels, Login};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

fn holds(query: &str) -> bool {
    let labels = labels(&[("env", "prod"), ("sallyport.dev/os", "linux"), ("team", "db")]);
    let logins = [Login::new("root").unwrap(), Login::new("deploy").unwrap()];
    let subject = Subject {
        id: "5f1d",
        name: "web-1",
        labels: &labels,
        version: "0.1.0",
        os_user: "root",
        kind: "sallyport",
        logins: &logins,
        online: true,
    };
    Query::parse(query).unwrap_or_else(|error| panic!("{error}")).holds(&subject)
}

fn refused(query: &str) -> (usize, String) {
    let error = Query::parse(query).unwrap_err();
    (error.column(), error.problem().to_owned())
}

#[test]
fn queries_hold_for_what_they_say() {
    for query in [
        "true",
        "online",
        "name == 'web-1'",
        r#"labels["env"] == "prod" && name.startsWith("web")"#,
        r#"labels.env == "prod""#,
        r#"labels["sallyport.dev/os"] == "linux""#,
        r#"labels["env"] != "dev""#,
        r#"labels["none"] != "dev""#,
        r#"!(labels["none"] == "dev")"#,
        r#""env" in labels && !("none" in labels)"#,
        r#""root" in logins"#,
        r#"labels["env"] in ["dev", "prod"]"#,
        r#"name.matches("w*-1") && name.endsWith("-1") && name.contains("eb")"#,
        r#"id == "5f1d" && version == "0.1.0" && os_user == "root" && kind == "sallyport""#,
        // Both bind as everywhere: ! before && before ||.
        "true || false && false",
        "!false && true",
        "\"web-1\" == name",
    ] {
        assert!(holds(query), "{query}");
    }
    for query in [
        "false",
        "!online",
        r#"name == "WEB-1""#,
        r#"labels["none"] == """#,
        r#"labels["none"] == labels["nothing"]"#,
        r#"labels["none"].startsWith("")"#,
        r#""alice" in logins"#,
        r#"labels["none"] in ["dev"]"#,
        "(true || true) && false",
    ] {
        assert!(!holds(query), "{query}");
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    let fields = r#"one of id, name, version, os_user, kind, online, logins, labels["KEY"]"#;
    for (query, column, problem) in [
        ("", 1, format!("got the end, expected a text between quotes or {fields}")),
        ("name = 'x'", 6, "got a single =, expected ==".to_owned()),
        ("online & online", 8, "got a single &, expected &&".to_owned()),
        ("online and online", 8, "got and, expected &&".to_owned()),
        ("name == web", 9, format!("got web, expected {fields}; texts stand between quotes")),
        ("nam == 'x'", 1, format!("got nam, expected {fields}; texts stand between quotes")),
        ("name", 5, "got the end, expected == or != or in or .METHOD(\"TEXT\") behind a text".to_owned()),
        ("name.begins('x')", 6, "got begins, expected startsWith, endsWith, contains or matches".to_owned()),
        ("name.contains 'x'", 15, "got the text \"x\", expected ( behind a method".to_owned()),
        ("labels == 'x'", 8, "got ==, expected labels[\"KEY\"] or labels.KEY".to_owned()),
        ("labels[env] == 'x'", 8, "got env, expected a label's key between quotes".to_owned()),
        ("name == 'x", 9, "the text that begins here has no closing '".to_owned()),
        ("name == 'a\\n'", 12, "got \\n in a text, expected \\\" or \\' or \\\\".to_owned()),
        ("(online", 8, "got the end, expected ) to close the parenthesis".to_owned()),
        ("online)", 7, "got ), expected && or || or the end".to_owned()),
        ("online == true", 8, "got ==, expected && or || or the end".to_owned()),
        ("name == 1", 9, "got '1', which no query has there; texts stand between quotes".to_owned()),
        ("'ü' == nam", 8, format!("got nam, expected {fields}; texts stand between quotes")),
        ("logins == 'x'", 1, "logins is a list: write \"LOGIN\" in logins".to_owned()),
    ] {
        assert_eq!(refused(query), (column, problem), "{query}");
    }
    assert_eq!(
        Query::parse("name = 'x'").unwrap_err().to_string(),
        "the query is wrong at column 6: got a single =, expected ==\n  name = 'x'\n       ^"
    );
}

#[test]
fn size_and_depth_are_bounded() {
    let deep = |depth: usize| format!("{}online{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Query::parse(&deep(DEEPEST_QUERY - 1)).is_ok());
    assert!(refused(&deep(DEEPEST_QUERY)).1.contains("nested deeper"));
    assert!(refused(&"!".repeat(4000)).1.contains("nested deeper"));
    assert!(Query::parse("online || ".repeat(400).trim_end_matches(" || ")).is_ok());
    let long = |bytes: usize| format!("{:bytes$}", "online");
    assert!(Query::parse(&long(LONGEST_QUERY_BYTES)).is_ok());
    assert!(refused(&long(LONGEST_QUERY_BYTES + 1)).1.contains("at most"));
}

#[test]
fn globs_match_runs() {
    for (pattern, text) in
        [("*", ""), ("a*c", "abc"), ("a*c", "ac"), ("*b*", "abc"), ("abc", "abc"), ("a*b*c", "axbxc")]
    {
        assert!(glob(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [("", "a"), ("a*c", "ab"), ("a", "ab"), ("*b", "abc"), ("a*a", "a")] {
        assert!(!glob(pattern, text), "{pattern} {text}");
    }
}

fn text() -> impl Strategy<Value = Text> {
    prop_oneof![
        ".{0,8}".prop_map(Text::Literal),
        Just(Text::Id),
        Just(Text::Name),
        Just(Text::Version),
        Just(Text::OsUser),
        Just(Text::Kind),
        ".{0,8}".prop_map(Text::Label),
    ]
}

fn expression() -> impl Strategy<Value = Expression> {
    let test = prop::sample::select(Test::ALL.map(|(_, test)| test).to_vec());
    let leaf = prop_oneof![
        any::<bool>().prop_map(Expression::Constant),
        Just(Expression::Online),
        (text(), text()).prop_map(|(left, right)| Expression::Equal(left, right)),
        (text(), text()).prop_map(|(left, right)| Expression::Differs(left, right)),
        (text(), test, text()).prop_map(|(left, test, right)| Expression::Test(left, test, right)),
        (text(), prop::collection::vec(text(), 1..4))
            .prop_map(|(text, several)| Expression::OneOf(text, several)),
        text().prop_map(Expression::HasLabel),
        text().prop_map(Expression::HasLogin),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::Any),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::All),
            inner.prop_map(|one| Expression::Not(Box::new(one))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(expression in expression()) {
        let query = Query(expression);
        let text = query.to_string();
        prop_assume!(text.len() <= LONGEST_QUERY_BYTES);
        prop_assert_eq!(Query::parse(&text), Ok(query), "{}", text);
    }

    #[test]
    fn no_text_is_too_strange(text in ".{0,200}") {
        if let Err(error) = Query::parse(&text) {
            prop_assert!(error.column() <= text.chars().count() + 1);
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn words_in_any_order_are_read_or_refused(words in prop::collection::vec(
        prop::sample::select(vec!["name", "labels", "[", "]", "(", ")", "'x'", "==", "!=", "!", "&&", "||", ".", "in",
            "logins", "online", "startsWith", ",", "true"]), 0..40)) {
        let text = words.join(" ");
        if let Ok(query) = Query::parse(&text) {
            prop_assert_eq!(Query::parse(&query.to_string()), Ok(query));
        }
    }
}
