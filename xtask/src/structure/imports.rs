//! Who takes what from which file of a crate, as the sources name it. Tests are left out. Methods, and what macros write, are
//! not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::layers::rust_files;

/// For each file of a crate the files from which it takes, and the names that it takes.
pub(super) type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// How often a name may be handed on before it is given up.
const MOST_HANDS: usize = 12;

/// A path from the crate's top.
type Names = Vec<String>;

/// What a file says.
#[derive(Debug, Default)]
struct File {
    module: Names,
    /// Names that it defines, its inline modules among them.
    defined: BTreeSet<String>,
    /// Names that it brings in, and from where.
    brought: BTreeMap<String, Names>,
    /// Those that it brings in for itself, and does not hand on.
    own: BTreeSet<String>,
    /// Modules of which it brings in everything.
    globs: Vec<Names>,
    /// Paths in its code, and names without one.
    paths: Vec<Names>,
    alone: BTreeSet<String>,
    /// Modules that are there for its tests.
    tests: Vec<Names>,
}

/// All imports between the files below a crate's `src`.
pub(super) fn read(sources: &Path) -> Result<Imports, String> {
    let mut files: BTreeMap<String, File> = BTreeMap::new();
    for path in rust_files(sources)? {
        let inside = path.strip_prefix(sources).unwrap_or(&path).to_string_lossy().into_owned();
        let Some(module) = module(&inside) else { continue };
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        files.insert(
            inside,
            understood(&text, module).map_err(|error| format!("{}: {error}", path.display()))?,
        );
    }
    let tests: Vec<Names> = files.values().flat_map(|file| file.tests.clone()).collect();
    files.retain(|_, file| !tests.iter().any(|test| file.module.starts_with(test)));
    Ok(tied(&files))
}

/// The module of a file; none for programs, which nothing can import from.
fn module(inside: &str) -> Option<Names> {
    let mut names: Names = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    match names.last()?.as_str() {
        "main" | "build" => return None,
        "mod" => _ = names.pop(),
        "lib" if names.len() == 1 => names.clear(),
        _ => {}
    }
    (names.first().map(String::as_str) != Some("bin")).then_some(names)
}

fn understood(text: &str, module: Names) -> Result<File, String> {
    let stream: TokenStream = text.parse().map_err(|error| format!("cannot be read: {error}"))?;
    let mut file = File { module: module.clone(), ..File::default() };
    items(stream, &module, &mut file);
    Ok(file)
}

/// Reads a run of tokens that stands in a module: items, and the code in them.
fn items(stream: TokenStream, module: &Names, file: &mut File) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    let mut for_tests = false;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                for_tests |= matches!(tokens.get(at + 1), Some(TokenTree::Group(group)) if is_for_tests(group.stream()));
                at += if matches!(tokens.get(at + 1), Some(TokenTree::Group(_))) { 2 } else { 1 };
                continue;
            }
            _ if for_tests => {
                at = left_out(&tokens, at, module, file);
                for_tests = false;
                continue;
            }
            TokenTree::Ident(word) if *word == "use" => {
                let end =
                    (at..tokens.len()).find(|at| is_punct(tokens.get(*at), ';')).unwrap_or(tokens.len());
                let mut tree = File { module: file.module.clone(), ..File::default() };
                brings(tokens.get(at + 1..end).unwrap_or_default(), &Vec::new(), module, &mut tree);
                let before = tokens.get(..at).and_then(<[TokenTree]>::last);
                let is_public = match before {
                    Some(TokenTree::Ident(word)) => *word == "pub",
                    Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
                    _ => false,
                };
                if !is_public {
                    file.own.extend(tree.brought.keys().cloned());
                }
                file.brought.extend(tree.brought);
                file.globs.extend(tree.globs);
                at = end + 1;
                continue;
            }
            TokenTree::Ident(word) if *word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(at + 1), tokens.get(at + 2))
                {
                    file.defined.insert(name.to_string());
                    let inner = [module.as_slice(), &[name.to_string()]].concat();
                    items(body.stream(), &inner, file);
                    at += 3;
                    continue;
                }
                at += 2;
                continue;
            }
            TokenTree::Ident(word)
                if ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"]
                    .contains(&word.to_string().as_str()) =>
            {
                let name = tokens.iter().skip(at + 1).find_map(|token| match token {
                    TokenTree::Ident(name) if *name != "mut" && *name != "fn" && *name != "unsafe" => {
                        Some(name.to_string())
                    }
                    _ => None,
                });
                file.defined.extend(name);
            }
            _ => {}
        }
        at = code(&tokens, at, module, file);
    }
}

/// Reads what stands at a place of some code, and says where the next begins.
fn code(tokens: &[TokenTree], at: usize, module: &Names, file: &mut File) -> usize {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) => {
            items_in_code(group.stream(), module, file);
            at + 1
        }
        Some(TokenTree::Ident(first)) => {
            let mut names = vec![first.to_string()];
            let mut next = at + 1;
            while is_punct(tokens.get(next), ':') && is_punct(tokens.get(next + 1), ':') {
                let Some(TokenTree::Ident(name)) = tokens.get(next + 2) else { break };
                names.push(name.to_string());
                next += 3;
            }
            if names.len() > 1 {
                file.paths.push(absolute(names, module, file));
            } else {
                file.alone.extend(names);
            }
            next
        }
        _ => at + 1,
    }
}

/// Reads a body: what it defines is not seen from outside.
fn items_in_code(stream: TokenStream, module: &Names, file: &mut File) {
    let defined = file.defined.clone();
    items(stream, module, file);
    file.defined = defined;
}

/// Goes past an item for tests, and notes a file that it names.
fn left_out(tokens: &[TokenTree], mut at: usize, module: &Names, file: &mut File) -> usize {
    let mut named = None;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Ident(word) if *word == "mod" => {
                named = tokens.get(at).map(ToString::to_string);
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => {
                file.tests.extend(named.map(|name| [module.as_slice(), &[name]].concat()));
                return at;
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return at,
            _ => {}
        }
    }
    at
}

/// Whether an attribute keeps an item for tests.
fn is_for_tests(attribute: TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(any(test,") || text.starts_with("cfg(all(test,")
}

/// Notes what a tree of `use` brings.
fn brings(tokens: &[TokenTree], before: &Names, module: &Names, file: &mut File) {
    for one in tokens.split(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')) {
        let mut names = before.clone();
        let mut renamed = None;
        let mut words = one.iter();
        let mut whole = true;
        while let Some(token) = words.next() {
            match token {
                TokenTree::Ident(word) if *word == "as" => renamed = words.next().map(ToString::to_string),
                TokenTree::Ident(word) => names.push(word.to_string()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    brings(&inner, &names, module, file);
                    whole = false;
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    file.globs.push(absolute(names.clone(), module, file));
                    whole = false;
                }
                _ => {}
            }
        }
        if !whole {
            continue;
        }
        if names.last().is_some_and(|name| name == "self") {
            names.pop();
        }
        if let Some(name) = renamed.or_else(|| names.last().cloned()) {
            let path = absolute(names, module, file);
            file.brought.insert(name, path);
        }
    }
}

/// A path from the crate's top: paths of other crates begin with an empty name.
fn absolute(names: Names, module: &Names, file: &File) -> Names {
    let mut base = module.clone();
    let mut rest = names.iter().peekable();
    match rest.peek().map(|name| name.as_str()) {
        Some("crate") => {
            rest.next();
            base.clear();
        }
        Some("self") => _ = rest.next(),
        Some("super") => {
            while rest.next_if(|name| *name == "super").is_some() {
                base.pop();
            }
        }
        // A module below, what the file has brought in, or another crate: told apart when all files are known.
        _ => {
            base = file.module.clone();
            base.push(String::new());
        }
    }
    base.extend(rest.cloned());
    base
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// The crate's modules, by their paths.
struct Modules<'a> {
    files: &'a BTreeMap<String, File>,
    by_path: BTreeMap<&'a [String], &'a str>,
}

impl<'a> Modules<'a> {
    /// The file that defines what a path names.
    fn definer(&self, path: &[String], hands: usize) -> Option<&'a str> {
        if hands == 0 {
            return None;
        }
        // `a::b` in a file: a module below it, or what the file has brought in as `a`.
        if let Some(blank) = path.iter().position(String::is_empty) {
            let (module, rest) = (path.get(..blank)?, path.get(blank + 1..)?);
            let below = [module, rest].concat();
            let first = rest.first()?;
            if self.by_path.contains_key([module, std::slice::from_ref(first)].concat().as_slice()) {
                return self.definer(&below, hands - 1);
            }
            let file = self.files.get(*self.by_path.get(module)?)?;
            let brought = file.brought.get(first)?;
            if brought.iter().any(String::is_empty)
                && brought.last() == Some(first)
                && brought.len() == module.len() + 2
            {
                return None;
            }
            return self.definer(&[brought, rest.get(1..)?].concat(), hands - 1);
        }
        let depth = (0..=path.len())
            .rev()
            .find(|depth| self.by_path.contains_key(path.get(..*depth).unwrap_or_default()))?;
        let (module, rest) = path.split_at_checked(depth)?;
        let name = *self.by_path.get(module)?;
        let file = self.files.get(name)?;
        let first = rest.first()?;
        if file.defined.contains(first) {
            return Some(name);
        }
        if let Some(brought) = file.brought.get(first) {
            return self.definer(&[brought, rest.get(1..)?].concat(), hands - 1);
        }
        file.globs.iter().find_map(|glob| self.definer(&[glob, rest].concat(), hands - 1))
    }
}

fn tied(files: &BTreeMap<String, File>) -> Imports {
    let by_path = files.iter().map(|(name, file)| (file.module.as_slice(), name.as_str())).collect();
    let modules = Modules { files, by_path };
    let mut imports = Imports::new();
    for (name, file) in files {
        let taken = imports.entry(name.clone()).or_default();
        let mut take = |path: &[String]| {
            if let Some(from) = modules.definer(path, MOST_HANDS)
                && from != name
            {
                taken.entry(from.to_owned()).or_default().extend(path.last().cloned());
            }
        };
        file.paths.iter().for_each(|path| take(path));
        // What is only handed on is not taken. A name may stand in the text of a format alone.
        let is_taken = |name: &String| file.own.contains(name) || file.alone.contains(name);
        file.brought.iter().filter(|(name, _)| is_taken(name)).for_each(|(_, path)| take(path));
        for glob in &file.globs {
            for alone in file.alone.iter().filter(|alone| !file.defined.contains(*alone)) {
                take(&[glob.as_slice(), std::slice::from_ref(alone)].concat());
            }
        }
    }
    imports
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports between files that are given by name and text.
    fn between(sources: &[(&str, &str)]) -> Vec<String> {
        let mut files = BTreeMap::new();
        for (name, text) in sources {
            files.insert((*name).to_owned(), understood(text, module(name).unwrap()).unwrap());
        }
        let tests: Vec<Names> = files.values().flat_map(|file: &File| file.tests.clone()).collect();
        files.retain(|_, file| !tests.iter().any(|test| file.module.starts_with(test)));
        let shown = |(from, taken): (String, BTreeMap<String, BTreeSet<String>>)| {
            taken.into_iter().map(move |(to, names)| format!("{from} {to} {names:?}")).collect::<Vec<_>>()
        };
        tied(&files).into_iter().flat_map(shown).collect()
    }

    #[test]
    fn names_are_followed_to_the_file_that_defines_them() {
        let found = between(&[
            ("lib.rs", "mod a; mod b; pub use b::{ONE, Thing};"),
            (
                "a.rs",
                "use crate::{ONE, Thing}; fn f(_: Thing) { crate::b::make::<u8>(); format!(\"{ONE}\"); }",
            ),
            ("b.rs", "pub struct Thing; pub const ONE: u8 = 1; pub fn make<T>() {}"),
        ]);
        assert_eq!(found, [r#"a.rs b.rs {"ONE", "Thing", "make"}"#]);
    }

    #[test]
    fn modules_that_are_brought_in_below_and_above_are_followed() {
        let found = between(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod c; use crate::b; fn f() { b::g(); c::h(); std::mem::drop(1); }"),
            ("a/c.rs", "use super::super::b::{self, Way as Other}; pub fn h() { b::g(); let _: Other; }"),
            ("b.rs", "pub fn g() {} pub enum Way {}"),
        ]);
        assert_eq!(
            found,
            [r#"a/c.rs b.rs {"Way", "g"}"#, r#"a/mod.rs a/c.rs {"h"}"#, r#"a/mod.rs b.rs {"g"}"#]
        );
    }

    #[test]
    fn tests_and_what_is_only_handed_on_do_not_count() {
        let found = between(&[
            (
                "lib.rs",
                "mod a; mod b; #[cfg(test)] mod tests; #[cfg(test)] mod more { fn f() { crate::b::g(); } }",
            ),
            ("a.rs", "pub use crate::b::g; #[cfg(test)] fn t() { g(); }"),
            ("b.rs", "pub fn g() {}"),
            ("tests.rs", "use crate::a; fn f() { a::g(); }"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn everything_of_a_module_is_what_is_named_of_it() {
        let found = between(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use super::b::*; fn f() -> Thing { h() } fn h() -> Thing { Thing }"),
            ("b.rs", "pub struct Thing; pub fn h() {}"),
        ]);
        assert_eq!(found, [r#"a.rs b.rs {"Thing"}"#]);
    }
}
