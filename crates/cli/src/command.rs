//! The commands there are.

use clap::Subcommand;

use crate::{
    access, admin, config, configure, connect, db, devices, join, lab, login, ls, mfa, passwd, play,
    proxy_ssh, quickstart, recordings, resource, sal, scp, sessions, signup, ssh, start, status,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Log in and get certificates.
    Login(login::Args),
    /// Accept an invite or reset link: set a password and a second factor.
    Signup(signup::Args),
    /// End a login: its certificates count no more, and what is stored of it here is removed.
    Logout(login::LogoutArgs),
    /// Your passkeys, one-time codes and recovery codes.
    #[command(subcommand)]
    Mfa(mfa::Mfa),
    /// Change your password. Your other logins end.
    Passwd(passwd::Args),
    /// This machine as a trusted device, and your other devices.
    #[command(subcommand, visible_alias = "devices")]
    Device(devices::Command),
    /// Who you are, until when, and whether the cluster answers.
    Status(status::Args),
    /// List the nodes you can reach.
    Ls(ls::Args),
    /// Open a shell on a node, or run a command there; as ssh does.
    Ssh(Box<ssh::Args>),
    /// Copy files to and from nodes; as scp does.
    Scp(scp::Args),
    /// Use databases: list them, log in to them, open psql.
    #[command(subcommand)]
    Db(db::Db),
    #[command(flatten)]
    Resource(resource::Command),
    /// Keep one connection to the cluster warm for every ssh; starts by itself, so there is nothing to do.
    Connect(connect::Args),
    /// Connections for other programs.
    #[command(subcommand)]
    Proxy(proxy_ssh::Proxy),
    /// Print configuration for stock OpenSSH.
    Config(config::Args),
    /// Play back a recorded session.
    Play(play::Args),
    /// Find recordings.
    #[command(subcommand)]
    Recordings(recordings::Recordings),
    /// See, join and end sessions that run, and logins.
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    /// Questions about who may do what.
    #[command(subcommand)]
    Access(access::Access),
    /// Administer the cluster.
    Admin(admin::Args),
    /// What the cryptography here is made of, and what it costs.
    #[command(subcommand)]
    Sal(sal::Sal),
    /// Measure what keys, handshakes, servers and whole clusters cost on this machine, and review what servers offer:
    /// runs sallyport-lab.
    #[command(disable_help_flag = true)]
    Lab(lab::Args),
    /// Run the services of a configuration file.
    Start(start::Args),
    /// Make a stock OpenSSH server a member of the cluster.
    #[command(subcommand)]
    Join(join::Join),
    /// Print a commented configuration file.
    Configure(configure::Args),
    /// Start a whole cluster on this machine, and show what it does.
    Quickstart(quickstart::Args),
}
