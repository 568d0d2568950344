//! The shape of the sources: files that take from each other in a circle cannot be read alone, and long ones not at one go.
//! What stands is listed in `xtask/structure.txt`, which may only get shorter.

mod circles;
mod imports;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use circles::Circle;

use crate::layers::rust_files;

/// The most lines of a file.
const MOST_LINES: usize = 600;

const STANDS: &str = "xtask/structure.txt";

/// Where sources are.
const SOURCES: [&str; 4] = ["crates", "interop", "xtask/src", "patches"];

/// What stands of one kind: a crate's files in circles, or a file's lines, by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Standing {
    circles: BTreeMap<String, usize>,
    long: BTreeMap<String, usize>,
}

/// Adds to `problems` what is worse than what stands, and says in a line how much stands.
pub(crate) fn check(problems: &mut Vec<String>) -> Result<String, String> {
    let text = fs::read_to_string(STANDS).map_err(|error| format!("{STANDS}: {error}"))?;
    let stands = read(&text)?;
    let mut files = 0;
    let mut circles = 0;
    for name in crates()? {
        let (found, in_them) = circles_of(&name)?;
        let may = stands.circles.get(&name).copied().unwrap_or(0);
        files += in_them;
        circles += found.len();
        if in_them > may {
            problems.push(format!(
                "{name}: {in_them} files take from each other in circles, and {STANDS} lets {may}. The shortest of each:\n    {}",
                found.iter().map(Circle::shown).collect::<Vec<_>>().join("\n    ")
            ));
        }
        if in_them < may {
            problems.push(format!(
                "{name}: {in_them} files are in circles: write that to {STANDS} in place of {may}"
            ));
        }
    }
    let mut long = 0;
    for source in SOURCES {
        for file in rust_files(Path::new(source))? {
            let name = file.to_string_lossy().into_owned();
            let text = fs::read_to_string(&file).map_err(|error| format!("{name}: {error}"))?;
            let lines = text.lines().count();
            let may = stands.long.get(&name).copied().unwrap_or(MOST_LINES);
            long += usize::from(lines > MOST_LINES);
            if lines > may {
                problems.push(format!(
                    "{name}: {lines} lines, and {may} are the most: split it by state or by message"
                ));
            }
            if lines <= MOST_LINES && stands.long.contains_key(&name) {
                problems.push(format!("{name}: {lines} lines are not too many: take it out of {STANDS}"));
            }
        }
    }
    Ok(format!("{circles} circles of {files} files, {long} files of more than {MOST_LINES} lines"))
}

/// Says which circles there are, and what ties each.
pub(crate) fn show() -> Result<(), String> {
    for name in crates()? {
        let (found, in_them) = circles_of(&name)?;
        if in_them > 0 {
            println!("circles {name} {in_them}");
        }
        for circle in found {
            println!("  {} files, the shortest: {}", circle.files.len(), circle.shown());
            for arrow in &circle.arrows {
                println!("    {arrow}");
            }
        }
    }
    Ok(())
}

/// The circles of a crate, and how many files are in them.
fn circles_of(name: &str) -> Result<(Vec<Circle>, usize), String> {
    let found = circles::of(&imports::read(&Path::new("crates").join(name).join("src"))?);
    let files = found.iter().map(|circle| circle.files.len()).sum();
    Ok((found, files))
}

fn crates() -> Result<Vec<String>, String> {
    let entries = fs::read_dir("crates").map_err(|error| format!("crates: {error}"))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn read(text: &str) -> Result<Standing, String> {
    let mut standing = Standing::default();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || format!("{STANDS}: `{line}` is not `circles CRATE FILES` or `lines FILE LINES`");
        let [kind, name, number] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let number = number.parse().map_err(|_| wrong())?;
        match kind {
            "circles" => standing.circles.insert(name.to_owned(), number),
            "lines" => standing.long.insert(name.to_owned(), number),
            _ => return Err(wrong()),
        };
    }
    Ok(standing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_is_read() {
        let read = read("# why\n\ncircles cli 3\nlines a/b.rs 700\n").unwrap();
        assert_eq!(read.circles["cli"], 3);
        assert_eq!(read.long["a/b.rs"], 700);
        for wrong in ["circles cli", "circles cli many", "round cli 3"] {
            assert!(super::read(wrong).unwrap_err().contains(wrong));
        }
    }
}
