//! `sallyport sal`, as an operator runs it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{PROGRAM, ok, refused, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

fn run(home: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("SALLYPORT_HOME", home)
        .arg("sal")
        .args(arguments)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

#[test]
fn the_report_names_what_stands_behind_everything() {
    let home = TempDir::new().unwrap();
    let text = stdout(&ok(run(home.path(), &["report", "--all"])));
    assert!(text.starts_with("Cryptography by AWS-LC"), "{text}");
    for part in [
        "X25519MLKEM768",
        "sent first",
        "TLS_AES_128_GCM_SHA256",
        "mldsa65",
        "chacha20-poly1305@openssh.com (by the layer)",
        "sign/ecdsa-p256",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("side channels"), "what is never chosen is named with its reason: {text}");

    let report = json(&ok(run(home.path(), &["report", "--format", "json"])));
    let choices = report["report"]["choices"].as_array().unwrap();
    assert!(choices.len() > 40 && choices.iter().all(|choice| choice["source"].is_string()), "{report}");
    assert_eq!(report["handshake"], Value::Null);
}

#[test]
fn a_report_with_times_takes_a_handshake_apart() {
    let home = TempDir::new().unwrap();
    let arguments = ["report", "--time", "--key", "ed25519", "--group", "x25519", "--format", "json"];
    let report = json(&ok(run(home.path(), &arguments)));
    let phases = report["handshake"]["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    let expected = [
        "key exchange",
        "transcript signature",
        "chain verification",
        "everything else",
        "the whole handshake",
    ];
    assert_eq!(names, expected);
    let whole = &phases[4];
    for side in ["client_microseconds", "server_microseconds"] {
        assert!(whole[side].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report["report"]["groups"][0]["server"].as_f64().unwrap() > 0.0, "{report}");
    let retry = &report["hello_retry_request"];
    assert_eq!((&retry["sent"], &retry["common"]), (&"X25519MLKEM768".into(), &"secp256r1".into()));
    assert!(retry["bytes"].as_u64().unwrap() > 1184, "the share that was of no use is on the wire: {retry}");
    assert!(report["report"]["suites"][0]["megabytes_per_second"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn tuning_saves_a_profile_that_is_used_from_then_on() {
    let home = TempDir::new().unwrap();
    let output = ok(run(home.path(), &["tune", "--passes", "4", "--format", "json"]));
    let tuned = json(&output);
    let path = home.path().join("crypto.json");
    assert_eq!(tuned["profile"], path.to_str().unwrap());
    let profile: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert!(profile["costs"]["sign/ed25519"]["aws-lc"]["nanoseconds"].as_f64().unwrap() > 0.0);
    // What warns of itself is not in it.
    assert_eq!(profile["costs"]["generate/rsa-2048"], Value::Null);

    let report = json(&ok(run(home.path(), &["report", "--format", "json"])));
    let selection = report["report"]["selection"].as_str().unwrap();
    assert!(selection.starts_with("measured on this machine"), "{selection}");

    // A profile of another machine is not used, and that is said.
    let text = fs::read_to_string(&path).unwrap();
    let cpu = profile["cpu"].as_str().unwrap();
    fs::write(&path, text.replace(cpu, "another machine")).unwrap();
    let report = json(&ok(run(home.path(), &["report", "--format", "json"])));
    assert!(report["report"]["selection"].as_str().unwrap().contains("preset"), "{report}");
    assert!(report["report"]["incidents"][0].as_str().unwrap().contains("another CPU"), "{report}");

    let said = stderr(&ok(run(home.path(), &["tune", "--passes", "4", "--dry-run"])));
    assert!(said.contains("measured in") && !said.contains("saved"), "{said}");
    let blocked = home.path().join("file");
    fs::write(&blocked, "").unwrap();
    let said = refused(&run(home.path(), &["tune", "-o", blocked.join("profile").to_str().unwrap()]), 1);
    assert!(said.contains("is a file, not a directory"), "{said}");
}

#[test]
fn tuning_takes_less_than_two_minutes() {
    let home = TempDir::new().unwrap();
    let tuned = json(&ok(run(home.path(), &["tune", "--dry-run", "--format", "json"])));
    assert!(tuned["seconds"].as_f64().unwrap() < 120.0, "{tuned}");
    assert_eq!(tuned["profile"], Value::Null);
}

#[test]
fn the_table_of_speeds_comes_as_text_csv_and_picture() {
    let home = TempDir::new().unwrap();
    let picture = home.path().join("speed.svg");
    let arguments = ["speed", "x25519", "random", "--quick", "--svg", picture.to_str().unwrap()];
    let text = stdout(&ok(run(home.path(), &arguments)));
    assert!(
        text.contains("agree/x25519") && text.contains("selected") && !text.contains("sha-256"),
        "{text}"
    );
    let svg = fs::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("agree/x25519") && svg.trim_end().ends_with("</svg>"));

    let arguments = ["speed", "random", "--quick", "--format", "csv", "-p", "ring", "-p", "graviola"];
    let csv = stdout(&ok(run(home.path(), &arguments)));
    let lines: Vec<_> = csv.lines().collect();
    assert!(lines[0].starts_with("primitive,part,provider,"), "{csv}");
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(lines[1..].iter().all(|line| line.split(',').count() == lines[0].split(',').count()), "{csv}");

    let said = refused(&run(home.path(), &["speed", "rot13"]), 1);
    assert!(said.contains("no primitive is called like rot13"), "{said}");
    let said = refused(&run(home.path(), &["speed", "-p", "missing"]), 1);
    assert!(said.contains("aws-lc, ring, graviola"), "{said}");
    let said = refused(&run(home.path(), &["report", "--key", "dsa"]), 2);
    assert!(said.contains("unknown key algorithm \"dsa\"; this build knows ed25519"), "{said}");
}

#[test]
fn handshakes_are_compared_with_each_source_alone() {
    let home = TempDir::new().unwrap();
    let arguments = ["handshakes", "--key", "ecdsa-p256", "--group", "X25519MLKEM768", "--format", "json"];
    let rows = json(&ok(run(home.path(), &arguments)));
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let rates = &row["handshakes_per_second"];
        assert!(rates["composed"].as_f64().unwrap() > 0.0, "{row}");
        assert!(rates["aws-lc alone"].as_f64().unwrap() > 0.0, "{row}");
        assert!(rates["rustls default"].as_f64().unwrap() > 0.0, "{row}");
        assert!(rates["ring alone"].as_str().unwrap().contains("X25519MLKEM768"), "{row}");
    }
}

#[test]
fn issuing_is_measured_for_every_suite() {
    let home = TempDir::new().unwrap();
    let rows = json(&ok(run(home.path(), &["issuance", "--seconds", "1", "--format", "json"])));
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 5 * 4);
    for row in rows {
        let rate = |name: &str| row[name].as_f64().unwrap();
        let (ready, anew) = (rate("certificates_per_second"), rate("certificates_per_second_with_a_new_key"));
        assert!(ready > 0.0 && anew > 0.0, "{row}");
        let share = rate("share_in_signature");
        assert!(share > 0.0 && share < 1.0, "{row}");
        if row["suite"] == "legacy" {
            assert_eq!(
                (row["authority_key"].as_str(), row["subject_key"].as_str()),
                (Some("rsa-2048"), Some("rsa-2048"))
            );
            assert!(ready > 5.0 * anew, "making an RSA key is most of it: {row}");
        }
    }
    let one = run(home.path(), &["issuance", "--seconds", "1", "--suite", "hsm-v1"]);
    let text = stdout(&ok(one));
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("ecdsa-p256") && text.lines().nth(1).unwrap().contains("ed25519"), "{text}");
    let wrong = refused(&run(home.path(), &["issuance", "--suite", "modern"]), 2);
    assert!(wrong.contains("this build knows legacy, balanced-v1"), "{wrong}");
}
