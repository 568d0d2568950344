//! What the page says about its own connection.

use serde::Deserialize;

/// The longest message that is taken from a page, in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 4096;
/// No run takes longer; what says so is nonsense.
const LONGEST_MILLISECONDS: f64 = 60_000.0;

/// Fields of `PerformanceNavigationTiming` (Navigation Timing Level 2 §4), in milliseconds since the navigation began.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Posted {
    fetch_start: f64,
    connect_start: f64,
    secure_connection_start: f64,
    connect_end: f64,
    response_start: f64,
    isolated: bool,
    agent: String,
}

/// Why what a page posted is no timing.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadTiming {
    #[error("the page posted {0} bytes")]
    Long(usize),
    #[error("the page posted no timing: {0}")]
    Malformed(serde_json::Error),
    #[error("the browser used a connection that was there already")]
    Reused,
    #[error("the page posted times that cannot be: {0:?}")]
    Impossible([f64; 5]),
}

/// One navigation, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PageTiming {
    /// The TLS handshake: `connectEnd - secureConnectionStart`.
    pub(super) handshake: f64,
    /// TCP and TLS: `connectEnd - connectStart`.
    pub(super) connect: f64,
    /// From the beginning of the fetch to the first byte of the answer.
    pub(super) first_byte: f64,
    /// Whether the page was cross-origin isolated, so that its clock is fine.
    pub(super) isolated: bool,
    /// What the browser calls itself.
    pub(super) agent: String,
}

impl PageTiming {
    /// Reads what a page posted.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(message: &[u8]) -> Result<Self, BadTiming> {
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(BadTiming::Long(message.len()));
        }
        let posted: Posted = serde_json::from_slice(message).map_err(BadTiming::Malformed)?;
        if posted.secure_connection_start == 0.0 {
            return Err(BadTiming::Reused);
        }
        let order = [
            posted.fetch_start,
            posted.connect_start,
            posted.secure_connection_start,
            posted.connect_end,
            posted.response_start,
        ];
        let bounded = order.iter().all(|time| (0.0..LONGEST_MILLISECONDS).contains(time));
        if !bounded || !order.is_sorted() || posted.connect_end <= posted.secure_connection_start {
            return Err(BadTiming::Impossible(order));
        }
        Ok(Self {
            handshake: posted.connect_end - posted.secure_connection_start,
            connect: posted.connect_end - posted.connect_start,
            first_byte: posted.response_start - posted.fetch_start,
            isolated: posted.isolated,
            agent: posted.agent.chars().filter(|letter| !letter.is_control()).take(200).collect(),
        })
    }
}

/// The page: it posts its own timing to where it came from, and goes on to `next` after so many milliseconds. `place` is
/// where it stands on its server.
pub(super) fn page(place: &str, next: Option<&str>, settle_milliseconds: u128) -> String {
    let next = serde_json::to_string(&next).unwrap_or_else(|_| "null".to_owned());
    let place = serde_json::to_string(place).unwrap_or_default();
    // responseEnd and what follows are not done before `load`.
    format!(
        r#"<!doctype html><html lang="en"><meta charset="utf-8"><title>sallyport lab</title><link rel="icon" href="data:,">
<script>
"use strict";
const next = {next}, pause = milliseconds => new Promise(done => setTimeout(done, milliseconds));
addEventListener("load", async () => {{
  const t = performance.getEntriesByType("navigation")[0];
  const said = {{
    fetchStart: t.fetchStart, connectStart: t.connectStart, secureConnectionStart: t.secureConnectionStart,
    connectEnd: t.connectEnd, responseStart: t.responseStart, isolated: crossOriginIsolated,
    agent: navigator.userAgent,
  }};
  await fetch({place}, {{ method: "POST", body: JSON.stringify(said) }});
  if (next) {{ await pause({settle_milliseconds}); location.href = next; }}
}});
</script></html>
"#
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn message(secure: &str, end: &str) -> String {
        format!(
            r#"{{"fetchStart":1.5,"connectStart":2,"secureConnectionStart":{secure},"connectEnd":{end},"responseStart":9,"isolated":true,"agent":"x\u001b[1m"}}"#
        )
    }

    #[test]
    fn a_timing_is_read() {
        let timing = PageTiming::read(message("2.5", "6").as_bytes()).unwrap();
        assert_eq!((timing.handshake, timing.connect, timing.first_byte), (3.5, 4.0, 7.5));
        assert_eq!((timing.isolated, timing.agent.as_str()), (true, "x[1m"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (secure, end) in [
            ("0", "6"),
            ("6", "2.5"),
            ("3", "3"),
            ("-1", "6"),
            ("1e9", "1e9"),
            ("2.5", "1e400"),
            ("null", "6"),
            ("\"2\"", "6"),
            ("2.5", "59999"),
        ] {
            assert!(PageTiming::read(message(secure, end).as_bytes()).is_err(), "{secure} {end}");
        }
        assert!(
            PageTiming::read(message("0", "6").as_bytes()).unwrap_err().to_string().contains("there already")
        );
        let extra = message("2.5", "6").replace("\"isolated\"", "\"evil\":1,\"isolated\"");
        let long = message("2.5", "6").replace("x\\u", &"x".repeat(MAX_MESSAGE_BYTES));
        let deep = "[".repeat(4000);
        for hostile in ["", "null", "[]", "{", "{}", "\u{0}", &extra, &long, &deep] {
            assert!(PageTiming::read(hostile.as_bytes()).is_err(), "{hostile}");
        }
        assert!(PageTiming::read(&[0xff; 100]).is_err());
    }

    #[test]
    fn the_page_goes_on_only_where_there_is_a_next_one() {
        assert!(page("/a", None, 0).contains("const next = null"));
        let page = page("/a", Some("https://127.0.0.1:1/b"), 250);
        assert!(
            page.contains(r#"const next = "https://127.0.0.1:1/b""#) && page.contains("pause(250)"),
            "{page}"
        );
        assert!(page.contains(r#"fetch("/a""#), "{page}");
    }
}
