//! Searching the audit log, and following it.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use sallyport_audit::log::{Filter, Record};
use sallyport_wire::{convert, v1};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::auth::Inner;

/// Records that a search may be ahead of its reader.
const SEARCH_QUEUE: usize = 256;
/// Newest records that `tail` keeps while it searches.
const MOST_TAIL: usize = 100_000;

pub(super) type Events = Pin<Box<dyn Stream<Item = Result<v1::AuditRecord, Status>> + Send>>;

pub(super) fn search(inner: &Arc<Inner>, asked: v1::SearchEventsRequest) -> Events {
    let filter = Filter {
        since: asked.since.as_ref().and_then(convert::time_from_proto),
        until: asked.until.as_ref().and_then(convert::time_from_proto),
        code: asked.code,
        user: asked.user,
        session_id: asked.session_id,
        statement: asked.statement,
    };
    let (sender, receiver) = mpsc::channel(SEARCH_QUEUE);
    let limit = asked.limit as usize;
    let (log, stop, follow, tail) = (inner.log.clone(), inner.stop.clone(), asked.follow, asked.tail);
    inner.tasks.spawn(async move {
        // Subscribed before the files are read, so that nothing falls between.
        let mut live = log.subscribe();
        let mut next = 0;
        loop {
            let scanned = {
                let (log, filter, sender) = (log.clone(), filter.clone(), sender.clone());
                let (tail, limit) = (tail && next == 0, if next == 0 { limit } else { 0 });
                tokio::task::spawn_blocking(move || scan(&log, next, &filter, limit, tail, &sender)).await
            };
            match scanned {
                Ok(Ok(last)) => next = last,
                Ok(Err(error)) => {
                    let _ = sender
                        .send(Err(Status::unavailable(format!("the audit log cannot be read: {error}"))))
                        .await;
                    return;
                }
                Err(_) => return,
            }
            if !follow {
                return;
            }
            loop {
                let record = tokio::select! {
                    record = live.recv() => record,
                    () = sender.closed() => return,
                    () = stop.cancelled() => return,
                };
                match record {
                    Ok(record) if record.sequence < next => {}
                    Ok(record) => {
                        next = record.sequence + 1;
                        if filter.matches(&record) && sender.send(Ok(answer(&record))).await.is_err() {
                            return;
                        }
                    }
                    // Too slow for memory; the files have it.
                    Err(broadcast::error::RecvError::Lagged(_)) => break,
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        }
    });
    Box::pin(ReceiverStream::new(receiver))
}

/// Sends what matches; gives the number from which to go on.
fn scan(
    log: &sallyport_audit::log::AuditLog,
    from: u64,
    filter: &Filter,
    limit: usize,
    tail: bool,
    sender: &mpsc::Sender<Result<v1::AuditRecord, Status>>,
) -> std::io::Result<u64> {
    let last = log.head().0;
    let mut kept = std::collections::VecDeque::new();
    let mut sent = 0;
    let most = if limit == 0 { MOST_TAIL } else { limit.min(MOST_TAIL) };
    log.scan(from, filter, |record| {
        if record.sequence > last {
            return ControlFlow::Break(());
        }
        if tail && limit > 0 {
            if kept.len() == most {
                kept.pop_front();
            }
            kept.push_back(record);
            return ControlFlow::Continue(());
        }
        sent += 1;
        if sender.blocking_send(Ok(answer(&record))).is_err() || (limit > 0 && sent == limit) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    for record in kept {
        if sender.blocking_send(Ok(answer(&record))).is_err() {
            break;
        }
    }
    Ok(last + 1)
}

fn answer(record: &Record) -> v1::AuditRecord {
    v1::AuditRecord { sequence: record.sequence, event_json: record.json.clone(), hash: record.hash_hex() }
}
