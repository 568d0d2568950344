//! What others published, next to what was measured here.

use sallyport_bench::page::{self, Section};
use sallyport_bench::report::Report;

/// Where figures stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its title.
    pub title: &'static str,
    /// Its address.
    pub url: &'static str,
    /// When it was published.
    pub date: &'static str,
}

/// "So you're making an RSA key for an HTTPS certificate": strength, and handshakes in a browser.
pub const CERTSIMPLE: Source = Source {
    title: "CertSimple: So you're making an RSA key for an HTTPS certificate",
    url: "https://certsimple.com/blog/measuring-ssl-rsa-keys",
    date: "2015-04-23",
};
/// Requests a second of nginx on eight cores.
pub const NYTSOI: Source = Source {
    title: "Random Notes: HTTPS performance, 2048-bit vs 4096-bit",
    url: "https://blog.nytsoi.net/2015/11/02/nginx-https-performance",
    date: "2015-11-02",
};
/// `openssl speed` of one core.
pub const CLOUDFLARE: Source = Source {
    title: "Cloudflare: ECDSA: The digital signature algorithm of a better internet",
    url: "https://blog.cloudflare.com/ecdsa-the-digital-signature-algorithm-of-a-better-internet/",
    date: "2014-03-10",
};
/// Signatures and verifications by size, by one machine.
pub const SPEED: Source = Source {
    title: "Stack Overflow: why verification is faster than signing (openssl speed rsa)",
    url: "https://stackoverflow.com/a/66945451",
    date: "2021",
};
/// Signatures and handshakes of one core.
pub const NGINX: Source = Source {
    title: "NGINX: SSL performance",
    url: "https://www.nginx.com/blog/nginx-ssl-performance/",
    date: "2014-07",
};
/// The formula by which the strength of any size was computed, with its results for common sizes.
pub const STACK_EXCHANGE: Source = Source {
    title: "Cryptography Stack Exchange: how are the comparable strengths of RSA computed",
    url: "https://crypto.stackexchange.com/questions/8687/security-strength-of-rsa-in-relation-with-the-modulus-size",
    date: "2013",
};

/// One figure of others, and where ours is.
#[derive(Debug, Clone, Copy)]
struct Figure {
    what: &'static str,
    theirs: f64,
    source: Source,
    /// The measurement, the row and the figure.
    ours: (&'static str, &'static str, &'static str),
}

/// Figures that belong together.
struct Table {
    title: &'static str,
    unit: &'static str,
    /// Digits after the point.
    digits: usize,
    figures: &'static [Figure],
    /// What differs, and why.
    difference: &'static str,
}

const fn figure(
    what: &'static str,
    theirs: f64,
    source: Source,
    ours: (&'static str, &'static str, &'static str),
) -> Figure {
    Figure { what, theirs, source, ours }
}

const TABLES: &[Table] = &[
    Table {
        title: "Strength of RSA by the general number field sieve",
        unit: "bits, an estimate",
        digits: 2,
        figures: &[
            figure("RSA-1024", 86.77, STACK_EXCHANGE, ("strength", "RSA-1024", "sieve bits (estimate)")),
            figure("RSA-2048", 116.88, CERTSIMPLE, ("strength", "RSA-2048", "sieve bits (estimate)")),
            figure("RSA-3072", 138.74, STACK_EXCHANGE, ("strength", "RSA-3072", "sieve bits (estimate)")),
            figure("RSA-4096", 156.50, STACK_EXCHANGE, ("strength", "RSA-4096", "sieve bits (estimate)")),
        ],
        difference: "The same formula, so the same figures to the last digit that was published. It leaves out a constant \
                     (the o(1) of the complexity), which is why NIST's table, fitted with one, has 112 for RSA-2048 and 128 \
                     for RSA-3072.",
    },
    Table {
        title: "Signing by size of the key",
        unit: "signatures a second on one core",
        digits: 0,
        figures: &[
            figure("RSA-2048", 1479.2, SPEED, ("keys", "sign rsa-2048", "per s and core")),
            figure("RSA-3072", 419.3, SPEED, ("keys", "sign rsa-3072", "per s and core")),
            figure("RSA-4096", 196.7, SPEED, ("keys", "sign rsa-4096", "per s and core")),
        ],
        difference: "Theirs is openssl speed of an unnamed machine, ours the source that is selected here, on another \
                     processor. The ratios are to compare: each doubling of the size costs five to eight times the signature. \
                     RSA-1024 is left out: no source here signs with it.",
    },
    Table {
        title: "Verifying by size of the key",
        unit: "verifications a second on one core",
        digits: 0,
        figures: &[
            figure("RSA-2048", 46028.3, SPEED, ("keys", "verify rsa-2048", "per s and core")),
            figure("RSA-3072", 24407.0, SPEED, ("keys", "verify rsa-3072", "per s and core")),
            figure("RSA-4096", 14392.3, SPEED, ("keys", "verify rsa-4096", "per s and core")),
        ],
        difference: "The same run of theirs. Verifying grows with the square of the size, signing with nearly its cube: the \
                     server pays for a long key, and clients hardly.",
    },
    Table {
        title: "Signatures by kind of key",
        unit: "signatures a second on one core",
        digits: 0,
        figures: &[
            figure("RSA-2048", 1001.8, CLOUDFLARE, ("keys", "sign rsa-2048", "per s and core")),
            figure("ECDSA P-256", 9516.8, CLOUDFLARE, ("keys", "sign ecdsa-p256", "per s and core")),
            figure("RSA-2048 (NGINX)", 600.0, NGINX, ("keys", "sign rsa-2048", "per s and core")),
        ],
        difference: "Theirs are openssl speed of 2014 (OpenSSL 1.0.2 beta), ours the source that is selected here. What \
                     matters is the ratio: P-256 has gained more in ten years than RSA, since its arithmetic was rewritten for \
                     vectors and wide multiplication, and RSA waits for instructions (AVX-512 IFMA) that not every processor has.",
    },
    Table {
        title: "Requests a second by certificate, a new connection each",
        unit: "requests a second",
        digits: 0,
        figures: &[
            figure("without TLS", 1380.0, NYTSOI, ("load", "nginx, plain, keep-alive off", "req/s")),
            figure("RSA-2048", 730.0, NYTSOI, ("load", "nginx, rsa-2048, keep-alive off", "req/s")),
            figure("RSA-4096", 200.0, NYTSOI, ("load", "nginx, rsa-4096, keep-alive off", "req/s")),
        ],
        difference: "Theirs is a website on eight cores of 2015 with TLS 1.2, asked over the Internet by a load service, and the \
                     plain figure is what that service would ask for, not what the server could do. Ours is a small file with \
                     TLS 1.3, asked over loopback by a generator that has processors of its own where there are several. So ours falls much deeper from plain to RSA: \
                     there is nothing else to wait for. RSA-4096 against RSA-2048 is the figure to compare.",
    },
    Table {
        title: "Handshake as a browser sees it",
        unit: "ms",
        digits: 1,
        figures: &[
            figure("RSA-2048", 50.0, CERTSIMPLE, ("browser", "RSA-2048, X25519", "handshake ms")),
            figure("RSA-4096", 76.0, CERTSIMPLE, ("browser", "RSA-4096, X25519", "handshake ms")),
        ],
        difference: "Theirs went over a network, with TLS 1.2 and its second round trip, to a server that had other work; ours goes \
                     over loopback with TLS 1.3, so that only computing is left. The difference between the two keys is the \
                     figure to compare: the server's signature, and a little more verification.",
    },
];

/// Ours of one of theirs.
fn ours(reports: &[Report], figure: &Figure) -> Option<f64> {
    let (measurement, what, name) = figure.ours;
    let report = reports.iter().find(|report| report.measurement == measurement)?;
    // Behind its name a row may say more in parentheses: by which source, or with which reserve.
    let is = |row: &&sallyport_bench::report::Row| {
        row.what.strip_prefix(what).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
    };
    let figure = report.rows.iter().find(is)?.figures.iter().find(|figure| figure.name == name)?;
    // A single run says nothing.
    figure.value.filter(|_| figure.samples.is_none_or(|samples| samples > 1))
}

/// The tables for which there are figures of ours; none when there are none.
#[must_use]
pub fn section(reports: &[Report]) -> Option<Section> {
    let mut body = String::new();
    for table in TABLES {
        if table.figures.iter().all(|figure| ours(reports, figure).is_none()) {
            continue;
        }
        let first = table.figures.first().map(|figure| (figure.source, figure.theirs, ours(reports, figure)));
        let rows: Vec<Vec<String>> = table
            .figures
            .iter()
            .map(|figure| {
                let mine = ours(reports, figure);
                let to_first = |value: Option<f64>, first: Option<f64>| match (value, first) {
                    (Some(value), Some(first)) if first > 0.0 => format!("{:.2}x", value / first),
                    _ => "-".to_owned(),
                };
                vec![
                    figure.what.to_owned(),
                    format!("{:.*}", table.digits, figure.theirs),
                    mine.map_or_else(|| "-".to_owned(), |mine| format!("{mine:.*}", table.digits)),
                    // Figures of two machines make no ratio.
                    to_first(
                        Some(figure.theirs),
                        first.filter(|(source, ..)| *source == figure.source).map(|(_, theirs, _)| theirs),
                    ),
                    to_first(mine, first.and_then(|(.., ours)| ours)),
                    format!("{} ({})", figure.source.title, figure.source.date),
                ]
            })
            .collect();
        body.push_str(&format!("<h3>{}, {}</h3>\n", page::escape(table.title), page::escape(table.unit)));
        let headings =
            ["", "published", "here", "published, to the first", "here, to the first", "published by"];
        body.push_str(&page::table("words", &headings, &rows));
        body.push_str(&format!("<p>{}</p>\n", page::escape(table.difference)));
    }
    (!body.is_empty()).then(|| Section {
        id: "published".to_owned(),
        title: "What others published".to_owned(),
        body,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sallyport_bench::Talk;

    #[test]
    fn strength_is_as_it_was_published() {
        let report = crate::strength::run(&Talk::silent()).unwrap();
        let reports = [report];
        let table = TABLES.first().unwrap();
        for figure in table.figures {
            let ours = ours(&reports, figure).unwrap();
            assert!((ours - figure.theirs).abs() < 0.006, "{}: {ours}", figure.what);
        }
        let section = section(&reports).unwrap();
        assert!(section.body.contains("116.88") && !section.body.contains("browser"), "{}", section.body);
        assert!(super::section(&[]).is_none());
    }
}
