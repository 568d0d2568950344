//! How strong keys are: those that are named, those in files, and those that servers show; and RSA of every size.
//!
//! What is said about a key is [`sallyport_sal::strength`]; here it is found and laid out.

use std::net::IpAddr;
use std::path::Path;

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::plot::Lines;
use sallyport_bench::report::{Picture, Report, Row};
use sallyport_sal::strength::{
    Curve, NIST_ROWS, Problem, RSA_BITS, Strength, Verdict, guidance_bits, nist_of_modulus, sieve_bits,
};
use serde::Serialize;

use crate::LabError;
use crate::inspect::{self, Contents, Found, Key, Signature};

/// Sizes of RSA in the table.
const SIZES: &[u32] = &[512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 7680, 8192, 12_288, 15_360, 16_384];

/// A key with everything that is said about it.
#[derive(Debug, Clone, Serialize)]
pub struct Item {
    /// What it was found in: the argument, as it was given.
    pub source: String,
    /// Where in that: `line 3`, `leaf`, `host key`; empty when there is only one place.
    pub place: String,
    /// What holds it; empty for a name.
    pub what: String,
    /// The key: `RSA-2048`, or in words why its strength cannot be said.
    pub key: String,
    /// Its strength; none for a key that is not known here.
    pub strength: Option<Strength>,
    /// The signature on the certificate that holds it.
    pub signature: Option<Signature>,
}

impl Item {
    /// The worse of the verdicts on the key and on a signature that matters; none for a key that is not known here.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let signature = self.signature.as_ref().filter(|signature| signature.matters);
        let digest = signature.and_then(|signature| signature.digest).map(|digest| digest.verdict());
        let key = self.strength.as_ref()?.verdict;
        Some(digest.map_or(key, |digest| digest.min(key)))
    }

    fn of(source: &str, found: Found) -> Self {
        let (key, strength) = match found.key {
            Key::Known(problem) => (problem.to_string(), Some(problem.assess())),
            Key::Unknown(words) => (words, None),
        };
        Self {
            source: source.to_owned(),
            place: found.place,
            what: found.what,
            key,
            strength,
            signature: found.signature,
        }
    }
}

/// What there is to say.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// The keys, in the order of the arguments.
    pub keys: Vec<Item>,
    /// What was left out of files and answers, in words.
    pub notes: Vec<String>,
    /// Arguments of which nothing came, in words.
    pub failures: Vec<String>,
    /// RSA of every size.
    pub sizes: Report,
}

/// Looks at every argument: a name (`rsa-2048`, `2048`, `p256`, `x25519mlkem768`), a file, `-` for the standard input, or
/// `host:port`. One that fails does not keep the others from being looked at.
#[must_use]
pub fn look(arguments: &[String], talk: &Talk) -> Answer {
    let watch = Watch::begin();
    let (mut keys, mut notes, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for (done, argument) in arguments.iter().enumerate() {
        if talk.stopping() {
            break;
        }
        talk.progress(done, arguments.len(), argument);
        match one(argument) {
            Ok(contents) => {
                keys.extend(contents.found.into_iter().map(|found| Item::of(argument, found)));
                notes.extend(contents.notes.into_iter().map(|note| format!("{argument}: {note}")));
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    let mut sizes = sizes(&watch, talk);
    sizes.pictures = vec![picture(&keys)];
    Answer { keys, notes, failures, sizes }
}

/// Finds out what an argument is.
fn one(argument: &str) -> Result<Contents, LabError> {
    if argument == "-" {
        return inspect::stream(std::io::stdin().lock(), "the standard input");
    }
    let path = Path::new(argument);
    let name = argument.parse::<Problem>();
    if let Ok(problem) = name {
        let found =
            Found { place: String::new(), what: String::new(), key: Key::Known(problem), signature: None };
        return Ok(Contents { found: vec![found], notes: Vec::new() });
    }
    if path.exists() {
        return inspect::file(path);
    }
    if let Some(hint) = server_hint(argument) {
        return Err(LabError::Input(hint));
    }
    match argument.rsplit_once(':') {
        Some((host, port)) if !host.contains('/') && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            inspect::live::server(argument)
        }
        // A path means a file.
        _ if argument.contains('/') => inspect::file(path),
        _ if argument.contains('.') && !argument.contains(':') => Err(LabError::Input(format!(
            "there is no file {argument}; if it is a server, name its port: {argument}:443 for TLS, {argument}:22 for SSH"
        ))),
        _ => {
            let error = name.map_or_else(|error| error.to_string(), |_| String::new());
            Err(LabError::Input(format!("{error}; and there is no such file, nor is it HOST:PORT")))
        }
    }
}

/// What to type instead of something that names a server in another way; none for anything else.
fn server_hint(argument: &str) -> Option<String> {
    let bare = argument.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(argument);
    if let Ok(address) = bare.parse::<IpAddr>() {
        let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        return Some(format!(
            "{argument} has no port; name a server as {host}:443 for TLS, {host}:22 for SSH"
        ));
    }
    let (scheme, rest) = argument.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A name and a password may stand before the host, and are not repeated.
    let host = host.rsplit('@').next().unwrap_or_default();
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let named = match (host.is_empty(), has_port, scheme.to_ascii_lowercase().as_str()) {
        (true, ..) => "HOST:PORT".to_owned(),
        (_, true, _) => host.to_owned(),
        (_, _, "ssh" | "sftp" | "git+ssh") => format!("{host}:22"),
        (_, _, "https" | "wss") => format!("{host}:443"),
        _ => format!("{host}:PORT"),
    };
    Some(format!("a URL is not read here; name the server as {named}"))
}

/// RSA of every size, with all that is said about it.
fn sizes(watch: &Watch, talk: &Talk) -> Report {
    let mut report = Report::of("strength", watch, talk);
    report.rows = SIZES
        .iter()
        .map(|bits| {
            Row::new(format!("RSA-{bits}"))
                .with("sieve bits (estimate)", 2, sieve_bits(*bits))
                .with("FIPS guidance bits (estimate)", 2, guidance_bits(*bits))
                .with("NIST at least", 0, nist_of_modulus(*bits).floor().map(f64::from))
                .with("quantum", 0, 0.0)
        })
        .collect();
    report.notes = [
        "sieve: the general number field sieve's complexity L_n[1/3, (64/9)^(1/3)] with o(1) = 0, an estimate of \
         operations",
        "FIPS guidance: the formula of the FIPS 140 implementation guidance D.B, the same with -4.69, an estimate",
        "NIST: SP 800-57 Part 1 Rev. 5, table 2; it has 1024, 2048, 3072, 7680 and 15360 bits, between which it says \
         `at least`; none below 1024",
        "quantum: against a large quantum computer, of which none is known to exist, RSA and curves have 0 bits; ML-DSA \
         and ML-KEM keep their category",
    ]
    .map(str::to_owned)
    .to_vec();
    report
}

/// All of it over the sizes, with what was looked at marked.
fn picture(keys: &[Item]) -> Picture {
    let title = "Strength of RSA by its size";
    // Eight points to each doubling draw a smooth curve.
    let mut at = f64::from(*RSA_BITS.start());
    let mut bits = Vec::new();
    while at < f64::from(*RSA_BITS.end()) + 1.0 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 512 to 16384")]
        bits.push(at.round() as u32);
        at *= 2.0_f64.powf(0.125);
    }
    let curve =
        |of: fn(u32) -> f64| bits.iter().map(|bits| (f64::from(*bits), of(*bits))).collect::<Vec<_>>();
    let nist = NIST_ROWS.iter().map(|(size, counts)| (f64::from(*size), f64::from(*counts))).collect();
    let mut lines =
        Lines::new(title, "bits of the modulus", "bits of strength (lines: estimates; points: NIST's table)")
            .logarithmic_x()
            .series("number field sieve", curve(sieve_bits))
            .series("FIPS guidance D.B", curve(guidance_bits))
            .points("NIST SP 800-57", nist)
            .level(Curve::P521.bits(), "P-521")
            .level(Curve::P384.bits(), "P-384")
            .level(Curve::P256.bits(), "P-256, Ed25519");
    let mut marked = Vec::new();
    for strength in keys.iter().filter_map(|item| item.strength.as_ref()) {
        let size = strength.key.strip_prefix("RSA-").and_then(|bits| bits.parse::<u32>().ok());
        if let Some(size) = size
            && !marked.contains(&size)
            && marked.len() < 12
        {
            lines = lines.mark(f64::from(size), strength.classical.bits, size.to_string());
            marked.push(size);
        }
    }
    Picture { name: "strength".to_owned(), title: title.to_owned(), svg: lines.svg() }
}

/// The table for `lab report`: RSA of every size, with the picture.
///
/// # Errors
/// None today; measurements share their shape.
pub fn run(talk: &Talk) -> Result<Report, LabError> {
    Ok(look(&["1024", "2048", "3072", "4096"].map(str::to_owned), talk).sizes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn looked(arguments: &[&str]) -> Answer {
        look(&arguments.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>(), &Talk::silent())
    }

    #[test]
    fn one_that_fails_does_not_keep_the_others() {
        let answer = looked(&["rsa-1024", "/no/such/file.pem", "nonsense", "/tmp", "P-256"]);
        let keys: Vec<&str> = answer.keys.iter().map(|item| item.key.as_str()).collect();
        assert_eq!(keys, ["RSA-1024", "P-256"]);
        assert_eq!(answer.failures.len(), 3, "{:?}", answer.failures);
        assert!(answer.failures[0].contains("cannot read /no/such/file.pem"), "{:?}", answer.failures);
        assert!(answer.failures[1].contains("x25519mlkem768"), "{:?}", answer.failures);
        assert!(answer.failures[2].contains("is a directory"), "{:?}", answer.failures);
    }

    #[test]
    fn servers_that_are_named_in_another_way_are_told_how() {
        for (argument, said) in [
            ("https://user:secret@example.com/a:b", "name the server as example.com:443"),
            ("https://example.com:8443/", "name the server as example.com:8443"),
            ("ssh://git@[::1]", "name the server as [::1]:22"),
            ("postgres://db", "name the server as db:PORT"),
            ("https://", "name the server as HOST:PORT"),
            ("127.0.0.1", "127.0.0.1:443 for TLS"),
            ("::1", "[::1]:443 for TLS"),
            ("[::1]", "[::1]:22 for SSH"),
            ("no-such.example", "no-such.example:22 for SSH"),
        ] {
            let failures = looked(&[argument]).failures;
            assert!(failures.len() == 1 && failures[0].contains(said), "{argument}: {failures:?}");
            assert!(!failures[0].contains("secret"), "{failures:?}");
        }
    }

    #[test]
    fn the_table_has_the_published_figures_and_the_picture_marks_what_was_asked() {
        let report = run(&Talk::silent()).unwrap();
        let row = report.rows.iter().find(|row| row.what == "RSA-2048").unwrap();
        assert_eq!(row.figures[0].text(), "116.88");
        assert_eq!(row.figure("NIST at least"), Some(112.0));
        assert_eq!(report.rows[0].figure("NIST at least"), None);
        let svg = &report.pictures[0].svg;
        assert!(svg.starts_with("<svg") && svg.contains(">4096<") && svg.contains("P-384"), "{svg}");
    }

    #[test]
    fn a_broken_hash_spoils_a_good_key() {
        use sallyport_sal::strength::Digest;
        let signature =
            Signature { name: "x".to_owned(), digest: Some(Digest::Sha1), matters: true, own: false };
        let key = Key::Known(Problem::Curve(Curve::P256));
        let found = Found { place: String::new(), what: String::new(), key, signature: Some(signature) };
        let mut item = Item::of("test", found);
        assert_eq!(item.verdict(), Some(Verdict::Broken));
        assert_eq!(item.signature.as_ref().unwrap().note(), None);
        item.signature = Some(Signature { matters: false, own: true, ..item.signature.unwrap() });
        let note = item.signature.as_ref().unwrap().note().unwrap();
        assert!(note.contains("protects nothing"), "{note}");
        assert_eq!(item.verdict(), Some(Verdict::Good));
    }
}
