//! `sallyport proxy db`: addresses on this machine for clients of databases that this program does not start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use super::catalog;
use super::choice::{self, Choice};
use super::environment::conninfo_value;
use super::route::{Route, SOCKET_NAME, address, place};
use super::startup::{Name, Pins};
use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult, Context, Exit};
use crate::factor::Here;
use crate::global::Global;
use crate::tunnel::{Address, Listener, serve};
use crate::ui::{self, Format};
use sallyport_client::agents;
use sallyport_client::profile::Stored;
use sallyport_helper::databases::Databases;

/// Listen on this machine for clients of databases, and carry their connections to the cluster.
///
/// With --tunnel, clients need neither TLS nor a certificate: they come as you. So it is a socket that only your programs get to, or
/// with --port an address of this machine, where programs of its other users are refused. All connections share one to the cluster.
/// For everything that cannot use your certificate, or shall not: pools, graphical clients, programs with a plain URL.
///
/// Without it, bytes go to the cluster's public address as they are, and the client's own TLS, with your certificate (db
/// env, db config), ends at the cluster. For clients that speak TLS themselves and reach only this machine.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Databases, as db ls shows them, each with the port to listen on: NAME or NAME=PORT.
    #[arg(required = true, value_name = "NAME[=PORT]", value_parser = named)]
    databases: Vec<(String, Option<u16>)>,
    /// Take connections without TLS and without a certificate.
    #[arg(long)]
    tunnel: bool,
    /// Where to listen, for one database: 127.0.0.1:PORT, a path for a socket, or a directory for one. Default: with --tunnel a
    /// socket in a directory of your own, else a free port of 127.0.0.1.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<Address>,
    /// The port of 127.0.0.1 to listen on, for one database; 0 for a free one.
    #[arg(long, short = 'p', conflicts_with = "listen")]
    port: Option<u16>,
    /// With --tunnel, the database user of every client, whatever it says. Default: that of db login, else what the client
    /// says.
    #[arg(long, short = 'u', value_name = "USER", requires = "tunnel")]
    db_user: Option<String>,
    /// With --tunnel, the only name of a database that clients get. Default: any, and that of db login for a client that says none.
    #[arg(long, short = 'n', value_name = "DATABASE", requires = "tunnel")]
    db_name: Option<String>,
    /// With --tunnel on a port, let programs of every user of this machine in as you, also where the system does not say whose they
    /// are.
    #[arg(long, requires = "tunnel")]
    any_local_user: bool,
    /// Use the stored login to this cluster.
    #[arg(long)]
    cluster: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

fn named(text: &str) -> Result<(String, Option<u16>), String> {
    let Some((name, port)) = text.split_once('=') else { return Ok((text.to_owned(), None)) };
    match port.parse() {
        Ok(port) => Ok((name.to_owned(), Some(port))),
        Err(_) => Err(format!("{port:?} is not a port; expected NAME or NAME=PORT")),
    }
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult<ExitCode> {
    let stored = global.profiles().load_valid_of(args.cluster.as_deref())?;
    // Goes at the end, with the sockets in it.
    let mut places = Vec::new();
    let addresses = addresses(&args, &mut places)?;
    if args.any_local_user {
        ui::say("warning: every user of this machine who connects comes as you");
    }
    if args.tunnel {
        check(&stored, global, &args).await?;
    }
    let mut interrupt = signal(SignalKind::interrupt()).doing("wait for signals")?;
    let mut terminate = signal(SignalKind::terminate()).doing("wait for signals")?;
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            let databases = Databases::new(&global.profiles(), &stored);
            let databases = Rc::new(databases.asking(Arc::new(Here)));
            let mut shown = Vec::new();
            for ((name, _), address) in args.databases.iter().zip(&addresses) {
                let chosen = choice::find(&stored, choice::parse(name)?.as_str())?;
                let listener = Listener::bind(address).await?;
                shown.push(Shown::new(name, listener.address(), &args, chosen.as_ref()));
                let route = if args.tunnel {
                    let (databases, database) = (Rc::clone(&databases), name.clone());
                    Route::Tunnel {
                        databases,
                        database,
                        pins: pins(&args, chosen),
                        any_user: args.any_local_user,
                    }
                } else {
                    Route::Relay { proxy: stored.profile.proxy.clone() }
                };
                let name = name.clone();
                let carry = move |client| route.clone().carry(client);
                tokio::task::spawn_local(serve(listener, carry, move |error| {
                    ui::say(format!("note: {name}: {}", error.what()));
                }));
            }
            report(&shown, &args)?;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Ok(ExitCode::SUCCESS)
        })
        .await
}

fn addresses(args: &Args, places: &mut Vec<TempDir>) -> CliResult<Vec<Address>> {
    let usage = |what: &str| CliError::new(what).exit(Exit::Usage);
    let several = args.databases.len() > 1;
    if several
        && (args.listen.is_some() || args.port.is_some() || args.db_user.is_some() || args.db_name.is_some())
    {
        return Err(usage("--listen, --port, --db-user and --db-name are for one database")
            .hint("NAME=PORT for each, and sallyport db login for users and names"));
    }
    if let Some(listen) = &args.listen {
        if args.databases.iter().any(|(_, port)| port.is_some()) {
            return Err(usage("either NAME=PORT or --listen"));
        }
        if args.tunnel && !listen.is_local() {
            return Err(usage("with --tunnel, every program that reaches the address would come as you")
                .hint("--listen 127.0.0.1:PORT, or a path"));
        }
        return Ok(vec![listen.clone()]);
    }
    let here = |port: u16| Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let mut addresses = Vec::new();
    for (_, port) in &args.databases {
        addresses.push(match port.or(args.port) {
            Some(port) => here(port),
            None if args.tunnel => {
                let place = place()?;
                let address = Address::Unix(place.path().join(SOCKET_NAME));
                places.push(place);
                address
            }
            None => here(0),
        });
    }
    Ok(addresses)
}

/// Whether the cluster has these databases, and lets us. A tunnel outlives an authority that is away.
async fn check(stored: &Stored, global: &Global, args: &Args) -> CliResult {
    let global = Global { proxy: Some(stored.profile.proxy.clone()), ..global.clone() };
    let authority = match authority::open(&global, &AuthorityArgs::default()).await {
        Ok(authority) => authority,
        Err(error) if error.exit_kind() == Exit::Connection => {
            ui::say(format!("note: {}", error.what()));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for (name, _) in &args.databases {
        match catalog::one(&authority.databases(), name).await {
            Err(error) if error.exit_kind() == Exit::Connection => ui::say(format!("note: {}", error.what())),
            found => agents::remember(stored, &[found?]),
        }
    }
    for (name, _) in &args.databases {
        catalog::say_where_tls_ends(stored, name).await;
    }
    Ok(())
}

fn pins(args: &Args, chosen: Option<Choice>) -> Pins {
    let chosen_name = chosen.as_ref().map(|choice| choice.db_name.clone());
    Pins {
        user: args.db_user.clone().or(chosen.map(|choice| choice.db_user)),
        name: match (&args.db_name, chosen_name) {
            (Some(only), _) => Name::Only(only.clone()),
            (None, Some(chosen)) => Name::Default(chosen),
            (None, None) => Name::Any,
        },
    }
}

/// One address, as it is printed.
struct Shown {
    database: String,
    address: Address,
    command: String,
}

impl Shown {
    fn new(database: &str, address: &Address, args: &Args, chosen: Option<&Choice>) -> Self {
        let mut words = Vec::new();
        match address {
            Address::Tcp(address) => {
                words.push(format!("host={} port={}", address.ip(), address.port()));
            }
            Address::Unix(path) => {
                let directory = path.parent().unwrap_or(path).to_string_lossy();
                let port = path.file_name().unwrap_or_default().to_string_lossy();
                let port = port.rsplit_once('.').map_or("5432", |(_, port)| port).to_owned();
                words.push(format!("host={} port={port}", conninfo_value(&directory)));
            }
        }
        let user = args.db_user.as_deref().or(chosen.map(|choice| choice.db_user.as_str()));
        let name = args.db_name.as_deref().or(chosen.map(|choice| choice.db_name.as_str()));
        words.push(format!("user={}", user.map_or("USER".to_owned(), conninfo_value)));
        words.push(format!("dbname={}", name.map_or("DATABASE".to_owned(), conninfo_value)));
        let words = words.join(" ");
        let command = match (args.tunnel, chosen.and_then(|choice| choice.service.as_deref())) {
            (true, _) => format!("psql \"{words} sslmode=disable\""),
            (false, Some(service)) => {
                let (Address::Tcp(_), Some((way, _))) = (address, words.split_once(" user=")) else {
                    return Self {
                        database: database.to_owned(),
                        address: address.clone(),
                        command: String::new(),
                    };
                };
                format!("psql \"service={service} {way}\"")
            }
            (false, None) => format!(
                "sallyport db login {database}, then psql \"service={database} {}\"",
                words.split_once(" user=").map_or(words.as_str(), |(way, _)| way)
            ),
        };
        Self { database: database.to_owned(), address: address.clone(), command }
    }
}

fn report(shown: &[Shown], args: &Args) -> CliResult {
    if args.format == Format::Json {
        let all: Vec<_> = shown
            .iter()
            .map(|one| {
                let port = match &one.address {
                    Address::Tcp(address) => Some(address.port()),
                    Address::Unix(_) => None,
                };
                json!({
                    "database": one.database, "address": one.address.to_string(), "port": port,
                    "tunnel": args.tunnel, "command": one.command,
                })
            })
            .collect();
        return ui::json(&all);
    }
    for one in shown {
        ui::data(format!("{}  {}  {}", one.database, one.address, one.command))?;
    }
    ui::say("Connections are carried until this ends. Ctrl-C ends it.");
    Ok(())
}
