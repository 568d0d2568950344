//! Handshakes of TLS, in turns.

use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_bench::statistics::Samples;
use sallyport_sal::algorithm::{KexGroup, KeyAlgorithm};
use sallyport_sal::measure::handshake::{Credentials, Operations, Pair, Shape, Sides};
use sallyport_sal::measure::instructions::Instructions;
use sallyport_sal::measure::timing::Batch;
use sallyport_sal::selection;

use super::loopback::Loopback;
use super::settings::{Effort, Transport};
use crate::LabError;

/// Most handshakes in one sample.
const MOST: u32 = 500;

/// One kind of handshake, and how its bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) shape: Shape,
    pub(super) transport: Transport,
}

/// What was measured of a cell; times in microseconds for one handshake.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) cell: Cell,
    pub(super) client: Samples,
    pub(super) server: Samples,
    /// From the client's connect to the end of its handshake; over loopback alone.
    pub(super) wall: Samples,
    /// Bytes and round trips of one handshake.
    pub(super) sides: Sides,
    /// Instructions of both sides together in user space; in memory alone, and where the kernel counts them.
    pub(super) instructions: Option<u64>,
}

/// An operation that phases consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    ServerExchange(KexGroup),
    BothExchange(KexGroup),
    Sign(KeyAlgorithm),
    Verify(KeyAlgorithm),
    Chain(KeyAlgorithm, usize),
}

/// Cells and parts that are ready, with what was measured of them.
pub(super) struct Bench {
    pub(super) cells: Vec<Measured>,
    /// Why some cells are not there.
    pub(super) missing: Vec<(Cell, String)>,
    pub(super) parts: Vec<(Part, Samples)>,
    runners: Vec<(Pair, u32)>,
    batches: Vec<Batch>,
    loopback: Option<Loopback>,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("cells", &self.cells.len()).finish_non_exhaustive()
    }
}

/// What a sample is: of a cell, or of a part.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sample {
    Cell { cell: Cell, count: u32, client: f64, server: f64, wall: Option<f64> },
    Part { part: Part, microseconds: f64 },
}

impl Bench {
    /// Makes keys, certificates and connections ready, and runs each once or more, which is not counted.
    ///
    /// # Errors
    /// When there is no port on loopback.
    pub(super) fn prepare(
        cells: &[Cell],
        with_parts: bool,
        effort: Effort,
        talk: &Talk,
    ) -> Result<Self, LabError> {
        let selection = selection::global();
        let mut made: Vec<((KeyAlgorithm, usize), Credentials)> = Vec::new();
        let mut bench = Self {
            cells: Vec::new(),
            missing: Vec::new(),
            parts: Vec::new(),
            runners: Vec::new(),
            batches: Vec::new(),
            loopback: None,
        };
        let mut counter = Instructions::of_this_thread();
        for (at, cell) in cells.iter().enumerate() {
            if talk.stopping() {
                break;
            }
            talk.progress(at, cells.len(), "keys and certificates");
            let shape = cell.shape;
            if let Some(reason) = shape.impossible() {
                bench.missing.push((*cell, reason.to_owned()));
                continue;
            }
            let wanted = (shape.key, shape.chain);
            if !made.iter().any(|(one, _)| *one == wanted) {
                match Credentials::with_chain(selection, shape.key, shape.chain) {
                    Ok(credentials) => made.push((wanted, credentials)),
                    Err(error) => {
                        bench.missing.push((*cell, error.to_string()));
                        continue;
                    }
                }
            }
            let Some((_, credentials)) = made.iter().find(|(one, _)| *one == wanted) else { continue };
            let ready = Pair::with(selection, credentials, shape).and_then(|pair| {
                pair.warm_up()?;
                let sides = pair.run()?;
                Ok((pair, sides))
            });
            let (pair, sides) = match ready {
                Ok(ready) => ready,
                Err(reason) => {
                    bench.missing.push((*cell, reason.to_string()));
                    continue;
                }
            };
            if with_parts {
                bench.add_parts(credentials, shape, effort.batch)?;
            }
            if cell.transport == Transport::Loopback && bench.loopback.is_none() {
                bench.loopback = Some(Loopback::start()?);
            }
            let instructions = match (&mut counter, cell.transport) {
                (Ok(counter), Transport::Memory) => counter.count(&mut || drop(pair.run())),
                _ => None,
            };
            let count = repetitions(effort.batch, sides.client + sides.server);
            bench.runners.push((pair, count));
            bench.cells.push(Measured {
                cell: *cell,
                client: Samples::default(),
                server: Samples::default(),
                wall: Samples::default(),
                sides,
                instructions,
            });
        }
        Ok(bench)
    }

    fn add_parts(
        &mut self,
        credentials: &Credentials,
        shape: Shape,
        batch: Duration,
    ) -> Result<(), LabError> {
        let operations = Operations::of(selection::global(), credentials, shape).map_err(|error| {
            LabError::Failed { what: "taking a handshake apart".to_owned(), said: error.to_string() }
        })?;
        // They are shorter than a handshake, and there are more of them.
        let batch = batch / 4;
        let all = [
            (Part::ServerExchange(shape.group), operations.server_exchange),
            (Part::BothExchange(shape.group), operations.both_exchange),
            (Part::Sign(shape.key), operations.sign),
            (Part::Verify(shape.key), operations.verify),
            (Part::Chain(shape.key, shape.chain), operations.verify_chain),
        ];
        for (part, work) in all {
            if !self.parts.iter().any(|(one, _)| *one == part) {
                self.parts.push((part, Samples::default()));
                self.batches.push(Batch::new(work, batch));
            }
        }
        Ok(())
    }

    /// Takes one sample of everything, and hands each to `heard`. False when it was told to stop in the middle.
    ///
    /// # Errors
    /// A handshake of this shape, where there are samples of it.
    pub(super) fn measured(&self, shape: Shape, transport: Transport) -> Option<&Measured> {
        let same = |one: &&Measured| one.cell.shape == shape && one.cell.transport == transport;
        self.cells.iter().find(same).filter(|measured| !measured.server.is_empty())
    }

    /// When a handshake fails that went well before.
    pub(super) fn round(
        &mut self,
        talk: &Talk,
        mut heard: impl FnMut(Sample) -> Result<(), LabError>,
    ) -> Result<bool, LabError> {
        for (measured, (pair, count)) in self.cells.iter_mut().zip(&self.runners) {
            if talk.stopping() {
                return Ok(false);
            }
            let per = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(*count);
            let (client, server, wall) = match (measured.cell.transport, &self.loopback) {
                (Transport::Loopback, Some(loopback)) => {
                    let run = loopback.run(pair, *count)?;
                    (per(run.client), per(run.server), Some(run.wall))
                }
                _ => {
                    let sides = pair.run_many(*count).map_err(|error| LabError::Failed {
                        what: "a handshake in memory".to_owned(),
                        said: error.to_string(),
                    })?;
                    (per(sides.client), per(sides.server), None)
                }
            };
            measured.client.push(client);
            measured.server.push(server);
            if let Some(wall) = wall {
                measured.wall.push(wall);
            }
            heard(Sample::Cell { cell: measured.cell, count: *count, client, server, wall })?;
        }
        for ((part, samples), batch) in self.parts.iter_mut().zip(&mut self.batches) {
            if talk.stopping() {
                return Ok(false);
            }
            let microseconds = batch.sample() / 1e3;
            samples.push(microseconds);
            heard(Sample::Part { part: *part, microseconds })?;
        }
        Ok(true)
    }

    fn part(&self, part: Part) -> Option<&Samples> {
        self.parts.iter().find(|(one, _)| *one == part).map(|(_, samples)| samples)
    }

    /// What the phases of a handshake cost each side, in microseconds.
    pub(super) fn phases(&self, shape: Shape) -> Option<Phases> {
        use sallyport_sal::measure::handshake::Version;
        let nothing = || Samples::default();
        let server_exchange = self.part(Part::ServerExchange(shape.group))?;
        let both = self.part(Part::BothExchange(shape.group))?;
        let client_exchange =
            both.iter().zip(server_exchange.iter()).map(|(both, one)| (both - one).max(0.0));
        let exchange = match (shape.version, shape.resumed) {
            // It resumes with the secret alone (RFC 5246 §7.3).
            (Version::Tls12, true) => [nothing(), nothing()],
            _ => [client_exchange.collect(), server_exchange.clone()],
        };
        if shape.resumed {
            return Some(Phases {
                exchange,
                signature: [nothing(), nothing()],
                chain: [nothing(), nothing()],
            });
        }
        let (sign, verify) = (self.part(Part::Sign(shape.key))?, self.part(Part::Verify(shape.key))?);
        let chain = self.part(Part::Chain(shape.key, shape.chain))?;
        let both: Samples = sign.iter().zip(verify.iter()).map(|(sign, verify)| sign + verify).collect();
        let (signature, chain) = if shape.client_certificate {
            ([both.clone(), both], [chain.clone(), chain.clone()])
        } else {
            ([verify.clone(), sign.clone()], [chain.clone(), nothing()])
        };
        Some(Phases { exchange, signature, chain })
    }
}

/// The phases of a handshake: client and server.
#[derive(Debug, Clone)]
pub(super) struct Phases {
    pub(super) exchange: [Samples; 2],
    pub(super) signature: [Samples; 2],
    pub(super) chain: [Samples; 2],
}

/// How many of something fill a batch.
pub(super) fn repetitions(batch: Duration, one: Duration) -> u32 {
    let fitting = batch.as_nanos() / one.as_nanos().max(1);
    u32::try_from(fitting).unwrap_or(MOST).clamp(1, MOST)
}
