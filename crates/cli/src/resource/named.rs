//! A resource that a command names by a switch of its kind, such as `--app NAME`.

use clap::{Arg, ArgMatches, Command, FromArgMatches};
use sallyport_access::Kind;

use super::kinds;

/// One of the catalogue, or none: what the command is about may be of a kind with switches of its own.
#[derive(Debug, Default)]
pub(crate) struct Named(pub(crate) Option<(Kind, String)>);

impl Named {
    /// The switches that there are.
    pub(crate) fn switches() -> impl Iterator<Item = &'static str> {
        kinds().map(|row| row.kind.row().document)
    }
}

impl FromArgMatches for Named {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let named = |kind: Kind| {
            let name = matches.get_one::<String>(kind.row().document)?;
            Some((kind, name.clone()))
        };
        Ok(Self(kinds().find_map(|row| named(row.kind))))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Named {
    fn augment_args(command: Command) -> Command {
        kinds().fold(command, |command, row| {
            let kind = row.kind.row();
            command.arg(
                Arg::new(kind.document)
                    .long(kind.document)
                    .value_name("NAME")
                    .help(format!("Instead of a node, one of the {} by its name", kind.plural)),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
