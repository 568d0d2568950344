//! What events say of statements.

use sallyport_audit::Event;
use serde_json::{Map, Value};

use super::waiting::Outcome;
use crate::service::text::Text;

/// How the text of a statement is to be read, where it is not as it was said.
pub(in crate::service) fn about(text: &Text) -> Map<String, Value> {
    let mut about = Map::new();
    let Some(otherwise) = text.otherwise() else { return about };
    let mut says = |name: &str, value: Value| drop(about.insert(name.to_owned(), value));
    if otherwise.is_cut() {
        says("bytes", text.bytes.into());
        if otherwise.dropped > 0 {
            says("dropped", otherwise.dropped.into());
        }
        if otherwise.left_out > 0 {
            says("left_out", otherwise.left_out.into());
        }
    }
    if let Some(encoding) = otherwise.encoding {
        says("encoding", encoding.into());
    }
    if otherwise.doubtful {
        says("doubtful", true.into());
    }
    match otherwise.base64.as_slice() {
        [] => {}
        [one] => says("base64", one.as_str().into()),
        several => says("base64", several.to_vec().into()),
    }
    about
}

pub(super) fn finished(event: Event, outcome: &Outcome, answered: bool) -> Event {
    let mut event = event.field("rows", outcome.rows);
    match outcome.tags.as_slice() {
        [] => {}
        [tag] => event = event.field("tag", tag.as_str()),
        tags => event = event.field("tag", tags.join("; ")),
    }
    event = event.field("duration_ms", milliseconds(outcome.took_us));
    if let Some((code, message)) = &outcome.sqlstate {
        event = event.field("sqlstate", code.as_str()).field("error", message.as_str());
    }
    if !answered {
        event = event.field("unanswered", true);
    }
    if outcome.again {
        event = event.field("again", true);
    }
    event
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds of a statement, for people")]
pub(in crate::service) fn milliseconds(us: u64) -> f64 {
    us as f64 / 1000.0
}
