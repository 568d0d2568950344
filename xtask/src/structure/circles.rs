//! Circles of files that take from each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::imports::Imports;

/// Files each of which can be reached from each of the others.
pub(super) struct Circle {
    pub(super) files: Vec<String>,
    /// A shortest way round, without its return to the first.
    pub(super) shortest: Vec<String>,
    /// All that ties the files: who takes what from which.
    pub(super) arrows: Vec<String>,
}

impl Circle {
    pub(super) fn shown(&self) -> String {
        let first = self.shortest.first().map_or("", String::as_str);
        format!("{} -> {first}", self.shortest.join(" -> "))
    }
}

/// All circles of a crate, the largest first.
pub(super) fn of(imports: &Imports) -> Vec<Circle> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|file| (file, reachable(imports, file))).collect();
    let in_circle = |file: &String| reached.get(file).is_some_and(|others| others.contains(file));
    let mut seen: BTreeSet<&String> = BTreeSet::new();
    let mut circles = Vec::new();
    for file in imports.keys().filter(|file| in_circle(file)) {
        if seen.contains(file) {
            continue;
        }
        let back = |other: &&&String| reached.get(**other).is_some_and(|others| others.contains(file));
        let files: Vec<&String> = reached.get(file).into_iter().flatten().filter(back).copied().collect();
        seen.extend(&files);
        let shortest = files.iter().filter_map(|file| round(imports, file)).min_by_key(Vec::len);
        let mut arrows = Vec::new();
        for from in &files {
            for (to, names) in imports.get(*from).into_iter().flatten().filter(|(to, _)| files.contains(to)) {
                arrows.push(format!(
                    "{from} -> {to}: {}",
                    names.iter().cloned().collect::<Vec<_>>().join(", ")
                ));
            }
        }
        circles.push(Circle {
            files: files.into_iter().cloned().collect(),
            shortest: shortest.unwrap_or_default(),
            arrows,
        });
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.files.len()));
    circles
}

/// What can be reached from a file, over one arrow or more.
fn reachable<'a>(imports: &'a Imports, from: &String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&String> = imports.get(from).into_iter().flatten().map(|(to, _)| to).collect();
    while let Some(file) = next.pop() {
        if found.insert(file) {
            next.extend(imports.get(file).into_iter().flatten().map(|(to, _)| to));
        }
    }
    found
}

/// A shortest way from a file back to itself.
fn round(imports: &Imports, from: &String) -> Option<Vec<String>> {
    let mut before: BTreeMap<&String, &String> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(file) = next.pop_front() {
        for (to, _) in imports.get(file).into_iter().flatten() {
            if to == from {
                let mut way = vec![file];
                while let Some(earlier) = way.last().and_then(|last| before.get(*last)) {
                    way.push(earlier);
                }
                return Some(way.into_iter().rev().cloned().collect());
            }
            if !before.contains_key(to) {
                before.insert(to, file);
                next.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(arrows: &[(&str, &str)]) -> Imports {
        let mut imports = Imports::new();
        for (from, to) in arrows {
            imports.entry((*to).to_owned()).or_default();
            let taken = imports.entry((*from).to_owned()).or_default();
            taken.entry((*to).to_owned()).or_default().insert("name".to_owned());
        }
        imports
    }

    #[test]
    fn what_goes_one_way_is_no_circle() {
        assert!(of(&imports(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
    }

    #[test]
    fn circles_are_told_apart_and_each_is_shown_by_its_shortest_way() {
        let found = of(&imports(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("b", "a"),
            ("c", "d"),
            ("d", "e"),
            ("e", "d"),
        ]));
        let shown: Vec<(usize, String)> =
            found.iter().map(|circle| (circle.files.len(), circle.shown())).collect();
        assert_eq!(shown, [(3, "a -> b -> a".to_owned()), (2, "d -> e -> d".to_owned())]);
    }
}
