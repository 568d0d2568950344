//! `sallyport db`: databases for people, and what their own clients need.

mod catalog;
mod choice;
mod connect;
mod environment;
mod login;
mod ls;
mod proxy;
mod route;
mod service_file;
mod startup;

use std::process::ExitCode;

use crate::error::CliResult;
use crate::global::Global;

pub(crate) use self::login::forget_all;
pub(crate) use self::proxy::{Args as ProxyArgs, run as proxy};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Db {
    /// List the databases that you may use, and as whom.
    Ls(ls::Args),
    /// Choose a database user and name, and let stock clients find them: psql "service=NAME".
    Login(login::LoginArgs),
    /// Open psql on a database.
    Connect(connect::Args),
    /// Print what stock clients read from the environment, for eval.
    Env(environment::EnvArgs),
    /// Print how to connect: where to, as whom, with which files.
    Config(environment::ConfigArgs),
    /// Forget what db login has chosen and written.
    Logout(login::LogoutArgs),
}

pub(crate) async fn run(global: &Global, command: Db) -> CliResult<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Db::Ls(args) => ls::run(global, args).await.map(done),
        Db::Login(args) => login::login(global, args).await.map(done),
        Db::Connect(args) => connect::run(global, args).await,
        Db::Env(args) => environment::env(global, args).await.map(done),
        Db::Config(args) => environment::config(global, args).await.map(done),
        Db::Logout(args) => login::logout(global, &args).map(done),
    }
}
