//! Which versions took part.

use std::collections::BTreeMap;

/// The versions of programs that take part in measurements, as they say them, by name; those that are not there are left
/// out.
#[must_use]
pub(super) fn versions() -> BTreeMap<&'static str, String> {
    const PROGRAMS: &[(&str, &str, &str)] = &[
        ("chromium", "chromium", "--version"),
        ("haproxy", "haproxy", "-v"),
        ("nginx", "nginx", "-v"),
        ("openssl", "openssl", "version"),
        ("pgbouncer", "pgbouncer", "--version"),
        ("ssh", "ssh", "-V"),
    ];
    let mut versions = BTreeMap::from([("sallyport", env!("CARGO_PKG_VERSION").to_owned())]);
    for (name, program, argument) in PROGRAMS {
        let Ok(output) = std::process::Command::new(program).arg(argument).output() else { continue };
        let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
        let said = String::from_utf8_lossy(&said);
        if let Some(line) = said.lines().map(str::trim).find(|line| !line.is_empty()) {
            versions.insert(name, line.to_owned());
        }
    }
    for provider in sallyport_sal::provider::ALL {
        versions.insert(provider.name(), provider.credit().to_owned());
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_program_and_the_sources_of_cryptography_are_named() {
        let versions = versions();
        assert_eq!(versions.get("sallyport").map(String::as_str), Some(env!("CARGO_PKG_VERSION")));
        assert!(sallyport_sal::provider::ALL.iter().all(|provider| versions.contains_key(provider.name())));
    }
}
