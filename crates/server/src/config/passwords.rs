//! The section `auth.authentication.passwords`: whether users have passwords, and which ones.

use std::path::PathBuf;

use sallyport_access::yaml::{Problems, Section};

const PASSWORDS: &[&str] = &["enabled", "min_strength", "breached_list", "breached_list_required"];
/// Most that a password can be estimated at.
const STRONGEST: usize = 4;
const LIST: &str =
    "write the path of the list, a directory of ranges or one sorted file, which begins with /";

/// Passwords of users.
#[derive(Debug, Clone)]
pub struct PasswordsSection {
    /// Whether there are any: off, users log in with passkeys and by single sign-on. Default true.
    pub enabled: bool,
    /// What a new password is estimated at, at the least: 0 (any) to 4 (very hard to guess). Default 3.
    pub min_strength: u8,
    /// Where the list of passwords is that were stolen elsewhere, by SHA-1. Unset: none is asked.
    pub breached_list: Option<PathBuf>,
    /// Whether a password is refused where the list cannot be read. Default false: it is taken, and the log says so.
    pub breached_list_required: bool,
}

impl Default for PasswordsSection {
    fn default() -> Self {
        Self { enabled: true, min_strength: 3, breached_list: None, breached_list_required: false }
    }
}

/// Reads the section.
pub(super) fn read(authentication: &Section<'_>, problems: &mut Problems) -> PasswordsSection {
    let default = PasswordsSection::default();
    let Some(section) = authentication.section("passwords", PASSWORDS, problems) else {
        return default;
    };
    let breached_list = section.parsed("breached_list", LIST, problems, |text| {
        let path = PathBuf::from(text);
        if path.is_absolute() { Ok(path) } else { Err("is not an absolute path") }
    });
    let breached_list_required =
        section.boolean("breached_list_required", problems).unwrap_or(default.breached_list_required);
    if breached_list_required && section.present("breached_list").is_none() {
        problems.push(
            section.place("breached_list_required"),
            &section.name("breached_list_required"),
            "names no list that could be required",
            "write auth.authentication.passwords.breached_list, or remove breached_list_required",
        );
    }
    let strength = section.count("min_strength", 0, STRONGEST, problems);
    PasswordsSection {
        enabled: section.boolean("enabled", problems).unwrap_or(default.enabled),
        min_strength: strength
            .and_then(|at_least| u8::try_from(at_least).ok())
            .unwrap_or(default.min_strength),
        breached_list,
        breached_list_required,
    }
}
