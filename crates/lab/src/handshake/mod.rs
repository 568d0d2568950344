//! What handshakes cost: processor time of each side, bytes, round trips and phases, for each key, key exchange group,
//! length of chain, and with or without resumption and a client certificate.
//!
//! Client and server are ours on both sides: rustls with the sources that the layer selects. In memory one thread plays
//! both, so that nothing but the handshake is measured; over loopback each has a thread and a connection of TCP for every
//! handshake. SSH is russh as a client and a transport of our own as a server, with our settings, each in a thread and a runtime of its own. Production speaks TLS 1.3 alone and takes RSA keys from 2048 bits; the rest is here to be compared with.

mod costs;
mod loopback;
mod matrix;
mod pictures;
mod pipe;
mod report;
mod settings;
mod ssh;
mod tls;

pub use costs::{Cost, Spread, costs, ssh_costs};
use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Csv, Report};
use sallyport_sal::algorithm::KexGroup;
pub use sallyport_sal::measure::handshake::Version;
pub use sallyport_ssh::measure::KeyExchange;
pub(crate) use settings::Effort;
pub use settings::{CHAIN, Protocol, Settings, Transport, UnknownTransport};

use crate::LabError;
use tls::{Bench, Sample};

/// Measures.
///
/// # Errors
/// When nothing is left to measure, or a handshake fails that went well before.
pub fn run(settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let watch = Watch::begin();
    let limited = talk.within(settings.budget);
    let effort = Effort { rounds: settings.rounds.max(1), batch: settings.batch };
    let mut csv = Csv::create(
        settings.csv.as_deref(),
        "kind,protocol,key,group,chain,resumed,client_certificate,guessed,transport,round,count,client_us,server_us,wall_us",
    )?;
    let mut tls = Bench::prepare(&matrix::cells(settings), true, effort, &talk.part(0.0, 0.1))?;
    let mut ssh = ssh::Bench::prepare(&ssh::cells(settings), effort, &talk.part(0.1, 0.15))?;
    if tls.cells.is_empty() && ssh.cells.is_empty() {
        let why = tls.missing.first().map_or("nothing was asked for", |(_, why)| why.as_str());
        return Err(LabError::Input(format!("no handshake is left to measure: {why}")));
    }
    let measuring = talk.part(0.15, 1.0);
    for round in 0..effort.rounds {
        measuring.progress(round, effort.rounds, "handshakes, round by round");
        let talk = if round == 0 { talk } else { &limited };
        let going = tls.round(talk, |sample| Ok(csv.line(&line(round, sample))?))?
            && ssh.round(talk, |cell, count, times, wall| {
                Ok(csv.line(&ssh_line(round, cell, count, times, wall))?)
            })?;
        if !going {
            break;
        }
    }
    let mut report = report::report(&tls, &ssh, effort, &watch, talk);
    report.notes.extend(limited.lateness(settings.budget, "each handshake"));
    Ok(report)
}

fn ssh_line(
    round: usize,
    cell: ssh::Cell,
    count: u32,
    [client, server]: [f64; 2],
    wall: Option<f64>,
) -> String {
    let shape = cell.shape;
    let kind = |certificate| if certificate { "certificate" } else { "key" };
    format!(
        "handshake,SSH,{},{},{},false,{} {},,{},{round},{count},{client:.3},{server:.3},{}",
        shape.host,
        shape.exchange,
        kind(shape.host_certificate),
        shape.user,
        kind(shape.user_certificate),
        cell.transport,
        wall.map_or_else(String::new, |wall| format!("{wall:.3}")),
    )
}

fn line(round: usize, sample: Sample) -> String {
    match sample {
        Sample::Cell { cell, count, client, server, wall } => {
            let shape = cell.shape;
            format!(
                "handshake,TLS {},{},{},{},{},{},{},{},{round},{count},{client:.3},{server:.3},{}",
                shape.version,
                shape.key,
                shape.group,
                shape.chain,
                shape.resumed,
                shape.client_certificate,
                shape.guessed.map_or("", KexGroup::name),
                cell.transport,
                wall.map_or_else(String::new, |wall| format!("{wall:.3}")),
            )
        }
        Sample::Part { part, microseconds } => {
            use tls::Part;
            let (kind, key, group, chain) = match part {
                Part::ServerExchange(group) => ("exchange_server", "", group.name(), String::new()),
                Part::BothExchange(group) => ("exchange_both", "", group.name(), String::new()),
                Part::Sign(key) => ("sign", key.name(), "", String::new()),
                Part::Verify(key) => ("verify", key.name(), "", String::new()),
                Part::Chain(key, chain) => ("verify_chain", key.name(), "", chain.to_string()),
            };
            let (client, server) = match part {
                Part::ServerExchange(_) | Part::Sign(_) => (String::new(), format!("{microseconds:.3}")),
                _ => (format!("{microseconds:.3}"), String::new()),
            };
            format!("{kind},,{key},{group},{chain},,,,,{round},,{client},{server},")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use sallyport_sal::algorithm::KeyAlgorithm;

    use super::*;

    fn tiny() -> Settings {
        Settings {
            rounds: 2,
            batch: Duration::from_micros(10),
            budget: Duration::from_secs(600),
            ..Settings::quick()
        }
    }

    #[test]
    fn every_default_handshake_is_made_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let csv = directory.path().join("samples.csv");
        let report = run(&Settings { csv: Some(csv.clone()), ..tiny() }, &Talk::silent()).unwrap();
        let row = |what: &str| {
            let found = report.rows.iter().find(|row| row.what == what);
            found.unwrap_or_else(|| unreachable!("{what}: {:?}", report.rows))
        };
        for (what, round_trips) in [
            ("TLS 1.3 ecdsa-p256 x25519 chain 2", 1.0),
            ("TLS 1.3 ecdsa-p256 x25519 chain 2, resumed", 1.0),
            ("TLS 1.3 ecdsa-p256 x25519 chain 2, guessed secp256r1", 2.0),
            ("TLS 1.3 ml-dsa-87 x25519 chain 2", 1.0),
            ("TLS 1.2 rsa-8192 x25519 chain 2", 2.0),
            ("TLS 1.2 ecdsa-p256 x25519 chain 2, resumed", 1.0),
            ("TLS 1.3 rsa-4096 x25519 chain 2, loopback", 1.0),
            ("SSH ed25519 certificate, mlkem768x25519-sha256, user ed25519 certificate", 5.0),
            ("SSH rsa-4096 key, mlkem768x25519-sha256, user ed25519 certificate", 5.0),
            ("SSH ed25519 certificate, ecdh-sha2-nistp256, user ed25519 certificate", 5.0),
            ("SSH ed25519 certificate, mlkem768x25519-sha256, user ed25519 key", 5.0),
        ] {
            let row = row(what);
            // Two threads answer each other in SSH: on a busy machine two messages may travel apart.
            let most = if what.starts_with("SSH") { round_trips + 1.0 } else { round_trips };
            let counted = row.figure("round trips").unwrap();
            assert!((round_trips..=most).contains(&counted), "{row:?}");
            assert!(
                row.figure("server us").unwrap() > 0.0 && row.figure("client us").unwrap() > 0.0,
                "{row:?}"
            );
        }
        let reasons: Vec<&str> =
            report.rows.iter().filter(|row| row.figures.is_empty()).map(|row| row.what.as_str()).collect();
        assert!(reasons.len() == 3 && reasons.iter().all(|one| one.contains("has no ML-DSA")), "{reasons:?}");
        // The phases of a full handshake, and of one that has no certificates.
        let full = row("TLS 1.3 rsa-2048 x25519 chain 2, client certificate");
        for phase in ["server exchange us", "server signature us", "server chain us", "client chain us"] {
            assert!(full.figure(phase).unwrap() > 0.0, "{phase}: {full:?}");
        }
        let resumed = row("TLS 1.3 rsa-2048 x25519 chain 2, resumed");
        assert!(
            resumed.figure("server exchange us").is_some() && resumed.figure("server signature us").is_none()
        );
        assert!(resumed.figure("bytes down") < full.figure("bytes down"));
        assert!(row("TLS 1.3 ecdsa-p256 x25519 chain 2, loopback").figure("wall us").unwrap() > 0.0);
        assert!(report.notes.iter().any(|note| note.contains("HelloRetryRequest")), "{:?}", report.notes);
        let names: Vec<&str> = report.pictures.iter().map(|picture| picture.name.as_str()).collect();
        let all =
            ["keys", "phases", "groups", "bytes", "resumed", "ssh"].map(|name| format!("handshake-{name}"));
        assert_eq!(names, all);
        let samples = std::fs::read_to_string(csv).unwrap();
        let columns = samples.lines().next().unwrap().split(',').count();
        assert!(samples.lines().all(|line| line.split(',').count() == columns), "{samples}");
        assert!(
            samples.contains("\nhandshake,TLS 1.3,ecdsa-p256,x25519,2,false,false,,memory,0,"),
            "{samples}"
        );
    }

    #[test]
    fn it_stops_when_told_to_and_says_when_there_is_nothing() {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let talk = Talk::new(|_| (), stop);
        let error = run(&tiny(), &talk).unwrap_err();
        assert!(matches!(error, LabError::Input(_)), "{error}");
        let impossible =
            Settings { keys: vec![KeyAlgorithm::MlDsa65], versions: vec![Version::Tls12], ..tiny() };
        let error = run(&impossible, &Talk::silent()).unwrap_err().to_string();
        assert!(error.contains("TLS 1.2 has no ML-DSA"), "{error}");
    }
}
