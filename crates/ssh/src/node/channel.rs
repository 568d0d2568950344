//! One session channel: from what its client wishes to the record of its end.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use sallyport_access::SessionId;
use sallyport_access::{Permit, RecordAt, RecordInput, RecordPolicy};
use sallyport_audit::recording::SessionMetadata;
use sallyport_audit::{Code, Event};
use sallyport_session::{About, How, LiveSession};
use time::OffsetDateTime;
use tokio::time::timeout;

use super::backend::{Asked, DisplayAsked, Place, Reach};
use super::connection::{Live, Shared, Word};
use super::copying;
use super::endpoint::ChannelEndpoint;
use super::error::NotBegun;
use super::joining::{self, Hub};
use super::record::{COUNTED, SessionRecord};
use super::relayed;
use super::running::RunningSession;
use super::wanted::{FromClient, GOODBYE, INPUT_RECORDED, Wanted, notify};
use crate::printable::printable;
use crate::session::{Channel, Ended, Exit, Input, Kind, Output, left};

/// Why a session that has to be recorded does not begin where it could undo that.
const OWN_ACCOUNT: &str = "this session has to be recorded, and the node runs as the account that the session would have, which \
    could remove the recording; an administrator may run the node as root, or apart from its users' accounts";

/// Serves a session channel to its end.
#[tracing::instrument(name = "session", skip_all, fields(session = tracing::field::Empty))]
pub(super) async fn session(endpoint: ChannelEndpoint, wanted: Wanted) {
    let inbox = endpoint.inbox.clone();
    serve(endpoint, wanted).await;
    // The session is over: what the client may still send is dropped.
    inbox.leave();
}

async fn serve(mut endpoint: ChannelEndpoint, mut wanted: Wanted) {
    let shared = endpoint.shared.clone();
    let live = shared.enter(&endpoint.inbox);
    if let Some(identity) = shared.joins() {
        endpoint.quiet = true;
        return joining::serve(endpoint, wanted, identity).await;
    }
    // Channels are counted when they open as well; but many could have been opened before any began.
    if shared.sessions_running() > shared.max_sessions() {
        return endpoint.refuse(&shared.too_many_sessions()).await;
    }
    let (place, permit) = match shared.decide() {
        Ok((place, Word::Ours(permit))) => (place, *permit),
        Ok((place, Word::Theirs)) => return relayed::session(endpoint, wanted, place.as_ref()).await,
        Err(refused) => return endpoint.refuse(&refused.to_string()).await,
    };
    if wanted.terminal.is_none() && place.serves_files() && copying::is_file_server(&wanted.kind) {
        // What is asked for is files: they are served, and told of, as by the subsystem.
        wanted.kind = Kind::Sftp;
    }
    if let Some(what) = copying::copies_files(&wanted.kind)
        && !permit.options().ssh_file_copy
    {
        let message =
            format!("your roles do not allow file copies, and {what} is one (options.ssh_file_copy)");
        shared.refused(shared.event(Code::SessionRefused).message(&message));
        return endpoint.refuse(&message).await;
    }
    let client = || endpoint.client();
    if place.wants_agent()
        && let Err(error) = place.lend_agent(wanted.lends_agent.then(client)).await
    {
        let message = error.to_string();
        shared.refused(shared.event(Code::SessionRefused).message(&message));
        return endpoint.refuse(&message).await;
    }
    endpoint.quiet = wanted.terminal.is_some();
    if endpoint.quiet {
        let _ = live.terminal.set(Arc::new(endpoint.clone()));
    }
    run(endpoint, wanted, place.as_ref(), &permit, &live).await;
}

async fn run(endpoint: ChannelEndpoint, wanted: Wanted, place: &dyn Place, permit: &Permit, live: &Live) {
    let shared = endpoint.shared.clone();
    let server = &shared.server;
    let about = about(&shared, &wanted, permit);
    tracing::Span::current().record("session", about.session_id.to_string());
    let options = permit.options();
    let how = How::of(permit.limits(), COUNTED);
    if how.policy == RecordPolicy::Strict && how.mode.at != RecordAt::Off && place.reaches_records() {
        shared.refused(shared.event(Code::SessionRefused).message(OWN_ACCOUNT));
        return endpoint.refuse(OWN_ACCOUNT).await;
    }
    let Some(recorders) = &server.recorders else {
        return endpoint.refuse("nothing can be recorded here, so nothing runs here").await;
    };
    let Some(evidence) = shared.evidence() else {
        return endpoint.refuse("nobody is let in on this connection whose sessions could run here").await;
    };
    let about = About::new(about, evidence).told_by_proxy(shared.info.told_by_proxy);
    let (input, sink) = (options.record_input, server.sink.clone());
    let record = match SessionRecord::begin(about, recorders, how, input, sink).await {
        Ok(record) => record,
        Err(unrecordable) => {
            shared.refused(shared.event(Code::SessionRefused).message(unrecordable.to_string()));
            return endpoint.refuse(&unrecordable.to_string()).await;
        }
    };
    let _ = live.record.set(record.clone());
    let hub =
        wanted.terminal.as_ref().map(|one| Hub::new(Arc::new(endpoint.clone()), record.clone(), one.size));
    let _listed = shared.identity().map(|owner| {
        let session = LiveSession::new(record.about().clone(), owner, record.place());
        let running = RunningSession::new(session.clone(), endpoint.inbox.clone(), hub.clone());
        (server.running.enter(running.clone()), server.live.enter(session, running))
    });

    notify(&endpoint, record.has_input().then(|| INPUT_RECORDED.to_owned())).await;
    notify(&endpoint, wanted.notice).await;
    let mut environment = variables(&endpoint, &record, wanted.variables);
    let mut display = wanted.display;
    let reaches = reaches(&endpoint, place, &record, wanted.agent, &mut display).await;
    environment.extend(reaches.iter().flat_map(|reach| reach.environment.iter().cloned()));
    let from = shared.info.client_addr.map(|address| address.ip());
    let hash_files = permit.options().hash_files;
    let (kind, terminal) = (wanted.kind, wanted.terminal);
    let asked = Asked { kind, terminal, environment, hash_files, from, display };
    let begun = tokio::select! {
        begun = place.begin(&asked) => begun.map_err(NotBegun::from),
        // A user who is locked out meanwhile, or who cannot be recorded any more, has nothing begun.
        reason = endpoint.inbox.over() => Err(match reason {
            Some(reason) => NotBegun::Cut(reason),
            None => endpoint.cut_off().await.map_or(NotBegun::ClientGone, NotBegun::Cut),
        }),
        unrecordable = record.broken() => Err(unrecordable.into()),
    };
    let begun = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let message = error.to_string();
            if let Some(hub) = &hub {
                hub.end();
            }
            shared.refused(record.event(Code::SessionRefused).message(&message));
            let _ = timeout(GOODBYE, endpoint.refuse(&message)).await;
            endpoint.close().await;
            let refused = Ended { exit: None, bytes_in: 0, bytes_out: 0, cut: Some(message) };
            return record.finish(&refused).await;
        }
    };
    announce(&record, &asked, permit, &endpoint);

    let began = Instant::now();
    let ended = {
        let input: Box<dyn Input> = Box::new(FromClient(endpoint.inbox.clone()));
        let output: Arc<dyn Output> = Arc::new(endpoint.clone());
        let (input, output) = match &hub {
            Some(hub) => hub.wrap(input, output),
            None => (input, output),
        };
        let mut session = place.run(asked, begun, input, output, record.clone());
        tokio::select! {
            ended = &mut session => ended,
            // A disk can fail while nothing happens: the session learns of it then, not with its next output.
            unrecordable = record.broken() => {
                endpoint.inbox.cut(&unrecordable.to_string());
                session.await
            }
        }
    };
    drop(reaches);
    if let Some(hub) = &hub {
        hub.end();
    }
    if let Some(reason) = &ended.cut {
        // A client that takes nothing is not waited for.
        let _ = timeout(GOODBYE, endpoint.refuse(reason)).await;
    }
    endpoint.close().await;
    record.finish(&ended).await;
    server.sink.emit(end_event(&record, &ended, began));
}

/// The session's own variables.
fn variables(
    endpoint: &ChannelEndpoint,
    record: &SessionRecord,
    mut variables: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let mut set = |name: &str, value: String| variables.push((name.to_owned(), value));
    set(left::SESSION, record.about().session_id.to_string());
    set("SALLYPORT_USER", record.about().user.clone());
    if let Some(client) = endpoint.shared.info.client_addr {
        // As sshd's; in a tunnel the node has no address of its own to name.
        set("SSH_CONNECTION", format!("{} {} 127.0.0.1 22", client.ip(), client.port()));
        set("SSH_CLIENT", format!("{} {} 22", client.ip(), client.port()));
    }
    variables
}

/// What of the client's the session is to reach: the agent and the display. What does not work is said, and the session
/// goes on without.
async fn reaches(
    endpoint: &ChannelEndpoint,
    place: &dyn Place,
    record: &SessionRecord,
    agent: bool,
    display: &mut Option<DisplayAsked>,
) -> Vec<Reach> {
    let client = || endpoint.client();
    let mut tried = Vec::new();
    if agent {
        tried.push(("agent", Code::SessionAgentForward, place.agent(client()).await));
    }
    if let Some(asked) = display.as_ref() {
        let reach = place.display(client(), asked).await;
        if reach.is_err() {
            *display = None;
        }
        tried.push(("X11", Code::SessionX11Forward, reach));
    }
    let mut reaches = Vec::new();
    for (what, code, reach) in tried {
        match reach {
            Ok(reach) => {
                record.emit(record.event(code));
                reaches.push(reach);
            }
            Err(error) => {
                tracing::warn!(%error, what, "cannot forward to the client");
                let text = format!("sallyport: {what} forwarding does not work: {error}\r\n");
                let _ = endpoint.send(Channel::Stderr, Bytes::from(text)).await;
            }
        }
    }
    reaches
}

fn announce(record: &SessionRecord, request: &Asked, permit: &Permit, endpoint: &ChannelEndpoint) {
    let about = record.about();
    let mut start = record
        .event(Code::SessionStart)
        .message(about.kind.as_str())
        .field("kind", about.kind.as_str())
        .field("terminal", request.terminal.is_some())
        .field("front", endpoint.front())
        .field("rule", permit.rule());
    if let Some(command) = &about.command {
        start = start.field("command", command.as_str());
    }
    if record.has_input() {
        start = start.field("record_input", RecordInput::Full.as_str());
    }
    record.emit(start);
    if let Some(command) = &about.command {
        let event = record.event(Code::SessionExec).message(command.as_str());
        record.emit(event.field("command", command.as_str()));
    }
}

fn end_event(record: &SessionRecord, ended: &Ended, began: Instant) -> Event {
    let mut event = record
        .event(Code::SessionEnd)
        .field("bytes_in", ended.bytes_in)
        .field("bytes_out", ended.bytes_out)
        .field("duration_ms", u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    if let Some((bytes, hash)) = record.given() {
        event = event.field("input_bytes", bytes).field("input_sha256", hash);
    }
    match (&ended.exit, &ended.cut) {
        (Some(Exit::Status(status)), _) => {
            event.message(format!("exit status {status}")).field("exit_status", *status)
        }
        (Some(Exit::Signal { name, .. }), _) => {
            event.message(format!("ended by signal {name}")).field("exit_signal", name.as_str())
        }
        (None, Some(reason)) => event.message(format!("cut off: {reason}")).field("cut", reason.as_str()),
        (None, None) => event.message("the client went away"),
    }
}

fn about(shared: &Shared, wanted: &Wanted, permit: &Permit) -> SessionMetadata {
    let node = shared.server.directory.node();
    let (kind, command) = match &wanted.kind {
        Kind::Shell => ("shell", None),
        Kind::Exec(line) if copying::is_file_server(&wanted.kind) => ("sftp", Some(printable(line))),
        Kind::Exec(line) => ("exec", Some(printable(line))),
        Kind::Sftp => ("sftp", None),
    };
    SessionMetadata {
        session_id: SessionId::on(&shared.server.directory.host()),
        cluster: shared.server.directory.trust().cluster().to_string(),
        user: permit.user().to_string(),
        login: permit.login().to_string(),
        node: node.name.to_string(),
        node_id: node.id.to_string(),
        source: shared.source(),
        started: OffsetDateTime::now_utc(),
        kind: kind.to_owned(),
        command,
        term: wanted.terminal.as_ref().map(|terminal| terminal.term.clone()),
        size: wanted.terminal.as_ref().map(|terminal| (terminal.size.columns, terminal.size.rows)),
        application: None,
    }
}
