//! Every path of the claims at which there are values, for what looks at claims without a mapping.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::path::{Found, Path};

/// Most paths that are read.
pub const MAX_LEAVES: usize = 500;

/// A path at which there are values, or what cannot be read as values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// As [`Path`] reads it.
    pub path: String,
    /// The values, each once; none where what is there is too long.
    pub values: Vec<String>,
    /// Whether some were left out, since there were too many or they were too long.
    pub cut: bool,
}

/// The paths at which claims have values, in their order, and whether there are more than are read.
#[must_use]
pub fn leaves(claims: &Map<String, Value>) -> (Vec<Leaf>, bool) {
    let mut walk = Walk::default();
    walk.members(claims, &mut Vec::new());
    let leaves = walk.found.into_iter().filter_map(|names| {
        let path = Path::of(names)?;
        let (found, cut) = path.find_bounded(claims);
        let values = match found {
            Found::Values(values) => values,
            Found::Other(_) if cut => Vec::new(),
            Found::Nothing | Found::Other(_) => return None,
        };
        Some(Leaf { path: path.to_string(), values, cut })
    });
    (leaves.collect(), walk.more)
}

#[derive(Default)]
struct Walk {
    found: BTreeSet<Vec<String>>,
    more: bool,
}

impl Walk {
    fn members(&mut self, members: &Map<String, Value>, names: &mut Vec<String>) {
        for (name, value) in members {
            names.push(name.clone());
            self.value(value, names);
            names.pop();
        }
    }

    fn value(&mut self, value: &Value, names: &mut Vec<String>) {
        match value {
            Value::Null => {}
            Value::Object(members) => self.members(members, names),
            Value::Array(items) => items.iter().for_each(|item| self.value(item, names)),
            Value::String(_) | Value::Number(_) | Value::Bool(_) => {
                if self.found.len() < MAX_LEAVES {
                    self.found.insert(names.clone());
                } else {
                    self.more |= !self.found.contains(names);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_leaf_is_what_its_path_finds() {
        let claims = json!({
            "sub": "1", "level": 3, "none": null, "empty": [], "groups": ["a", "b", "a"],
            "realm_access": { "roles": ["auditor"], "more": { "deep": true } },
            "https://example.com/teams": [{ "name": "red" }, { "name": "blue" }],
            "a\"]b": "cannot be written", "long": "x".repeat(513),
        });
        let claims = claims.as_object().unwrap();
        let (leaves, more) = leaves(claims);
        let paths: Vec<&str> = leaves.iter().map(|leaf| leaf.path.as_str()).collect();
        let expected = [
            "groups",
            r#"["https://example.com/teams"].name"#,
            "level",
            "long",
            "realm_access.more.deep",
            "realm_access.roles",
            "sub",
        ];
        assert_eq!((paths.as_slice(), more), (&expected[..], false));
        for leaf in &leaves {
            let found = Path::parse(&leaf.path).unwrap().find(claims);
            match leaf.cut {
                true => assert!(leaf.path == "long" && leaf.values.is_empty()),
                false => assert_eq!(found, Found::Values(leaf.values.clone())),
            }
        }
        assert_eq!(leaves[1].values, ["red", "blue"]);
        let many: Map<String, Value> = (0..MAX_LEAVES + 1).map(|at| (format!("c{at}"), at.into())).collect();
        let (leaves, more) = super::leaves(&many);
        assert_eq!((leaves.len(), more), (MAX_LEAVES, true));
    }
}
