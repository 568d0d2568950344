//! The section `telemetry`: which traces are kept, and where they go.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sallyport_access::yaml::{Problems, Section};

use super::host_port::HostPort;

const TELEMETRY: &[&str] = &["endpoint", "ca_file", "service_name", "slow", "sample"];

const SLOW_LEAST: Duration = Duration::from_millis(1);
const SLOW_MOST: Duration = Duration::from_secs(3_600);
const LONGEST_NAME: usize = 128;

const ENDPOINT: &str =
    "write http://HOST:PORT, such as http://127.0.0.1:4317, or https://HOST:PORT with ca_file";

/// A collector's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// With TLS.
    pub secure: bool,
    /// Where it listens for OTLP over gRPC; the usual port is 4317.
    pub address: HostPort,
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.address)
    }
}

/// Which traces are kept, and where they go.
#[derive(Debug, Clone, PartialEq)]
pub struct TelemetrySection {
    /// The collector.
    pub endpoint: Collector,
    /// The certificates, in PEM, by which an `https` collector's is verified.
    pub ca_file: Option<PathBuf>,
    /// What the collector is to call this process. Default `sallyport`.
    pub service_name: String,
    /// A connection whose beginning takes this long is kept, 1 ms to 1 h. Default 1 s.
    pub slow: Duration,
    /// The share of all others that is kept as well, 0 to 1. Default 0.
    pub sample: f64,
}

/// Reads the section; without it, nothing is traced.
pub(super) fn read(top: &Section<'_>, problems: &mut Problems) -> Option<TelemetrySection> {
    let section = top.section("telemetry", TELEMETRY, problems)?;
    let endpoint = section.parsed("endpoint", ENDPOINT, problems, |text| {
        let (secure, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err("has no http:// or https:// before it"),
        };
        Ok(Collector { secure, address: rest.trim_end_matches('/').parse()? })
    });
    if endpoint.is_none() && section.present("endpoint").is_none() {
        problems.push(section.at(), "telemetry.endpoint", "is missing", ENDPOINT);
    }
    let ca_file = section.text("ca_file", problems).map(PathBuf::from);
    if let Some(relative) = ca_file.as_ref().filter(|path| path.is_relative()) {
        problems.push(
            section.place("ca_file"),
            "telemetry.ca_file",
            format!("{:?} is relative", relative.display().to_string()),
            "write a path that begins with /",
        );
    }
    match (endpoint.as_ref().map(|endpoint| endpoint.secure), section.present("ca_file").is_some()) {
        (Some(true), false) => problems.push(
            section.place("endpoint"),
            "telemetry.ca_file",
            "is missing, and the endpoint has TLS",
            "write ca_file: and the path of a PEM file with the CA of the collector's certificate",
        ),
        (Some(false), true) => problems.push(
            section.place("ca_file"),
            "telemetry.ca_file",
            "is for an endpoint with TLS",
            "write https:// in endpoint, or remove ca_file",
        ),
        _ => {}
    }
    let service_name = section.parsed("service_name", "write a name such as sallyport", problems, |text| {
        let fits = !text.trim().is_empty() && text.len() <= LONGEST_NAME && !text.contains(char::is_control);
        if fits { Ok(text.to_owned()) } else { Err("is not a name of 1 to 128 characters") }
    });
    let slow = section.duration("slow", SLOW_LEAST, SLOW_MOST, problems).unwrap_or(Duration::from_secs(1));
    let sample = section.parsed("sample", "write a share such as 0.01", problems, |text| {
        let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
        share.ok_or("is not a number from 0 to 1")
    });
    Some(TelemetrySection {
        endpoint: endpoint?,
        ca_file,
        service_name: service_name.unwrap_or_else(|| "sallyport".to_owned()),
        slow,
        sample: sample.unwrap_or(0.0),
    })
}
