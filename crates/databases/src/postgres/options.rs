//! The startup parameter `options`: command-line switches for the server (§53.7), and among them, for clients that can say
//! it nowhere else, which database of the cluster they want.

use super::startup::Startup;

/// The setting, as in `options='-c sallyport.database=prod'`. A server would take it for one of an extension.
pub const SETTING: &str = "sallyport.database";

/// Which database of the cluster the client wants; the last one counts, as at the server.
#[must_use]
pub fn database(startup: &Startup) -> Option<String> {
    split(startup.parameter("options")?).into_iter().rev().find_map(|part| part.database)
}

/// A keyword of libpq's that is no setting of a server. The services that `sallyport db login` of earlier releases wrote have it, and
/// drivers that read them without knowing it (pgx of Go) send it along, for which a server refuses the session.
const CLIENTS_OWN: &str = "gssencmode";

/// Takes out what a server does not understand, before the message goes to it.
pub fn take_out(startup: &mut Startup) {
    startup.parameters.retain(|(name, _)| name != CLIENTS_OWN);
    let Some(options) = startup.parameter("options") else { return };
    let parts = split(options);
    if parts.iter().all(|part| part.database.is_none()) {
        return;
    }
    let left: Vec<&str> = parts.iter().filter(|part| part.database.is_none()).map(|part| part.text).collect();
    let left = left.join(" ");
    startup.parameters.retain(|(name, _)| name != "options");
    if !left.is_empty() {
        startup.parameters.push(("options".to_owned(), left));
    }
}

/// One switch with its value, as it was written.
struct Part<'a> {
    text: &'a str,
    database: Option<String>,
}

/// Splits at spaces, where none stands behind a backslash, and puts `-c` and what follows it together.
fn split(options: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut words = words(options).into_iter().peekable();
    while let Some((start, mut end)) = words.next() {
        let mut setting = options.get(start..end).unwrap_or_default();
        if setting == "-c"
            && let Some((from, to)) = words.next()
        {
            setting = options.get(from..to).unwrap_or_default();
            end = to;
        } else {
            setting = setting.strip_prefix("--").or_else(|| setting.strip_prefix("-c")).unwrap_or_default();
        }
        let database = setting.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case(SETTING));
        parts.push(Part {
            text: options.get(start..end).unwrap_or_default(),
            database: database.map(|(_, value)| value.replace('\\', "")),
        });
    }
    parts
}

fn words(options: &str) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let (mut start, mut escaped) = (None, false);
    for (index, byte) in options.bytes().enumerate() {
        let space = byte.is_ascii_whitespace() && !escaped;
        match (start, space) {
            (None, false) => start = Some(index),
            (Some(from), true) => {
                words.push((from, index));
                start = None;
            }
            _ => {}
        }
        escaped = byte == b'\\' && !escaped;
    }
    words.extend(start.map(|from| (from, options.len())));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn startup(options: &str) -> Startup {
        let parameters = [("user", "app"), ("options", options), ("gssencmode", "disable")];
        Startup { minor: 0, parameters: parameters.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec() }
    }

    #[test]
    fn the_database_is_found_and_taken_out() {
        for (options, wanted, left) in [
            ("-c sallyport.database=prod", Some("prod"), None),
            ("-csallyport.database=prod", Some("prod"), None),
            ("--sallyport.database=prod", Some("prod"), None),
            (
                "-c geqo=off  -c  sallyport.database=prod -c work_mem=1MB",
                Some("prod"),
                Some("-c geqo=off -c work_mem=1MB"),
            ),
            ("-c SallyPort.Database=a --sallyport.database=b", Some("b"), None),
            ("-c search_path=a\\ b", None, Some("-c search_path=a\\ b")),
            (
                "-c application_name=sallyport.database=x",
                None,
                Some("-c application_name=sallyport.database=x"),
            ),
            ("-c", None, Some("-c")),
            ("", None, Some("")),
        ] {
            // What libpq keeps to itself goes to no server.
            let mut startup = startup(options);
            assert_eq!(database(&startup).as_deref(), wanted, "{options:?}");
            take_out(&mut startup);
            assert_eq!(startup.parameter("options"), left, "{options:?}");
            assert_eq!(startup.parameter("gssencmode"), None, "{options:?}");
        }
    }
}
