//! What keys cost: the end-to-end tests under several suites, with the keys that they made counted.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Instant;

use crate::metadata::cargo;
use crate::setup;

/// The packages whose tests make clusters.
const PACKAGES: [&str; 2] = ["sallyport-server", "sallyport-cli"];

/// Keys of one algorithm.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Made {
    keys: u64,
    cpu_seconds: f64,
}

pub(crate) fn run(suites: &[String]) -> Result<(), String> {
    let suites =
        if suites.is_empty() { vec!["legacy".to_owned(), "balanced-v1".to_owned()] } else { suites.to_vec() };
    setup::run()?;
    let mut columns = Vec::new();
    for suite in &suites {
        let ledger = std::env::temp_dir().join(format!("sallyport-keys-{}-{suite}", std::process::id()));
        let begin = Instant::now();
        eprintln!("the end-to-end tests under {suite} ...");
        let mut command = cargo();
        command.arg("test").arg("--no-fail-fast");
        for package in PACKAGES {
            command.args(["-p", package]);
        }
        let status = command
            .env("SALLYPORT_TEST_SUITE", suite)
            .env("SALLYPORT_KEY_LEDGER", &ledger)
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("cannot run cargo test: {error}"))?;
        let text = fs::read_to_string(&ledger)
            .map_err(|error| format!("the tests left no {}: {error}", ledger.display()))?;
        let _ = fs::remove_file(&ledger);
        if !status.success() {
            eprintln!("some tests failed under {suite}; their keys are counted all the same");
        }
        columns.push((suite, sum(&text), begin.elapsed().as_secs()));
    }
    println!("{:<14} {:<14} {:>8} {:>12}", "SUITE", "ALGORITHM", "KEYS", "CPU SECONDS");
    for (suite, made, seconds) in &columns {
        for (algorithm, made) in made {
            println!("{suite:<14} {algorithm:<14} {:>8} {:>12.2}", made.keys, made.cpu_seconds);
        }
        let all = made.values().fold(Made::default(), |sum, made| Made {
            keys: sum.keys + made.keys,
            cpu_seconds: sum.cpu_seconds + made.cpu_seconds,
        });
        println!("{suite:<14} {:<14} {:>8} {:>12.2}   ({seconds} s)", "all", all.keys, all.cpu_seconds);
    }
    Ok(())
}

/// Sums the lines `purpose algorithm cpu_microseconds`.
fn sum(ledger: &str) -> BTreeMap<String, Made> {
    let mut sums: BTreeMap<String, Made> = BTreeMap::new();
    for line in ledger.lines() {
        let mut words = line.split_whitespace().skip(1);
        let (Some(algorithm), Some(Ok(micros))) = (words.next(), words.next().map(str::parse::<f64>)) else {
            continue;
        };
        let made = sums.entry(algorithm.to_owned()).or_default();
        made.keys += 1;
        made.cpu_seconds += micros / 1e6;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_and_damaged_ones_do_not_count() {
        let sums = sum("user-ssh ed25519 10\nhost-ssh ed25519 30\ndb-ca-tls rsa-2048 1500000\nhalf\nx y z\n");
        assert_eq!(sums["ed25519"], Made { keys: 2, cpu_seconds: 40.0 / 1e6 });
        assert_eq!(sums["rsa-2048"], Made { keys: 1, cpu_seconds: 1.5 });
        assert_eq!(sums.len(), 2);
    }
}
