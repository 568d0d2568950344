//! `sallyport admin`: through the authority's socket on its own machine (`--data-dir`), or from anywhere with
//! the rights of the logged-in user.

mod audit;
mod auth;
mod ca;
mod certs;
mod devices;
mod hosts;
mod nodes;
mod prove;
mod resources;
mod rotation;
mod scim;
mod sso;
mod status;
mod suite;
mod tokens;
mod users;

pub(crate) use sso::told as told_of_sso;

use std::process::ExitCode;

use crate::authority::{self, AuthorityArgs};
use crate::error::CliResult;
use crate::global::Global;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    authority: AuthorityArgs,
    #[command(subcommand)]
    command: Admin,
}

#[derive(Debug, clap::Subcommand)]
enum Admin {
    /// What the cluster is and holds.
    Status(status::Args),
    /// Prove a factor, for what is dangerous to change: it serves this login, from here, for five minutes.
    Prove(prove::Args),
    /// People and machine accounts.
    #[command(subcommand)]
    Users(users::Users),
    /// Where users are logged in.
    #[command(subcommand)]
    Logins(crate::logins::Logins),
    /// Login rules: try what they come to.
    #[command(subcommand)]
    LoginRule(crate::login_rules::LoginRule),
    /// One-time tokens that nodes and proxies join with.
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// Provisioning of users by an identity provider, over SCIM.
    #[command(subcommand)]
    Scim(scim::Scim),
    /// Trusted devices: who has which, tokens to enroll them, and removing them.
    #[command(subcommand)]
    Devices(devices::Devices),
    /// Nodes, whether or not you may log in to them.
    #[command(subcommand)]
    Nodes(Nodes),
    /// Hosts of every role: proxies and authorities as well as nodes and registered servers.
    #[command(subcommand)]
    Hosts(hosts::Hosts),
    /// Print resources as YAML.
    Get(resources::Get),
    /// Create a resource from YAML.
    Create(resources::Create),
    /// Edit a resource in $EDITOR.
    Edit(resources::Edit),
    /// Delete a resource.
    Rm(resources::Rm),
    /// Keep a user, a node or anything else out, at once: also ends live sessions.
    Lock(resources::Lock),
    /// The certificate authorities.
    #[command(subcommand)]
    Ca(ca::Ca),
    /// What the authorities have issued: find it, and take it back.
    #[command(subcommand)]
    Certs(certs::Certs),
    /// Certificates and tokens by hand, for users and programs that cannot ask for them.
    #[command(subcommand)]
    Auth(auth::Auth),
    /// Single sign-on: its connectors, their keys, and trying one.
    #[command(subcommand)]
    Sso(sso::Sso),
    /// Which algorithms the cluster uses, and who could follow a change.
    #[command(subcommand)]
    Suite(suite::Suite),
    /// The audit log.
    #[command(subcommand)]
    Audit(audit::Audit),
}

#[derive(Debug, clap::Subcommand)]
enum Nodes {
    /// List them.
    Ls(NodesLs),
    /// Register a stock OpenSSH server by its address.
    Add(nodes::Add),
}

#[derive(Debug, clap::Args)]
struct NodesLs {
    #[command(flatten)]
    wanted: crate::ls::Wanted,
    /// As in sallyport ls.
    #[arg(long, short)]
    verbose: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: crate::ls::NodeFormat,
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult<ExitCode> {
    if matches!(args.command, Admin::Audit(audit::Audit::Repair)) {
        return audit::repair(args.authority.data_dir.as_deref());
    }
    let authority = authority::open(global, &args.authority).await?;
    let done = |()| ExitCode::SUCCESS;
    match args.command {
        Admin::Status(args) => status::run(&authority, &args).await.map(done),
        Admin::Prove(args) => prove::run(&authority, &args).await.map(done),
        Admin::Users(command) => users::run(&authority, command).await.map(done),
        Admin::Logins(command) => crate::logins::administer(&authority, command).await.map(done),
        Admin::LoginRule(command) => crate::login_rules::run(&authority, command).await,
        Admin::Tokens(command) => tokens::run(&authority, command).await.map(done),
        Admin::Devices(command) => devices::run(&authority, command).await.map(done),
        Admin::Scim(command) => scim::run(&authority, command).await.map(done),
        Admin::Nodes(Nodes::Add(args)) => nodes::add(&authority, args).await.map(done),
        Admin::Nodes(Nodes::Ls(args)) => {
            let nodes = crate::ls::fetch(&authority, &args.wanted).await?;
            crate::ls::print(
                &nodes,
                args.verbose,
                args.format,
                "No node has joined yet: sallyport admin tokens add",
            )
            .map(done)
        }
        Admin::Hosts(command) => hosts::run(&authority, command).await.map(done),
        Admin::Get(args) => resources::get(&authority, &args).await.map(done),
        Admin::Create(args) => resources::create(&authority, &args).await.map(done),
        Admin::Edit(args) => resources::edit(&authority, &args).await.map(done),
        Admin::Rm(args) => resources::rm(&authority, &args).await.map(done),
        Admin::Lock(args) => resources::lock(&authority, &args).await.map(done),
        Admin::Ca(command) => ca::run(&authority, command).await.map(done),
        Admin::Certs(command) => certs::run(&authority, command).await.map(done),
        Admin::Auth(command) => auth::run(&authority, command).await.map(done),
        Admin::Sso(command) => sso::run(&authority, command).await,
        Admin::Suite(command) => suite::run(&authority, command).await,
        Admin::Audit(command) => audit::run(&authority, command).await,
    }
}
