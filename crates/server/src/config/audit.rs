//! The section `auth.audit`: bounds of the audit log, and where its checkpoints go.

use std::fmt;
use std::path::PathBuf;

use sallyport_access::yaml::{Problems, Section};

use super::HostPort;

const AUDIT: &[&str] = &["checkpoint_file", "checkpoint_webhook", "host_events_per_minute"];
const LEAST_EVENTS: usize = 60;
const MOST_EVENTS: usize = 10_000_000;
const WEBHOOK: &str = "write http://HOST:PORT/PATH";

/// Where a checkpoint is posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The server.
    pub address: HostPort,
    /// With the slash before it.
    pub path: String,
}

impl fmt::Display for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.address, self.path)
    }
}

/// Bounds of the audit log, and where its checkpoints go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSection {
    /// A file that each signed checkpoint is appended to: on another disk, or one that is collected. Default none.
    pub checkpoint_file: Option<PathBuf>,
    /// Where each signed checkpoint is posted, as JSON. Default none.
    pub checkpoint_webhook: Option<Webhook>,
    /// Events that a host may report in a minute, 60 to 10,000,000; one longer than a KiB counts as several. Default 60,000.
    pub host_events_per_minute: u32,
}

impl Default for AuditSection {
    fn default() -> Self {
        Self { checkpoint_file: None, checkpoint_webhook: None, host_events_per_minute: 60_000 }
    }
}

/// Reads the section.
pub(super) fn read(auth: &Section<'_>, problems: &mut Problems) -> AuditSection {
    let default = AuditSection::default();
    let Some(section) = auth.section("audit", AUDIT, problems) else { return default };
    let file = section.text("checkpoint_file", problems).map(PathBuf::from);
    if file.as_ref().is_some_and(|path| !path.is_absolute()) {
        problems.push(
            section.place("checkpoint_file"),
            &section.name("checkpoint_file"),
            "the path is relative",
            "write a path that begins with /",
        );
    }
    let webhook = section.parsed("checkpoint_webhook", WEBHOOK, problems, |text| {
        let rest = text.strip_prefix("http://").ok_or("does not begin with http://")?;
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("has a path with spaces or other characters that an address has not");
        }
        Ok(Webhook { address: address.parse()?, path: path.to_owned() })
    });
    let events = section.count("host_events_per_minute", LEAST_EVENTS, MOST_EVENTS, problems);
    AuditSection {
        checkpoint_file: file,
        checkpoint_webhook: webhook,
        host_events_per_minute: events
            .and_then(|events| u32::try_from(events).ok())
            .unwrap_or(default.host_events_per_minute),
    }
}
