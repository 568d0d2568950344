//! The commands of the lab: what keys, handshakes, servers and whole clusters cost on this machine.

mod advise;
mod browser;
mod bulk;
mod compare;
mod connect;
mod db_suite;
mod flame;
mod handshake;
mod instructions;
mod keys;
mod load;
mod logins;
mod measuring;
mod offers;
mod output;
mod progress;
mod report;
mod scan;
mod sessions;
mod strength;
mod wan;

use std::process::ExitCode;

use sallyport_cli::error::CliResult;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Lab {
    /// Several measurements in one directory: a page, pictures, every sample, and what the machine was.
    Report(report::Args),
    /// What changed between two reports, and what cannot be told from noise.
    Compare(compare::Args),
    /// Which key and which key exchange a server should have, for whom, and what that costs here.
    Advise(advise::Args),
    /// How strong keys are: of a certificate, a key file, authorized_keys or known_hosts, a server of TLS or SSH, or
    /// named; by the best published attack, as NIST counts them, and against quantum computers.
    Strength(strength::Args),
    /// What signing, verifying and making a key cost, by type and size.
    Keys(keys::Args),
    /// What handshakes of TLS and SSH cost each side, in memory and over loopback: processor time by phases, bytes and
    /// round trips, by key, key exchange, chain, resumption and client certificate.
    Handshake(handshake::Args),
    /// Requests a second and latencies of an HTTPS server for each certificate, with keep-alive off and on, and without
    /// TLS: nginx, a cluster's proxy, or a URL on loopback.
    Load(load::Args),
    /// What a TLS handshake costs a real Chromium, by its own timing: RSA-2048, RSA-4096, P-256, and X25519MLKEM768
    /// against X25519, from a server on loopback, with a fresh profile for each sample.
    Browser(browser::Args),
    /// What TLS and SSH servers offer and prefer, what each choice costs them by this machine's figures, and what to
    /// change. Exit code 1 when there is a finding above informational.
    Scan(scan::ScanArgs),
    /// Review what SSH servers offer: both faces of a cluster started for it, or the servers that are named. Exit code 1
    /// when there is a finding above informational.
    Offers(offers::Args),
    /// From nothing to the exit status of `true`: own client and stock ssh through the cluster, against stock ssh to a
    /// stock sshd, in turns.
    Connect(connect::Args),
    /// Much data down and up, through a recorded session and by scp, against stock OpenSSH; and ends that stand still.
    Bulk(bulk::Args),
    /// Memory of proxy and node for idle sessions, and how soon a keystroke comes back while hundreds type.
    Sessions(sessions::Args),
    /// What logins cost the authority, by password, passkey, single sign-on, and the renewal of a host's certificates: processor time,
    /// rates, latency, memory; and how soon sessions connect beside hundreds of logins a second and a flood of wrong passwords.
    Logins(logins::Args),
    /// New connections to PostgreSQL, ten at a time: processor time of proxy and agent, latency and rate; straight, by
    /// what else ends TLS here, and through clusters of several suites, with and without their caches.
    DbSuite(db_suite::Args),
    /// Flame graphs of proxy and node while they work: where their processor time goes, by connection and by byte. Needs
    /// perf.
    Flame(flame::Args),
    /// What workloads of the access path cost in instructions, whatever else the machine does, and what changed since figures
    /// were saved. Needs valgrind.
    Instructions(instructions::Args),
    /// A wide area network in a box: hosts in regions that are far apart, by network namespaces and an emulator of our own.
    /// Needs root.
    #[command(subcommand)]
    Wan(wan::Command),
}

pub(crate) async fn run(command: Lab) -> CliResult<ExitCode> {
    match command {
        Lab::Connect(args) => connect::run(args).await,
        Lab::Bulk(args) => bulk::run(args).await,
        Lab::Sessions(args) => sessions::run(args).await,
        Lab::Logins(args) => logins::run(args).await,
        Lab::DbSuite(args) => db_suite::run(args).await,
        Lab::Keys(args) => keys::run(args).await,
        Lab::Handshake(args) => handshake::run(args).await,
        Lab::Load(args) => load::run(args).await,
        Lab::Offers(args) => offers::run(args).await,
        Lab::Strength(args) => strength::run(args).await,
        Lab::Scan(args) => scan::run(args).await,
        Lab::Report(args) => report::run(args).await,
        Lab::Advise(args) => advise::run(args).await,
        Lab::Compare(args) => compare::run(&args),
        Lab::Browser(args) => browser::run(args).await,
        Lab::Flame(args) => flame::run(args).await,
        Lab::Instructions(args) => instructions::run(args).await,
        Lab::Wan(command) => wan::run(command).await,
    }
}
