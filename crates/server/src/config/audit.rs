//! The section `auth.audit`: bounds of the audit log, and where its checkpoints go.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use sallyport_access::yaml::{Problems, Section};

use super::host_port::HostPort;

const AUDIT: &[&str] = &[
    "checkpoint_bucket",
    "checkpoint_file",
    "checkpoint_webhook",
    "checkpoint_webhook_ca_file",
    "checkpoint_webhook_token_file",
    "host_events_per_minute",
];
const BUCKET: &[&str] = &["url", "region", "credentials_file", "ca_file"];
const LEAST_EVENTS: usize = 60;
const MOST_EVENTS: usize = 10_000_000;
const WEBHOOK: &str = "write https://HOST/PATH, or http://HOST:PORT/PATH";
const BUCKET_URL: &str = "write https://HOST/BUCKET, or https://HOST/BUCKET/PREFIX";
const ABSOLUTE: &str = "write a path that begins with /";
const DEFAULT_REGION: &str = "us-east-1";

/// A place on a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// With TLS.
    pub secure: bool,
    /// The server; port 443, or 80 without TLS, unless there is another.
    pub address: HostPort,
    /// With the slash before it.
    pub path: String,
}

impl Endpoint {
    /// Reads the address of a place.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (secure, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err("does not begin with https:// or http://"),
        };
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains('#') {
            return Err("has a path with spaces or other characters that an address has not");
        }
        let port = if secure { 443 } else { 80 };
        let address =
            address.parse().or_else(|problem| format!("{address}:{port}").parse().map_err(|_| problem))?;
        Ok(Self { secure, address, path: path.to_owned() })
    }

    /// The server as a request names it: without the port where that is the usual one (RFC 9110 section 7.2).
    #[must_use]
    pub fn authority(&self) -> String {
        let usual = if self.secure { ":443" } else { ":80" };
        let whole = self.address.to_string();
        whole.strip_suffix(usual).map_or(whole.clone(), str::to_owned)
    }

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.host == "localhost"
            || self.address.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether what is sent there can be read on the way.
    fn is_overheard(&self) -> bool {
        !self.secure && !self.is_loopback()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.secure { "https" } else { "http" }, self.authority(), self.path)
    }
}

/// Where a checkpoint is posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Where to.
    pub endpoint: Endpoint,
    /// The CAs, in PEM, by which the server is verified. Default: the system's.
    pub ca_file: Option<PathBuf>,
    /// A file of mode 0600 with a bearer token (RFC 6750), read whenever it is needed. Default: none is sent.
    pub token_file: Option<PathBuf>,
}

impl Webhook {
    /// A webhook with the system's CAs and without a token.
    #[must_use]
    pub fn at(secure: bool, address: HostPort, path: &str) -> Self {
        let endpoint = Endpoint { secure, address, path: path.to_owned() };
        Self { endpoint, ca_file: None, token_file: None }
    }
}

/// Where a checkpoint is stored as an object: a server that speaks S3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// The server, and as its path the bucket with what the names of objects begin with.
    pub endpoint: Endpoint,
    /// What is signed as the region. Default `us-east-1`, which most servers take that have none.
    pub region: String,
    /// A file of mode 0600 with `aws_access_key_id` and `aws_secret_access_key`, as AWS's programs have it; read whenever it is needed.
    pub credentials_file: PathBuf,
    /// The CAs, in PEM, by which the server is verified. Default: the system's.
    pub ca_file: Option<PathBuf>,
}

/// Bounds of the audit log, and where its checkpoints go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSection {
    /// A file that each signed checkpoint is appended to: on another disk, or one that is collected. Default none.
    pub checkpoint_file: Option<PathBuf>,
    /// Where each signed checkpoint is posted, as JSON. Default none.
    pub checkpoint_webhook: Option<Webhook>,
    /// Where each signed checkpoint is stored as an object. Default none.
    pub checkpoint_bucket: Option<Bucket>,
    /// Events that a host may report in a minute, 60 to 10,000,000; one longer than a KiB counts as several. Default 60,000.
    pub host_events_per_minute: u32,
}

impl Default for AuditSection {
    fn default() -> Self {
        Self {
            checkpoint_file: None,
            checkpoint_webhook: None,
            checkpoint_bucket: None,
            host_events_per_minute: 60_000,
        }
    }
}

/// Reads the section.
pub(super) fn read(auth: &Section<'_>, problems: &mut Problems) -> AuditSection {
    let default = AuditSection::default();
    let Some(section) = auth.section("audit", AUDIT, problems) else { return default };
    let events = section.count("host_events_per_minute", LEAST_EVENTS, MOST_EVENTS, problems);
    AuditSection {
        checkpoint_file: file(&section, "checkpoint_file", problems),
        checkpoint_webhook: webhook(&section, problems),
        checkpoint_bucket: bucket(&section, problems),
        host_events_per_minute: events
            .and_then(|events| u32::try_from(events).ok())
            .unwrap_or(default.host_events_per_minute),
    }
}

fn file(section: &Section<'_>, key: &str, problems: &mut Problems) -> Option<PathBuf> {
    let path = section.text(key, problems).map(PathBuf::from);
    if path.as_ref().is_some_and(|path| !path.is_absolute()) {
        problems.push(section.place(key), &section.name(key), "the path is relative", ABSOLUTE);
    }
    path
}

fn webhook(section: &Section<'_>, problems: &mut Problems) -> Option<Webhook> {
    let endpoint = section.parsed("checkpoint_webhook", WEBHOOK, problems, Endpoint::parse);
    let ca_file = file(section, "checkpoint_webhook_ca_file", problems);
    let token_file = file(section, "checkpoint_webhook_token_file", problems);
    let named = section.present("checkpoint_webhook").is_some();
    for (key, is_there) in [
        ("checkpoint_webhook_ca_file", ca_file.is_some()),
        ("checkpoint_webhook_token_file", token_file.is_some()),
    ] {
        if is_there && !named {
            let fix = "write checkpoint_webhook: https://HOST/PATH, or remove this";
            problems.push(section.place(key), &section.name(key), "is for a webhook, and there is none", fix);
        }
    }
    let endpoint = endpoint?;
    if ca_file.is_some() && !endpoint.secure {
        no_tls(section, "checkpoint_webhook_ca_file", problems);
    }
    if token_file.is_some() && endpoint.is_overheard() {
        problems.push(
            section.place("checkpoint_webhook_token_file"),
            &section.name("checkpoint_webhook_token_file"),
            "would send the token where others can read it: the webhook has no TLS",
            "write https:// in checkpoint_webhook",
        );
    }
    Some(Webhook { endpoint, ca_file, token_file })
}

fn no_tls(section: &Section<'_>, key: &str, problems: &mut Problems) {
    let fix = "write https:// before the address, or remove this";
    problems.push(section.place(key), &section.name(key), "is for a server with TLS", fix);
}

fn bucket(audit: &Section<'_>, problems: &mut Problems) -> Option<Bucket> {
    let section = audit.section("checkpoint_bucket", BUCKET, problems)?;
    let endpoint = section.parsed("url", BUCKET_URL, problems, |text| {
        let endpoint = Endpoint::parse(text.trim_end_matches('/'))?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        if endpoint.path == "/" {
            return Err("names no bucket");
        }
        // What is signed is then the path as it stands.
        if !endpoint.path.bytes().all(plain) || endpoint.path.contains("//") {
            return Err("has a path with other characters than letters, digits, - . _ ~ and /");
        }
        Ok(endpoint)
    });
    let region = section.parsed("region", "write a region such as eu-central-1", problems, |text| {
        let good = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if good { Ok(text.to_owned()) } else { Err("is not a name of letters, digits and -") }
    });
    let credentials_file = file(&section, "credentials_file", problems);
    let ca_file = file(&section, "ca_file", problems);
    for (key, fix) in [
        ("url", BUCKET_URL),
        ("credentials_file", "write the path of a file with aws_access_key_id and aws_secret_access_key"),
    ] {
        if section.present(key).is_none() {
            problems.push(section.at(), &section.name(key), "is missing", fix);
        }
    }
    if ca_file.is_some() && endpoint.as_ref().is_some_and(|endpoint| !endpoint.secure) {
        no_tls(&section, "ca_file", problems);
    }
    Some(Bucket {
        endpoint: endpoint?,
        region: region.unwrap_or_else(|| DEFAULT_REGION.to_owned()),
        credentials_file: credentials_file?,
        ca_file,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigErrors};

    fn read(audit: &str) -> Result<super::AuditSection, ConfigErrors> {
        let text = format!(
            "version: v1\ncluster: example.com\ndata_dir: /var/lib/sallyport\nauth:\n  enabled: true\n  audit:\n{audit}"
        );
        let config = Config::parse("sallyport.yaml", &text)?;
        Ok(config.auth.unwrap().audit)
    }

    #[test]
    fn places_of_checkpoints_are_read_with_the_usual_ports() {
        let audit = read(
            "    checkpoint_webhook: https://log.example.com/in?from=a\n    checkpoint_webhook_token_file: /etc/token\n    \
             checkpoint_bucket:\n      url: https://s3.example.com:9000/evidence/prod/\n      credentials_file: /etc/s3\n",
        )
        .unwrap();
        let webhook = audit.checkpoint_webhook.unwrap();
        assert_eq!((webhook.endpoint.secure, webhook.endpoint.address.port), (true, 443));
        assert_eq!(webhook.endpoint.to_string(), "https://log.example.com/in?from=a");
        let bucket = audit.checkpoint_bucket.unwrap();
        assert_eq!(bucket.endpoint.to_string(), "https://s3.example.com:9000/evidence/prod");
        assert_eq!((bucket.region.as_str(), bucket.ca_file), ("us-east-1", None));
        let plain = read("    checkpoint_webhook: http://127.0.0.1:9000/checkpoints\n").unwrap();
        assert_eq!(plain.checkpoint_webhook.unwrap().endpoint.authority(), "127.0.0.1:9000");
    }

    #[test]
    fn what_would_leak_or_lead_nowhere_is_refused() {
        for (audit, said) in [
            ("    checkpoint_webhook: ftp://x/\n", "does not begin with https://"),
            ("    checkpoint_webhook_token_file: /etc/token\n", "there is none"),
            (
                "    checkpoint_webhook: http://log.example.com/\n    checkpoint_webhook_token_file: /etc/token\n",
                "where others can read it",
            ),
            (
                "    checkpoint_webhook: http://x/\n    checkpoint_webhook_ca_file: /ca.pem\n",
                "is for a server with TLS",
            ),
            ("    checkpoint_bucket: {url: 'https://s3.example.com'}\n", "names no bucket"),
            ("    checkpoint_bucket: {url: 'https://s3.example.com/b'}\n", "credentials_file"),
            ("    checkpoint_bucket: {url: 'https://s3.example.com/b c', credentials_file: /k}\n", "url"),
            ("    checkpoint_bucket: {url: 'https://s3.example.com/b', credentials_file: k}\n", "relative"),
            (
                "    checkpoint_bucket: {url: 'https://s3.example.com/b', credentials_file: /k, region: 'a b'}\n",
                "is not a name",
            ),
        ] {
            let problem = read(audit).unwrap_err().to_string();
            assert!(problem.contains(said), "{audit}: {problem}");
        }
    }
}
