//! Handing segments of events to the authority.
//!
//! An event that the authority will never take stops none behind it: a segment that is refused is sent again in parts, until what
//! is refused stands alone. That is set aside on this host for a person to read, and the authority is told how many there were.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::counter;
use sallyport_audit::{Code, Event};
use sallyport_wire::v1::EmitEventsRequest;
use time::OffsetDateTime;
use tonic::Status;
use tracing::{debug, error, warn};

use crate::backoff::Backoff;
use crate::files;
use crate::member::authority_client::AuthorityClient;

const SEND_TIMEOUT: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Of the file beside a segment with the events of it that the authority has refused.
const REFUSED: &str = "refused";
/// What may be kept of refused events.
const REFUSED_BYTES: u64 = 4 * 1024 * 1024;

/// What an authority says of an event that this host may not report, before the code: of an earlier version also when it does not
/// know the code. The words stay as they are, for hosts and authorities of different versions.
pub(crate) const MAY_NOT_REPORT: &str = "may not report";

/// An event that the authority will never take, and its reason.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    event: String,
    reason: String,
}

/// Sends one segment until the authority has it, or has refused it.
pub(super) async fn send(segment: &Path, client: &AuthorityClient) {
    let path = segment.to_owned();
    let read = tokio::task::spawn_blocking(move || read(&path)).await;
    let events = match read {
        Ok(Ok(lines)) => lines,
        Ok(Err(error)) => {
            error!(%error, path = %segment.display(), "a segment of audit events cannot be read and is left there");
            return;
        }
        Err(_) => return,
    };
    let emit = |events_json: Vec<String>| async move {
        let mut fleet = client.fleet();
        let call = fleet.emit_events(EmitEventsRequest { events_json });
        let answer = tokio::time::timeout(SEND_TIMEOUT, call).await;
        let outcome = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
        counter!("sallyport_authority_calls_total", "method" => "EmitEvents", "result" => outcome)
            .increment(1);
        match answer {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(Status::deadline_exceeded("no answer from the authority")),
        }
    };
    let refused = deliver(events, &emit).await;
    if !refused.is_empty() {
        let (aside, told) = (segment.with_extension(REFUSED), missing(&refused));
        let lines: String = refused.iter().map(|refused| format!("{}\n", refused.event)).collect();
        let path = aside.clone();
        let kept = tokio::task::spawn_blocking(move || set_aside(&path, &lines)).await;
        let kept = kept.is_ok_and(|kept| kept.inspect_err(|error| warn!(%error, "not set aside")).is_ok());
        let reason = refused.first().map(|refused| refused.reason.as_str()).unwrap_or_default();
        error!(events = refused.len(), reason, kept, path = %aside.display(), "the authority refuses audit events");
        let told = told.field("kept_on_host", kept).to_json();
        if !deliver(vec![told], &emit).await.is_empty() {
            error!("the authority does not hear of them either");
        }
    }
    if let Err(error) = fs::remove_file(segment) {
        warn!(%error, path = %segment.display(), "a sent segment of audit events was not removed");
    }
}

/// Hands events over in their order, for as long as it takes; gives those that are refused for good.
async fn deliver<F, A>(events: Vec<String>, emit: &F) -> Vec<Refused>
where
    F: Fn(Vec<String>) -> A,
    A: Future<Output = Result<(), Status>>,
{
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut refused: Vec<Refused> = Vec::new();
    // Codes of which one event was refused: the others of this segment are not asked for one by one.
    let mut codes: BTreeSet<String> = BTreeSet::new();
    // The last is the next.
    let mut batches = vec![events];
    while let Some(mut batch) = batches.pop() {
        if !codes.is_empty() {
            let (of_them, rest) = batch.into_iter().partition(|event| codes.contains(&code(event)));
            let of_them: Vec<String> = of_them;
            let reason = |event: &str| format!("{MAY_NOT_REPORT} {}", code(event));
            refused.extend(of_them.into_iter().map(|event| Refused { reason: reason(&event), event }));
            batch = rest;
        }
        if batch.is_empty() {
            continue;
        }
        match emit(batch.clone()).await {
            Ok(()) => backoff.reset(),
            Err(status) if !is_final(&status, &batch) => {
                debug!(message = status.message(), "audit events wait for the authority");
                batches.push(batch);
                backoff.wait().await;
            }
            Err(status) => match <[String; 1]>::try_from(batch) {
                Ok([event]) => {
                    if status.code() == tonic::Code::PermissionDenied {
                        codes.insert(code(&event));
                    }
                    refused.push(Refused { event, reason: status.message().to_owned() });
                }
                Err(mut batch) => {
                    let second = batch.split_off(batch.len() / 2);
                    batches.extend([second, batch]);
                }
            },
        }
    }
    refused
}

/// Whether the same events will be refused for ever. A host that is locked is not permitted anything either, and may be again.
fn is_final(status: &Status, batch: &[String]) -> bool {
    match status.code() {
        tonic::Code::InvalidArgument => true,
        tonic::Code::PermissionDenied => forbidden(status.message())
            .is_some_and(|forbidden| batch.iter().any(|event| code(event) == forbidden)),
        _ => false,
    }
}

/// The code that the authority says this host may not report: where the whole message is `HOST may not report CODE`. A refusal of another
/// kind has words of an administrator in it, such as a lock's, which may be anything and decide nothing.
fn forbidden(message: &str) -> Option<&str> {
    let (host, code) = message.rsplit_once(MAY_NOT_REPORT)?;
    let (host, code) = (host.strip_suffix(' ')?, code.strip_prefix(' ')?);
    (!host.is_empty() && !host.contains(char::is_whitespace) && Code::is_well_formed(code)).then_some(code)
}

fn code(event: &str) -> String {
    Event::from_json(event).map(|event| event.code.to_string()).unwrap_or_default()
}

/// What the authority is told in their place.
fn missing(refused: &[Refused]) -> Event {
    let codes: BTreeSet<String> = refused.iter().map(|refused| code(&refused.event)).collect();
    let codes = codes.into_iter().collect::<Vec<_>>().join(", ");
    Event::new(Code::AuditLost, OffsetDateTime::now_utc())
        .message("the authority does not take these events of this host, which may be of a later version")
        .field("lost", refused.len())
        .field("codes", codes)
}

/// Keeps refused events where they do no harm, within a bound for all of them: the oldest make room for the newest.
fn set_aside(path: &Path, lines: &str) -> io::Result<()> {
    let new = lines.len() as u64;
    if new > REFUSED_BYTES {
        return Err(io::Error::other(format!("{new} bytes are more than the {REFUSED_BYTES} that are kept")));
    }
    let directory = path.parent().map(PathBuf::from).unwrap_or_default();
    let mut others = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let other = entry?.path();
        // One of this name is of a process that ended before it removed the segment, and is written over.
        if other != path && other.extension().is_some_and(|extension| extension == REFUSED) {
            let bytes = fs::metadata(&other).map_or(0, |metadata| metadata.len());
            others.push((other, bytes));
        }
    }
    // Names are time-ordered UUIDs.
    others.sort();
    let mut kept: u64 = others.iter().map(|(_, bytes)| bytes).sum();
    for (oldest, bytes) in others {
        if kept + new <= REFUSED_BYTES {
            break;
        }
        fs::remove_file(&oldest)?;
        kept = kept.saturating_sub(bytes);
        warn!(path = %oldest.display(), bytes, "the oldest refused audit events make room for newer ones and are gone");
    }
    files::write_private(path, lines.as_bytes()).map_err(io::Error::other)
}

/// The lines of a segment. A crash may have torn the last one: only whole JSON goes out.
pub(super) fn read(path: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        let line = match line {
            Ok(line) => line,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            Err(error) => return Err(error),
        };
        if serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok() {
            lines.push(line);
        }
    }
    Ok(lines)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn event(code: &str, message: &str) -> String {
        Event::new(Code::parse(code), OffsetDateTime::UNIX_EPOCH).message(message).to_json()
    }

    /// An authority that does not know one code, cannot read another kind of event, and is away at first.
    #[derive(Default)]
    struct Authority {
        away: RefCell<u32>,
        calls: RefCell<u32>,
        taken: RefCell<Vec<String>>,
    }

    impl Authority {
        fn answer(&self, events: Vec<String>) -> Result<(), Status> {
            *self.calls.borrow_mut() += 1;
            if *self.away.borrow() > 0 {
                *self.away.borrow_mut() -= 1;
                return Err(Status::permission_denied(
                    "node:web-1 is kept out: node web-1 is locked: may not report until reinstalled (lock \"bad\"); \
                     ask an administrator",
                ));
            }
            if events.iter().any(|event| code(event) == "SP3302I") {
                return Err(Status::permission_denied("node:web-1 may not report SP3302I"));
            }
            if events.iter().any(|event| event.contains("unreadable")) {
                return Err(Status::invalid_argument("this is not an event"));
            }
            self.taken.borrow_mut().extend(events);
            Ok(())
        }
    }

    async fn delivered(authority: &Authority, events: &[String]) -> Vec<Refused> {
        let emit = |events: Vec<String>| async move { authority.answer(events) };
        deliver(events.to_vec(), &emit).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_authority_does_not_take_stops_nothing_behind_it() {
        let authority = Authority { away: RefCell::new(3), ..Authority::default() };
        let mut events: Vec<String> =
            (0..100).map(|number| event("SP2000I", &format!("event {number}"))).collect();
        let good = events.clone();
        for at in [99, 42, 7, 0] {
            events.insert(at, event("SP3302I", "the module"));
        }
        events.insert(60, event("SP2000I", "unreadable"));
        let refused = delivered(&authority, &events).await;
        assert_eq!(*authority.taken.borrow(), good, "all of the others, in their order");
        let reasons: Vec<&str> = refused.iter().map(|refused| refused.reason.as_str()).collect();
        assert_eq!(reasons.len(), 5);
        assert_eq!(reasons.iter().filter(|reason| reason.contains("may not report SP3302I")).count(), 4);
        assert!(reasons.contains(&"this is not an event"), "{reasons:?}");
        assert!(*authority.calls.borrow() < 40, "{}", authority.calls.borrow());
        let told = missing(&refused);
        assert_eq!(told.fields["lost"], 5);
        assert_eq!(told.fields["codes"], "SP2000I, SP3302I");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_is_locked_waits_and_loses_nothing() {
        let authority = Authority { away: RefCell::new(20), ..Authority::default() };
        let events = [event("SP2000I", "one"), event("SP2001I", "two")];
        assert_eq!(delivered(&authority, &events).await, []);
        assert_eq!(*authority.taken.borrow(), events);
    }

    #[test]
    fn what_is_set_aside_is_bounded_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.refused");
        set_aside(&path, "an event\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "an event\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let much = "x".repeat(usize::try_from(REFUSED_BYTES).unwrap() + 1);
        assert!(set_aside(&directory.path().join("two.refused"), &much).is_err());
        assert!(!directory.path().join("two.refused").exists() && path.exists());
    }

    #[test]
    fn the_oldest_that_was_set_aside_makes_room_for_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let third = "x".repeat(usize::try_from(REFUSED_BYTES / 3).unwrap());
        // Written in another order than their names say, as by a release that set whole segments aside.
        for name in ["3.refused", "1.refused", "2.refused"] {
            set_aside(&at(name), &third).unwrap();
        }
        fs::write(at("0.jsonl"), "a segment that waits").unwrap();
        set_aside(&at("4.refused"), "the newest, and more").unwrap();
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["0.jsonl", "2.refused", "3.refused", "4.refused"]);
        // What a process wrote before it was killed is written again by the next, and takes no room twice.
        set_aside(&at("2.refused"), &third).unwrap();
        assert!(at("3.refused").exists() && at("4.refused").exists());
    }

    #[test]
    fn only_the_authority_s_own_words_are_final() {
        let batch = [event("SP3302I", "one"), event("SP2000I", "two")];
        let refused = |message: &str| is_final(&Status::permission_denied(message), &batch);
        assert!(refused("node:web-1 may not report SP3302I"));
        for words in [
            "may not report until reinstalled",
            "node:web-1 may not report SP3302I",
            "may not report SP3302I",
        ] {
            let said = format!(
                "node:web-1 is kept out: node web-1 is locked: {words} (lock \"bad\"); ask an administrator"
            );
            assert!(!refused(&said), "{said}");
            assert!(!refused(&format!("node:web-1 is kept out: node web-1 is locked: {words}")), "{words}");
        }
        for other in [
            "may not report SP3302I",
            " may not report SP3302I",
            "node:web-1 may not report SP3302",
            "node:web-1 may not report SP9999I",
        ] {
            assert!(!refused(other), "{other}");
        }
    }
}
