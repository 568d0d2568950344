use std::time::Duration;

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
    assert_eq!(config.auth, Some(AuthSection::default()));
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
    assert_eq!(config.node.unwrap().spool_limit_mib, NodeSection::default().spool_limit_mib);
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
         \x20 enabled: yes please\n",
    );
    let expected = [
        "sallyport.yaml:1:10: version: this release only knows v1; write version: v1",
        "sallyport.yaml:2:10: cluster: \"Example\": cluster name \"Example\" contains 'E'",
        "sallyport.yaml:4:3: proxy.auth_server: is missing, and no authority runs in this process",
        "sallyport.yaml:5:3: proxy.lisen: no such key; did you mean listen?",
        "sallyport.yaml:7:24: proxy.limits.handshake_timeout: \"soon\": is not a time span; write a time from 100ms to 5m",
        "sallyport.yaml:8:18: proxy.limits.connections: \"0\": is out of range; write a whole number from 1 to 1000000",
        "sallyport.yaml:10:12: node.enabled: expected true or false, got text; write true or false",
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

#[test]
fn host_and_port_are_checked() {
    assert_eq!("proxy:3080".parse::<HostPort>().unwrap().to_string(), "proxy:3080");
    assert_eq!("[::1]:80".parse::<HostPort>().unwrap().to_string(), "[::1]:80");
    for bad in ["proxy", ":80", "::1:80", "proxy:70000", "[x]:1", "a b:1", "http://x:1"] {
        assert!(bad.parse::<HostPort>().is_err(), "{bad}");
    }
}
