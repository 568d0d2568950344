//! The walls between the crates, checked.

use std::fs;
use std::path::{Path, PathBuf};

use crate::metadata::{self, Package};
use crate::{glossary, map, structure};

/// A crate, the crates of ours it may use, and why it stops there.
struct Layer {
    name: &'static str,
    may_use: &'static [&'static str],
    reason: &'static str,
}

/// A layer uses those before it only.
const LAYERS: &[Layer] = &[
    Layer { name: "sal", may_use: &[], reason: "cryptography knows nothing of what it protects" },
    Layer {
        name: "access",
        may_use: &[],
        reason: "the decision is pure: it must give the same answer on a proxy, on a node and in a test",
    },
    Layer {
        name: "ca",
        may_use: &["sal", "access"],
        reason: "certificates carry identities; they know neither storage nor network",
    },
    Layer {
        name: "audit",
        may_use: &["sal", "access"],
        reason: "the record must not depend on the services it testifies about",
    },
    Layer { name: "wire", may_use: &["access"], reason: "bytes on the wire are pure and fuzzable" },
    Layer {
        name: "store",
        may_use: &["access", "ca", "audit"],
        reason: "storage implements other crates' ports; it starts no service",
    },
    Layer {
        name: "session",
        may_use: &["access", "audit"],
        reason: "what a session is, is the same whatever its protocol: none is known here",
    },
    Layer {
        name: "ssh",
        may_use: &["sal", "access", "ca", "audit", "session"],
        reason: "a session must run where there is no state and no other protocol",
    },
    Layer {
        name: "databases",
        may_use: &["sal", "access", "ca", "audit", "session"],
        reason: "messages and handshakes are pure; who may connect where is decided elsewhere",
    },
    Layer {
        name: "app",
        may_use: &["access", "audit", "session"],
        reason: "a protocol says what its bytes are; who may go where is decided, and dialled, elsewhere",
    },
    Layer {
        name: "protocols",
        may_use: &["access", "app", "audit", "wire", "session"],
        reason: "the table names what there is; services and programs read it, and it starts neither",
    },
    Layer {
        name: "webauthn",
        may_use: &["sal"],
        reason: "a verdict about a passkey is pure: bytes, options and the time in",
    },
    Layer { name: "json", may_use: &[], reason: "a text has one reading, whatever is read" },
    Layer {
        name: "oidc",
        may_use: &["sal", "json"],
        reason: "a verdict about a token is pure: what the provider sent and the time in",
    },
    Layer {
        name: "scim",
        may_use: &["json"],
        reason: "what a provisioning client may do is pure: a request and the time in; what is stored, the authority says",
    },
    Layer { name: "bench", may_use: &[], reason: "samples and pictures are the same whatever is measured" },
    Layer {
        name: "testing",
        may_use: &["sal", "ca"],
        reason: "what is started runs in processes of its own, as users run it",
    },
    Layer {
        name: "telemetry",
        may_use: &["wire"],
        reason: "what is kept of traces must not depend on what is traced",
    },
    Layer {
        name: "server",
        may_use: &[
            "sal",
            "access",
            "ca",
            "audit",
            "wire",
            "store",
            "session",
            "ssh",
            "databases",
            "oidc",
            "scim",
            "protocols",
            "telemetry",
            "webauthn",
        ],
        reason: "the composition is used by the command line only",
    },
    Layer {
        name: "client",
        may_use: &["sal", "access", "ca", "wire", "ssh", "telemetry"],
        reason: "a client knows the API alone, and other programs embed it: it starts nothing, asks no person and prints nothing",
    },
    Layer {
        name: "helper",
        may_use: &["sal", "access", "ca", "databases", "protocols", "wire", "ssh", "client"],
        reason: "the helper daemon carries streams of a client, with its login, and knows no command line",
    },
    Layer {
        name: "cli",
        may_use: &[
            "sal",
            "access",
            "ca",
            "audit",
            "databases",
            "protocols",
            "wire",
            "ssh",
            "testing",
            "server",
            "telemetry",
            "client",
            "helper",
        ],
        reason: "commands talk to services over the API, never to their storage",
    },
    Layer {
        name: "lab",
        may_use: &["sal", "access", "ca", "audit", "wire", "ssh", "databases", "bench", "testing", "cli"],
        reason: "what is measured runs in processes of its own, as users run it",
    },
];

/// Who may name a cryptography crate directly, besides `sal`.
const CRYPTO: &[(&str, &[&str], &str)] = &[
    ("aws-lc-rs", &["sal"], "primitives come from the abstraction layer"),
    ("cryptoki", &["sal"], "primitives come from the abstraction layer"),
    ("argon2", &["sal"], "primitives come from the abstraction layer"),
    ("crypto-bigint", &["sal"], "primitives come from the abstraction layer"),
    ("der", &["sal"], "keys are read and written in the abstraction layer"),
    ("pem-rfc7468", &["sal"], "keys are read and written in the abstraction layer"),
    ("pkcs5", &["sal"], "keys are read and written in the abstraction layer"),
    ("totp-rs", &["sal"], "primitives come from the abstraction layer"),
    ("rustls", &["sal", "ca", "server"], "TLS configurations are made in ca; services only use them"),
    (
        "tokio-rustls",
        &["ca", "databases", "server", "client", "lab"],
        "only what opens connections needs TLS streams",
    ),
    ("quinn", &["wire"], "QUIC is spoken in one place"),
    ("quinn-proto", &["wire"], "QUIC is spoken in one place"),
    ("x509-parser", &["ca", "webauthn"], "ours are read in ca, those of authenticators' makers in webauthn"),
    ("ssh-key", &["sal", "ca", "ssh"], "SSH keys and certificates are handled by sal, ca and ssh"),
    ("russh", &["ssh"], "SSH is spoken in one place"),
    ("graviola", &["sal"], "primitives come from the abstraction layer"),
    ("ring", &["sal"], "primitives come from the abstraction layer"),
    ("aes-gcm", &["sal"], "primitives come from the abstraction layer"),
    ("chacha20poly1305", &["sal"], "primitives come from the abstraction layer"),
    ("ed25519-dalek", &["sal"], "primitives come from the abstraction layer"),
    ("getrandom", &["sal"], "primitives come from the abstraction layer"),
    ("hmac", &["sal"], "primitives come from the abstraction layer"),
    ("libcrux-ml-dsa", &["sal"], "primitives come from the abstraction layer"),
    ("libcrux-ml-kem", &["sal"], "primitives come from the abstraction layer"),
    ("ml-dsa", &["sal"], "primitives come from the abstraction layer"),
    ("ml-kem", &["sal"], "primitives come from the abstraction layer"),
    ("p256", &["sal"], "primitives come from the abstraction layer"),
    ("p384", &["sal"], "primitives come from the abstraction layer"),
    ("p521", &["sal"], "primitives come from the abstraction layer"),
    // In ssh it is patches/rsa, which has no cryptography inside: ssh gives it to the abstraction layer.
    ("rsa", &["sal", "ssh"], "primitives come from the abstraction layer"),
    ("sha2", &["sal"], "primitives come from the abstraction layer"),
    ("x25519-dalek", &["sal"], "primitives come from the abstraction layer"),
    ("libsodium-rs", &["sal"], "primitives come from the abstraction layer"),
    ("openssl", &["sal"], "primitives come from the abstraction layer"),
    ("openssl-sys", &[], "the default build does not link OpenSSL"),
    ("native-tls", &[], "the default build does not link OpenSSL"),
];

/// The only modules of the command line that may name the services: those that start them, and the one that is a host
/// of the cluster itself (`join openssh`).
const STARTERS: &[&str] = &["start.rs", "configure.rs", "quickstart.rs", "join.rs"];

pub(crate) fn run() -> Result<(), String> {
    let packages = metadata::packages()?;
    let mut problems = Vec::new();
    let mut edges = 0;
    for package in packages.iter().filter(|package| package.in_workspace) {
        edges += check(package, &mut problems);
    }
    starters(Path::new("crates/cli/src"), &mut problems)?;
    map::check(&packages, &order(), &mut problems)?;
    let words = glossary::check(&mut problems)?;
    let shape = structure::check(&mut problems)?;
    if problems.is_empty() {
        println!("layers: {edges} edges between {} crates, none forbidden; {shape}; {words}", LAYERS.len());
        return Ok(());
    }
    Err(format!("{} problems\n  {}", problems.len(), problems.join("\n  ")))
}

/// Writes the map of the crates.
pub(crate) fn map() -> Result<(), String> {
    map::write(&order())
}

fn order() -> Vec<&'static str> {
    LAYERS.iter().map(|layer| layer.name).collect()
}

fn check(package: &Package, problems: &mut Vec<String>) -> usize {
    let Some(short) = package.name.strip_prefix("sallyport-") else { return 0 };
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == short) else {
        problems.push(format!("{}: no layer is defined for it; add it to xtask/src/layers.rs", package.name));
        return 0;
    };
    let mut edges = 0;
    for allowed in layer.may_use {
        if !package.normal.contains(&format!("sallyport-{allowed}")) {
            problems.push(format!(
                "{short} does not use {allowed}: take it out of what it may use in xtask/src/layers.rs"
            ));
        }
    }
    for used in &package.normal {
        if let Some(used) = used.strip_prefix("sallyport-") {
            edges += 1;
            if !layer.may_use.contains(&used) {
                problems.push(format!("{short} -> {used}: {}", layer.reason));
            }
        }
        for (crypto, allowed, reason) in CRYPTO {
            if used == crypto && !allowed.contains(&short) {
                problems.push(format!("{short} -> {crypto}: {reason}"));
            }
        }
    }
    edges
}

fn starters(directory: &Path, problems: &mut Vec<String>) -> Result<(), String> {
    for file in rust_files(directory)? {
        let inside = file.strip_prefix(directory).unwrap_or(&file);
        let top = inside.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let allowed =
            top.is_some_and(|top| STARTERS.iter().any(|one| *one == top || *one == format!("{top}.rs")));
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        if !allowed && text.contains("sallyport_server::") {
            problems.push(format!(
                "cli/{} names sallyport_server: only {} may start services; the rest talks to them over the API",
                inside.display(),
                STARTERS.join(", ")
            ));
        }
    }
    Ok(())
}

pub(crate) fn rust_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_forbidden_edge_is_found_and_explained() {
        let package = |name: &str, uses: &[&str]| Package {
            name: name.to_owned(),
            in_workspace: true,
            home: PathBuf::new(),
            uses: BTreeSet::new(),
            normal: uses.iter().map(|used| (*used).to_owned()).collect(),
        };
        let mut problems = Vec::new();
        assert_eq!(check(&package("sallyport-wire", &["sallyport-access", "tokio"]), &mut problems), 1);
        assert!(problems.is_empty());
        check(
            &package("sallyport-wire", &["sallyport-access", "sallyport-store", "aws-lc-rs"]),
            &mut problems,
        );
        assert_eq!(problems.len(), 2);
        assert!(problems.iter().any(|problem| problem.starts_with("wire -> store: ")));
        check(&package("sallyport-new", &[]), &mut problems);
        assert_eq!(problems.len(), 3);
        check(&package("sallyport-wire", &[]), &mut problems);
        assert!(problems[3].starts_with("wire does not use access: "));
    }

    #[test]
    fn a_layer_uses_those_before_it_only() {
        for (at, layer) in LAYERS.iter().enumerate() {
            for used in layer.may_use {
                assert!(LAYERS[..at].iter().any(|before| before.name == *used), "{} -> {used}", layer.name);
            }
        }
    }
}
