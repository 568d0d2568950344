//! Keys of OpenSSL and OpenSSH are read, and ours are read by them. A tool that is not installed skips its tests with a
//! word.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use sallyport_sal::formats::danger::{self, Cost};
use sallyport_sal::formats::{self, Format, FormatError, PublicFormat, openssh};
use sallyport_sal::{KeyAlgorithm, PrivateKeyMaterial, PublicKey};
use tempfile::TempDir;

use crate::kept;

const PASSPHRASE: &str = "correct horse";

/// Deriving keys is slow on purpose: what does not depend on how slow is tested with this.
const QUICK: Cost = Cost { pbkdf2_iterations: 1000, bcrypt_rounds: 1 };

/// A directory to work in, and the tools in it.
struct Bench {
    directory: TempDir,
}

impl Bench {
    /// None when a tool is missing.
    fn new(tool: &str) -> Option<Self> {
        match Command::new(tool).arg("-?").stdin(Stdio::null()).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: {tool} is not installed");
                None
            }
            _ => Some(Self { directory: tempfile::tempdir().unwrap() }),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Runs words separated by spaces; a word `%` stands for the passphrase, and is taken as it is.
    fn run(&self, line: &str) -> String {
        let (ok, output, talk) = execute(self.directory.path(), line);
        assert!(ok, "{line}: {talk}");
        output
    }

    fn private(&self, name: &str, passphrase: Option<&str>) -> Result<PrivateKeyMaterial, FormatError> {
        formats::read_private(&self.read(name), passphrase.map(str::as_bytes))
    }

    /// A key of ours in a file.
    fn ours(&self, name: &str, key: &PrivateKeyMaterial, format: Format, passphrase: Option<&str>) {
        self.write(name, &formats::write_private(key, format, passphrase.map(str::as_bytes)).unwrap());
    }
}

fn execute(directory: &Path, line: &str) -> (bool, String, String) {
    let mut words = line.split(' ').map(|word| match word {
        "%" => PASSPHRASE.to_owned(),
        "pass:%" => format!("pass:{PASSPHRASE}"),
        "''" => String::new(),
        word => word.to_owned(),
    });
    let output = Command::new(words.next().unwrap())
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// What `openssl genpkey` calls each key.
const OPENSSL: &[(KeyAlgorithm, &str)] = &[
    (KeyAlgorithm::Ed25519, "-algorithm ed25519"),
    (KeyAlgorithm::EcdsaP256, "-algorithm EC -pkeyopt ec_paramgen_curve:P-256"),
    (KeyAlgorithm::EcdsaP384, "-algorithm EC -pkeyopt ec_paramgen_curve:P-384"),
    (KeyAlgorithm::EcdsaP521, "-algorithm EC -pkeyopt ec_paramgen_curve:P-521"),
    (KeyAlgorithm::Rsa2048, "-algorithm RSA -pkeyopt rsa_keygen_bits:2048"),
    (KeyAlgorithm::Rsa3072, "-algorithm RSA -pkeyopt rsa_keygen_bits:3072"),
    (KeyAlgorithm::Rsa4096, "-algorithm RSA -pkeyopt rsa_keygen_bits:4096"),
];

fn public(key: &PrivateKeyMaterial) -> PublicKey {
    PublicKey::from_raw(key.algorithm(), key.public()).unwrap()
}

fn generate(algorithm: KeyAlgorithm) -> PrivateKeyMaterial {
    kept::key(algorithm).material().clone()
}

/// A key of each type that these tools know, made once for all tests.
fn our_keys() -> &'static [PrivateKeyMaterial] {
    static KEYS: OnceLock<Vec<PrivateKeyMaterial>> = OnceLock::new();
    KEYS.get_or_init(|| OPENSSL.iter().map(|(algorithm, _)| generate(*algorithm)).collect())
}

fn assert_same(left: &PrivateKeyMaterial, right: &PrivateKeyMaterial) {
    assert_eq!((left.algorithm(), left.public()), (right.algorithm(), right.public()));
    assert_eq!(left.secret(), right.secret());
}

#[test]
fn keys_of_openssl_are_read_in_every_form() {
    let Some(bench) = Bench::new("openssl") else { return };
    for (algorithm, arguments) in OPENSSL {
        bench.run(&format!("openssl genpkey {arguments} -out key.pem"));
        let key = bench.private("key.pem", None).unwrap();
        assert_eq!(key.algorithm(), *algorithm);
        bench.run("openssl pkcs8 -topk8 -nocrypt -in key.pem -outform DER -out key.der");
        assert_same(&bench.private("key.der", None).unwrap(), &key);
        // What we write is byte for byte what OpenSSL writes.
        assert_eq!(*formats::write_private(&key, Format::Pkcs8Pem, None).unwrap(), bench.read("key.pem"));
        assert_eq!(*formats::write_private(&key, Format::Pkcs8Der, None).unwrap(), bench.read("key.der"));

        bench.run("openssl pkey -in key.pem -pubout -out public.pem");
        bench.run("openssl pkey -in key.pem -pubout -outform DER -out public.der");
        for (name, format) in [("public.pem", PublicFormat::SpkiPem), ("public.der", PublicFormat::SpkiDer)] {
            assert_eq!(formats::read_public(&bench.read(name)).unwrap(), public(&key));
            assert_eq!(formats::write_public(&public(&key), format).unwrap(), bench.read(name));
        }
        // Text around the block is what many files have.
        bench.run("openssl pkey -in key.pem -text -out text.pem");
        assert_same(&bench.private("text.pem", None).unwrap(), &key);

        let form = match algorithm.modulus_bits() {
            None if *algorithm == KeyAlgorithm::Ed25519 => continue,
            None => Format::Sec1Pem,
            Some(_) => Format::Pkcs1Pem,
        };
        bench.run("openssl pkey -in key.pem -traditional -out old.pem");
        assert_same(&bench.private("old.pem", None).unwrap(), &key);
        assert_eq!(*formats::write_private(&key, form, None).unwrap(), bench.read("old.pem"));
        bench.run("openssl pkey -in key.pem -traditional -outform DER -out old.der");
        assert_same(&bench.private("old.der", None).unwrap(), &key);
        if form == Format::Pkcs1Pem {
            bench.run("openssl rsa -in key.pem -RSAPublicKey_out -out rsa.pem");
            assert_eq!(formats::read_public(&bench.read("rsa.pem")).unwrap(), public(&key));
        }
    }
}

#[test]
fn encrypted_keys_of_openssl_are_read() {
    let Some(bench) = Bench::new("openssl") else { return };
    bench.run("openssl genpkey -algorithm ed25519 -out plain.pem");
    let key = bench.private("plain.pem", None).unwrap();
    for how in [
        "-v2 aes-256-cbc",
        "-v2 aes-192-cbc",
        "-v2 aes-128-cbc",
        "-v2 aes-256-cbc -v2prf hmacWithSHA384",
        "-v2 aes-256-cbc -v2prf hmacWithSHA512 -iter 10000",
        "-scrypt",
        "-scrypt -v2 aes-128-cbc -scrypt_N 1024 -scrypt_r 8 -scrypt_p 16",
    ] {
        for form in ["PEM", "DER"] {
            bench.run(&format!(
                "openssl pkcs8 -topk8 {how} -in plain.pem -outform {form} -out key -passout pass:%"
            ));
            assert_same(&bench.private("key", Some(PASSPHRASE)).unwrap(), &key);
            assert!(matches!(bench.private("key", None), Err(FormatError::PassphraseNeeded { .. })), "{how}");
            assert!(
                matches!(bench.private("key", Some("wrong")), Err(FormatError::WrongPassphrase { .. })),
                "{how}"
            );
        }
    }
    // A file may not make us work without end, and says so before it asks for a passphrase.
    bench.run("openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 5000001 -in plain.pem -out key -passout pass:%");
    assert_eq!(
        bench.private("key", None).unwrap_err().to_string(),
        "the encrypted PKCS#8 private key asks for 5000001 iterations of PBKDF2, the most that is spent on a file is \
         5000000"
    );
}

#[test]
fn old_encryption_is_refused_with_the_command_that_converts_it() {
    let Some(bench) = Bench::new("openssl") else { return };
    bench.run("openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out plain.pem");
    let key = bench.private("plain.pem", None).unwrap();
    for how in [
        "openssl rsa -aes256 -traditional",
        "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES",
        "openssl pkcs8 -topk8 -v2 des3",
        "openssl pkcs8 -topk8 -v2 aes-256-cbc -v2prf hmacWithSHA1",
    ] {
        bench.run(&format!("{how} -in plain.pem -out OLD -passout pass:%"));
        let Err(FormatError::UnsupportedEncryption { command, found, .. }) =
            bench.private("OLD", Some(PASSPHRASE))
        else {
            panic!("{how} was not refused as it should");
        };
        assert!(!found.starts_with("OID"), "{how}: {found}");
        bench.run(&format!("{command} -passin pass:% -passout pass:%"));
        assert_same(&bench.private("NEW", Some(PASSPHRASE)).unwrap(), &key);
    }
}

#[test]
fn other_keys_of_openssl_are_refused_by_name() {
    let Some(bench) = Bench::new("openssl") else { return };
    for (arguments, expected) in [
        ("-algorithm ed448", "the PKCS#8 private key holds a key of type Ed448 (1.3.101.113), "),
        ("-algorithm x25519", "the PKCS#8 private key holds a key of type X25519 (1.3.101.110), "),
        (
            "-algorithm EC -pkeyopt ec_paramgen_curve:secp256k1",
            "the PKCS#8 private key holds a key on secp256k1 (1.3.132.0.10), ",
        ),
        (
            "-algorithm EC -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:explicit",
            "the PKCS#8 private key holds a curve spelled out in parameters, ",
        ),
        (
            "-algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048",
            "the PKCS#8 private key holds a key of type RSA for PSS alone (1.2.840.113549.1.1.10), ",
        ),
        (
            "-algorithm RSA -pkeyopt rsa_keygen_bits:1024",
            "the PKCS#8 private key holds an RSA key of 1024 bits, expected 2048, 3072 or 4096 bits",
        ),
        (
            "-algorithm RSA -pkeyopt rsa_keygen_bits:1536",
            "the PKCS#8 private key holds an RSA key of 1536 bits, expected 2048, 3072 or 4096 bits",
        ),
        (
            "-algorithm RSA -pkeyopt rsa_keygen_bits:2056",
            "the PKCS#8 private key holds an RSA key of 2056 bits, expected 2048, 3072 or 4096 bits",
        ),
        (
            "-algorithm RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_primes:3",
            "not a well-formed PKCS#8 private key: ",
        ),
    ] {
        bench.run(&format!("openssl genpkey {arguments} -out key.pem"));
        let refused = bench.private("key.pem", None).unwrap_err().to_string();
        assert!(refused.starts_with(expected), "{arguments}: {refused}");
        bench.run("openssl pkey -in key.pem -pubout -out public.pem");
        // Three primes do not show in the public key.
        if !arguments.ends_with("primes:3") {
            let refused = formats::read_public(&bench.read("public.pem")).unwrap_err();
            assert!(matches!(refused, FormatError::UnsupportedKey { .. }), "{arguments}: {refused}");
        }
    }
    // Broken sizes are read by the function that is named for it.
    bench.run("openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024 -out key.pem");
    let key = formats::danger::read_private_with_broken_sizes(&bench.read("key.pem"), None).unwrap();
    assert_eq!(key.algorithm(), KeyAlgorithm::Rsa1024);
    bench.run("openssl pkey -in key.pem -pubout -out public.pem");
    let (algorithm, raw) = formats::danger::read_public_with_broken_sizes(&bench.read("public.pem")).unwrap();
    assert_eq!((algorithm, raw.as_slice()), (KeyAlgorithm::Rsa1024, key.public()));
}

#[test]
fn compressed_points_are_compared_and_not_taken() {
    let Some(bench) = Bench::new("openssl") else { return };
    for curve in ["P-256", "P-384", "P-521"] {
        bench.run(&format!("openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:{curve} -out key.pem"));
        let key = bench.private("key.pem", None).unwrap();
        bench.run("openssl ec -in key.pem -conv_form compressed -out compressed.pem");
        assert_same(&bench.private("compressed.pem", None).unwrap(), &key);
        bench.run("openssl ec -in key.pem -no_public -out without.pem");
        assert_same(&bench.private("without.pem", None).unwrap(), &key);
        bench.run("openssl ec -in key.pem -conv_form compressed -pubout -out OLD");
        let refused = formats::read_public(&bench.read("OLD")).unwrap_err().to_string();
        assert!(refused.contains("a compressed point"), "{refused}");
        bench.run("openssl ec -pubin -conv_form uncompressed -in OLD -out NEW");
        assert_eq!(formats::read_public(&bench.read("NEW")).unwrap(), public(&key));
        // With the parameters in a block of their own, as `openssl ecparam` writes them.
        bench.run(&format!("openssl ecparam -genkey -name {curve} -out two.pem"));
        assert!(String::from_utf8(bench.read("two.pem")).unwrap().contains("EC PARAMETERS"));
        bench.private("two.pem", None).unwrap();
    }
}

#[test]
fn openssl_reads_our_keys() {
    let Some(bench) = Bench::new("openssl") else { return };
    for key in our_keys() {
        let spki =
            String::from_utf8(formats::write_public(&public(key), PublicFormat::SpkiPem).unwrap()).unwrap();
        for format in Format::ALL {
            if *format == Format::OpenSsh || *format == Format::Jwk || !format.holds(key.algorithm()) {
                continue;
            }
            bench.ours("key", key, *format, None);
            assert_eq!(bench.run("openssl pkey -in key -check -pubout").replace("Key is valid\n", ""), spki);
        }
        let quick =
            danger::write_private_at_cost(key, Format::Pkcs8Pem, Some(PASSPHRASE.as_bytes()), QUICK).unwrap();
        bench.write("key", &quick);
        assert_eq!(bench.run("openssl pkey -in key -passin pass:% -pubout"), spki);
    }
    // At the cost of the product.
    for (format, form) in [(Format::Pkcs8Pem, "PEM"), (Format::Pkcs8Der, "DER")] {
        bench.ours("key", &our_keys()[0], format, Some(PASSPHRASE));
        bench.run(&format!("openssl pkey -in key -inform {form} -passin pass:%"));
    }
    let (ok, ..) = execute(bench.directory.path(), "openssl pkey -in key -passin pass:wrong");
    assert!(!ok, "opened with another passphrase");
}

#[test]
fn a_pkcs12_file_is_refused_with_the_command_that_takes_the_key_out() {
    let Some(bench) = Bench::new("openssl") else { return };
    bench.run("openssl req -x509 -newkey ed25519 -nodes -keyout key.pem -out cert.pem -subj /CN=x -days 2");
    let key = bench.private("key.pem", None).unwrap();
    bench.run("openssl pkcs12 -export -inkey key.pem -in cert.pem -out OLD -passout pass:%");
    let refused = bench.private("OLD", Some(PASSPHRASE)).unwrap_err().to_string();
    let command = refused.split('`').nth(1).unwrap();
    assert!(refused.starts_with("found a PKCS#12 file"), "{refused}");
    bench.run(&format!("{command} -passin pass:% -passout pass:%"));
    assert_same(&bench.private("NEW", Some(PASSPHRASE)).unwrap(), &key);
    // A certificate is no key, in either form, and neither is a request for one.
    bench.run("openssl x509 -in cert.pem -outform DER -out cert.der");
    bench.run("openssl req -new -key key.pem -subj /CN=x -outform DER -out request.der");
    for name in ["cert.pem", "cert.der", "request.der"] {
        assert!(matches!(bench.private(name, None), Err(FormatError::WrongKind { .. })), "{name}");
        assert!(
            matches!(formats::read_public(&bench.read(name)), Err(FormatError::WrongKind { .. })),
            "{name}"
        );
    }
}

/// What `ssh-keygen` calls each key.
const SSH: &[(KeyAlgorithm, &str)] = &[
    (KeyAlgorithm::Ed25519, "-t ed25519"),
    (KeyAlgorithm::EcdsaP256, "-t ecdsa -b 256"),
    (KeyAlgorithm::EcdsaP384, "-t ecdsa -b 384"),
    (KeyAlgorithm::EcdsaP521, "-t ecdsa -b 521"),
    (KeyAlgorithm::Rsa2048, "-t rsa -b 2048"),
    (KeyAlgorithm::Rsa3072, "-t rsa -b 3072"),
];

#[test]
fn keys_of_ssh_keygen_are_read() {
    let Some(bench) = Bench::new("ssh-keygen") else { return };
    for (at, (algorithm, arguments)) in SSH.iter().enumerate() {
        let name = format!("key{at}");
        bench.run(&format!("ssh-keygen -q {arguments} -N '' -C alice@example.com -f {name}"));
        let key = bench.private(&name, None).unwrap();
        assert_eq!(key.algorithm(), *algorithm);
        let line = String::from_utf8(bench.read(&format!("{name}.pub"))).unwrap();
        let (of_line, raw, comment) = openssh::decode_line(&line).unwrap();
        assert_eq!(
            (of_line, raw.as_slice(), comment.as_str()),
            (*algorithm, key.public(), "alice@example.com")
        );
        assert_eq!(openssh::encode_line(&public(&key), "alice@example.com").unwrap(), line.trim_end());
        assert_eq!(formats::read_public(line.as_bytes()).unwrap(), public(&key));

        bench.run(&format!("ssh-keygen -q -p -P '' -N % -f {name}"));
        assert_same(&bench.private(&name, Some(PASSPHRASE)).unwrap(), &key);
        assert!(matches!(bench.private(&name, None), Err(FormatError::PassphraseNeeded { .. })));
        assert!(matches!(bench.private(&name, Some("wrong")), Err(FormatError::WrongPassphrase { .. })));
        assert!(matches!(bench.private(&name, Some("")), Err(FormatError::WrongPassphrase { .. })));

        // The formats that ssh-keygen converts to; it has no Ed25519 but in its own.
        if *algorithm != KeyAlgorithm::Ed25519 {
            bench.run(&format!("ssh-keygen -q -p -P % -N '' -m PKCS8 -f {name}"));
            assert_same(&bench.private(&name, None).unwrap(), &key);
            bench.run(&format!("ssh-keygen -q -p -P '' -N '' -m PEM -f {name}"));
            assert_same(&bench.private(&name, None).unwrap(), &key);
            let text = bench.run(&format!("ssh-keygen -e -m PKCS8 -f {name}.pub"));
            assert_eq!(formats::read_public(text.as_bytes()).unwrap(), public(&key));
        }
    }
}

#[test]
fn every_cipher_of_ssh_keygen_is_read_or_refused_by_name() {
    let Some(bench) = Bench::new("ssh-keygen") else { return };
    bench.run("ssh-keygen -q -t ed25519 -N '' -C '' -f key");
    let key = bench.private("key", None).unwrap();
    let mut passphrase = "''";
    for cipher in [
        "aes128-cbc",
        "aes192-cbc",
        "aes256-cbc",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
    ] {
        bench.run(&format!("ssh-keygen -q -p -P {passphrase} -N % -Z {cipher} -a 1 -f key"));
        passphrase = "%";
        assert_same(&bench.private("key", Some(PASSPHRASE)).unwrap(), &key);
        let refused = bench.private("key", Some("wrong")).unwrap_err();
        assert!(matches!(refused, FormatError::WrongPassphrase { .. }), "{cipher}: {refused}");
    }
    bench.run("ssh-keygen -q -p -P % -N % -Z 3des-cbc -a 1 -f key");
    let Err(FormatError::UnsupportedEncryption { command, .. }) = bench.private("key", Some(PASSPHRASE))
    else {
        panic!("3DES was not refused as it should");
    };
    bench.run(&format!("{} -P % -N % -q", command.replace("FILE", "key")));
    assert_same(&bench.private("key", Some(PASSPHRASE)).unwrap(), &key);
}

#[test]
fn ssh_keygen_reads_our_keys() {
    let Some(bench) = Bench::new("ssh-keygen") else { return };
    for key in our_keys() {
        let line = openssh::encode_line(&public(key), "").unwrap();
        for passphrase in [None, Some(PASSPHRASE)] {
            let bytes = passphrase.map(str::as_bytes);
            // One key at the cost of the product.
            let text = match key.algorithm() {
                KeyAlgorithm::Ed25519 => openssh::encode(key, "bob", bytes).unwrap(),
                _ => danger::encode_openssh_at_cost(key, "bob", bytes, QUICK).unwrap(),
            };
            let (again, comment) = openssh::decode(text.as_bytes(), bytes).unwrap();
            assert_same(&again, key);
            assert_eq!(comment, "bob");
            bench.write("key", text.as_bytes());
            let word = passphrase.map_or("''", |_| "%");
            // The comment comes out too.
            assert_eq!(
                bench.run(&format!("ssh-keygen -y -P {word} -f key")).trim_end(),
                format!("{line} bob")
            );
            // OpenSSH's own hand, and back.
            bench.run(&format!("ssh-keygen -q -p -P {word} -N '' -f key"));
            assert_same(&bench.private("key", None).unwrap(), key);
        }
        let (ok, ..) = execute(bench.directory.path(), "ssh-keygen -y -P wrong -f nothing");
        assert!(!ok);
        bench.write("line.pub", line.as_bytes());
        bench.run("ssh-keygen -l -f line.pub");
    }
}

#[test]
fn putty_converts_both_ways() {
    let Some(bench) = Bench::new("puttygen") else { return };
    bench.write("none", b"");
    for arguments in ["-t ed25519", "-t ecdsa -b 384", "-t rsa -b 2048"] {
        bench.run(&format!("puttygen -q {arguments} -C bob -o OLD --new-passphrase none"));
        let refused = bench.private("OLD", None).unwrap_err().to_string();
        bench.run(refused.split('`').nth(1).unwrap());
        let key = bench.private("NEW", None).unwrap();
        bench.ours("ours", &key, Format::OpenSsh, None);
        let line = bench.run("puttygen ours -O public-openssh");
        assert_eq!(formats::read_public(line.as_bytes()).unwrap(), public(&key));
    }
}

/// SSH leaves leading zeros out of numbers, so that one key in 512 is a byte shorter.
#[test]
fn scalars_that_start_with_zeros_travel_both_ways() {
    let Some(bench) = Bench::new("ssh-keygen") else { return };
    for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384] {
        let key = std::iter::repeat_with(|| generate(algorithm))
            .find(|key| key.secret()[0] == 0 && key.secret()[1] < 0x80)
            .unwrap();
        bench.ours("key", &key, Format::OpenSsh, None);
        bench.run("ssh-keygen -q -p -P '' -N % -f key");
        assert_same(&bench.private("key", Some(PASSPHRASE)).unwrap(), &key);
        bench.run("ssh-keygen -q -p -P % -N '' -f key");
        assert_same(&bench.private("key", None).unwrap(), &key);
        // When this fails, the ssh-key crate has learned to read them, and the private section need not be read here.
        if algorithm == KeyAlgorithm::EcdsaP256 {
            assert!(ssh_key::PrivateKey::from_openssh(bench.read("key")).is_err());
        }
        for format in Format::ALL.iter().filter(|format| format.holds(algorithm)) {
            let written = formats::write_private(&key, *format, None).unwrap();
            assert_same(&formats::read_private(&written, None).unwrap(), &key);
        }
    }
}
