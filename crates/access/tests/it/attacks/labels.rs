//! Expressions over labels, against a reference that knows whole values only.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sallyport_access::{HostId, Login, Node, NodeKind, NodeName};

use crate::people::{now, policies, role, user};

/// Whether a node whose label is `value` is matched by `pattern`.
fn matches(pattern: &str, values: &[String]) -> Vec<bool> {
    let quoted = serde_json::to_string(pattern).unwrap();
    let spec = format!("{{allow: {{logins: [root], node_labels: {{env: [{quoted}]}}}}}}");
    let policies = policies(&[role("dev", &spec)]);
    let alice = user("alice", &["dev"], &[]);
    let of = |value: &String| {
        let node = Node {
            id: HostId::new(),
            name: NodeName::new("n").unwrap(),
            labels: [("env", value.as_str())].into_iter().collect(),
            kind: NodeKind::Sallyport,
        };
        policies.decide(&alice, &node, &Login::new("root").unwrap(), &[], now()).is_ok()
    };
    values.iter().map(of).collect()
}

#[test]
fn an_alternation_is_over_the_whole_value() {
    let values =
        ["prod", "dev", "notdev", "production", "prod\n", "\ndev", "b", "a#b", ""].map(str::to_owned);
    let of = |pattern: &str| {
        let matched = matches(pattern, &values);
        values
            .iter()
            .zip(matched)
            .filter(|(_, matched)| *matched)
            .map(|(value, _)| value.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("^prod|dev$"), ["prod", "dev"]);
    assert_eq!(of("^(?m)prod$"), ["prod"]);
    assert_eq!(of("^(?m)^dev$"), ["dev"]);
    assert_eq!(of("^|b$"), ["b", ""]);
    assert_eq!(of("^(?x) dev  # or prod$"), ["dev"], "a comment does not swallow the end");
    let broken = sallyport_access::Role::parse(
        "kind: role\nversion: v1\nmetadata: {name: x}\nspec: {allow: {logins: [a], node_labels: {env: '^a)|(b$'}}}\n",
    );
    assert!(broken.is_err(), "a parenthesis does not close the group around it");
}

/// An expression whose meaning needs no library.
#[derive(Debug, Clone)]
enum Expression {
    Character(char),
    Any,
    Then(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Maybe(Box<Self>),
    Many(Box<Self>),
}

impl Expression {
    /// As people write it: an alternation stands bare where it may.
    fn text(&self, bare: bool) -> String {
        let text = match self {
            Self::Character(c) => c.to_string(),
            Self::Any => ".".to_owned(),
            Self::Then(first, second) => format!("{}{}", first.text(false), second.text(false)),
            Self::Or(first, second) => format!("{}|{}", first.text(true), second.text(true)),
            Self::Maybe(inner) => format!("(?:{})?", inner.text(true)),
            Self::Many(inner) => format!("(?:{})*", inner.text(true)),
        };
        if matches!(self, Self::Or(..)) && !bare { format!("(?:{text})") } else { text }
    }

    /// Where a match that begins at `at` may end.
    fn ends(&self, value: &[char], at: usize) -> BTreeSet<usize> {
        match self {
            Self::Character(c) => (value.get(at) == Some(c)).then_some(at + 1).into_iter().collect(),
            Self::Any => value.get(at).filter(|c| **c != '\n').map(|_| at + 1).into_iter().collect(),
            Self::Then(first, second) => {
                first.ends(value, at).into_iter().flat_map(|middle| second.ends(value, middle)).collect()
            }
            Self::Or(first, second) => &first.ends(value, at) | &second.ends(value, at),
            Self::Maybe(inner) => &inner.ends(value, at) | &BTreeSet::from([at]),
            Self::Many(inner) => {
                let mut known = BTreeSet::from([at]);
                loop {
                    let more: BTreeSet<usize> =
                        known.iter().flat_map(|from| inner.ends(value, *from)).chain(known.clone()).collect();
                    if more == known {
                        return known;
                    }
                    known = more;
                }
            }
        }
    }

    fn is_whole(&self, value: &str) -> bool {
        let value: Vec<char> = value.chars().collect();
        self.ends(&value, 0).contains(&value.len())
    }
}

fn expressions() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        prop::sample::select(vec!['a', 'b', 'c']).prop_map(Expression::Character),
        Just(Expression::Any)
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            pair.clone().prop_map(|(a, b)| Expression::Then(Box::new(a), Box::new(b))),
            pair.prop_map(|(a, b)| Expression::Or(Box::new(a), Box::new(b))),
            inner.clone().prop_map(|a| Expression::Maybe(Box::new(a))),
            inner.prop_map(|a| Expression::Many(Box::new(a))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_expression_matches_whole_values_as_the_reference_says(
        expression in expressions(),
        values in prop::collection::vec("[abc\n]{0,4}", 40),
    ) {
        let pattern = format!("^{}$", expression.text(true));
        let expected: Vec<bool> = values.iter().map(|value| expression.is_whole(value)).collect();
        prop_assert_eq!(matches(&pattern, &values), expected, "{} over {:?}", pattern, values);
    }
}
