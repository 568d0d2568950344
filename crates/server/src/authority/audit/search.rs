//! Searching the audit log, and following it.

use std::collections::VecDeque;
use std::sync::Arc;

use sallyport_access::Verb;
use sallyport_audit::log::{Filter, Record};
use sallyport_wire::{convert, v1};
use tokio::sync::broadcast;
use tonic::Status;

use crate::authority::audit::checkpoints::Checkpoints;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::Caller;
use crate::authority::gate::calls::Gate;
use crate::authority::streams::{Answers, Line, Over, Served, StreamPlace, Streams};
use crate::authority::workers::Workers;

/// Records that a search may be ahead of its reader.
const SEARCH_QUEUE: usize = 64;
/// Records that are read at once.
const PIECE: usize = 256;
/// Newest records that `tail` keeps while it searches.
const MOST_TAIL: usize = 10_000;

pub(crate) type Events = Served<v1::AuditRecord>;

/// Searches the audit log and checks it.
#[derive(Debug)]
pub(crate) struct AuditReader {
    pub(super) journal: Arc<Journal>,
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) gate: Arc<Gate>,
    pub(super) streams: Arc<Streams>,
    pub(super) reading: Arc<Workers>,
}

impl AuditReader {
    pub(crate) fn new(
        journal: &Arc<Journal>,
        checkpoints: &Arc<Checkpoints>,
        gate: &Arc<Gate>,
        streams: &Arc<Streams>,
        reading: &Arc<Workers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            journal: Arc::clone(journal),
            checkpoints: Arc::clone(checkpoints),
            gate: Arc::clone(gate),
            streams: Arc::clone(streams),
            reading: Arc::clone(reading),
        })
    }

    /// Searches for a caller who may.
    pub(crate) fn search(
        self: &Arc<Self>,
        caller: &Caller,
        (place, line): (StreamPlace, Line),
        asked: v1::SearchEventsRequest,
    ) -> Events {
        let (searching, gate, caller) = (Arc::clone(self), Arc::clone(&self.gate), caller.clone());
        self.streams.stream(
            place,
            line,
            SEARCH_QUEUE,
            move || gate.check(&caller, "event", Verb::List).map(drop),
            |answers| run(searching, asked, answers),
        )
    }
}

async fn run(
    reader: Arc<AuditReader>,
    asked: v1::SearchEventsRequest,
    answers: Answers<v1::AuditRecord>,
) -> Result<(), Over> {
    let filter = Filter {
        since: asked.since.as_ref().and_then(convert::time_from_proto),
        until: asked.until.as_ref().and_then(convert::time_from_proto),
        code: asked.code,
        user: asked.user,
        session_id: asked.session_id,
        statement: asked.statement,
    };
    // Subscribed before the files are read, so that nothing falls between.
    let mut live = reader.journal.log().subscribe();
    let (mut next, mut limit) = (0, asked.limit as usize);
    loop {
        let tail = asked.tail && next == 0;
        next = scan(&reader, next, &filter, std::mem::take(&mut limit), tail, &answers).await?;
        if !asked.follow {
            return Ok(());
        }
        loop {
            match live.recv().await {
                Ok(record) if record.sequence < next => {}
                Ok(record) => {
                    next = record.sequence + 1;
                    if filter.matches(&record) {
                        answers.send(answer(&record)).await?;
                    }
                }
                // Too slow for memory; the files have it.
                Err(broadcast::error::RecvError::Lagged(_)) => break,
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            }
        }
    }
}

/// Sends what matches; gives the number from which to go on.
async fn scan(
    reader: &AuditReader,
    from: u64,
    filter: &Filter,
    limit: usize,
    tail: bool,
    answers: &Answers<v1::AuditRecord>,
) -> Result<u64, Over> {
    let mut cursor = reader.journal.log().read(from, filter.clone());
    let next = cursor.last() + 1;
    let tail = tail && limit > 0;
    let most = limit.min(MOST_TAIL);
    let (mut kept, mut sent) = (VecDeque::new(), 0);
    loop {
        // No thread waits for the peer: each piece is read, and only then sent.
        let reading = reader.reading.run(move || {
            let records = cursor.next(PIECE);
            (cursor, records)
        });
        let records;
        (cursor, records) = reading.await.map_err(|_| unreadable("its reader failed"))?;
        let Some(records) = records.map_err(unreadable)? else { break };
        for record in records {
            if tail {
                if kept.len() == most {
                    kept.pop_front();
                }
                kept.push_back(record);
                continue;
            }
            answers.send(answer(&record)).await?;
            sent += 1;
            if sent == limit {
                return Ok(next);
            }
        }
    }
    for record in kept {
        answers.send(answer(&record)).await?;
    }
    Ok(next)
}

fn unreadable(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("the audit log cannot be read: {error}"))
}

fn answer(record: &Record) -> v1::AuditRecord {
    v1::AuditRecord { sequence: record.sequence, event_json: record.json.clone(), hash: record.hash_hex() }
}
