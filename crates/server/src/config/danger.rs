//! Settings that make things worse on purpose.

use sallyport_access::yaml::{Problems, Section};

const KEYS: &[&str] = &["fresh_database_keys"];

/// What a service is made to do against its interest. All of it is off unless it is written below `danger`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Danger {
    /// A new key pair and certificate for each database connection on the hop that this service dials (proxy to agent,
    /// agent to database), where otherwise they are kept: for measuring what that costs. It takes a call of the authority
    /// and, under a suite with RSA, tens of milliseconds of a processor for each connection, which any client that may
    /// connect can spend.
    pub fresh_database_keys: bool,
}

impl Danger {
    pub(super) fn read(section: &Section<'_>, problems: &mut Problems) -> Self {
        let Some(section) = section.section("danger", KEYS, problems) else { return Self::default() };
        Self { fresh_database_keys: section.boolean("fresh_database_keys", problems).unwrap_or(false) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::config::Config;

    fn read(danger: &str) -> Config {
        let text = format!(
            "version: v1\ncluster: c.example\nauth:\n  enabled: true\nproxy:\n  enabled: true\n{danger}node:\n  enabled: \
             true\n{danger}"
        );
        Config::parse("sallyport.yaml", &text).unwrap()
    }

    #[test]
    fn nothing_is_made_worse_unless_it_is_written_below_danger() {
        let config = read("");
        assert!(!config.proxy.unwrap().danger.fresh_database_keys);
        assert!(!config.node.unwrap().danger.fresh_database_keys);
        let config = read("  danger:\n    fresh_database_keys: true\n");
        assert!(config.proxy.unwrap().danger.fresh_database_keys);
        assert!(config.node.unwrap().danger.fresh_database_keys);
    }
}
