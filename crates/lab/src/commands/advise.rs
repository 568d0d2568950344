//! `sallyport lab advise`.

use std::process::ExitCode;

use clap::ValueEnum;
use sallyport_lab::advise::{self, Question, Use};
use serde_json::json;

use super::measuring::beside_a_watch;
use super::output::{Common, print, write_files};
use sallyport_cli::error::{CliError, CliResult};
use sallyport_cli::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the server is for.
    #[arg(long = "for", value_name = "USE", value_enum)]
    what: UseArg,
    /// Who has to be able to connect, such as chrome-131, java-8 or openssh-7.4. Default: who usually comes.
    #[arg(long, value_name = "NAME-VERSION,...", value_delimiter = ',')]
    client: Vec<String>,
    /// Handshakes a second, at the peak.
    #[arg(long, value_name = "COUNT", default_value_t = 100.0, allow_negative_numbers = true)]
    rate: f64,
    /// Share of them that resume an earlier session, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
    resumed: f64,
    /// The least strength, in bits as NIST counts them: 112, 128, 192.
    #[arg(long, value_name = "BITS", default_value_t = 112)]
    bits: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UseArg {
    /// Browsers, with a certificate of a public authority.
    Web,
    /// SSH host keys.
    Ssh,
    /// A database's TLS, with an authority of one's own.
    Database,
    /// Services that prove themselves to each other, with an authority of one's own.
    Mtls,
}

impl From<UseArg> for Use {
    fn from(what: UseArg) -> Self {
        match what {
            UseArg::Web => Self::Web,
            UseArg::Ssh => Self::Ssh,
            UseArg::Database => Self::Database,
            UseArg::Mtls => Self::Mtls,
        }
    }
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let what = args.what.into();
    let clients = args.client.iter().map(|text| advise::client(text, what)).collect::<Result<_, _>>();
    let question = Question {
        what,
        clients: clients.map_err(|error| CliError::new(error.to_string()))?,
        rate: args.rate,
        resumed: args.resumed,
        least_bits: args.bits,
    };
    question.check().map_err(|error| CliError::new(error.to_string()))?;
    let csv = args.common.csv.clone();
    let work = move |_: &std::path::Path, talk: &_| advise::run(&question, csv.as_deref(), talk);
    let (advice, report) = beside_a_watch(work).await?;
    write_files(&report, &args.common)?;
    let code = if advice.key.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if args.common.format == Format::Json {
        ui::json(&json!({ "advice": advice, "report": report }))?;
        return Ok(code);
    }
    let mut keys = advice.key.map_or_else(|| "no key".to_owned(), |key| key.to_string());
    if let Some(beside) = advice.beside {
        keys.push_str(&format!(", and {beside} beside it"));
    }
    ui::data(format!("take     {keys}; key exchange {}\n", advice.key_exchange.join(", ")))?;
    print(&report)?;
    Ok(code)
}
