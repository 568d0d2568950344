//! Much data through one connection, and many transactions through a few.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use sallyport_bench::Talk;
use sallyport_bench::report::Csv;
use sallyport_sal::Suite;
use sallyport_testing::postgres::{HOST, Postgres, USER};

use super::candidates::{Candidate, Kind, Link, Service};
use super::client::{Client, Route};
use super::outcome::Outcome;
use super::settings::{SETTLE, Settings};
use crate::LabError;

/// Bytes of a row that is copied, with its end of line.
const ROW: usize = 1024;
/// Bytes of one message of a COPY into the database.
const CHUNK: usize = 64 << 10;
/// pgbench's scale: 100,000 rows each, so that all of it is in memory.
const SCALE: &str = "5";

/// Copies a table out and one in, every candidate in turns.
pub(super) fn copy(
    postgres: &Postgres,
    candidates: &[Candidate],
    outcomes: &mut [Outcome],
    settings: &Settings,
    csv: &mut Csv,
    talk: &Talk,
) -> Result<(), LabError> {
    talk.say(format!("filling a table with {} MiB", settings.copy));
    let rows = settings.copy * 1024;
    postgres.sql(
        USER,
        &format!(
            "SET ROLE {USER}; CREATE UNLOGGED TABLE bulk AS SELECT repeat(md5(i::text), 31) || repeat('x', 31) AS line \
             FROM generate_series(1, {rows}) AS i; CREATE UNLOGGED TABLE bulk_in (line text)"
        ),
    )?;
    let line = [&[b'y'; ROW - 1][..], b"\n"].concat();
    let chunk = line.repeat(CHUNK / ROW);
    let chunks = (settings.copy << 20) / CHUNK as u64;
    for round in 0..settings.rounds {
        for (candidate, outcome) in candidates.iter().zip(outcomes.iter_mut()) {
            if talk.stopping() {
                return Ok(());
            }
            if candidate.kind == Kind::Published {
                continue;
            }
            talk.say(format!("COPY, round {} of {}: {}", round + 1, settings.rounds, candidate.name));
            let name = candidate.name.replace(',', "");
            let before = candidate.spent();
            let mut bytes = 0;
            for (index, direction) in ["out", "in"].into_iter().enumerate() {
                let (copied, seconds) = timed(&candidate.route, index == 0, &chunk, chunks)
                    .map_err(|error| candidate.failed(&error))?;
                bytes += copied;
                #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
                let rate = copied as f64 / f64::from(1 << 20) / seconds;
                csv.line(&format!("copy_{direction}_mib_s,{name},{round},0,{rate:.2}"))?;
                if let Some(samples) = outcome.copies.get_mut(index) {
                    samples.push(rate);
                }
                postgres.sql(USER, "TRUNCATE bulk_in")?;
            }
            std::thread::sleep(SETTLE);
            let after = candidate.spent();
            let took = [Service::Proxy, Service::Agent, Service::Terminator]
                .into_iter()
                .filter_map(|service| after.since(&before, service))
                .map(|time| time.as_secs_f64());
            #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
            let gibibytes = bytes as f64 / f64::from(1 << 30);
            let cost = took.sum::<f64>() / gibibytes.max(1e-9);
            csv.line(&format!("copy_cpu_s_per_gib,{name},{round},0,{cost:.3}"))?;
            if candidate.kind != Kind::Direct {
                outcome.copy_cost = Some(cost.min(outcome.copy_cost.unwrap_or(f64::INFINITY)));
            }
        }
    }
    Ok(())
}

fn timed(route: &Route, out: bool, chunk: &[u8], chunks: u64) -> Result<(u64, f64), LabError> {
    let mut client = Client::connect(route)?;
    let began = Instant::now();
    let copied = if out {
        client.copy_out("COPY bulk TO STDOUT")?
    } else {
        client.copy_in("COPY bulk_in FROM STDIN", chunk, chunks)?
    };
    let seconds = began.elapsed().as_secs_f64();
    client.terminate()?;
    Ok((copied, seconds))
}

/// pgbench's read-only transactions, ten clients that stay connected, every candidate that libpq can connect as, in turns.
pub(super) fn pgbench(
    postgres: &Postgres,
    candidates: &[Candidate],
    outcomes: &mut [Outcome],
    settings: &Settings,
    csv: &mut Csv,
    talk: &Talk,
) -> Result<(), LabError> {
    talk.say("making the tables of pgbench");
    let mut fill = postgres.program("pgbench");
    fill.args(["-i", "-q", "-s", SCALE, "-U", USER, "-p", &postgres.port().to_string(), "-h"])
        .arg(postgres.directory())
        .arg(USER);
    sallyport_testing::output("pgbench -i", &mut fill)?;
    for round in 0..settings.rounds {
        for (candidate, outcome) in candidates.iter().zip(outcomes.iter_mut()) {
            // One suite is enough, and libpq cannot be a client of pq-v1.
            let wanted = candidate.kind == Kind::Direct
                || (candidate.kind.is_own() && candidate.suite == Some(Suite::BalancedV1));
            if !wanted || talk.stopping() {
                continue;
            }
            talk.say(format!("pgbench, round {} of {}: {}", round + 1, settings.rounds, candidate.name));
            let mut bench = libpq(postgres, candidate)?;
            bench.args(["-S", "-n", "-c", "10", "-j", "1", "-T", &settings.pgbench.to_string(), USER]);
            let said =
                sallyport_testing::output("pgbench", &mut bench).map_err(|error| candidate.failed(&error))?;
            let rate = transactions(&said).ok_or_else(|| LabError::Failed {
                what: "reading what pgbench says".to_owned(),
                said: said.clone(),
            })?;
            csv.line(&format!("pgbench_tps,{},{round},0,{rate:.1}", candidate.name.replace(',', "")))?;
            outcome.transactions.push(rate);
        }
    }
    Ok(())
}

/// `tps = 1234.5 (without initial connection time)`.
fn transactions(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split(' ').next()?.parse().ok()
}

/// pgbench that connects as this candidate does. With a certificate it runs as the server's user, who can read the files that are written for
/// it; through a tunnel as this program's, because the tunnel takes no other user's programs.
fn libpq(postgres: &Postgres, candidate: &Candidate) -> Result<Command, LabError> {
    let program = PathBuf::from(postgres.program("pgbench").get_program());
    let mut command = match candidate.kind {
        Kind::Warm => Command::new(&program),
        _ => postgres.beside(&program),
    };
    command
        .current_dir("/")
        .env("PGHOST", HOST)
        .env("PGPORT", candidate.route.address.port().to_string())
        .env("PGUSER", USER)
        .env("PGSSLMODE", "disable");
    let Link::Certificate { authority, chain, key, options } = &candidate.link else { return Ok(command) };
    command
        .env("PGSSLMODE", "verify-ca")
        .env("PGSSLROOTCERT", postgres.write("libpq-root.pem", authority)?)
        .env("PGSSLCERT", postgres.write("libpq.crt", chain)?)
        .env("PGSSLKEY", postgres.write("libpq.key", key)?)
        .env("PGOPTIONS", options);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_is_understood() {
        let said = "number of failed transactions: 0 (0.000%)\ntps = 12345.678901 (without initial connection time)\n";
        assert_eq!(transactions(said).map(|rate| rate.round()), Some(12346.0));
        assert_eq!(transactions("nothing"), None);
    }
}
