//! A journey as a waterfall: text for a terminal, and a picture with every packet around it.

use std::fmt::Write as _;
use std::time::Duration;

use sallyport_bench::plot;

use super::capture::Capture;
use super::captured::CapturedPacket;
use super::packet::{Carries, Packet};
use super::round_trips::{Cause, Journey, Trip};

/// Most packets in a picture: more are a wall of ink. The first ones are drawn.
const DRAWN_MOST: usize = 2_000;
const WIDTH: f64 = 900.0;
/// Where the first host stands, and how far from the right edge the last one does.
const MARGIN: f64 = 150.0;
const TOP: f64 = 84.0;
/// Height of the time that is drawn, whatever it is.
const HEIGHT: f64 = 900.0;

/// What a packet is, in few words.
fn what(packet: &Packet) -> String {
    match packet.carries {
        Carries::Tcp(segment) => {
            let mut words = Vec::new();
            let answers = segment.syn && segment.acknowledged.is_some();
            for (is, word) in
                [(segment.syn, "SYN"), (answers, "ACK"), (segment.fin, "FIN"), (segment.reset, "RST")]
            {
                if is {
                    words.push(word.to_owned());
                }
            }
            if segment.payload > 0 {
                words.push(format!("{} bytes", segment.payload));
            }
            if words.is_empty() {
                words.push("ACK".to_owned());
            }
            words.join(" ")
        }
        Carries::Udp { payload, .. } => format!("UDP {payload} bytes"),
        Carries::Other { protocol } => format!("protocol {protocol}"),
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Each way of a journey on a line: when it began, how long its sender had thought, from whom to whom, what it was.
#[must_use]
pub fn text(capture: &Capture, journey: &Journey) -> String {
    let name = |host: usize| capture.hosts.get(host).map_or("?", String::as_str);
    let width = capture.hosts.iter().map(String::len).max().unwrap_or_default();
    let began = journey.trips.first().map(|trip| trip.sent).unwrap_or_default();
    let mut lines = format!("{:>9}  {:>8}  {:>7}\n", "sent ms", "after ms", "way ms");
    let mut before: Option<&Trip> = None;
    for trip in &journey.trips {
        let waited = before.map_or(Duration::ZERO, |before| trip.sent.saturating_sub(before.arrived));
        let _ = writeln!(
            lines,
            "{:>9.1}  {:>8.1}  {:>7.1}  {:<width$} -> {:<width$}  {}{}",
            milliseconds(trip.sent.saturating_sub(began)),
            milliseconds(waited),
            milliseconds(trip.arrived.saturating_sub(trip.sent)),
            name(trip.from),
            name(trip.to),
            what(&trip.packet),
            if trip.cause == Cause::Acknowledgement { ", waited for an acknowledgement" } else { "" },
        );
        before = Some(trip);
    }
    let _ = writeln!(lines, "{:>9.1}  the last byte is there", milliseconds(journey.took()));
    lines
}

/// The journey between the hosts, each a line from top to bottom, with all other packets pale around it.
#[must_use]
pub fn svg(title: &str, capture: &Capture, journey: &Journey) -> String {
    let began = journey.trips.first().map(|trip| trip.sent).unwrap_or_default();
    let took = milliseconds(journey.took()).max(0.001);
    #[allow(clippy::cast_precision_loss, reason = "a handful of hosts")]
    let lane = |host: usize| {
        let gaps = capture.hosts.len().saturating_sub(1).max(1) as f64;
        MARGIN + host as f64 * (WIDTH - 2.0 * MARGIN) / gaps
    };
    let y = |time: Duration| TOP + milliseconds(time.saturating_sub(began)) / took * HEIGHT;
    let mut body = String::new();
    let _ = writeln!(
        body,
        r#"<text x="16" y="26" class="h">{}</text><text x="16" y="44" class="t">time goes down, {took:.0} ms; thick: each waited for the one before, {} ways</text>"#,
        plot::escape(title),
        journey.trips.len(),
    );
    for (number, host) in capture.hosts.iter().enumerate() {
        let _ = writeln!(
            body,
            r#"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{end:.0}" class="a"/><text x="{x:.1}" y="{label:.0}" text-anchor="middle" font-weight="600">{}</text>"#,
            plot::escape(host),
            x = lane(number),
            end = TOP + HEIGHT + 10.0,
            label = TOP - 10.0,
        );
    }
    let end = began + journey.took();
    let during =
        |captured: &&CapturedPacket| captured.sent >= began && captured.arrived.is_some_and(|at| at <= end);
    for captured in capture.packets.iter().filter(during).take(DRAWN_MOST) {
        let Some(arrived) = captured.arrived else { continue };
        let _ = writeln!(
            body,
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" class="g"/>"#,
            lane(captured.from),
            y(captured.sent),
            lane(captured.to),
            y(arrived),
        );
    }
    for trip in &journey.trips {
        let (from, to) = (lane(trip.from), lane(trip.to));
        let stalled = trip.cause == Cause::Acknowledgement;
        // Beside the outer hosts; beside others above the line that goes away, which comes from the other side.
        let outer = trip.from == 0 || trip.from + 1 == capture.hosts.len();
        let (left, up) = if outer { (trip.from == 0, -3.0) } else { (to < from, 4.0) };
        let _ = writeln!(
            body,
            r#"<line x1="{from:.1}" y1="{:.1}" x2="{to:.1}" y2="{:.1}" class="n {}"/><text x="{:.1}" y="{:.1}" text-anchor="{}" class="t">{}</text>"#,
            y(trip.sent),
            y(trip.arrived),
            if stalled { "l1" } else { "l0" },
            if left { from - 6.0 } else { from + 6.0 },
            y(trip.sent) - up,
            if left { "end" } else { "start" },
            plot::escape(&format!("{}{}", what(&trip.packet), if stalled { " after ACK" } else { "" })),
        );
    }
    plot::document(title, (WIDTH, TOP + HEIGHT + 30.0), &body)
}

#[cfg(test)]
mod tests {
    use super::super::packet::tests::tcp;
    use super::*;

    fn capture() -> Capture {
        let captured = |from, to, sent: u64, ends: (&str, &str), flags, payload| CapturedPacket {
            from,
            to,
            sent: Duration::from_millis(sent),
            arrived: Some(Duration::from_millis(sent + 50)),
            lost: false,
            packet: Packet::parse(&tcp(ends.0, ends.1, flags, (1, 1), payload)).unwrap(),
        };
        let (up, down) = (("10.0.0.1:7", "10.0.0.2:22"), ("10.0.0.2:22", "10.0.0.1:7"));
        Capture {
            hosts: vec!["client".into(), "<host>".into()],
            packets: vec![
                captured(0, 1, 10, up, 0x02, 0),
                captured(1, 0, 61, down, 0x12, 0),
                captured(1, 0, 65, down, 0x18, 9),
            ],
            missed: 0,
        }
    }

    #[test]
    fn a_waterfall_says_who_waited_for_whom() {
        let capture = capture();
        let journey = capture.journey(0, Duration::MAX).unwrap();
        let text = text(&capture, &journey);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].contains("0.0") && lines[1].ends_with("client -> <host>  SYN"), "{text}");
        assert!(
            lines[2].contains("55.0") && lines[2].contains("5.0") && lines[2].ends_with("9 bytes"),
            "{text}"
        );
        assert!(lines[3].contains("105.0"));
        let svg = svg("A & B", &capture, &journey);
        assert!(svg.contains("A &amp; B") && svg.contains("&lt;host&gt;") && !svg.contains("NaN"));
        assert_eq!(svg.matches(r#"class="n l0""#).count(), 2);
        assert_eq!(svg.matches(r#"class="g""#).count(), 3);
    }
}
