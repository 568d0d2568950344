//! What handshakes cost, as pictures.

use sallyport_bench::plot::{Bar, Bars};
use sallyport_bench::report::Picture;
use sallyport_bench::statistics::Samples;
use sallyport_sal::measure::handshake::Shape;
use sallyport_ssh::measure::Shape as SshShape;

use super::settings::Transport;
use super::ssh;
use super::tls::{Bench, Measured};

const UNIT: &str = "microseconds of processor time";

/// Every picture for which there is something to show.
pub(super) fn all(bench: &Bench, ssh: &ssh::Bench) -> Vec<Picture> {
    let mut pictures = Vec::new();
    if let Some(first) = bench.cells.first().map(|one| one.cell.shape) {
        pictures.extend([
            keys(bench, first),
            phases(bench, first),
            groups(bench, first),
            bytes(bench, first),
            resumed(bench),
        ]);
    }
    pictures.push(host_keys(ssh));
    pictures.into_iter().flatten().collect()
}

fn picture(name: &str, title: &str, bars: &Bars) -> Option<Picture> {
    Some(Picture { name: format!("handshake-{name}"), title: title.to_owned(), svg: bars.svg() })
}

fn bar(label: impl Into<String>, samples: &Samples) -> Bar {
    let bar = Bar::new(label, samples.median());
    match samples.interval() {
        Some((low, high)) => bar.interval(low, high),
        None => bar,
    }
}

fn both(server: &Samples, client: &Samples) -> Vec<Bar> {
    vec![bar("server", server), bar("client", client).series(1)]
}

fn in_memory(bench: &Bench, wanted: impl Fn(Shape) -> bool) -> Vec<&Measured> {
    let shown = |one: &&Measured| {
        one.cell.transport == Transport::Memory && !one.server.is_empty() && wanted(one.cell.shape)
    };
    bench.cells.iter().filter(shown).collect()
}

fn keys(bench: &Bench, first: Shape) -> Option<Picture> {
    let full = in_memory(bench, |shape| shape == Shape { key: shape.key, ..first });
    let title = format!("A full TLS {} handshake, by the certificates' keys", first.version);
    let mut bars = Bars::new(&title, UNIT).logarithmic().legend(["server", "client"]);
    for one in &full {
        bars = bars.group(one.cell.shape.key.name(), both(&one.server, &one.client));
    }
    if full.len() > 1 { picture("keys", &title, &bars) } else { None }
}

fn phases(bench: &Bench, first: Shape) -> Option<Picture> {
    let full = in_memory(bench, |shape| shape == Shape { key: shape.key, ..first });
    let title = "Where the server's time goes in a full handshake";
    let legend = ["key exchange", "signature", "everything else"];
    let mut bars = Bars::new(title, UNIT).logarithmic().legend(legend);
    for one in &full {
        let phases = bench.phases(one.cell.shape)?;
        let ([_, exchange], [_, signature]) = (&phases.exchange, &phases.signature);
        let rest = (one.server.median() - exchange.median() - signature.median()).max(0.0);
        let group = vec![
            bar(legend[0], exchange),
            bar(legend[1], signature).series(1),
            Bar::new(legend[2], rest).series(2).pale(),
        ];
        bars = bars.group(one.cell.shape.key.name(), group);
    }
    if full.len() > 1 { picture("phases", title, &bars) } else { None }
}

fn groups(bench: &Bench, first: Shape) -> Option<Picture> {
    let groups = in_memory(bench, |shape| shape == Shape { group: shape.group, ..first });
    let title = format!("A full TLS {} handshake with {}, by key exchange", first.version, first.key);
    let mut bars = Bars::new(&title, UNIT).legend(["server", "client"]);
    for one in &groups {
        bars = bars.group(one.cell.shape.group.name(), both(&one.server, &one.client));
    }
    if groups.len() > 1 { picture("groups", &title, &bars) } else { None }
}

#[allow(clippy::cast_precision_loss, reason = "numbers of bytes")]
fn bytes(bench: &Bench, first: Shape) -> Option<Picture> {
    let sizes = in_memory(bench, |shape| {
        let varied = [shape.key != first.key, shape.group != first.group, shape.chain != first.chain];
        shape == Shape { key: shape.key, group: shape.group, chain: shape.chain, ..first }
            && varied.into_iter().filter(|varied| *varied).count() <= 1
    });
    let title = format!("Bytes of a full TLS {} handshake", first.version);
    let mut bars = Bars::new(&title, "bytes").legend(["from the server", "from the client"]);
    for one in &sizes {
        let shape = one.cell.shape;
        let group = vec![
            Bar::new("server", one.sides.server_bytes as f64),
            Bar::new("client", one.sides.client_bytes as f64).series(1),
        ];
        bars = bars.group(format!("{} {} chain {}", shape.key, shape.group, shape.chain), group);
    }
    if sizes.len() > 1 { picture("bytes", &title, &bars) } else { None }
}

fn resumed(bench: &Bench) -> Option<Picture> {
    let resumed = in_memory(bench, |shape| shape.resumed && !shape.client_certificate);
    let title = "Full and resumed handshakes";
    let mut bars = Bars::new(title, "microseconds of the server").logarithmic().legend(["full", "resumed"]);
    for one in &resumed {
        let shape = one.cell.shape;
        let full = bench.measured(Shape { resumed: false, ..shape }, Transport::Memory);
        let group = full.map(|full| bar("full", &full.server));
        let group = group.into_iter().chain([bar("resumed", &one.server).series(1)]).collect();
        bars = bars.group(format!("TLS {} {}", shape.version, shape.key), group);
    }
    if resumed.is_empty() { None } else { picture("resumed", title, &bars) }
}

fn host_keys(bench: &ssh::Bench) -> Option<Picture> {
    let first = bench.cells.first()?.cell.shape;
    let shown = |one: &&ssh::Measured| {
        let shape = one.cell.shape;
        one.cell.transport == Transport::Memory
            && !one.server.is_empty()
            && shape == SshShape { host: shape.host, ..first }
    };
    let hosts: Vec<_> = bench.cells.iter().filter(shown).collect();
    let title = format!("An SSH handshake and login with {}, by host key", first.exchange);
    let mut bars = Bars::new(&title, UNIT).logarithmic().legend(["server", "client"]);
    for one in &hosts {
        bars = bars.group(one.cell.shape.host.name(), both(&one.server, &one.client));
    }
    if hosts.len() > 1 { picture("ssh", &title, &bars) } else { None }
}
