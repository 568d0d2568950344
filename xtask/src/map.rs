//! The map of the crates in ARCHITECTURE.md: what each is for, what it uses, and its modules, as their first sentences say.

use std::fs;
use std::path::{Path, PathBuf};

use crate::metadata::{self, Package};

/// Where the map stands.
const PAGE: &str = "ARCHITECTURE.md";

const BEGIN: &str = "<!-- The map begins: `cargo xtask map` writes it from the sources. -->";
const END: &str = "<!-- The map ends. -->";

/// The most characters that the map says of a module: longer sentences end at the last clause that fits.
const MOST_OF_A_MODULE: usize = 90;

/// Writes the map, in the order of these crates.
pub(crate) fn write(order: &[&str]) -> Result<(), String> {
    let page = page()?;
    let map = drawn(&metadata::packages()?, order)?;
    let (before, _, after) = parted(&page)?;
    let new = format!("{before}{map}{after}");
    if new == page {
        println!("the map in {PAGE} is as the sources say");
        return Ok(());
    }
    fs::write(PAGE, new).map_err(|error| format!("{PAGE}: {error}"))?;
    println!("the map in {PAGE} is written");
    Ok(())
}

/// Adds a problem where the map is not what the sources say.
pub(crate) fn check(packages: &[Package], order: &[&str], problems: &mut Vec<String>) -> Result<(), String> {
    let page = page()?;
    let (_, stands, _) = parted(&page)?;
    let map = drawn(packages, order)?;
    let differs = stands.lines().zip(map.lines()).find(|(stands, says)| stands != says);
    if stands != map {
        let (stands, says) = differs.unwrap_or(("its end", "more or fewer lines"));
        problems.push(format!(
            "{PAGE}: the map says `{stands}`, the sources `{says}`: run cargo xtask map, and commit what it writes"
        ));
    }
    Ok(())
}

fn page() -> Result<String, String> {
    fs::read_to_string(PAGE).map_err(|error| format!("{PAGE}: {error}"))
}

/// The page up to the map, the map, and the page after it.
fn parted(page: &str) -> Result<(&str, &str, &str), String> {
    let wanted = || format!("{PAGE} has no place for the map: the lines `{BEGIN}` and `{END}`");
    let begin = page.find(BEGIN).ok_or_else(wanted)? + BEGIN.len();
    let (before, rest) = page.split_at(begin);
    let (map, after) = rest.split_at(rest.find(END).ok_or_else(wanted)?);
    Ok((before, map, after))
}

/// The map of these crates and the chores, as Markdown.
fn drawn(packages: &[Package], order: &[&str]) -> Result<String, String> {
    let mut table = "\n\n| crate | what for | uses |\n|---|---|---|\n".to_owned();
    let mut trees = String::new();
    for name in order.iter().copied().chain(["xtask"]) {
        let full = if name == "xtask" { name.to_owned() } else { format!("sallyport-{name}") };
        let Some(package) = packages.iter().find(|package| package.in_workspace && package.name == full)
        else {
            return Err(format!(
                "xtask/src/layers.rs has a layer for {name}, which is no crate of the workspace"
            ));
        };
        let used: Vec<&str> = order
            .iter()
            .copied()
            .filter(|one| package.normal.contains(&format!("sallyport-{one}")))
            .collect();
        let used = if used.is_empty() { "–".to_owned() } else { used.join(", ") };
        let source = package.home.join("src");
        let root = ["lib.rs", "main.rs"].iter().map(|file| source.join(file)).find(|file| file.exists());
        let root = root.ok_or_else(|| format!("{} has neither lib.rs nor main.rs", source.display()))?;
        let text = read(&root)?;
        let purpose = sentence(&text).ok_or_else(|| undocumented(&root))?;
        table.push_str(&format!("| `{name}` | {} | {used} |\n", purpose.replace('|', "\\|")));
        trees.push_str(&tree(name, &source, &text)?);
    }
    Ok(format!(
        "{table}\n<details><summary>The modules of each crate</summary>\n\n```text\n{trees}```\n\n</details>\n\n"
    ))
}

/// A crate and its modules, one line each.
fn tree(name: &str, source: &Path, root: &str) -> Result<String, String> {
    let modules = modules(root);
    let width = modules.iter().map(|module| module.len()).max().unwrap_or(0);
    let mut lines = format!("{name}\n");
    for module in modules {
        let file = module_file(source, module)?;
        let says = sentence(&read(&file)?).ok_or_else(|| undocumented(&file))?;
        let says = clause(&says.replace('`', ""), MOST_OF_A_MODULE);
        lines.push_str(&format!("  {module:width$}  {says}\n"));
    }
    Ok(lines)
}

fn undocumented(file: &Path) -> String {
    format!(
        "{}: say in its first line (`//! ...`) what it is for; the map in {PAGE} shows it",
        file.display()
    )
}

fn module_file(source: &Path, module: &str) -> Result<PathBuf, String> {
    let files = [source.join(format!("{module}.rs")), source.join(module).join("mod.rs")];
    let found = files.into_iter().find(|file| file.exists());
    found.ok_or_else(|| format!("{} has no file for the module {module}", source.display()))
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The modules that a crate's first file declares in files of their own, but for those of its tests, sorted.
fn modules(root: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut for_tests = false;
    for line in root.lines() {
        if line.starts_with("#[") {
            for_tests |= line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(any(test");
            continue;
        }
        let declared = line.strip_suffix(';').and_then(|line| line.split_once("mod "));
        if let Some((before, name)) = declared
            && !for_tests
            && (before.is_empty() || before.starts_with("pub"))
        {
            found.push(name);
        }
        for_tests = false;
    }
    found.sort_unstable();
    found
}

/// The first sentence of a file's documentation, without the marks of links.
fn sentence(text: &str) -> Option<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("//!"));
    let paragraph: Vec<&str> = lines
        .map_while(|line| line.strip_prefix("//! "))
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let paragraph = unlinked(&paragraph.join(" "));
    let end = paragraph.find(". ").unwrap_or(paragraph.len());
    let first = paragraph.get(..end)?.trim_end_matches(['.', ':']);
    (!first.is_empty()).then(|| first.to_owned())
}

/// Links, `[text](target)` and those to code, are their text.
fn unlinked(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((inside, after)) = link.split_once(']') else { break };
        plain.push_str(before);
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        if target.is_some() || inside.starts_with('`') {
            plain.push_str(inside);
        } else {
            plain.push_str(&format!("[{inside}]"));
        }
        rest = target.map_or(after, |(_, after)| after);
    }
    plain + rest
}

/// As much of a sentence as fits, whole clauses where there are any.
fn clause(sentence: &str, most: usize) -> String {
    let fits: String = sentence.chars().take(most).collect();
    if fits.len() == sentence.len() {
        return fits;
    }
    let mut ends =
        ["; ", ": ", ", ", " ("].iter().flat_map(|mark| fits.match_indices(mark)).map(|(at, _)| at);
    let is_whole = |part: &&str| part.matches('(').count() == part.matches(')').count();
    let wholes = ends.by_ref().filter_map(|at| fits.get(..at)).filter(is_whole);
    match wholes.max_by_key(|part| part.len()) {
        Some(whole) if whole.len() * 3 > most => {
            [", or", ", and"].iter().fold(whole, |whole, end| whole.trim_end_matches(end)).to_owned()
        }
        _ => format!("{} …", fits.rsplit_once(' ').map_or(fits.as_str(), |(whole, _)| whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_it_is_for_in_its_first_sentence() {
        for (text, expected) in [
            (
                "//! Locks: [`Lock`] keeps a user out,\n//! at once. More.\n//!\n//! Rest.",
                Some("Locks: `Lock` keeps a user out, at once"),
            ),
            ("//! As [RFC 1](https://a.b/c.d) says of `a[1]`.\n\nmod a;", Some("As RFC 1 says of `a[1]`")),
            ("mod a;", None),
            ("//!\nmod a;", None),
        ] {
            assert_eq!(sentence(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_long_sentence_ends_at_a_clause() {
        assert_eq!(clause("short", 10), "short");
        assert_eq!(clause("names of hosts, and what else there is", 20), "names of hosts");
        assert_eq!(clause("all names (of hosts, and of others)", 20), "all names");
        assert_eq!(clause("names or, where there are none, numbers", 34), "names or, where there are none");
        assert_eq!(clause("all names, or, where none are, numbers", 16), "all names");
        assert_eq!(clause("one without any clause at all", 12), "one without …");
        // A clause that is too short says nothing.
        assert_eq!(clause("it, which has no other clause at all", 20), "it, which has no …");
    }

    #[test]
    fn modules_in_files_of_their_own_are_found_but_for_those_of_tests() {
        let root = "//! x.\nmod b;\npub(crate) mod a;\n#[cfg(test)]\nmod tests;\n#[cfg(feature = \"f\")]\npub mod c;\nmod inline {\n    mod d;\n}\n";
        assert_eq!(modules(root), ["a", "b", "c"]);
    }

    #[test]
    fn a_map_that_is_old_or_has_no_place_is_found() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let (before, map, after) = parted(&page).unwrap();
        assert_eq!((before.len(), map, after), (7 + BEGIN.len(), "\nold\n", &*format!("{END}\nafter\n")));
        assert!(parted("no place").unwrap_err().contains(END));
    }
}
