//! `sallyport recordings`.

mod search;

use sallyport_wire::convert;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::{
    HoldRecordingRequest, ListRecordingsRequest, RecordingInfo, RemoveRecordingRequest,
};
use serde_json::json;

use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult};
use crate::global::Global;
use crate::ui::{self, Format, shorten};
use sallyport_client::channel::Channel;

/// Recordings that are listed where no number is asked for.
const AT_ONCE: usize = 1_000;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Recordings {
    /// List recorded sessions, the newest first: your own, or all where your roles let you.
    Ls(Ls),
    /// Find what was run in databases: the statements that have these words, the newest last.
    Search(search::Search),
    /// Remove a recording for good.
    Rm(One),
    /// Keep a recording from being removed, whatever its age.
    Hold(One),
    /// Let a recording be removed again.
    Release(One),
}

#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// The session, as recordings ls shows it.
    session: String,
    #[command(flatten)]
    authority: AuthorityArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only sessions of this user.
    #[arg(long)]
    user: Option<String>,
    /// Only sessions on this node, or with this database.
    #[arg(long)]
    node: Option<String>,
    /// Only sessions of this kind.
    #[arg(long, value_parser = ["shell", "exec", "sftp", "forward", "db"])]
    kind: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    authority: AuthorityArgs,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) async fn run(global: &Global, command: Recordings) -> CliResult {
    match command {
        Recordings::Ls(args) => ls(global, args).await,
        Recordings::Search(args) => search::run(global, args).await,
        Recordings::Rm(args) => remove(global, args).await,
        Recordings::Hold(args) => hold(global, args, true).await,
        Recordings::Release(args) => hold(global, args, false).await,
    }
}

async fn remove(global: &Global, args: One) -> CliResult {
    let authority = authority::open(global, &args.authority).await?;
    let removed = authority
        .sessions()
        .remove_recording(RemoveRecordingRequest { session_id: args.session })
        .await
        .map_err(|status| CliError::from_status("remove the recording", &status))?;
    ui::say(format!("Removed; {} are free again.", ui::bytes(removed.into_inner().bytes)));
    Ok(())
}

async fn hold(global: &Global, args: One, hold: bool) -> CliResult {
    let authority = authority::open(global, &args.authority).await?;
    let request = HoldRecordingRequest { session_id: args.session, hold };
    let doing = if hold { "hold the recording" } else { "release the recording" };
    let held = authority.sessions().hold_recording(request).await;
    held.map(|_| ()).map_err(|status| CliError::from_status(doing, &status))
}

async fn ls(global: &Global, args: Ls) -> CliResult {
    let authority = authority::open(global, &args.authority).await?;
    let request = ListRecordingsRequest {
        limit: args.limit,
        user: args.user.unwrap_or_default(),
        node: args.node.unwrap_or_default(),
        kind: args.kind.unwrap_or_default(),
        after: String::new(),
    };
    let recordings = all(&mut authority.cluster(), request).await?;
    if args.format == Format::Json {
        return ui::json(&recordings.iter().map(as_json).collect::<Vec<_>>());
    }
    let rows = recordings
        .iter()
        .map(|recording| {
            vec![
                recording.session_id.clone(),
                started(recording),
                length(recording).map_or("-".to_owned(), ui::duration),
                recording.user.clone(),
                format!("{}@{}", recording.login, recording.node),
                recording.state.clone(),
                ui::bytes(recording.bytes),
                what(recording),
            ]
        })
        .collect();
    ui::table(
        &["session", "started", "length", "user", "target", "state", "stored", "command"],
        rows,
        "There is no recording that you may see.",
    )
}

/// Recordings, the newest first, as many as are asked for; where no number is, as many as the authority gives at once. It may
/// have to be asked several times.
pub(crate) async fn all(
    client: &mut ClusterClient<Channel>,
    mut request: ListRecordingsRequest,
) -> CliResult<Vec<RecordingInfo>> {
    let wanted = if request.limit == 0 { AT_ONCE } else { request.limit as usize };
    let mut found = Vec::new();
    loop {
        request.limit = u32::try_from(wanted - found.len()).unwrap_or(u32::MAX);
        let page = client.list_recordings(request.clone()).await;
        let page = page.map_err(|status| CliError::from_status("list the recordings", &status))?.into_inner();
        found.extend(page.recordings);
        if page.next.is_empty() || found.len() >= wanted {
            return Ok(found);
        }
        request.after = page.next;
    }
}

fn started(recording: &RecordingInfo) -> String {
    recording.started.as_ref().and_then(convert::time_from_proto).map_or("-".to_owned(), ui::timestamp)
}

fn length(recording: &RecordingInfo) -> Option<time::Duration> {
    let length = recording.duration.as_ref().and_then(convert::duration_from_proto)?;
    time::Duration::try_from(length).ok()
}

/// The command; or, in brackets, what ran instead of one.
fn what(recording: &RecordingInfo) -> String {
    match (recording.command.as_str(), recording.kind.as_str()) {
        // An older authority says no kind.
        ("", "") => "(shell)".to_owned(),
        ("", kind) => format!("({})", shorten(kind, 20)),
        (name, "db") => format!("(database {})", shorten(name, 40)),
        (command, _) => shorten(command, 40),
    }
}

fn as_json(recording: &RecordingInfo) -> serde_json::Value {
    json!({
        "session_id": recording.session_id, "user": recording.user, "login": recording.login,
        "node": recording.node, "started": started(recording),
        "duration_seconds": length(recording).map(time::Duration::as_seconds_f64),
        "bytes": recording.bytes, "state": recording.state, "command": recording.command,
        "kind": recording.kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_ran() {
        for (command, kind, shown) in [
            ("", "sftp", "(sftp)"),
            ("", "shell", "(shell)"),
            ("", "", "(shell)"),
            ("id", "exec", "id"),
            ("shop", "db", "(database shop)"),
        ] {
            let recording = RecordingInfo {
                command: command.to_owned(),
                kind: kind.to_owned(),
                ..RecordingInfo::default()
            };
            assert_eq!(what(&recording), shown);
        }
    }
}
