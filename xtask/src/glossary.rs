//! The glossary of ARCHITECTURE.md, checked: few words of our own, one line each, in order, and all of them in use.

use std::fs;
use std::path::Path;

use crate::layers::rust_files;

const PAGE: &str = "ARCHITECTURE.md";

const HEADING: &str = "## Glossary";

/// The most words of our own: everything else is called as its protocol calls it.
const MOST_WORDS: usize = 40;

/// The most characters of a line.
const MOST_OF_A_LINE: usize = 160;

/// Adds to `problems` what is wrong with the glossary, and says in a few words how large it is.
pub(crate) fn check(problems: &mut Vec<String>) -> Result<String, String> {
    let page = fs::read_to_string(PAGE).map_err(|error| format!("{PAGE}: {error}"))?;
    let words = words(&page);
    problems.extend(wrong(&page, &words));
    let used = sources()?;
    for word in &words {
        if !used.contains(&word.to_lowercase()) {
            problems.push(format!(
                "{PAGE}: {word} is in the glossary, and no source or guide uses it: take it out"
            ));
        }
    }
    Ok(format!("{} of {MOST_WORDS} words of our own", words.len()))
}

/// Lines `| word | meaning |` of the section.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    let section = page.lines().skip_while(|line| *line != HEADING).skip(1);
    let rows = section.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with('|'));
    // The table's head, and the line below it.
    rows.skip(2)
}

fn words(page: &str) -> Vec<&str> {
    rows(page).filter_map(|row| row.split('|').nth(1)).map(str::trim).collect()
}

fn wrong(page: &str, words: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    if words.is_empty() {
        problems.push(format!("{PAGE} has no words below `{HEADING}`"));
    }
    if words.len() > MOST_WORDS {
        problems.push(format!(
            "{PAGE}: {} words are in the glossary, and {MOST_WORDS} are the most: call one as its protocol does",
            words.len()
        ));
    }
    for (before, word) in words.iter().zip(words.iter().skip(1)) {
        if before.to_lowercase() >= word.to_lowercase() {
            problems.push(format!("{PAGE}: {word} comes after {before} in the glossary, which is in order"));
        }
    }
    let long = rows(page).filter(|row| row.chars().count() > MOST_OF_A_LINE);
    problems.extend(
        long.map(|row| format!("{PAGE}: more than {MOST_OF_A_LINE} characters in the glossary: {row}")),
    );
    problems
}

/// All sources and guides, in small letters, with words apart.
fn sources() -> Result<String, String> {
    let mut files = Vec::new();
    for place in ["crates", "interop", "xtask/src"] {
        files.extend(rust_files(Path::new(place))?);
    }
    let own = Path::new(file!());
    let guides = fs::read_dir("docs").map_err(|error| format!("docs: {error}"))?;
    let guides = guides.flatten().map(|entry| entry.path());
    files.extend(guides.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    let mut all = String::new();
    for file in files.iter().filter(|file| file.as_path() != own) {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        all.push_str(&text.to_lowercase().replace('_', " "));
        all.push('\n');
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &[&str]) -> String {
        let rows: String = words.iter().map(|word| format!("| {word} | what it is |\n")).collect();
        format!("# Page\n\n{HEADING}\n\n| word | is |\n|---|---|\n{rows}\n## Next\n\n| zebra | an animal |\n")
    }

    fn problems(words: &[&str]) -> Vec<String> {
        let page = page(words);
        wrong(&page, &super::words(&page))
    }

    #[test]
    fn words_are_few_in_order_and_short() {
        assert_eq!(problems(&["agent", "node"]), Vec::<String>::new());
        assert!(problems(&[])[0].contains("no words"));
        assert!(problems(&["node", "agent"])[0].contains("agent comes after node"));
        assert!(problems(&["agent", "Agent"])[0].contains("in order"));
        let many: Vec<String> = (0..=MOST_WORDS).map(|number| format!("word {number:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(problems(&many).len(), 1);
        assert!(problems(&many)[0].contains("41 words"));
        assert!(problems(&["a".repeat(MOST_OF_A_LINE).as_str()])[0].contains("more than 160"));
    }
}
