//! `sallyport KIND connect`: an address on this machine that leads to a resource.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use sallyport_access::Kind;
use sallyport_helper::resources::{Resources, Wanted};
use serde_json::json;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::catalog;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::factor::Here;
use crate::foreground;
use crate::global::Global;
use crate::tunnel::{Accepted, Address, Listener, serve};
use crate::ui::{self, Format};

/// Every connection to the address comes as you, so programs of this machine's other users are refused.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name, as ls shows it.
    name: String,
    /// The port to listen on; 0 for a free one.
    #[arg(long, short = 'p', default_value_t = 0)]
    port: u16,
    /// The address to listen on; one that only this machine reaches.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// Let programs of every user of this machine in as you, also where the system does not say whose they are.
    #[arg(long)]
    any_local_user: bool,
    /// Use the stored login to this cluster.
    #[arg(long)]
    cluster: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// A program to run while there is the address, which finds it in SALLYPORT_ADDRESS, SALLYPORT_HOST and SALLYPORT_PORT, and {} in
    /// its arguments stands for it.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) async fn run(global: &Global, kind: Kind, args: Args) -> CliResult<ExitCode> {
    let stored = global.profiles().load_valid_of(args.cluster.as_deref())?;
    let wanted = Wanted { kind, name: catalog::parse(kind, &args.name)? };
    if !args.bind.is_loopback() {
        return Err(CliError::new(format!("every program that reaches {} would come as you", args.bind))
            .hint("leave --bind away, or name an address of this machine alone, such as 127.0.0.2")
            .exit(Exit::Usage));
    }
    if args.any_local_user {
        ui::say("warning: every user of this machine who connects comes as you");
    }
    catalog::check(&stored, &wanted).await?;
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            let listener = Listener::bind(&Address::Tcp(SocketAddr::new(args.bind, args.port))).await?;
            let Address::Tcp(address) = *listener.address() else {
                return Err(CliError::new(format!(
                    "listening on {} port {} gave no address of TCP",
                    args.bind, args.port
                )));
            };
            let resources = match args.command.is_empty() {
                true => Resources::new(&global.profiles(), &stored),
                false => Resources::by_the_helper(&global.profiles(), &stored),
            };
            let resources = resources.asking(Arc::new(Here));
            let route = Route { resources: Rc::new(resources), wanted, any_user: args.any_local_user };
            let named = format!("{} {}", kind.row().document, args.name);
            let failed = move |error: &CliError| ui::say(format!("note: {named}: {error}"));
            let mut interrupt = signal(SignalKind::interrupt()).doing("wait for signals")?;
            let mut terminate = signal(SignalKind::terminate()).doing("wait for signals")?;
            tokio::task::spawn_local(serve(listener, move |client| route.clone().carry(client), failed));
            if let Some((program, arguments)) = args.command.split_first() {
                return foreground(program, arguments, address).await;
            }
            match args.format {
                Format::Json => ui::json(&json!({
                    "kind": kind.row().document, "name": args.name, "address": address.to_string(),
                    "host": address.ip().to_string(), "port": address.port(),
                }))?,
                Format::Text => {
                    ui::data(address.to_string())?;
                    ui::say("Connections are carried until this ends. Ctrl-C ends it.");
                }
            }
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Ok(ExitCode::SUCCESS)
        })
        .await
}

#[derive(Clone)]
struct Route {
    resources: Rc<Resources>,
    wanted: Wanted,
    any_user: bool,
}

impl Route {
    async fn carry(self, client: Accepted) -> CliResult {
        if !self.any_user
            && let Err(error) = client.check().await
        {
            client.refuse(&[]).await;
            return Err(error);
        }
        let socket = client.into_socket()?;
        let twice = socket.try_clone().doing("take the client's connection")?;
        Ok(self.resources.carry(&self.wanted, twice, socket).await?)
    }
}

async fn foreground(program: &OsString, arguments: &[OsString], address: SocketAddr) -> CliResult<ExitCode> {
    let mut command = Command::new(program);
    command
        .args(arguments.iter().map(|argument| match argument.to_str() {
            Some(text) => OsString::from(text.replace("{}", &address.to_string())),
            None => argument.clone(),
        }))
        .env("SALLYPORT_ADDRESS", address.to_string())
        .env("SALLYPORT_HOST", address.ip().to_string())
        .env("SALLYPORT_PORT", address.port().to_string());
    foreground::run(command).await.doing(format!("run {}", program.to_string_lossy()))
}
