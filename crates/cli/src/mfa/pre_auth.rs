//! `sallyport mfa pre-auth`: a second factor that is proven before the sessions that demand it.

use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use sallyport_client::session_factor::{Asker, PreAuth, Question, pre_auth};
use sallyport_wire::v1::SessionTarget;
use serde_json::json;

use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::factor::Here;
use crate::global::Global;
use crate::ls::{self, Wanted};
use crate::ssh::targets;
use crate::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long it shall serve, such as 15m. Default and limit: what your roles allow.
    #[arg(long = "for", value_name = "DURATION", value_parser = ui::parse_duration)]
    period: Option<Duration>,
    /// For sessions with these nodes alone: labels such as env=prod,team=db, or names. Default: with all that you may use.
    #[arg(long, value_name = "LABELS|NODE,…")]
    hosts: Option<String>,
    /// A one-time or recovery code, instead of being asked.
    #[arg(long, value_name = "CODE")]
    otp: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// A code that was given on the command line is typed once; then the person is asked.
struct Given {
    otp: Mutex<Option<String>>,
}

impl Asker for Given {
    fn can_ask(&self) -> bool {
        self.otp.lock().is_some() || Here.can_ask()
    }

    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, String> {
        match self.otp.lock().take() {
            Some(otp) => Box::pin(std::future::ready(otp)),
            None => Here.ask(question),
        }
    }
}

pub(super) async fn run(global: &Global, args: Args) -> CliResult {
    let stored = global.profiles().load_valid()?;
    let wanted = match &args.hosts {
        Some(hosts) => PreAuth::Targets(nodes(global, hosts).await?),
        None => PreAuth::All,
    };
    let seconds = args.period.map_or(0, |period| u32::try_from(period.as_secs()).unwrap_or(u32::MAX));
    let person = Given { otp: Mutex::new(args.otp) };
    let until = pre_auth(&stored, wanted, seconds, &person).await?.map(ui::timestamp);
    if args.format == Format::Json {
        return ui::json(&json!({ "until": until }));
    }
    match until {
        Some(until) => ui::data(format!("Proven; it serves new sessions until {until}.")),
        None => ui::data(
            "Nothing has to be proven: your roles demand no second factor there, or it is proven already.",
        ),
    }
}

/// What is meant by labels, or by names.
async fn nodes(global: &Global, hosts: &str) -> CliResult<Vec<SessionTarget>> {
    if !hosts.contains('=') {
        let names = hosts.split(',').map(str::trim).filter(|name| !name.is_empty());
        let target = |name: &str| SessionTarget {
            kind: "node".to_owned(),
            resource: name.to_owned(),
            account: String::new(),
            db_name: String::new(),
        };
        return Ok(names.map(target).collect());
    }
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let wanted = Wanted { terms: vec![hosts.to_owned()], ..Wanted::default() };
    let found = ls::fetch(&authority, &wanted).await?;
    if found.is_empty() {
        return Err(CliError::new(format!("no node that you may reach has the labels {hosts}"))
            .hint("sallyport ls")
            .exit(Exit::Failed));
    }
    Ok(targets(&found, ""))
}
