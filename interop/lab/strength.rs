//! `sallyport lab strength` against files made by ssh-keygen and openssl, and against real servers.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::LAB;
use crate::support::{PATIENCE, Process, free_port, ok, refused, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

fn strength(arguments: &[&str]) -> Output {
    Command::new(LAB).arg("strength").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The keys that are found in one argument: the key, the estimate with two digits, and NIST's figure.
fn keys(argument: &str) -> Vec<Value> {
    let output = ok(strength(&[argument, "--format", "json"]));
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    answer["keys"].as_array().unwrap().clone()
}

fn names(argument: &str) -> Vec<String> {
    keys(argument).iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect()
}

/// A directory in which tools are run.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn run(&self, line: &str) {
        let output = Command::new("sh").args(["-ec", line]).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", stderr(&output));
    }
}

#[test]
fn names_have_the_published_figures_side_by_side() {
    let text = stdout(&ok(strength(&[
        "rsa-1024",
        "2048",
        "RSA3072",
        "4096",
        "ed25519",
        "ml-dsa-65",
        "x25519mlkem768",
    ])));
    for said in [
        "86.77",
        "116.88",
        "138.74",
        "156.50",
        "112",
        "at least 128",
        "estimate",
        "category 3",
        "RSA-1024: broken: by those who can pay",
        "fine until 2030",
        "for 6 to 7 times the signing cost",
        "Shor",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let key = &keys("rsa-2048")[0];
    assert_eq!(key["strength"]["classical"]["is_estimate"], true, "{key}");
    assert_eq!(key["strength"]["nist"], serde_json::json!({"is": "equal", "bits": 112}));
    // Any size, and none beyond.
    assert_eq!(
        (names("512"), names("16384"), names("2047")),
        (vec!["RSA-512".to_owned()], vec!["RSA-16384".to_owned()], vec!["RSA-2047".to_owned()])
    );
    for size in ["511", "16385", "rsa-99999999999"] {
        assert!(refused(&strength(&[size]), 1).contains("512 to 16384"), "{size}");
    }
    let said = refused(&strength(&["rot13"]), 1);
    assert!(said.contains("no key is called \"rot13\"") && said.contains("x25519mlkem768"), "{said}");
    // Without arguments: every size, with its picture.
    let place = Place::new();
    let text = stdout(&ok(strength(&["--svg", &place.text("pictures")])));
    assert!(
        text.contains("RSA-512") && text.contains("RSA-16384") && text.contains("number field sieve"),
        "{text}"
    );
    let picture = fs::read_to_string(place.path("pictures/strength.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("P-384"), "{picture}");
    // For programs that only look at the exit code.
    assert_eq!(strength(&["rsa-1024", "--strict"]).status.code(), Some(1));
    assert_eq!(strength(&["rsa-2048", "--strict"]).status.code(), Some(0));
}

#[test]
fn everything_that_ssh_keygen_writes_is_read() {
    let place = Place::new();
    for (arguments, key) in [
        ("-t rsa -b 1024", "RSA-1024"),
        ("-t rsa -b 2048", "RSA-2048"),
        ("-t rsa -b 3070", "RSA-3070"),
        ("-t ecdsa -b 256", "P-256"),
        ("-t ecdsa -b 384", "P-384"),
        ("-t ecdsa -b 521", "P-521"),
        ("-t ed25519", "Ed25519"),
    ] {
        place.run(&format!("rm -f k k.pub; ssh-keygen -q {arguments} -N '' -C 'a comment' -f k"));
        for (form, flags) in [("openssh", ""), ("pem", "-m PEM"), ("pkcs8", "-m PKCS8")] {
            // One key, written anew in each form; Ed25519 is always in OpenSSH's own.
            place.run(&format!("ssh-keygen -q -p -P '' -N '' {flags} -f k"));
            assert_eq!(names(&place.text("k")), [key], "{arguments} {form}");
            assert_eq!(names(&place.text("k.pub")), [key], "{arguments} {form}");
        }
        place.run("ssh-keygen -e -f k.pub > rfc4716; ssh-keygen -e -m PKCS8 -f k.pub > spki || true");
        assert_eq!(names(&place.text("rfc4716")), [key], "{arguments}");
        // Encrypted: the public half stands in the clear.
        place.run("cp k e && ssh-keygen -q -p -P '' -N secret -f e && rm -f e.pub");
        let found = keys(&place.text("e"));
        assert_eq!(found[0]["key"], key, "{arguments}");
        assert!(found[0]["what"].as_str().unwrap().starts_with("encrypted private key"), "{found:?}");
    }
    // 512 and 16384 bits are beyond what ssh-keygen makes; DSA it may no longer.
    let dsa = Command::new("ssh-keygen")
        .args(["-q", "-t", "dsa", "-N", "", "-f", &place.text("dsa")])
        .output()
        .unwrap();
    if dsa.status.success() {
        assert_eq!(keys(&place.text("dsa.pub"))[0]["strength"]["verdict"], "broken");
    }

    // Many lines, with options, markers and hashed hosts.
    place.run(
        "ssh-keygen -q -t ed25519 -N '' -f a; ssh-keygen -q -t rsa -b 1024 -N '' -f b
         { echo '# people'; echo; cat a.pub; printf 'command=\"echo \\\"ssh-rsa AAAA\\\"\",no-pty '; cat b.pub; echo nonsense; } > authorized_keys
         { printf 'one.example.com,10.0.0.1 '; cat a.pub; printf '@cert-authority *.example.com '; cat b.pub; } > known_hosts
         ssh-keygen -q -H -f known_hosts",
    );
    assert_eq!(names(&place.text("authorized_keys")), ["Ed25519", "RSA-1024"]);
    let found = keys(&place.text("known_hosts"));
    let whats: Vec<&str> = found.iter().map(|key| key["what"].as_str().unwrap()).collect();
    // A line for each of the two names, which are hashed one by one.
    assert!(whats[..2].iter().all(|what| what.contains("a hashed host")), "{whats:?}");
    assert!(whats[2].contains("cert-authority"), "{whats:?}");
    let output = ok(strength(&[&place.text("authorized_keys")]));
    assert!(
        stderr(&output).contains("line 5 holds no key") && stdout(&output).contains("line 4"),
        "{}",
        stdout(&output)
    );

    // A certificate has two keys: its own and the CA's, and a signature with a hash.
    place.run(
        "ssh-keygen -q -t rsa -b 2048 -N '' -f ca; ssh-keygen -q -s ca -I who -n root a.pub
         ssh-keygen -q -t ecdsa -N '' -f h; ssh-keygen -q -t ssh-rsa -s ca -h -I where -n h h.pub",
    );
    let found = keys(&place.text("a-cert.pub"));
    assert_eq!((found[0]["key"].as_str(), found[1]["key"].as_str()), (Some("Ed25519"), Some("RSA-2048")));
    assert!(found[0]["what"].as_str().unwrap().contains("user certificate \"who\""), "{found:?}");
    assert_eq!(found[0]["signature"]["digest"], "sha512");
    assert_eq!(keys(&place.text("h-cert.pub"))[0]["signature"]["digest"], "sha1");
    assert_eq!(strength(&["--strict", &place.text("h-cert.pub")]).status.code(), Some(1), "SHA-1");

    // From a pipe.
    let mut child = Command::new(LAB)
        .args(["strength", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(place.path("a.pub")).unwrap()).unwrap();
    assert!(stdout(&child.wait_with_output().unwrap()).contains("Ed25519"));
}

#[test]
fn everything_that_openssl_writes_is_read() {
    let place = Place::new();
    for bits in [512, 1024, 2047, 2048, 3070, 4096] {
        let key = format!("RSA-{bits}");
        place.run(&format!("openssl genrsa -out k {bits} 2>/dev/null"));
        for (form, line) in [
            ("PKCS#8", "cp k f"),
            ("PKCS#8 DER", "openssl pkcs8 -topk8 -nocrypt -in k -outform DER -out f"),
            ("PKCS#1", "openssl rsa -in k -traditional -out f 2>/dev/null"),
            ("PKCS#1 DER", "openssl rsa -in k -traditional -outform DER -out f 2>/dev/null"),
            ("public", "openssl pkey -in k -pubout -out f"),
            ("public DER", "openssl pkey -in k -pubout -outform DER -out f"),
            ("public PKCS#1", "openssl rsa -in k -RSAPublicKey_out -out f 2>/dev/null"),
            ("public PKCS#1 DER", "openssl rsa -in k -RSAPublicKey_out -outform DER -out f 2>/dev/null"),
        ] {
            place.run(line);
            assert_eq!(names(&place.text("f")), [key.as_str()], "{form}");
        }
    }
    for (generate, key) in [
        ("EC -pkeyopt ec_paramgen_curve:P-256", "P-256"),
        ("EC -pkeyopt ec_paramgen_curve:P-521", "P-521"),
        ("EC -pkeyopt ec_paramgen_curve:secp256k1", "secp256k1"),
        ("ED25519", "Ed25519"),
        ("ED448", "Ed448"),
        ("X25519", "X25519"),
    ] {
        place
            .run(&format!("openssl genpkey -algorithm {generate} -out k; openssl pkey -in k -pubout -out p"));
        assert_eq!(
            (names(&place.text("k")), names(&place.text("p"))),
            (vec![key.to_owned()], vec![key.to_owned()])
        );
    }
    place.run("openssl ecparam -name prime256v1 -genkey -out sec1");
    assert_eq!(names(&place.text("sec1")), ["P-256"], "behind a block of parameters");
    place.run("openssl dsaparam -genkey -out dsa 1024 2>/dev/null; openssl dsa -in dsa -pubout -out dsa.pub 2>/dev/null; openssl dsa -in dsa -traditional -out dsa.old 2>/dev/null || cp dsa dsa.old");
    for file in ["dsa", "dsa.pub", "dsa.old"] {
        assert_eq!(keys(&place.text(file))[0]["strength"]["verdict"], "broken", "{file}");
    }
    place.run("openssl genrsa -out k 2048 2>/dev/null; openssl rsa -aes128 -passout pass:secret -in k -out enc 2>/dev/null; openssl rsa -aes128 -passout pass:secret -in k -traditional -out enc.old 2>/dev/null; openssl pkcs8 -topk8 -passout pass:secret -in k -outform DER -out enc.der");
    for file in ["enc", "enc.old", "enc.der"] {
        let said = refused(&strength(&[&place.text(file)]), 1);
        assert!(said.contains("encrypted private key") && said.contains("openssl pkey"), "{file}: {said}");
    }

    // A chain, whose root signs by SHA-1, which does not matter, and whose leaf is signed by SHA-1, which does.
    place.run(
        "openssl req -x509 -newkey rsa:3072 -nodes -sha1 -keyout ca.key -out ca.pem -subj '/O=Test/CN=The root' 2>/dev/null
         openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -keyout leaf.key -out leaf.csr -subj /CN=leaf.example.com 2>/dev/null
         openssl x509 -req -sha1 -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out leaf.pem 2>/dev/null
         cat leaf.pem ca.pem > chain.pem; openssl x509 -in leaf.pem -outform DER -out leaf.der
         openssl pkcs12 -export -nokeys -in leaf.pem -passout pass:x -out bag.p12
         openssl crl2pkcs7 -nocrl -certfile chain.pem -out bag.p7b",
    );
    let found = keys(&place.text("chain.pem"));
    assert_eq!((found[0]["key"].as_str(), found[1]["key"].as_str()), (Some("P-384"), Some("RSA-3072")));
    assert_eq!(
        (&found[0]["signature"]["digest"], &found[0]["signature"]["matters"]),
        (&"sha1".into(), &true.into())
    );
    assert_eq!(found[1]["signature"]["matters"], false);
    assert_eq!(found[0]["what"], "certificate of leaf.example.com, issued by The root");
    assert_eq!(names(&place.text("leaf.der")), ["P-384"]);
    assert_eq!(names(&place.text("leaf.csr")), ["P-384"]);
    assert_eq!(strength(&["--strict", &place.text("leaf.pem")]).status.code(), Some(1), "SHA-1");
    for (file, said) in [("bag.p12", "openssl pkcs12"), ("bag.p7b", "openssl pkcs7")] {
        let error = refused(&strength(&[&place.text(file)]), 1);
        assert!(error.contains(said), "{file}: {error}");
    }
}

#[test]
fn what_is_no_key_gets_a_clear_error() {
    let place = Place::new();
    fs::write(place.path("empty"), "").unwrap();
    fs::write(place.path("noise"), [0, 1, 2, 3, 255, 254]).unwrap();
    fs::write(place.path("prose.txt"), "Dear Sir or Madam,\n").unwrap();
    fs::write(place.path("cut.pem"), "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    fs::write(place.path("long.der"), [0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x02, 0x01]).unwrap();
    let huge = fs::File::create(place.path("huge")).unwrap();
    huge.set_len(1 << 33).unwrap();
    for (file, said) in [
        ("none.pem", "No such file"),
        ("empty", "it is empty"),
        ("noise", "not a key: binary"),
        ("prose.txt", "not a key: neither PEM"),
        ("cut.pem", "cut short"),
        ("long.der", "cut short"),
        ("huge", "longer than 8 MiB"),
        (".", "is a directory"),
    ] {
        let error = refused(&strength(&[&place.text(file)]), 1);
        assert!(error.contains(said), "{file}: {error}");
    }
    // One bad argument does not take the others' answers away.
    let output = strength(&["rsa-2048", &place.text("empty"), "p256"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("RSA-2048") && stdout(&output).contains("P-256"), "{}", stdout(&output));
}

fn listening(port: u16) {
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "nothing listens on {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn tls_servers_show_their_chains_by_any_signer() {
    let place = Place::new();
    place.run(
        "openssl req -x509 -newkey rsa:1024 -nodes -keyout rsa.key -out rsa.pem -subj /CN=old -days 1 2>/dev/null
         faketime '2020-01-01' openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ec.key -out ec.pem -subj /CN=expired -days 1 2>/dev/null
         openssl req -x509 -newkey ed25519 -nodes -keyout ed.key -out ed.pem -subj /CN=ed -days 1 2>/dev/null",
    );
    // Long keys are read even where no software would use them.
    for (flags, expected) in [
        ("-tls1_3 -cert ec.pem -key ec.key -dcert rsa.pem -dkey rsa.key", &["P-256", "RSA-1024"][..]),
        ("-tls1_2 -cert ec.pem -key ec.key", &["P-256"]),
        ("-tls1_3 -cert ed.pem -key ed.key", &["Ed25519"]),
        // Key exchange by RSA alone, which rustls does not speak.
        ("-tls1_2 -cipher AES128-SHA -cert rsa.pem -key rsa.key", &["RSA-1024"]),
        ("-tls1 -cipher ALL:@SECLEVEL=0 -cert rsa.pem -key rsa.key", &["RSA-1024"]),
    ] {
        let port = free_port();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-quiet", "-accept", &port.to_string()]).args(flags.split(' '));
        // Old keys and versions are below OpenSSL's default level.
        if !flags.contains("SECLEVEL") {
            let cipher =
                if flags.contains("AES128-SHA") { "AES128-SHA:@SECLEVEL=0" } else { "DEFAULT:@SECLEVEL=0" };
            command.args(["-cipher", cipher]);
        }
        command.current_dir(place.0.path());
        let _server = Process::spawn(&mut command, place.path("log"));
        listening(port);
        let found = keys(&format!("127.0.0.1:{port}"));
        let mut names: Vec<&str> = found.iter().map(|key| key["key"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{flags}: {found:?}");
        assert_eq!(found[0]["place"], "leaf", "{flags}");
    }
}

#[test]
fn ssh_servers_show_every_host_key() {
    let place = Place::new();
    place.run(
        "ssh-keygen -q -t ed25519 -N '' -f ed; ssh-keygen -q -t rsa -b 2048 -N '' -f rsa; ssh-keygen -q -t ecdsa -b 384 -N '' -f ec
         ssh-keygen -q -t rsa -b 4096 -N '' -f ca; ssh-keygen -q -s ca -h -I host -n localhost ed.pub",
    );
    for kex in [
        None,
        Some("diffie-hellman-group14-sha256"),
        Some("ecdh-sha2-nistp256"),
        Some("sntrup761x25519-sha512@openssh.com"),
    ] {
        let port = free_port();
        let file = |name: &str| place.text(name);
        let mut text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nHostKey {}\nHostKey {}\nHostCertificate {}\nPidFile none\nUsePAM no\nStrictModes no\n",
            file("ed"),
            file("rsa"),
            file("ec"),
            file("ed-cert.pub")
        );
        if let Some(kex) = kex {
            text.push_str(&format!("KexAlgorithms {kex}\n"));
        }
        fs::write(place.path("config"), text).unwrap();
        fs::create_dir_all("/run/sshd").ok();
        let mut command = Command::new("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f", &file("config")]);
        let _server = Process::spawn(&mut command, place.path("log"));
        listening(port);
        let found = keys(&format!("127.0.0.1:{port}"));
        let mut names: Vec<&str> = found.iter().map(|key| key["key"].as_str().unwrap()).collect();
        names.sort_unstable();
        // The certificate has the key of its CA with it.
        assert_eq!(names, ["Ed25519", "Ed25519", "P-384", "RSA-2048", "RSA-4096"], "{kex:?}: {found:?}");
    }
}

#[test]
fn servers_that_do_not_answer_are_left_in_time() {
    let closed = free_port();
    let said = refused(&strength(&[&format!("127.0.0.1:{closed}")]), 1);
    assert!(said.contains("no server listens there"), "{said}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let began = Instant::now();
    let said = refused(&strength(&[&silent.local_addr().unwrap().to_string()]), 1);
    assert!(said.contains("did not answer within 10 s"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(refused(&strength(&["127.0.0.1:0"]), 1).contains("is not HOST:PORT"));
}
