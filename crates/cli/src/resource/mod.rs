//! Commands for resources of the catalogue: the same for every kind that the table of protocols has agents serve, so that a kind
//! adds none.

mod catalog;
mod connect;
mod ls;
mod named;
mod pipe;

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches, Subcommand};
use sallyport_access::Kind;
use sallyport_protocols::Protocol;

pub(crate) use self::named::Named;
use crate::error::CliResult;
use crate::global::Global;

/// The kinds that have these commands.
fn kinds() -> impl Iterator<Item = &'static Protocol> {
    sallyport_protocols::ALL.iter().filter(|row| row.catalogued.is_some())
}

fn by_command(name: &str) -> Option<Kind> {
    kinds().find(|row| row.kind.row().document == name).map(|row| row.kind)
}

/// The kind that was named, and what was said behind it.
fn chosen(matches: &ArgMatches) -> Result<(Kind, &ArgMatches), clap::Error> {
    let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
    let (name, behind) = matches.subcommand().ok_or_else(missing)?;
    Ok((by_command(name).ok_or_else(missing)?, behind))
}

/// `sallyport KIND VERB`.
#[derive(Debug)]
pub(crate) struct Command {
    kind: Kind,
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List those that you may use.
    Ls(ls::Args),
    /// Listen on this machine for programs, and carry their connections there; with a command, for as long as that runs.
    Connect(connect::Args),
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (kind, verb) = chosen(matches)?;
        Ok(Self { kind, verb: Verb::from_arg_matches(verb)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Command {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        kinds().fold(command, |command, row| {
            let kind = row.kind.row();
            let one = clap::Command::new(kind.document)
                .about(format!("Use {}: list them, connect programs to them", kind.plural))
                .subcommand_required(true)
                .arg_required_else_help(true);
            command.subcommand(Verb::augment_subcommands(one))
        })
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        by_command(name).is_some()
    }
}

pub(crate) async fn run(global: &Global, command: Command) -> CliResult<ExitCode> {
    let Command { kind, verb } = command;
    match verb {
        Verb::Ls(args) => ls::run(global, kind, args).await.map(|()| ExitCode::SUCCESS),
        Verb::Connect(args) => connect::run(global, kind, args).await,
    }
}

/// `sallyport proxy KIND`.
#[derive(Debug)]
pub(crate) struct Proxy {
    kind: Kind,
    args: pipe::Args,
}

impl FromArgMatches for Proxy {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (kind, args) = chosen(matches)?;
        Ok(Self { kind, args: pipe::Args::from_arg_matches(args)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Proxy {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        kinds().fold(command, |command, row| {
            let kind = row.kind.row();
            let one = clap::Command::new(kind.document)
                .about(format!("Connect standard input and output to one of the {}", kind.plural));
            command.subcommand(<pipe::Args as clap::Args>::augment_args(one))
        })
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        by_command(name).is_some()
    }
}

pub(crate) async fn proxy(global: &Global, command: Proxy) -> CliResult<ExitCode> {
    pipe::run(global, command.kind, command.args).await
}
