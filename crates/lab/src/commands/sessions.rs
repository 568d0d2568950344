//! `sallyport lab sessions`, and the connections that it makes as the lab's user.

use std::process::ExitCode;
use std::sync::Arc;

use sallyport_cli::dial::Dialler;
use sallyport_cli::error::CliResult;
use sallyport_lab::{LabError, sessions};

use super::measuring::measure;
use super::output::Common;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Numbers of idle sessions. Default: 100,1000,10000, or 50,200 with --quick.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',')]
    counts: Vec<usize>,
    /// Past so many, a session is a connection that is logged in and has a channel open, without a program: so many
    /// programs take more memory than the services.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    programs_up_to: usize,
    /// Sessions in which a user types while echoes are measured; 0 leaves that out. Default: 500, or 50 with --quick.
    #[arg(long, value_name = "COUNT")]
    active: Option<usize>,
    /// Keys to measure, each way. Default: 1000, or 200 with --quick.
    #[arg(long, value_name = "COUNT")]
    keys: Option<usize>,
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let usual = sessions::Settings::of(args.common.quick);
    let settings = sessions::Settings {
        counts: if args.counts.is_empty() { usual.counts } else { args.counts },
        programs_up_to: args.programs_up_to,
        active: args.active.unwrap_or(usual.active),
        keys: args.keys.unwrap_or(usual.keys),
        csv: args.common.csv.clone(),
    };
    measure(&args.common, move |program, talk| sessions::run(program, &settings, talk, &dialler)).await
}

/// Makes connections as the lab's user.
struct Measured {
    dialler: Dialler,
    login: sessions::Login,
}

pub(super) fn dialler(login: sessions::Login) -> Result<Arc<dyn sessions::Dial>, LabError> {
    let dialler = Dialler::of(&login.home, &login.proxy);
    let dialler = dialler.map_err(|error| LabError::Connection(error.to_string()))?;
    Ok(Arc::new(Measured { dialler, login }))
}

impl sessions::Dial for Measured {
    fn connect(&self) -> sessions::Connecting<'_> {
        Box::pin(async move {
            let connected = self.dialler.connect(self.login.node, &self.login.login).await;
            connected.map_err(|error| LabError::Connection(error.to_string()))
        })
    }
}
