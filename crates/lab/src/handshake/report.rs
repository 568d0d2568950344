//! What handshakes cost, as a report.

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_sal::measure::handshake::Shape;
use sallyport_sal::measure::instructions::Instructions;

use super::matrix::describe;
use super::settings::{Effort, Transport};
use super::tls::{Bench, Measured};
use super::{pictures, ssh};

pub(super) fn report(bench: &Bench, ssh: &ssh::Bench, effort: Effort, watch: &Watch, talk: &Talk) -> Report {
    let rows = bench.cells.iter().filter(|measured| !measured.server.is_empty());
    let mut report = Report {
        conditions: conditions(effort),
        rows: rows.map(|measured| row(bench, measured)).collect(),
        ..Report::of("handshake", watch, talk)
    };
    let missing = bench.missing.iter().map(|(cell, why)| format!("{}: {why}", describe(*cell)));
    report.rows.extend(missing.map(Row::new));
    let rows = ssh.cells.iter().filter(|measured| !measured.server.is_empty());
    report.rows.extend(rows.map(|measured| ssh_row(ssh, measured)));
    let missing = ssh.missing.iter().map(|(cell, why)| format!("{}: {why}", ssh::describe(*cell)));
    report.rows.extend(missing.map(Row::new));
    report.notes = notes(bench);
    report.pictures = pictures::all(bench, ssh);
    report
}

#[allow(clippy::cast_precision_loss, reason = "numbers of bytes")]
fn ssh_row(bench: &ssh::Bench, measured: &ssh::Measured) -> Row {
    let mut row = Row::new(ssh::describe(measured.cell)).measured("server us", 1, &measured.server).measured(
        "client us",
        1,
        &measured.client,
    );
    if measured.cell.transport == Transport::Loopback {
        row = row.measured("wall us", 0, &measured.wall);
    }
    let median = measured.server.median();
    let base = bench.cells.iter().find(|one| one.cell.transport == measured.cell.transport);
    row.with("per s and core", 0, (median > 0.0).then(|| 1e6 / median))
        .with("to the first", 2, base.and_then(|base| measured.server.ratio_to(&base.server)))
        .with("bytes up", 0, measured.client_bytes as f64)
        .with("bytes down", 0, measured.server_bytes as f64)
        .with("round trips", 0, measured.round_trips as f64)
}

#[allow(clippy::cast_precision_loss, reason = "numbers of bytes and instructions")]
fn row(bench: &Bench, measured: &Measured) -> Row {
    let sides = measured.sides;
    let mut row = Row::new(describe(measured.cell)).measured("server us", 1, &measured.server).measured(
        "client us",
        1,
        &measured.client,
    );
    if measured.cell.transport == Transport::Loopback {
        row = row.measured("wall us", 0, &measured.wall);
    }
    let median = measured.server.median();
    row = row
        .with("per s and core", 0, (median > 0.0).then(|| 1e6 / median))
        .with(
            "to the first",
            2,
            base(bench, measured).and_then(|base| measured.server.ratio_to(&base.server)),
        )
        .with("bytes up", 0, sides.client_bytes as f64)
        .with("bytes down", 0, sides.server_bytes as f64)
        .with("round trips", 0, sides.round_trips as f64);
    if let Some(instructions) = measured.instructions {
        row = row.with("1000 instructions, both", 0, instructions as f64 / 1000.0);
    }
    if measured.cell.transport == Transport::Loopback {
        return row;
    }
    let Some(phases) = bench.phases(measured.cell.shape) else { return row };
    let mut phase = |name: &'static str, samples: &Samples| {
        if !samples.is_empty() {
            row.figures.extend(Row::new("").measured(name, 1, samples).figures);
        }
    };
    let ([client_exchange, server_exchange], [client_signature, server_signature]) =
        (&phases.exchange, &phases.signature);
    let [client_chain, server_chain] = &phases.chain;
    phase("server exchange us", server_exchange);
    phase("server signature us", server_signature);
    phase("server chain us", server_chain);
    phase("client exchange us", client_exchange);
    phase("client signature us", client_signature);
    phase("client chain us", client_chain);
    row
}

/// What a cell is compared with: the first of those whose bytes travel likewise.
fn base<'a>(bench: &'a Bench, measured: &Measured) -> Option<&'a Measured> {
    bench.cells.iter().find(|one| one.cell.transport == measured.cell.transport)
}

fn conditions(effort: Effort) -> Vec<String> {
    vec![
        "both sides are rustls with the sources that the layer selects; TLS 1.2 with rustls' own suites of aws-lc; AES-128-GCM and SHA-256".to_owned(),
        format!(
            "{} rounds, in each of which everything has its turn with handshakes of about {} ms; keys, certificates and the first handshakes are not counted",
            effort.rounds,
            effort.batch.as_millis()
        ),
        "times are processor time of the thread and medians with the interval that holds them with 95 %; in memory the clock's own readings (about 0.2 us each, five a side) are in them; over loopback the system's share of connecting and closing is".to_owned(),
        "the phases are operations measured by themselves in the same rounds; what is left of a side's time is everything else: messages, hashes, key derivation, records".to_owned(),
        match Instructions::of_this_thread() {
            Ok(_) => "instructions are those of one handshake in memory in user space, both sides together, the median of some".to_owned(),
            Err(why) => format!("instructions are not counted: the kernel gives no counter ({why})"),
        },
        "full handshakes give no tickets; those that resume give two, as servers do; round trips without that of TCP".to_owned(),
        "SSH is a node's, with a transport of our own, and our client's, which is russh's, both with our settings, to the end of the user's login, without policy, audit and sessions; each side is a thread with a runtime, so that waking each other is in the times; certificates are by an Ed25519 authority; AES-128-GCM".to_owned(),
        "\"to the first\" is the server's time to that of the first row of the same protocol and transport, round by round".to_owned(),
        "RSA keys are published ones; rsa-1024 is signed and verified by plain arithmetic, because no source does, and is slower than a source would be".to_owned(),
    ]
}

fn notes(bench: &Bench) -> Vec<String> {
    let mut notes = Vec::new();
    for retried in bench.cells.iter().filter(|one| !one.server.is_empty()) {
        let shape = retried.cell.shape;
        let Some(guessed) = shape.guessed else { continue };
        let straight = bench.measured(Shape { guessed: None, ..shape }, retried.cell.transport);
        let Some(straight) = straight else { continue };
        let more = |slow: &Samples, quick: &Samples| {
            slow.iter().zip(quick.iter()).map(|(slow, quick)| slow - quick).collect::<Samples>().median()
        };
        let bytes = |one: &Measured| one.sides.client_bytes + one.sides.server_bytes;
        notes.push(format!(
            "a HelloRetryRequest, for a client that guesses {guessed} and a server that has {} alone ({}), costs {} round trip, {:.0} us of the client, {:.0} us of the server and {} bytes",
            shape.group,
            retried.cell.transport,
            retried.sides.round_trips.saturating_sub(straight.sides.round_trips),
            more(&retried.client, &straight.client),
            more(&retried.server, &straight.server),
            bytes(retried).saturating_sub(bytes(straight)),
        ));
    }
    for resumed in bench.cells.iter().filter(|one| one.cell.shape.resumed && !one.server.is_empty()) {
        let full = Shape { resumed: false, ..resumed.cell.shape };
        if resumed.cell.transport == Transport::Memory
            && let Some(ratio) =
                bench.measured(full, Transport::Memory).and_then(|full| full.server.ratio_to(&resumed.server))
        {
            notes.push(format!(
                "{}: a full handshake costs the server {ratio:.1} times as much",
                describe(resumed.cell)
            ));
        }
    }
    notes
}
