//! `sallyport db connect`: psql, through a socket that only it finds.

use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use tokio::process::Command;

use super::catalog;
use super::choice;
use super::login::{Given, pick};
use super::route::{Route, SOCKET_NAME, place};
use super::startup::Pins;
use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::factor::Here;
use crate::foreground;
use crate::global::Global;
use crate::tunnel::{Address, Listener, serve};
use sallyport_client::agents;
use sallyport_client::profile::Stored;
use sallyport_helper::databases::Databases;

/// What would lead psql elsewhere, or make it ask for what the socket does not have.
const MISLEADING: [&str; 14] = [
    "PGSERVICE",
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGUSER",
    "PGDATABASE",
    "PGPASSWORD",
    "PGSSLMODE",
    "PGREQUIRESSL",
    "PGSSLNEGOTIATION",
    "PGGSSENCMODE",
    "PGCHANNELBINDING",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The database, as db ls shows it.
    name: String,
    /// The database user. Default: that of db login, else the only one that your roles allow.
    #[arg(long, short = 'u', value_name = "USER")]
    db_user: Option<String>,
    /// The name of the database on its server. Default: that of db login, else the only one that your roles allow.
    #[arg(long, short = 'n', value_name = "DATABASE")]
    db_name: Option<String>,
    /// The program to start instead of psql; it must take what psql takes.
    #[arg(long, value_name = "PROGRAM", default_value = "psql")]
    psql: OsString,
    /// What psql is given, such as: -- -c 'select 1'
    #[arg(last = true, value_name = "PSQL ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub(super) async fn run(global: &Global, args: Args) -> CliResult<ExitCode> {
    let name = choice::parse(&args.name)?;
    let stored = global.profiles().load_valid()?;
    let given = Given { db_user: args.db_user.clone(), db_name: args.db_name.clone() };
    let (user, database_name) = as_whom(global, &stored, name.as_str(), given).await?;
    catalog::say_where_tls_ends(&stored, name.as_str()).await;
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            let place = place()?;
            let listener = Listener::bind(&Address::Unix(place.path().join(SOCKET_NAME))).await?;
            let databases = Databases::by_the_helper(&global.profiles(), &stored);
            let databases = Rc::new(databases.asking(Arc::new(Here)));
            let route = Route::Tunnel {
                databases,
                database: name.to_string(),
                pins: Pins::default(),
                any_user: false,
            };
            // psql shows what went wrong: it is told in its own protocol.
            tokio::task::spawn_local(serve(listener, move |client| route.clone().carry(client), |_| {}));
            let target = [
                ("PGHOST", place.path().to_string_lossy().into_owned()),
                ("PGPORT", "5432".to_owned()),
                ("PGUSER", user),
                ("PGDATABASE", database_name),
            ];
            psql(&args, &target).await
        })
        .await
}

/// The user and the name: given, chosen by `db login`, or the only ones that are allowed.
async fn as_whom(
    global: &Global,
    stored: &Stored,
    database: &str,
    mut given: Given,
) -> CliResult<(String, String)> {
    if let Some(chosen) = choice::find(stored, database)? {
        given.db_user.get_or_insert(chosen.db_user);
        given.db_name.get_or_insert(chosen.db_name);
    }
    if let Given { db_user: Some(user), db_name: Some(name) } = given {
        // Whether that is allowed is said when it connects.
        return Ok((user, name));
    }
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let found = catalog::one(&authority.databases(), database).await?;
    agents::remember(stored, std::slice::from_ref(&found));
    pick(&found, &given)
}

/// Starts psql where it finds the socket by its environment: another user or name among its arguments is asked of the same
/// database of the cluster, and nothing of the machine's own is reached by mistake.
async fn psql(args: &Args, target: &[(&str, String)]) -> CliResult<ExitCode> {
    let elsewhere = |argument: &OsString| {
        let text = argument.to_string_lossy();
        matches!(&*text, "-h" | "-p") || text.starts_with("--host") || text.starts_with("--port")
    };
    if let Some(argument) = args.arguments.iter().find(|argument| elsewhere(argument)) {
        return Err(CliError::new(format!(
            "{} would lead psql away from the cluster",
            argument.to_string_lossy()
        ))
        .hint(format!("leave it away: sallyport db connect {} leads to that database alone", args.name))
        .exit(Exit::Usage));
    }
    let mut command = Command::new(&args.psql);
    command.args(&args.arguments);
    for variable in MISLEADING {
        command.env_remove(variable);
    }
    command.envs(target.iter().map(|(variable, value)| (*variable, value.as_str())));
    let program = args.psql.to_string_lossy();
    // What psql does with a Ctrl-C is its own affair: mostly it cancels the query, and this process has to carry that.
    let ran = foreground::run(command).await;
    ran.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CliError::new(format!("there is no {program} on this machine"))
            .hint(
                "apt-get install postgresql-client  (dnf install postgresql; brew install libpq); other clients: sallyport \
                 proxy db NAME --tunnel",
            ),
        _ => CliError::new(format!("cannot run {program}: {error}")),
    })
}
