//! The rules of `deny.toml` that matter most, without a tool to install: licences and banned crates of the
//! graph that is really built here. `cargo deny check` reads the same file and covers advisories as well.

use std::collections::BTreeMap;
use std::fs;

use crate::metadata;

pub(crate) fn run() -> Result<(), String> {
    let text = fs::read_to_string("deny.toml").map_err(|error| format!("deny.toml: {error}"))?;
    let allowed = strings(&text, "[licenses]", "allow");
    let banned = strings(&text, "[bans]", "crate");
    if allowed.is_empty() || banned.is_empty() {
        return Err("deny.toml lists no licences or no banned crates".to_owned());
    }
    let packages = metadata::built()?;
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &packages {
        let licence = if package.licence.is_empty() { "none stated" } else { &package.licence };
        if !permitted(licence, &allowed) {
            problems
                .push(format!("{} {}: licence {licence} is not on the list", package.name, package.version));
        }
        if banned.contains(&package.name) {
            problems.push(format!("{} {} is banned", package.name, package.version));
        }
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let duplicates = versions.values().filter(|versions| versions.len() > 1).count();
    if problems.is_empty() {
        println!(
            "deny: {} packages, all with a permitted licence, none banned, {duplicates} in more than one version",
            packages.len()
        );
        return Ok(());
    }
    Err(format!("{} problems\n  {}", problems.len(), problems.join("\n  ")))
}

/// Every quoted string that follows `key =` inside a section: enough of TOML for the shape of `deny.toml`.
fn strings(text: &str, section: &str, key: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    let mut listing = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') && line.ends_with(']') && !listing {
            inside = line == section;
            continue;
        }
        if !inside {
            continue;
        }
        let mut rest = line;
        if !listing {
            if let Some((_, value)) = line.split_once(&format!("{key} = ")) {
                rest = value;
                listing = value.starts_with('[');
            } else {
                continue;
            }
        }
        if key == "crate" {
            found.extend(rest.split('"').nth(1).map(str::to_owned));
            listing = false;
            continue;
        }
        found.extend(rest.split('"').skip(1).step_by(2).map(str::to_owned));
        if rest.ends_with(']') {
            listing = false;
        }
    }
    found
}

/// Whether an SPDX expression can be met with the allowed licences.
fn permitted(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let tokens: Vec<String> =
        expression.replace('(', " ( ").replace(')', " ) ").split_whitespace().map(str::to_owned).collect();
    let mut parser = Spdx { tokens: &tokens, allowed };
    parser.any() && parser.tokens.is_empty()
}

/// SPDX expressions: OR binds weaker than AND, WITH names an exception of the licence before it.
struct Spdx<'a> {
    tokens: &'a [String],
    allowed: &'a [String],
}

impl Spdx<'_> {
    fn next(&mut self) -> Option<&str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn take(&mut self, word: &str) -> bool {
        if self.tokens.first().is_some_and(|token| token == word) {
            self.next();
            return true;
        }
        false
    }

    fn any(&mut self) -> bool {
        let mut met = self.all();
        while self.take("OR") {
            met |= self.all();
        }
        met
    }

    fn all(&mut self) -> bool {
        let mut met = self.one();
        while self.take("AND") {
            met &= self.one();
        }
        met
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let met = self.any();
            return self.take(")") && met;
        }
        let Some(mut licence) = self.next().map(str::to_owned) else { return false };
        if self.take("WITH") {
            let exception = self.next().unwrap_or_default().to_owned();
            licence = format!("{licence} WITH {exception}");
        }
        self.allowed.contains(&licence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_weighed() {
        let allowed: Vec<String> =
            ["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).to_vec();
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR (MIT AND ISC)",
            "MIT/Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(permitted(good, &allowed), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "none stated", "", "(MIT", "MIT MIT"] {
            assert!(!permitted(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn the_rules_file_is_read() {
        let text = "[licenses]\nallow = [\n  \"MIT\", # why\n  \"ISC\",\n]\n[bans]\ndeny = [\n  { crate = \"ring\", reason = \"x\" },\n]\n";
        assert_eq!(strings(text, "[licenses]", "allow"), ["MIT", "ISC"]);
        assert_eq!(strings(text, "[bans]", "crate"), ["ring"]);
    }
}
