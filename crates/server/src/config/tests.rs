use std::time::Duration;

use sallyport_access::Resource as _;
use sallyport_ca::CaKind;

use std::path::PathBuf;

use super::*;

const PIN: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn refused(text: &str) -> Vec<String> {
    let error = Config::parse("sallyport.yaml", text).expect_err("must be refused");
    error.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn the_printed_example_is_valid_and_means_the_defaults() {
    let config = Config::parse("example", Config::commented_example()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.cluster.as_str(), "example.com");
    assert_eq!(format!("{:?}", config.auth.unwrap()), format!("{:?}", AuthSection::default()));
    let proxy = config.proxy.unwrap();
    assert_eq!(proxy.limits, Limits::default());
    assert_eq!(proxy.listen, ProxySection::default().listen);
    let node = config.node.unwrap();
    assert_eq!(node.labels.value("env"), Some("prod"));
    assert_eq!(node.allow_env, NodeSection::default().allow_env);
}

#[test]
fn every_commented_default_in_the_example_is_what_the_code_does() {
    // Uncommenting the defaults of the sections that stand alone must change nothing.
    let mut text = String::new();
    for line in Config::commented_example().lines() {
        let uncommented = line.trim_start().strip_prefix("# ").map(|rest| {
            let indent = line.len() - line.trim_start().len();
            format!("{}{rest}", " ".repeat(indent))
        });
        let keep = [
            "data_dir:",
            "drain_timeout:",
            "second_factor:",
            "limits:",
            "connections",
            "handshake_timeout:",
            "sessions_per_user:",
            "allow_env:",
            "spool_limit_mib:",
            "check_interval:",
        ];
        match uncommented {
            Some(plain) if keep.iter().any(|key| plain.trim_start().starts_with(key)) => {
                text.push_str(&plain)
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    assert!(text.contains("\n  limits:\n    connections: 20000"), "{text}");
    let config = Config::parse("example", &text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.drain_timeout, Duration::from_secs(30));
    assert_eq!(config.data_dir, PathBuf::from("/var/lib/sallyport"));
    assert_eq!(config.proxy.unwrap().limits, Limits::default());
    let node = config.node.unwrap();
    assert_eq!(node.spool_limit_mib, NodeSection::default().spool_limit_mib);
    assert_eq!(node.check_interval, NodeSection::default().check_interval);
}

#[test]
fn the_interval_of_checks_is_read_by_its_former_name_and_not_by_both() {
    let text = |keys: &str| {
        format!(
            "version: v1\ncluster: example.com\nnode: {{enabled: true, proxy_server: 'p.example:3080', {keys}}}\n"
        )
    };
    for key in ["check_interval", "database_check_interval"] {
        let config = Config::parse("x", &text(&format!("{key}: 7m"))).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.node.unwrap().check_interval, Duration::from_secs(420), "{key}");
    }
    let lines = refused(&text("check_interval: 1m, database_check_interval: 2m")).join("\n");
    assert!(
        lines.contains("node.database_check_interval") && lines.contains("keep check_interval"),
        "{lines}"
    );
}

#[test]
fn every_mistake_is_reported_at_once_with_its_place_and_a_fix() {
    let lines = refused(
        "version: v2\n\
         cluster: Example\n\
         proxy:\n\
         \x20 enabled: true\n\
         \x20 lisen: 0.0.0.0:3080\n\
         \x20 limits:\n\
         \x20   handshake_timeout: soon\n\
         \x20   connections: 0\n\
         node:\n\
         \x20 enabled: yes please\n\
         \x20 carrier: pigeon\n",
    );
    let expected = [
        "sallyport.yaml:1:10: version: this release only knows v1; write version: v1",
        "sallyport.yaml:2:10: cluster: \"Example\": cluster name \"Example\" contains 'E'",
        "sallyport.yaml:4:3: proxy.auth_server: is missing, and no authority runs in this process",
        "sallyport.yaml:5:3: proxy.lisen: no such key; did you mean listen?",
        "sallyport.yaml:7:24: proxy.limits.handshake_timeout: \"soon\": is not a time span; write a time from 100ms to 5m",
        "sallyport.yaml:8:18: proxy.limits.connections: \"0\": is out of range; write a whole number from 1 to 1000000",
        "sallyport.yaml:10:12: node.enabled: expected true or false, got text; write true or false",
        "sallyport.yaml:11:12: node.carrier: \"pigeon\"",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(expected) {
        assert!(line.starts_with(start), "\n{line}\ndoes not start with\n{start}");
    }
}

#[test]
fn no_message_repeats_a_secret() {
    for text in [
        "version: v1\ncluster: c\nnode:\n  enabled: true\n  proxy_server: p:1\n  join:\n    token: hunter2 hunter2\n    ca_pin: x\n",
        "version: v1\ncluster: c\nnode:\n  enabled: true\n  proxy_server: p:1\n  join:\n    token: [hunter2]\n",
        "version: v1\ncluster: c\nnode:\n  enabled: true\n  join:\n    tokn: hunter2\n",
        "version: v1\ncluster: c\nnode:\n  join:\n    token: \"hunter2\n  x: [\n",
        "version: v1\ncluster: c\nnode:\n  join:\n    token: hunter2\n    token: hunter2\n",
        "version: v1\ncluster: c\nnode:\n  join:\n\ttoken: hunter2\n",
    ] {
        let lines = refused(text);
        assert!(!lines.join("\n").contains("hunter2"), "{lines:#?}");
    }
    let text = format!(
        "version: v1\ncluster: c\nnode:\n  enabled: true\n  proxy_server: p:1\n  join:\n    token: hunter2\n    ca_pin: {PIN}\n"
    );
    let config = Config::parse("f", &text).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    assert_eq!(config.node.unwrap().join.token.unwrap().expose(), "hunter2");
}

#[test]
fn pam_is_asked_where_the_build_can() {
    let text = |value: &str| {
        format!(
            "version: v1\ncluster: c\nproxy: {{ enabled: true }}\nauth: {{ enabled: true }}\nnode:\n  enabled: true\n  \
             kill_orphans: true\n  native_door: false\n  early_data: false\n  pam_session: true\n  \
             refuse_locked_accounts: true\n  forwards_to_cluster: false\n  pam_account: {value}\n"
        )
    };
    let node = Config::parse("f", &text("off")).unwrap().node.unwrap();
    assert!(node.kill_orphans && node.pam_session && node.pam_account.is_none());
    assert!(!node.native_door && !node.early_data);
    assert!(node.refuse_locked_accounts && !node.forwards_to_cluster);
    assert!(refused(&text("../shadow"))[0].contains("node.pam_account"));
    if sallyport_ssh::HAS_PAM {
        let node = Config::parse("f", &text("sallyport")).unwrap().node.unwrap();
        assert_eq!(node.pam_account.as_deref(), Some("sallyport"));
    } else {
        let lines = refused(&text("sallyport"));
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains("this program was built without it"), "{lines:#?}");
        assert!(lines[0].contains("--features pam"), "{lines:#?}");
    }
}

#[test]
fn a_token_needs_a_pin() {
    let lines = refused(
        "version: v1\ncluster: c\nnode:\n  enabled: true\n  proxy_server: p:1\n  join:\n    token: abc\n",
    );
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("node.join.ca_pin: is missing"), "{lines:#?}");
}

#[test]
fn something_must_be_on_and_the_parts_must_find_each_other() {
    assert!(refused("version: v1\ncluster: c\n")[0].contains("no service is on"));
    assert!(refused("version: v1\ncluster: c\nproxy:\n  enabled: false\n")[0].contains("no service is on"));
    let lines = refused("version: v1\ncluster: c\nauth:\n  enabled: true\nnode:\n  enabled:\n");
    assert!(lines[0].contains("node.enabled: is missing"), "nothing is not off: {lines:#?}");
    let lines = refused("version: v1\ncluster: c\nnode:\n  enabled: true\n");
    assert!(lines[0].contains("node.proxy_server: is missing"), "{lines:#?}");
    let lines = refused(
        "version: v1\ncluster: c\nauth:\n  enabled: true\nproxy:\n  enabled: true\n  auth_server: a:1\n",
    );
    assert!(lines[0].contains("names another authority"), "{lines:#?}");
}

#[test]
fn dangerous_environment_variables_are_refused() {
    for bad in ["LD_PRELOAD", "PATH", "*", "A-B", "BASH_ENV"] {
        let lines = refused(&format!(
            "version: v1\ncluster: c\nnode:\n  enabled: true\n  proxy_server: p:1\n  allow_env: [\"{bad}\"]\n"
        ));
        assert!(lines[0].contains("node.allow_env"), "{bad}: {lines:#?}");
    }
}

#[test]
fn broken_yaml_names_the_place() {
    let lines = refused("version: v1\ncluster: [\n");
    assert!(lines[0].starts_with("sallyport.yaml:"), "{lines:#?}");
    assert!(lines[0].contains("not valid YAML"), "{lines:#?}");
    let lines = refused("version: v1\ncluster: c\ncluster: d\n");
    assert_eq!(lines, ["sallyport.yaml:3:1: the key \"cluster\" is there twice; keep one of them"]);
    let lines = refused("- a\n- b\n");
    assert!(lines[0].contains("expected a section of keys, got a list"), "{lines:#?}");
    assert!(!refused("").is_empty());
}

#[test]
fn a_missing_file_says_what_to_do() {
    let error = Config::load(Path::new("/nonexistent/sallyport.yaml")).expect_err("missing").to_string();
    assert!(error.starts_with("/nonexistent/sallyport.yaml: cannot be read:"), "{error}");
    assert!(error.contains("sallyport configure"), "{error}");
}

/// A configuration with this section, indented by two.
fn with_crypto(section: &str) -> String {
    format!("version: v1\ncluster: c\ndata_dir: /nonexistent\nauth:\n  enabled: true\ncrypto:\n{section}")
}

fn crypto(section: &str) -> CryptoSection {
    Config::parse("f", &with_crypto(section)).unwrap_or_else(|error| panic!("{error}")).crypto
}

#[test]
fn the_section_on_cryptography_is_read() {
    use sallyport_sal::Primitive;
    use sallyport_sal::algorithm::KexGroup;
    use sallyport_sal::selection::Mode;
    let read = crypto(
        "  selection: only\n  provider: aws-lc\n  profile: /p.json\n  overrides: { sign/ecdsa-p256: aws-lc }\n  \
         tls:\n    groups: [secp384r1, X25519MLKEM768]\n    remember_chains: 1h\n",
    );
    assert_eq!(read.selection, Some(Choice::Only("aws-lc".to_owned())));
    assert_eq!(read.profile_path(Path::new("/d")), Path::new("/p.json"));
    let (policy, incident) = read.policy(Path::new("/d")).unwrap();
    assert!(matches!(&policy.mode, Mode::Only(name) if name == "aws-lc") && incident.is_none());
    assert_eq!(policy.overrides.get(&"sign/ecdsa-p256".parse::<Primitive>().unwrap()).unwrap(), "aws-lc");
    assert_eq!(read.groups(&policy.mode), [KexGroup::P384, KexGroup::X25519MlKem768]);
    assert_eq!(read.remember().age, Duration::from_secs(3600));
    assert_eq!(crypto("  tls: { remember_chains: off }\n").remember(), sallyport_ca::Remember::OFF);

    let default = crypto("");
    assert_eq!(default, CryptoSection::default());
    assert_eq!(default.remember(), sallyport_ca::Remember::DEFAULT);
    assert_eq!(default.profile_path(Path::new("/d")), Path::new("/d/crypto.json"));
    assert_eq!(default.groups(&Mode::Preset), KexGroup::DEFAULT);
    assert!(!default.groups(&Mode::Fips).contains(&KexGroup::X25519));
}

#[test]
fn every_mistake_about_cryptography_names_its_line_and_what_would_do() {
    let refused = |section: &str| refused(&with_crypto(section));
    let lines = refused(
        "  selection: fastest\n\
         \x20 overrides:\n\
         \x20   sign/ecdsa-p256: bouncy\n\
         \x20   encapsulate/ml-kem-768: ring\n\
         \x20   sing/ed25519: ring\n\
         \x20 profil: /p\n\
         \x20 tls:\n\
         \x20   groups: [x25519, kyber, x25519]\n\
         \x20   remember_chains: 2d\n",
    );
    let expected = [
        "sallyport.yaml:7:14: crypto.selection: \"fastest\": is not one of the choices; write one of measured, preset, only, fips",
        "sallyport.yaml:9:22: crypto.overrides.sign/ecdsa-p256: \"bouncy\": this build has no such provider; write one of aws-lc, ring, graviola",
        "sallyport.yaml:10:29: crypto.overrides.encapsulate/ml-kem-768: \"ring\": cannot serve encapsulate/ml-kem-768: it does not offer it; write one of aws-lc, graviola",
        "sallyport.yaml:11:5: crypto.overrides.sing/ed25519: no such key; did you mean sign/ed25519?",
        "sallyport.yaml:12:3: crypto.profil: no such key; did you mean profile?",
        "sallyport.yaml:14:22: crypto.tls.groups: \"kyber\": is no key exchange group; write a list of X25519MLKEM768, ",
        "sallyport.yaml:14:29: crypto.tls.groups: \"x25519\": is there twice; ",
        "sallyport.yaml:15:22: crypto.tls.remember_chains: \"2d\": is out of range; write a time from 1s to 1d",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(expected) {
        assert!(line.starts_with(start), "\n{line}\ndoes not start with\n{start}");
    }

    let one = |section: &str, start: &str| {
        let lines = refused(section);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].starts_with(start), "\n{}\ndoes not start with\n{start}", lines[0]);
    };
    one(
        "  overrides: { encapsulate/ml-kem-768: ring }\n",
        "sallyport.yaml:7:40: crypto.overrides.encapsulate/ml-kem-768: \"ring\": cannot serve encapsulate/ml-kem-768: it does not offer it; write one of aws-lc, graviola",
    );
    one("  selection: only\n", "sallyport.yaml:7:14: crypto.provider: is missing; write one of aws-lc, ring");
    one(
        "  selection: only\n  provider: bouncy\n",
        "sallyport.yaml:8:13: crypto.provider: \"bouncy\": this build has no such provider; write one of aws-lc, ring",
    );
    one("  provider: ring\n", "sallyport.yaml:7:13: crypto.provider: is for selection: only; ");
    one("  selection: preset\n  provider: ring\n", "sallyport.yaml:8:13: crypto.provider: is for selection");
    one(
        "  selection: only\n  provider: ring\n  overrides: { sign/ed25519: aws-lc }\n",
        "sallyport.yaml:9:30: crypto.overrides.sign/ed25519: \"aws-lc\" is not admitted by the selection, which is only ring; ",
    );
    one(
        "  selection: only\n  provider: libcrux\n",
        "sallyport.yaml:7:14: crypto.selection: no provider serves generate/ed25519, ",
    );
    one(
        "  selection: only\n  provider: ring\n  tls: { groups: [x25519, X25519MLKEM768] }\n",
        "sallyport.yaml:9:27: crypto.tls.groups: \"X25519MLKEM768\": no provider serves decapsulate/ml-kem-768 under this selection; write a list of x25519, secp256r1, secp384r1",
    );
    one("  tls: { groups: [] }\n", "sallyport.yaml:7:18: crypto.tls.groups: is empty; write a list of ");
    one("  profile: crypto.json\n", "sallyport.yaml:7:12: crypto.profile: \"crypto.json\" is relative; ");
    one(
        "  require_fips: true\n",
        "sallyport.yaml:7:17: crypto.require_fips: needs selection: fips here as well; ",
    );
    if !sallyport_sal::provider::ALL.iter().any(|provider| provider.is_fips()) {
        one("  selection: fips\n", "sallyport.yaml:7:14: crypto.selection: this build has no FIPS module; ");
    }
}

#[test]
fn a_measured_profile_must_be_there_when_it_is_asked_for() {
    use sallyport_sal::cpu::Cpu;
    use sallyport_sal::selection::{Incident, Mode, Profile};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("crypto.json");
    let section = format!("  selection: measured\n  profile: {}\n", path.display());
    let lines = refused(&with_crypto(&section));
    assert!(
        lines[0].starts_with("sallyport.yaml:7:14: crypto.selection: there is no profile at /")
            && lines[0].ends_with(&format!("sallyport sal tune --output {}", path.display())),
        "{lines:#?}"
    );
    // Without the word, it is not missed.
    let unasked = CryptoSection { profile: Some(path.clone()), ..CryptoSection::default() };
    let (policy, incident) = unasked.policy(directory.path()).unwrap();
    assert!(matches!(policy.mode, Mode::Preset) && incident.is_none());

    std::fs::write(&path, "{}").unwrap();
    let lines = refused(&with_crypto(&section));
    assert!(lines[0].starts_with("sallyport.yaml:8:12: crypto.profile: /"), "{lines:#?}");
    let (policy, incident) = unasked.policy(directory.path()).unwrap();
    assert!(matches!(policy.mode, Mode::Preset));
    assert!(
        matches!(&incident, Some(Incident::StaleProfile { reason }) if reason.contains("is not a profile")),
        "{incident:?}"
    );

    Profile::new(&Cpu::detect(), time::OffsetDateTime::UNIX_EPOCH).write(&path).unwrap();
    assert_eq!(crypto(&section).selection, Some(Choice::Measured));
    let (policy, incident) = unasked.policy(directory.path()).unwrap();
    assert!(matches!(policy.mode, Mode::Measured(_)) && incident.is_none());
    // One of another machine is no mistake: the selection says so, and goes on with the preset.
    let text = std::fs::read_to_string(&path).unwrap().replace("\"cpu\": \"", "\"cpu\": \"another ");
    std::fs::write(&path, text).unwrap();
    let (policy, _) = crypto(&section).policy(directory.path()).unwrap();
    let selection = sallyport_sal::Selection::new(sallyport_sal::provider::ALL, policy);
    assert!(matches!(selection.incidents().as_slice(), [Incident::StaleProfile { .. }]));
}

#[test]
fn the_example_on_cryptography_is_valid_when_it_is_uncommented() {
    let example = Config::commented_example();
    let (_, rest) = example.split_once("\n# crypto:\n").expect("the section");
    let section: String = rest
        .lines()
        .map_while(|line| line.strip_prefix("# "))
        .fold(String::new(), |text, line| text + line + "\n");
    let read = crypto(&section);
    assert_eq!(read.selection, Some(Choice::Preset));
    assert_eq!(read.profile_path(Path::new("/")), read.profile_path(Path::new("/var/lib/sallyport")));
    assert_eq!(read.groups, Some(sallyport_sal::algorithm::KexGroup::DEFAULT.to_vec()));
    assert_eq!(read.remember_chains, CryptoSection::default().remember_chains);
}

#[test]
fn host_and_port_are_checked() {
    assert_eq!("proxy:3080".parse::<HostPort>().unwrap().to_string(), "proxy:3080");
    assert_eq!("[::1]:80".parse::<HostPort>().unwrap().to_string(), "[::1]:80");
    for bad in ["proxy", ":80", "::1:80", "proxy:70000", "[x]:1", "a b:1", "http://x:1"] {
        assert!(bad.parse::<HostPort>().is_err(), "{bad}");
    }
    for url in ["https://x:3", "https://x"] {
        assert!(url.parse::<HostPort>().unwrap_err().contains("leave out https://"), "{url}");
    }
}

#[test]
fn ca_keys_are_sealed_unless_a_token_is_named() {
    let text = |ca_keys: &str| {
        format!(
            "version: v1\ncluster: c.example\nauth:\n  enabled: true\n  suite: hsm-v1\n  ca_keys:\n{ca_keys}"
        )
    };
    let places = |ca_keys: &str| {
        let auth = Config::parse("x", &text(ca_keys)).unwrap_or_else(|e| panic!("{e}")).auth.unwrap();
        assert_eq!(auth.suite, Some(sallyport_sal::Suite::HsmV1));
        CaKind::ALL.iter().map(|kind| auth.ca_keys.place(*kind).to_owned()).collect::<Vec<_>>()
    };
    let token = |name: &str| {
        format!("      {name}: {{module: /lib/m.so, token: {{label: {name}}}, pin: {{file: /etc/pin}}}}\n")
    };
    let one = format!("    tokens:\n{}", token("main"));
    assert_eq!(places(&one), ["main"; 8]);
    assert_eq!(
        places(&format!("{one}    keep: sealed\n    keep_by_ca: {{host: main}}\n"))[..2],
        ["sealed", "main"]
    );
    let two = format!("{one}{}", token("spare"));
    assert_eq!(places(&two), ["sealed"; 8]);
    assert_eq!(
        places(&format!("{two}    keep: spare\n    keep_by_ca: {{user: main}}\n"))[..2],
        ["main", "spare"]
    );

    let lines = refused(&text(
        "    tokens:\n      sealed: {module: m.so, pin: {value: '1370', env: X}, sesions: 3}\n    keep: man\n",
    ));
    let all = lines.join("\n");
    for part in [
        "name of the state itself",
        "missing or relative",
        "one of label",
        "one of file, env",
        "no token \"man\"",
        "did you mean sessions",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(!all.contains("1370"), "{all}");
}

#[test]
fn the_pages_may_have_a_certificate_of_their_own() {
    let text = |https: &str| {
        format!(
            "version: v1\ncluster: c.example\nauth: {{enabled: true}}\nproxy:\n  enabled: true\n  https: {https}\n"
        )
    };
    let config =
        Config::parse("x", &text("{certificate: /a.pem, key: /k.pem}")).unwrap_or_else(|e| panic!("{e}"));
    let files = config.proxy.unwrap().https.unwrap();
    assert_eq!((files.certificate.to_str(), files.key.to_str()), (Some("/a.pem"), Some("/k.pem")));
    for bad in ["{certificate: /a.pem}", "{certificate: a.pem, key: /k.pem}", "{}"] {
        let all = refused(&text(bad)).join("\n");
        assert!(all.contains("proxy.https.") && all.contains("missing or relative"), "{bad}: {all}");
    }
}

#[test]
fn an_unknown_log_level_is_refused_with_its_line() {
    let said = refused("version: v1\ncluster: c\nlog: {level: infoo}\nauth: {enabled: true}\n").join("\n");
    assert!(
        said.contains("sallyport.yaml:3") && said.contains("\"infoo\"") && said.contains("info, debug"),
        "{said}"
    );
}

#[test]
fn telemetry_is_off_without_its_section_and_says_what_is_wrong_with_it() {
    let with = |section: &str| {
        let text = format!("version: v1\ncluster: c\nauth: {{enabled: true}}\n{section}");
        Config::parse("x.yaml", &text).map(|config| config.telemetry)
    };
    assert_eq!(with("").unwrap(), None);
    let read =
        with("telemetry: {endpoint: 'http://127.0.0.1:4317', slow: 250ms, sample: 0.5}").unwrap().unwrap();
    assert_eq!(read.endpoint.to_string(), "http://127.0.0.1:4317");
    assert_eq!((read.slow, read.sample), (Duration::from_millis(250), 0.5));
    assert_eq!(read.service_name, "sallyport");
    let tls = "telemetry: {endpoint: 'https://collector:4317/', ca_file: /etc/ca.pem}";
    assert!(with(tls).unwrap().unwrap().endpoint.secure);
    for (section, said) in [
        ("telemetry: {}", "telemetry.endpoint"),
        ("telemetry: {endpoint: 'collector:4317'}", "http:// or https://"),
        ("telemetry: {endpoint: 'http://collector'}", "has no port"),
        ("telemetry: {endpoint: 'https://collector:4317'}", "the endpoint has TLS"),
        ("telemetry: {endpoint: 'http://c:1', ca_file: /x}", "an endpoint with TLS"),
        ("telemetry: {endpoint: 'https://c:1', ca_file: x}", "is relative"),
        ("telemetry: {endpoint: 'http://c:1', sample: 2}", "from 0 to 1"),
        ("telemetry: {endpoint: 'http://c:1', sample: NaN}", "from 0 to 1"),
        ("telemetry: {endpoint: 'http://c:1', slow: 0s}", "telemetry.slow"),
        ("telemetry: {endpoint: 'http://c:1', service_name: ''}", "telemetry.service_name"),
        ("telemetry: {endpoint: 'http://c:1', sampel: 1}", "sampel"),
    ] {
        let problems = with(section).unwrap_err().to_string();
        assert!(problems.contains(said), "{section}: {problems}");
    }
}

#[test]
fn a_node_serves_what_it_lists_of_the_catalogue() {
    let head = "version: v1\ncluster: example.com\ndata_dir: /var/lib/x\nnode:\n  enabled: true\n  proxy_server: p.example:3080\n  apps:\n";
    let config = format!(
        "{head}    - name: wiki\n      description: Notes\n      labels: {{env: dev}}\n      uri: tcp://10.0.0.7:80\n    - {{name: \
         pay, uri: 'tcp://[::1]:443'}}\n"
    );
    let apps = Config::parse("x", &config).unwrap_or_else(|e| panic!("{e}")).node.unwrap().resources;
    let names: Vec<String> = apps.iter().map(|app| app.id().to_string()).collect();
    assert_eq!(names, ["app/wiki", "app/pay"]);
    assert_eq!((apps[0].labels.value("env"), apps[0].text("uri")), (Some("dev"), Some("tcp://10.0.0.7:80")));
    let told = refused(&format!(
        "{head}    - {{name: wiki, uri: nowhere}}\n    - {{name: wiki, uri: 'tcp://a:1', via: other}}\n    - {{uri: 'tcp://a:1'}}\n"
    ));
    let told = told.join("\n");
    for part in [
        "node.apps[0].uri: \"nowhere\": does not begin with tcp://",
        "node.apps[1].name: \"wiki\": is there already",
        "node.apps[1].via: no such key",
        "node.apps[2].name: is missing",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
