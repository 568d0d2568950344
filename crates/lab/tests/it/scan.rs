//! `lab scan` against real servers on loopback, and against some that are none.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_lab::offers::Level;
use sallyport_lab::scan::{self, Scan, Settings, StartTls};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server of the test's own; it goes with it.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(command: &mut Command, port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { child, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "the server does not start: {command:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn openssl(arguments: &[&str]) -> Self {
        let port = free_port();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-quiet", "-accept", &format!("127.0.0.1:{port}")]).args(arguments);
        Self::start(&mut command, port)
    }

    fn scan(&self, change: impl FnOnce(&mut Settings)) -> Scan {
        let mut settings = Settings { costs: false, pause: Duration::ZERO, ..Settings::full() };
        change(&mut settings);
        let talk = Talk::new(|_| {}, Arc::default());
        scan::run(&format!("127.0.0.1:{}", self.port), &settings, &talk).unwrap()
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A key and a self-signed certificate for `localhost`: `(certificate, key)`.
fn certificate(directory: &Path, name: &str, key: &[&str], more: &[&str]) -> (String, String) {
    let path = |ending: &str| directory.join(format!("{name}.{ending}")).to_str().unwrap().to_owned();
    let (certificate, secret) = (path("crt"), path("key"));
    let fixed = [
        "req",
        "-x509",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        &secret,
        "-out",
        &certificate,
    ];
    run("openssl", &[&fixed[..], key, more].concat());
    (certificate, secret)
}

const P256: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// The worst level of the findings about something.
fn worst(scan: &Scan, what: &str, words: &str) -> Level {
    let about = scan.findings.iter().filter(|one| one.what.contains(what) && one.reason.contains(words));
    let levels: Vec<Level> = about.map(|one| one.level).collect();
    *levels.iter().max().unwrap_or_else(|| panic!("nothing about {what}, {words}: {:#?}", scan.findings))
}

fn silent_about(scan: &Scan, what: &str) {
    let found: Vec<_> = scan.findings.iter().filter(|one| one.what.contains(what)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Where Debian has it, also for people without that directory on their path.
fn nginx() -> &'static str {
    if std::path::Path::new("/usr/sbin/nginx").is_file() { "/usr/sbin/nginx" } else { "nginx" }
}

#[test]
fn a_server_of_long_ago_is_told_all_that_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let (crt, key) =
        certificate(directory.path(), "old", &["-newkey", "rsa:1024"], &["-sha1", "-days", "1000"]);
    let dh = directory.path().join("dh.pem").to_str().unwrap().to_owned();
    run("openssl", &["genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:modp_1536", "-out", &dh]);
    let server = Server::openssl(&[
        "-cert",
        &crt,
        "-key",
        &key,
        "-dhparam",
        &dh,
        "-no_tls1_3",
        "-cipher",
        "AES128-SHA:AES256-SHA:NULL-SHA256:AECDH-AES128-SHA:DHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0",
        "-serverpref",
    ]);
    let scan = server.scan(|_| {});
    assert_eq!(scan.protocol, "tls");
    let tls = scan.tls.as_ref().unwrap();
    let versions: Vec<&str> = tls.versions.iter().map(|version| version.name.as_str()).collect();
    assert_eq!(versions, ["TLS 1.2", "TLS 1.1", "TLS 1.0"]);
    assert_eq!(tls.versions[0].suites[0], "TLS_RSA_WITH_AES_128_CBC_SHA");
    assert_eq!(tls.versions[0].suites.len(), 6, "{tls:?}");
    assert_eq!(tls.versions[0].order, scan::Order::Server);
    assert_eq!(tls.chains[0].certificates[0].key, "rsa-1024");
    assert_eq!(tls.prime_bits, Some(1536));
    for (what, words, level) in [
        ("TLS 1.0", "SHA-1 and MD5", Level::Failure),
        ("TLS 1.1", "", Level::Failure),
        ("TLS 1.3", "not accepted", Level::Warning),
        ("TLS 1.2 suites", "no encryption", Level::Failure),
        ("TLS 1.2 suites", "does not prove who it is", Level::Failure),
        ("TLS 1.2 suites", "no forward secrecy", Level::Warning),
        ("TLS 1.2 suites", "prefers CBC", Level::Warning),
        ("certificate, rsa-1024", "RSA with 1024 bits is broken", Level::Failure),
        ("certificate, rsa-1024", "its own signature (sha1WithRSAEncryption) protects nothing", Level::Info),
        ("certificate, rsa-1024", "self-signed", Level::Warning),
        ("key exchange", "1536 bits", Level::Failure),
    ] {
        assert_eq!(worst(&scan, what, words), level, "{what}, {words}");
    }
    assert!(scan.findings.is_sorted_by_key(|finding| std::cmp::Reverse(finding.level)));
    assert!(
        scan.findings
            .iter()
            .any(|one| one.change.as_deref().is_some_and(|text| text.contains("TLS 1.2 and 1.3")))
    );
}

#[test]
fn both_certificates_of_a_server_are_found_and_what_they_cost() {
    let directory = tempfile::tempdir().unwrap();
    let (rsa, rsa_key) = certificate(directory.path(), "rsa", &["-newkey", "rsa:4096"], &["-days", "30"]);
    let (ec, ec_key) = certificate(directory.path(), "ec", P256, &["-days", "30"]);
    let server = Server::openssl(&[
        "-cert",
        &rsa,
        "-key",
        &rsa_key,
        "-dcert",
        &ec,
        "-dkey",
        &ec_key,
        "-alpn",
        "h2,http/1.1",
    ]);
    let scan = server.scan(|settings| {
        settings.costs = true;
        settings.now += Duration::from_hours(24 * 25);
    });
    let tls = scan.tls.as_ref().unwrap();
    assert_eq!(tls.versions[0].name, "TLS 1.3");
    let mut keys: Vec<&str> = tls.chains.iter().map(|chain| chain.certificates[0].key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["ecdsa-p256", "rsa-4096"], "{:?}", tls.chains);
    assert_eq!(tls.alpn, ["h2", "http/1.1"]);
    assert_eq!(tls.resumed, Some(true));
    let (up, down) = tls.handshake_bytes.unwrap();
    assert!((300..3000).contains(&up) && (600..6000).contains(&down), "{up} {down}");
    assert!(
        tls.groups.iter().any(|group| group == "x25519")
            && tls.groups.iter().any(|group| group == "secp521r1")
    );
    assert_eq!(worst(&scan, "certificate, rsa-4096", "for no gain"), Level::Info);
    assert_eq!(worst(&scan, "certificate, ecdsa-p256", "expires in 4 days"), Level::Warning);
    let later = server.scan(|settings| {
        *settings = Settings { costs: false, ..Settings::quick() };
        settings.now += Duration::from_hours(24 * 40);
    });
    assert_eq!(worst(&later, "certificate, ecdsa-p256", "expired on"), Level::Failure);
    assert_eq!(worst(&scan, "key exchange", "not post-quantum"), Level::Warning);
    let cost = |what: &str| {
        scan.costs.iter().find(|cost| cost.what == what).unwrap_or_else(|| panic!("{:?}", scan.costs))
    };
    let (slow, quick) = (cost("rsa-4096"), cost("ecdsa-p256"));
    assert!(
        slow.server_us > 5.0 * quick.server_us && quick.per_second > slow.per_second,
        "{slow:?} {quick:?}"
    );
    assert!(cost("x25519").server_us > 0.0);
    let unpriced = scan.notes.iter().find(|note| note.starts_with("what they cost is not measured here: "));
    assert!(unpriced.is_some_and(|note| note.contains("secp521r1")), "{:?}", scan.notes);
    assert!(tls.handshake.as_ref().is_some_and(|made| made.starts_with("TLS 1.3, x25519, ")), "{tls:?}");
}

#[test]
fn a_server_that_asks_for_another_hello_is_told_what_that_costs() {
    let directory = tempfile::tempdir().unwrap();
    let (crt, key) = certificate(directory.path(), "p256", P256, &["-days", "30"]);
    let server = Server::openssl(&[
        "-cert",
        &crt,
        "-key",
        &key,
        "-groups",
        "P-256",
        "-Verify",
        "1",
        "-tls1_3",
        "-num_tickets",
        "0",
    ]);
    let scan = server.scan(|_| {});
    let tls = scan.tls.as_ref().unwrap();
    assert_eq!(tls.groups, ["secp256r1"]);
    assert!(tls.first_hellos.iter().all(|first| first.retry && first.group.as_deref() == Some("secp256r1")));
    assert_eq!(worst(&scan, "key exchange", "HelloRetryRequest"), Level::Warning);
    assert_eq!(worst(&scan, "client certificate", "required"), Level::Info);
    silent_about(&scan, "TLS 1.0");
    silent_about(&scan, "TLS 1.2 suites");
}

#[test]
fn a_certificate_that_browsers_do_not_take_is_found_out_by_being_one() {
    let directory = tempfile::tempdir().unwrap();
    let (crt, key) = certificate(directory.path(), "ed", &["-newkey", "ed25519"], &["-days", "30"]);
    let server = Server::openssl(&["-cert", &crt, "-key", &key, "-alpn", "http/1.1"]);
    let scan = server.scan(|settings| settings.name = Some("other.example".to_owned()));
    assert_eq!(scan.tls.as_ref().unwrap().chains[0].certificates[0].key, "ed25519");
    assert!(scan.findings.iter().any(|one| one.what == "browsers"), "{:#?}", scan.findings);
    assert_eq!(worst(&scan, "certificate, ed25519", "not for other.example"), Level::Failure);
    let address = format!("127.0.0.1:{}", server.port);
    let chain = scan::certificates(&address, None, StartTls::None, Duration::from_secs(5)).unwrap();
    assert_eq!(chain.len(), 1);
    // A quick look gives the same with fewer questions.
    let quick = server.scan(|settings| *settings = Settings { costs: false, ..Settings::quick() });
    assert!(quick.connections < scan.connections, "{} and {}", quick.connections, scan.connections);
}

#[test]
fn nginx_is_spoken_to_in_its_own_words() {
    let directory = tempfile::tempdir().unwrap();
    let (crt, key) = certificate(directory.path(), "n", &["-newkey", "rsa:2048"], &["-days", "90"]);
    let (port, at) = (free_port(), directory.path().display());
    let text = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/log;\nevents {{}}\nhttp {{ access_log off; \
         client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; \
         scgi_temp_path {at}/e; server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {crt}; ssl_certificate_key {key}; \
         ssl_protocols TLSv1.2; ssl_ciphers AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256; return 200; }} }}\n"
    );
    let config: PathBuf = directory.path().join("nginx.conf");
    std::fs::write(&config, text).unwrap();
    let server =
        Server::start(Command::new(nginx()).arg("-p").arg(directory.path()).arg("-c").arg(&config), port);
    let scan = server.scan(|_| {});
    assert!(scan.software.as_deref().is_some_and(|name| name.starts_with("nginx")), "{:?}", scan.software);
    let changes: Vec<&str> = scan.findings.iter().filter_map(|one| one.change.as_deref()).collect();
    assert!(changes.iter().any(|text| text.starts_with("ssl_protocols ")), "{changes:?}");
    assert!(changes.iter().any(|text| text.starts_with("ssl_ciphers ")), "{changes:?}");
    assert_eq!(worst(&scan, "TLS 1.2 suites", "no forward secrecy"), Level::Warning);
    let made = scan.tls.as_ref().and_then(|tls| tls.handshake.as_deref()).unwrap_or_default();
    assert!(made.starts_with("TLS 1.2, "), "{made}");
}

#[test]
fn host_keys_are_seen_with_their_sizes() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    run("ssh-keygen", &["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", &at("rsa")]);
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &at("ed")]);
    let port = free_port();
    let text = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nHostKey {}\nPidFile none\nUsePAM no\nStrictModes no\n\
         KexAlgorithms curve25519-sha256,diffie-hellman-group-exchange-sha256,diffie-hellman-group14-sha1\nMACs hmac-sha1\n\
         Ciphers aes128-cbc,aes128-ctr\n",
        at("rsa"),
        at("ed")
    );
    std::fs::write(at("config"), text).unwrap();
    std::fs::create_dir_all("/run/sshd").ok();
    let server = Server::start(Command::new("/usr/sbin/sshd").args(["-D", "-e", "-f", &at("config")]), port);
    let scan = server.scan(|settings| settings.costs = true);
    assert_eq!(scan.protocol, "ssh");
    assert!(scan.software.as_deref().is_some_and(|name| name.starts_with("OpenSSH_")), "{:?}", scan.software);
    let ssh = scan.ssh.as_ref().unwrap();
    let mut keys: Vec<&str> = ssh.host_keys.iter().map(|key| key.key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["ed25519", "rsa-2048"], "{:?}", scan.notes);
    assert!(ssh.prime_bits.is_some_and(|bits| bits >= 2048), "{:?} {:?}", ssh.prime_bits, scan.notes);
    assert_eq!(worst(&scan, "kex", "diffie-hellman-group14-sha1"), Level::Failure);
    assert_eq!(worst(&scan, "cipher", "aes128-cbc"), Level::Failure);
    // HMAC needs no hash without collisions (RFC 6151 §2.3 says so even of MD5).
    assert_eq!(worst(&scan, "mac", "hmac-sha1"), Level::Warning);
    assert_eq!(worst(&scan, "post-quantum key exchange", ""), Level::Warning);
    assert_eq!(worst(&scan, "host key, rsa-2048", "112 bits"), Level::Info);
    let changes: Vec<&str> = scan.findings.iter().filter_map(|one| one.change.as_deref()).collect();
    assert!(changes.contains(&"Ciphers -aes128-cbc"), "{changes:?}");
    // sshd takes the first line of a keyword and ignores the others, so all findings must ask for the same one.
    for keyword in ["KexAlgorithms", "MACs", "Ciphers", "HostKeyAlgorithms"] {
        let mut lines: Vec<&str> = changes.iter().copied().filter(|line| line.starts_with(keyword)).collect();
        lines.dedup();
        assert!(lines.len() <= 1, "{lines:?}");
    }
    assert!(scan.notes.iter().any(|note| note.contains("diffie-hellman-group14-sha1")), "{:?}", scan.notes);
    assert!(
        scan.costs.iter().any(|cost| cost.what == "rsa-2048") && scan.connections <= 8,
        "{:?}",
        scan.costs
    );
}

/// Takes connections and does something to each.
fn strange(what: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let what = Arc::new(what);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let what = Arc::clone(&what);
            std::thread::spawn(move || what(stream));
        }
    });
    port
}

fn refused(port: u16) -> (String, Duration) {
    let settings = Settings {
        costs: false,
        patience: Duration::from_secs(1),
        deadline: Duration::from_secs(6),
        ..Settings::full()
    };
    let began = Instant::now();
    let talk = Talk::new(|_| {}, Arc::default());
    let error = scan::run(&format!("127.0.0.1:{port}"), &settings, &talk).unwrap_err().to_string();
    (error, began.elapsed())
}

#[test]
fn servers_that_are_none_are_said_to_be_so_within_the_bounds() {
    let hold = |stream: TcpStream| {
        std::thread::sleep(Duration::from_secs(30));
        drop(stream);
    };
    let trickle = |mut stream: TcpStream| {
        let mut hello = [0; 2000];
        let _ = stream.read(&mut hello);
        // A record of 16 KiB, a byte at a time.
        for byte in [22, 3, 3, 0x40, 0].into_iter().chain(std::iter::repeat(2)) {
            std::thread::sleep(Duration::from_millis(50));
            if stream.write_all(&[byte]).is_err() {
                return;
            }
        }
    };
    let garbage = |mut stream: TcpStream| {
        let mut hello = [0; 2000];
        let _ = stream.read(&mut hello);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    };
    let mail = |mut stream: TcpStream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        std::thread::sleep(Duration::from_secs(5));
    };
    let endless_ssh = |mut stream: TcpStream| {
        let _ = stream.write_all(b"SSH-2.0-odd\r\n");
        while stream.write_all(&[0, 0, 0, 12, 10, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let trickling_ssh = |mut stream: TcpStream| {
        let _ = stream.write_all(b"SSH-2.0-slow\r\n");
        // Algorithms of 8 KiB, a byte at a time.
        for byte in [0, 0, 0x20, 0, 4, 20].into_iter().chain(std::iter::repeat(0)) {
            std::thread::sleep(Duration::from_millis(50));
            if stream.write_all(&[byte]).is_err() {
                return;
            }
        }
    };
    for (port, words) in [
        (strange(hold), "no answer within"),
        (strange(trickling_ssh), "did not say what it offers within"),
        (strange(trickle), "no complete answer"),
        (strange(garbage), "\"HTTP/1.1 400 Bad Request\""),
        (strange(|mut stream| drop(stream.write_all(b"\x16\x03\x03"))), "speaks neither TLS nor SSH"),
        (strange(mail), "--starttls smtp"),
        (strange(drop), "ended the connection without an answer"),
        (strange(endless_ssh), "before its algorithms"),
        // Nothing listens there on any machine today, and no test is given it as a free one.
        (1, "cannot connect"),
    ] {
        let (error, took) = refused(port);
        assert!(error.contains(words) && error.contains(&port.to_string()), "{words}: {error}");
        assert!(!error.contains("os error") || words == "cannot connect", "{words}: {error}");
        // Generous, for a busy machine: without its bounds a scan of the slow ones would never end.
        assert!(took < Duration::from_secs(25), "{words}: {took:?}");
    }
    let talk = Talk::new(|_| {}, Arc::default());
    for wrong in ["localhost", "localhost:", ":443", "localhost:0", "localhost:99999"] {
        let error = scan::run(wrong, &Settings::full(), &talk).unwrap_err().to_string();
        assert!(error.contains("is not HOST:PORT"), "{wrong}: {error}");
    }
}
