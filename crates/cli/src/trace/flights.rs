//! Round trips, counted and not timed: how long the chain is of "this was sent, so that came, so this was sent".

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Recorder;

/// On a quicker link than this, the time does not tell an answer from what was on its way already: the scheduler takes as
/// long.
pub(super) const TELLING: Duration = Duration::from_millis(5);

/// The chain so far.
///
/// Bytes that come are an answer when something was sent after the last answer. What comes sooner than half a round trip
/// after that cannot be one: it was on its way before.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// Round trips so far.
    round_trips: u32,
    /// When the first bytes after the last answer went out.
    asked: Option<Duration>,
    dialled: Option<Duration>,
    shortest: Option<Duration>,
}

impl Flights {
    /// TCP is there: one round trip, which nothing but the network took part in.
    pub(super) fn dialled(&mut self, took: Duration) {
        self.round_trips += 1;
        self.dialled = Some(took);
        self.asked = None;
    }

    /// Bytes went out, at this time since the beginning.
    pub(super) fn sent(&mut self, now: Duration) {
        self.asked.get_or_insert(now);
    }

    /// Bytes came in.
    pub(super) fn came(&mut self, now: Duration) {
        let Some(asked) = self.asked else { return };
        let took = now.saturating_sub(asked);
        let least = self.round_trip().filter(|known| *known >= TELLING).map(|known| known / 2);
        if least.is_none_or(|least| took >= least) {
            self.round_trips += 1;
            self.asked = None;
            self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
        }
    }

    pub(super) fn round_trips(&self) -> u32 {
        self.round_trips
    }

    /// What a round trip takes, as far as known: as long as TCP took to connect, or else the quickest answer.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.dialled.or(self.shortest)
    }
}

/// A connection whose flights are counted, when there is anybody to count them.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    stream: S,
    recorder: Option<&'static Recorder>,
}

impl<S> Counted<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, recorder: super::recorder_here() }
    }

    fn sent<T>(&self, written: &Poll<io::Result<T>>) {
        if let (Some(recorder), Poll::Ready(Ok(_))) = (self.recorder, written) {
            recorder.with_flights(Flights::sent);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(recorder) = self.recorder
            && buffer.filled().len() > before
        {
            recorder.with_flights(Flights::came);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, data);
        self.sent(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_round_trip_is_an_answer_to_what_was_sent_since_the_last_one() {
        let mut flights = Flights::default();
        flights.dialled(at(100));
        assert_eq!((flights.round_trips(), flights.round_trip()), (1, Some(at(100))));
        flights.sent(at(100));
        flights.sent(at(101));
        flights.came(at(201));
        flights.came(at(202));
        assert_eq!(flights.round_trips(), 2, "two pieces each way are one flight each way");
        flights.came(at(250));
        assert_eq!(flights.round_trips(), 2, "nothing was asked");
    }

    #[test]
    fn what_was_on_its_way_already_answers_nothing() {
        let mut flights = Flights::default();
        flights.dialled(at(100));
        flights.sent(at(100));
        flights.came(at(200));
        flights.sent(at(201));
        flights.came(at(210));
        assert_eq!(flights.round_trips(), 2, "10 ms after the question");
        flights.came(at(301));
        assert_eq!(flights.round_trips(), 3);
    }

    #[test]
    fn on_a_quick_link_every_change_of_direction_counts() {
        let mut flights = Flights::default();
        flights.dialled(Duration::from_micros(4_000));
        for turn in 0..4 {
            flights.sent(Duration::from_micros(turn * 100));
            flights.came(Duration::from_micros(turn * 100 + 50));
        }
        assert_eq!(flights.round_trips(), 5);
    }

    #[test]
    fn without_a_dial_the_quickest_answer_tells_the_round_trip() {
        let mut flights = Flights::default();
        assert_eq!(flights.round_trip(), None);
        flights.sent(at(0));
        flights.came(at(120));
        flights.sent(at(121));
        flights.came(at(130));
        flights.came(at(225));
        assert_eq!((flights.round_trips(), flights.round_trip()), (2, Some(at(104))));
    }
}
