//! The `sallyport` command: arguments to settings to commands. Other programs of the project talk to a person by the same
//! parts.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments of arguments are help text, where brackets mean optional"
)]

mod access;
mod admin;
mod authority;
mod browser;
mod closed;
mod command;
mod config;
mod configure;
mod connect;
mod crypto;
mod db;
mod devices;
pub mod dial;
pub mod error;
mod factor;
mod foreground;
mod global;
mod inherited;
mod join;
mod killed;
pub mod lab;
mod login;
mod login_rules;
mod logins;
mod ls;
mod mfa;
mod nodes;
mod passwd;
mod play;
mod proving;
mod proxy_ssh;
mod quickstart;
mod recordings;
mod resource;
mod sal;
mod scp;
mod security_key;
mod sessions;
mod signup;
mod sources;
mod ssh;
mod start;
mod status;
mod trace;
mod tunnel;
pub mod ui;

use std::process::ExitCode;

use crate::command::Command;
use crate::error::{CliResult, Context};
pub use crate::global::{Global, log_to_stderr};
use crate::killed::until_killed;
use clap::Parser;
use sallyport_client::{carrier, follow};

/// Log in once; reach every server through one address, on the record.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not logged in or expired, 4 refused by the cluster,
/// 255 connection failed (ssh: otherwise that of the remote command).
///
/// SALLYPORT_CRYPTO chooses the sources of cryptography: measured, preset, only:NAME or fips.
#[derive(Debug, Parser)]
#[command(name = "sallyport", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Runs the command line of this process, and gives its exit code.
#[must_use]
pub fn main() -> ExitCode {
    // Before anything else: this process becomes a session and never returns.
    if std::env::args_os().nth(1).is_some_and(|first| first == sallyport_ssh::helper::ARGUMENT) {
        return sallyport_ssh::helper::main(std::env::args_os().skip(2));
    }
    closed::to_others();
    // Stock ssh waits for this one, so it comes before everything that only the rest needs.
    if let Some(code) = proxy_ssh::take(std::env::args_os()) {
        return code;
    }
    let cli = Cli::parse();
    match &cli.command {
        Command::Connect(args) if args.becomes_helper() => connect::detach(),
        // What these run, and the sessions that it serves, shall have none of it.
        Command::Start(_) | Command::Quickstart(_) => inherited::close(),
        _ => {}
    }
    logging(&cli);
    match sources::configure(&cli.global, &cli.command).and_then(|()| run(cli)) {
        Ok(code) => code,
        Err(error) => {
            ui::say(error.to_string());
            error.exit_code()
        }
    }
}

/// Servers configure their own logging; clients are silent unless asked.
fn logging(cli: &Cli) {
    // A trace has the log beside it.
    if matches!(&cli.command, Command::Start(_))
        || matches!(&cli.command, Command::Ssh(args) if args.traces())
        || matches!(&cli.command, Command::Connect(args) if args.becomes_helper())
    {
        return;
    }
    log_to_stderr(&cli.global);
}

/// Sets the sources of cryptography of a program that measures, as the configuration of commands does for commands. It must come
/// before anything used cryptography.
///
/// # Errors
/// When a person's setting cannot be followed.
pub fn configure_measured(global: &Global) -> CliResult {
    crypto::configure_with(global, false, false)
}

fn run(cli: Cli) -> CliResult<ExitCode> {
    let global = cli.global;
    let serves = matches!(cli.command, Command::Start(_) | Command::Quickstart(_));
    let runtime = if serves {
        tokio::runtime::Builder::new_multi_thread().enable_all().build()
    } else {
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    }
    .doing("start the asynchronous runtime")?;
    let outcome = runtime.block_on(async {
        let done = |()| ExitCode::SUCCESS;
        let outcome = match cli.command {
            Command::Login(args) => login::run(&global, args).await.map(done),
            Command::Signup(args) => signup::run(&global, args).await.map(done),
            Command::Logout(args) => login::logout(&global, &args).await.map(done),
            Command::Mfa(command) => mfa::run(&global, command).await.map(done),
            Command::Passwd(args) => passwd::run(&global, args).await.map(done),
            Command::Device(command) => devices::run(&global, command).await.map(done),
            Command::Status(args) => status::run(&global, args).await,
            Command::Ls(args) => ls::run(&global, args).await.map(done),
            Command::Ssh(args) => until_killed(ssh::run(&global, *args)).await,
            Command::Scp(args) => until_killed(scp::run(&global, args)).await,
            Command::Db(command) => db::run(&global, command).await,
            Command::Resource(command) => resource::run(&global, command).await,
            Command::Connect(args) => connect::run(&global, args).await.map(done),
            Command::Proxy(command) => proxy_ssh::run(&global, command).await,
            Command::Config(args) => config::run(&global, &args).map(done),
            Command::Play(args) => play::run(&global, args).await.map(done),
            Command::Recordings(command) => recordings::run(&global, command).await.map(done),
            Command::Sessions(command) => sessions::run(&global, command).await,
            Command::Access(command) => access::run(&global, command).await,
            Command::Admin(args) => admin::run(&global, args).await,
            Command::Sal(command) => sal::run(&global, command).map(done),
            Command::Lab(args) => lab::run(&global, &args).map(done),
            Command::Start(args) => start::run(args).await.map(done),
            Command::Join(command) => join::run(&global, command).await.map(done),
            Command::Configure(args) => configure::run(&args).map(done),
            Command::Quickstart(args) => quickstart::run(args).await.map(done),
        };
        if let Some(error) = follow::finish().await {
            ui::say(format!("note: {error}"));
        }
        carrier::finish().await;
        outcome
    });
    // A prompt or a stuck look-up on a blocking thread must not keep the process.
    runtime.shutdown_background();
    outcome
}
