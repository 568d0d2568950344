//! `sallyport play`: a recorded session, as it was.

mod frames;
mod player;

use std::io::IsTerminal;

use sallyport_access::text::Foreign;
use sallyport_audit::recording::export::{Asciicast, Text};
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::recording::{Body, Frame};
use sallyport_wire::v1::cluster_client::ClusterClient;

use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::ui;
use frames::Frames;
use sallyport_client::channel::Channel;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session: its id as `recordings ls` prints it, or the beginning of one.
    session: String,
    /// How to play it. Default: on a terminal as it was, elsewhere as text.
    #[arg(long, value_enum)]
    format: Option<PlayFormat>,
    /// How fast: 2 is twice as fast.
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Skip silences longer than this, such as 2s. 0s plays every silence.
    #[arg(long, value_parser = ui::parse_duration, default_value = "0s")]
    skip_idle: std::time::Duration,
    /// Begin here, such as 1m30s.
    #[arg(long, value_parser = ui::parse_duration, default_value = "0s")]
    from: std::time::Duration,
    #[command(flatten)]
    authority: AuthorityArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PlayFormat {
    /// In this terminal, with its timing. Keys: space pauses, left and right seek, up and down change the speed, q quits.
    Terminal,
    /// What was written, without timing and control codes.
    Text,
    /// asciicast version 2, for asciinema and web players: what draws, and no code that makes a terminal answer or act.
    Asciicast,
    /// One JSON document a line, with everything that was recorded.
    Json,
    /// Of a session with a database, a script for psql: the statements that the server completed; the rest in comments.
    Sql,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.1..=100.0).contains(&speed) => Ok(speed),
        _ => Err(format!("{text:?} is not a speed from 0.1 to 100")),
    }
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let authority = authority::open(global, &args.authority).await?;
    let mut client = authority.cluster();
    let session = whole_id(&mut client, &args.session).await?;
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let format = args.format.unwrap_or(if terminal { PlayFormat::Terminal } else { PlayFormat::Text });
    if format == PlayFormat::Terminal {
        if !terminal {
            return Err(CliError::new("there is no terminal to play on")
                .hint("--format text")
                .exit(Exit::Usage));
        }
        let settings = player::Settings { speed: args.speed, skip_idle: args.skip_idle, from: args.from };
        return player::play(&mut client, &session, settings).await;
    }
    let mut frames = Frames::open(&mut client, &session).await?;
    let (mut text, mut cast) = (Text::new(), Asciicast::new());
    let look = match format {
        PlayFormat::Sql => Look::Sql,
        PlayFormat::Asciicast => Look::Terminal,
        _ => Look::Plain,
    };
    let (mut transcript, mut last) = (None, std::time::Duration::ZERO);
    while let Some(frame) = frames.next().await? {
        // The beginning of an asciicast says how large the terminal is, wherever playing begins.
        let begins = matches!(frame.body, Body::Start(_));
        if Transcript::is_for(&frame) {
            transcript = Some(Transcript::new(look));
        }
        // What was prepared earlier is named by what follows, so a transcript needs all of it.
        let shown = transcript.as_mut().map(|transcript| transcript.frame(&frame));
        if frame.at < args.from && !begins {
            continue;
        }
        if let Body::Note { text } = &frame.body {
            ui::say(format!("note: {}", Foreign::new(text)));
        }
        match (format, shown) {
            (PlayFormat::Sql, None) => {
                return Err(CliError::new("this is not the recording of a session with a database")
                    .hint("--format text")
                    .exit(Exit::Usage));
            }
            (PlayFormat::Text | PlayFormat::Sql, Some(shown)) => ui::raw(shown.as_bytes())?,
            (PlayFormat::Asciicast, Some(shown)) => {
                let output = Frame { at: frame.at, body: Body::Output(shown.into()) };
                let head = begins.then(|| cast.frame(&frame)).flatten();
                for line in head.into_iter().chain(cast.frame(&output)) {
                    ui::json_text(&line)?;
                }
            }
            (PlayFormat::Text, None) => ui::raw(&text.frame(&frame))?,
            (PlayFormat::Asciicast, None) => {
                if let Some(line) = cast.frame(&frame) {
                    ui::json_text(&line)?;
                }
            }
            (PlayFormat::Json | PlayFormat::Terminal, _) => {
                ui::json_text(&sallyport_audit::recording::export::json(&frame))?;
            }
        }
        last = frame.at;
    }
    let rest = transcript.map(|mut transcript| transcript.finish()).unwrap_or_default();
    match format {
        PlayFormat::Text | PlayFormat::Sql => ui::raw(rest.as_bytes())?,
        PlayFormat::Asciicast => {
            let output = Frame { at: last, body: Body::Output(rest.into()) };
            cast.frame(&output).map_or(Ok(()), |line| ui::json_text(&line))?;
        }
        PlayFormat::Json | PlayFormat::Terminal => {}
    }
    Ok(())
}

/// Everything that a session wrote, or asked of a database, as text.
pub(crate) async fn text(client: &mut ClusterClient<Channel>, session: &str) -> CliResult<String> {
    let mut frames = Frames::open(client, session).await?;
    let mut text = Text::new();
    let mut transcript = None;
    let mut all = Vec::new();
    while let Some(frame) = frames.next().await? {
        if Transcript::is_for(&frame) {
            transcript = Some(Transcript::new(Look::Plain));
        }
        match transcript.as_mut() {
            Some(transcript) => all.extend_from_slice(transcript.frame(&frame).as_bytes()),
            None => all.extend(text.frame(&frame)),
        }
    }
    all.extend(transcript.map(|mut transcript| transcript.finish()).unwrap_or_default().into_bytes());
    Ok(String::from_utf8_lossy(&all).into_owned())
}

/// Sessions that are named where several are meant.
const SHOWN: usize = 5;

/// The session that the beginning of an id means.
async fn whole_id(client: &mut ClusterClient<Channel>, given: &str) -> CliResult<String> {
    if given.parse::<sallyport_access::SessionId>().is_ok() {
        return Ok(given.to_owned());
    }
    let asked = sallyport_wire::v1::ListRecordingsRequest::default();
    let recordings = crate::recordings::all(client, asked).await?;
    let fitting: Vec<String> = recordings
        .into_iter()
        .map(|recording| recording.session_id)
        .filter(|id| id.starts_with(given))
        .collect();
    match fitting.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            Err(CliError::new(format!("no recording begins with {given:?}")).hint("sallyport recordings ls"))
        }
        several => {
            let some: Vec<&str> = several.iter().take(SHOWN).map(String::as_str).collect();
            let more = several.len().saturating_sub(some.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(CliError::new(format!("several recordings begin with {given:?}: {}{more}", some.join(", ")))
                .hint("more of the id; sallyport recordings ls"))
        }
    }
}
