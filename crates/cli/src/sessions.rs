//! `sallyport sessions`.

use std::process::ExitCode;

use clap::Parser;
use sallyport_access::SessionId;
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::convert;
use sallyport_wire::v1::{EndSessionRequest, ListSessionsRequest, LiveSession};
use serde_json::json;
use time::OffsetDateTime;

use crate::authority::{self, Authority, AuthorityArgs};
use crate::error::{CliError, CliResult, Context, Exit};
use crate::global::Global;
use crate::ui::{self, Format, shorten};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Sessions {
    /// List the sessions that run, the newest first: your own and those you may join, or all where your roles let you.
    Ls(Ls),
    /// Watch a session that has a terminal, or take part in it.
    Join(Join),
    /// End a session: its programs are hung up, and the person reads why.
    #[command(visible_alias = "terminate")]
    End(End),
    /// Where you are logged in; end a login of yours elsewhere.
    Logins(crate::logins::Own),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only sessions of this user.
    #[arg(long)]
    user: Option<String>,
    /// Only sessions on this node, by name or id.
    #[arg(long)]
    node: Option<String>,
    #[command(flatten)]
    authority: AuthorityArgs,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Join {
    /// The session, as sessions ls shows it; the beginning of its id is enough.
    session: String,
    /// observer watches, peer watches and types, moderator watches and may end it.
    #[arg(long, value_enum, default_value = "observer")]
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Observer,
    Peer,
    Moderator,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Peer => "peer",
            Self::Moderator => "moderator",
        }
    }
}

/// What joining says to `sallyport ssh`.
#[derive(Debug, clap::Parser)]
struct Ssh {
    #[command(flatten)]
    args: crate::ssh::Args,
}

#[derive(Debug, clap::Args)]
pub(crate) struct End {
    /// The session, as sessions ls shows it; the beginning of its id is enough.
    session: String,
    /// Why: the person reads it, and it is on record.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    authority: AuthorityArgs,
}

pub(crate) async fn run(global: &Global, command: Sessions) -> CliResult<ExitCode> {
    match command {
        Sessions::Ls(args) => ls(global, args).await.map(|()| ExitCode::SUCCESS),
        Sessions::Join(args) => join(global, args).await,
        Sessions::End(args) => end(global, args).await.map(|()| ExitCode::SUCCESS),
        Sessions::Logins(args) => crate::logins::own(global, args).await.map(|()| ExitCode::SUCCESS),
    }
}

/// Goes to the node as `ssh` does; there it is decided again.
async fn join(global: &Global, args: Join) -> CliResult<ExitCode> {
    let session = {
        let authority = authority::open(global, &AuthorityArgs::default()).await?;
        let session_id = whole_id(&authority, &args.session).await?;
        let gone = || {
            CliError::new(format!("no session {} runs that you may see", args.session))
                .hint("see: sallyport sessions ls")
        };
        let request = ListSessionsRequest { session_id, ..Default::default() };
        fetch(&authority, request).await?.into_iter().next().ok_or_else(gone)?
    };
    if !session.terminal {
        return Err(CliError::new("this session has no terminal, and so nothing to watch or to type in")
            .hint("what it does is in its recording: sallyport recordings ls"));
    }
    let mode = args.mode.name();
    if !session.may_join.iter().any(|may| may == mode) {
        let modes = match session.may_join.as_slice() {
            [] => "in no mode".to_owned(),
            modes => format!("only as {}", modes.join(" or ")),
        };
        let error = CliError::new(format!(
            "your roles let you join this session of {} {modes}, not as {mode} (allow.join_sessions)",
            session.user
        ))
        .exit(Exit::Refused);
        return Err(match session.may_join.first() {
            Some(other) => {
                error.hint(format!("sallyport sessions join --mode {other} {}", session.session_id))
            }
            None => error.hint("ask an administrator for a role that lets you join it"),
        });
    }
    let target = format!("{JOIN_LOGIN}@{}", session.node_id);
    let what = format!("{} {mode}", session.session_id);
    let ssh = Ssh::try_parse_from(["sallyport", "-t", &target, &what]).doing("prepare the connection")?;
    crate::ssh::run(global, ssh.args).await
}

async fn ls(global: &Global, args: Ls) -> CliResult {
    let authority = authority::open(global, &args.authority).await?;
    let request = ListSessionsRequest {
        user: args.user.unwrap_or_default(),
        node: args.node.unwrap_or_default(),
        ..Default::default()
    };
    let sessions = fetch(&authority, request).await?;
    if args.format == Format::Json {
        return ui::json(&sessions.iter().map(as_json).collect::<Vec<_>>());
    }
    let now = OffsetDateTime::now_utc();
    let rows = sessions.iter().map(|session| row(session, now)).collect();
    ui::table(
        &["session", "since", "user", "target", "from", "recorded", "joined", "what"],
        rows,
        "No session runs that you may see.",
    )
}

/// The sessions that match and that the caller may see.
pub(crate) async fn fetch(
    authority: &Authority,
    request: ListSessionsRequest,
) -> CliResult<Vec<LiveSession>> {
    let listed = authority.sessions().list_sessions(request).await;
    let listed = listed.map_err(|status| CliError::from_status("list the sessions", &status))?;
    Ok(listed.into_inner().sessions)
}

/// The id that begins like this. One that is whole is taken as it is.
pub(crate) async fn whole_id(authority: &Authority, beginning: &str) -> CliResult<String> {
    if beginning.parse::<SessionId>().is_ok() {
        return Ok(beginning.to_owned());
    }
    let sessions = fetch(authority, ListSessionsRequest::default()).await?;
    let mut found = sessions.into_iter().filter(|session| session.session_id.starts_with(beginning));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.session_id),
        (None, _) => Err(CliError::new(format!("no session runs whose id begins with {beginning:?}"))
            .hint("see: sallyport sessions ls")),
        (Some(_), Some(_)) => Err(CliError::new(format!("several sessions begin with {beginning:?}"))
            .hint("write more of the id, see: sallyport sessions ls")
            .exit(Exit::Usage)),
    }
}

async fn end(global: &Global, args: End) -> CliResult {
    let authority = authority::open(global, &args.authority).await?;
    let session_id = whole_id(&authority, &args.session).await?;
    let request = EndSessionRequest { session_id, reason: args.reason };
    let ended = authority
        .sessions()
        .end_session(request)
        .await
        .map_err(|status| CliError::from_status("end the session", &status))?
        .into_inner()
        .session
        .unwrap_or_default();
    ui::say(format!(
        "Ended the session of {} as {} on {}. They can begin another; to keep them out: sallyport admin lock --user {}",
        ended.user, ended.login, ended.node, ended.user
    ));
    Ok(())
}

fn row(session: &LiveSession, now: OffsetDateTime) -> Vec<String> {
    let since = session.started.as_ref().and_then(convert::time_from_proto);
    let what = match session.command.as_str() {
        "" => format!("({})", session.kind),
        command => shorten(command, 40),
    };
    let joined: Vec<String> =
        session.participants.iter().map(|one| format!("{} ({})", shorten(&one.user, 40), one.mode)).collect();
    vec![
        session.session_id.clone(),
        since.map_or("-".to_owned(), |since| ui::duration(now - since)),
        shorten(&session.user, 60),
        shorten(&format!("{}@{}", session.login, session.node), 80),
        if session.source.is_empty() { "-".to_owned() } else { shorten(&session.source, 60) },
        session.recording.clone(),
        if joined.is_empty() { "-".to_owned() } else { joined.join(", ") },
        what,
    ]
}

fn as_json(session: &LiveSession) -> serde_json::Value {
    let time = |at: &Option<_>| at.as_ref().and_then(convert::time_from_proto).map(ui::timestamp);
    let participants: Vec<_> = session
        .participants
        .iter()
        .map(|one| json!({ "user": one.user, "mode": one.mode, "since": time(&one.since) }))
        .collect();
    json!({
        "session_id": session.session_id, "user": session.user, "login": session.login, "node": session.node,
        "node_id": session.node_id, "source": session.source, "started": time(&session.started),
        "kind": session.kind, "command": session.command, "terminal": session.terminal,
        "recording": session.recording, "participants": participants, "served_by": session.served_by,
        "heard": time(&session.heard), "may_join": session.may_join,
    })
}
