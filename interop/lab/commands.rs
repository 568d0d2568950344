//! The lab: its commands run to their end, say what they should, and leave nothing behind.

use crate::support;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::LAB;
use crate::support::{json, ok, stderr, stdout};

/// Runs it with a directory of its own for temporary files, and sees that nothing is left there.
fn lab(arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    // PostgreSQL runs as another account where we are root.
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let output = Command::new(LAB)
        .args(arguments)
        .env("TMPDIR", directory.path())
        .env_remove("SSH_AUTH_SOCK")
        .output()
        .unwrap();
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let name = directory.path().to_string_lossy().into_owned();
    let processes = stdout(&Command::new("ps").args(["-eo", "args"]).output().unwrap());
    let alive: Vec<&str> = processes.lines().filter(|line| line.contains(&name)).collect();
    assert!(alive.is_empty(), "{alive:?}");
    output
}

#[test]
fn neither_ssh_face_offers_anything_weak() {
    let output = ok(lab(&["offers", "--format", "json"]));
    let findings = json(&output);
    let findings = findings.as_array().unwrap();
    for face in ["proxy", "node"] {
        let items: Vec<&str> = findings
            .iter()
            .filter(|finding| finding["face"] == face)
            .map(|finding| finding["item"].as_str().unwrap())
            .collect();
        for item in ["mlkem768x25519-sha256", "aes128-gcm@openssh.com", "strict key exchange"] {
            assert!(items.contains(&item), "{face}: {items:?}");
        }
    }
    let bad: Vec<_> =
        findings.iter().filter(|finding| finding["level"] != "good" && finding["level"] != "info").collect();
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn connecting_is_measured_every_way() {
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("samples.csv");
    let csv = csv.to_str().unwrap();
    let output = ok(lab(&[
        "connect",
        "--quick",
        "--rounds",
        "1",
        "--in-a-row",
        "2",
        "--format",
        "json",
        "--csv",
        csv,
    ]));
    let report = json(&output);
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() >= 6, "{report}");
    assert_eq!(rows[0]["what"], "direct");
    let samples = std::fs::read_to_string(csv).unwrap();
    assert!(samples.starts_with("kind,way,round,milliseconds\n"), "{samples}");
    assert!(
        samples.contains("\ntime,direct,0,") && samples.contains("\ncpu_proxy,sallyport ssh,0,"),
        "{samples}"
    );
}

#[test]
fn bulk_transfers_arrive_whole_and_are_recorded_smaller() {
    let output = ok(lab(&["bulk", "--quick", "--size", "8", "--stalled", "5", "--format", "json"]));
    let report = json(&output);
    let aims = report["aims"].as_array().unwrap();
    let recorded = aims.iter().find(|aim| aim["what"].as_str().unwrap().contains("recording of a download"));
    assert_eq!(recorded.unwrap()["reached"], true, "{report}");
    // Ends that stand still: nothing piles up behind them.
    let flat =
        |aim: &&serde_json::Value| aim["what"].as_str().unwrap().starts_with("memory of proxy and node, ");
    let stalls: Vec<_> = aims.iter().filter(flat).collect();
    assert!(stalls.len() == 2 && stalls.iter().all(|aim| aim["reached"] == true), "{stalls:?}");
}

#[test]
fn sessions_and_echoes_are_measured() {
    let output = ok(lab(&[
        "sessions",
        "--quick",
        "--counts",
        "5,20",
        "--programs-up-to",
        "10",
        "--active",
        "5",
        "--keys",
        "5",
        "--format",
        "json",
    ]));
    let report = json(&output);
    let rows: Vec<&str> =
        report["rows"].as_array().unwrap().iter().map(|row| row["what"].as_str().unwrap()).collect();
    let expected =
        ["5 idle sessions", "20 idle sessions, no program", "echo, direct", "echo, ssh, ProxyCommand"];
    assert_eq!(rows, expected, "{report}");
}

#[test]
fn logins_are_measured_by_way_and_sessions_beside_them() {
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("samples.csv");
    let csv = csv.to_str().unwrap();
    let few = ["--seconds", "1", "--at-once", "4", "--rate", "20", "--rounds", "1", "--sessions", "2"];
    let arguments = ["logins", "--quick", "--format", "json", "--csv", csv];
    let report = json(&ok(lab(&[&arguments[..], &few].concat())));
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    let ways = ["password", "passkey", "single sign-on", "session's certificate", "host's renewal"];
    assert_eq!(names[..5], ways, "{report}");
    for row in &rows[..5] {
        for name in ["authority ms", "a second here", "p50 ms", "p99 ms", "peak MiB"] {
            assert!(figure(row, name).is_some_and(|value| value > 0.0), "{name}: {row}");
        }
    }
    assert!(names[5] == "session, no logins" && names[7] == "session, 1000 wrong at once", "{report}");
    let aims = report["aims"].as_array().unwrap();
    let memory = aims.iter().find(|aim| aim["what"].as_str().unwrap().contains("while flooded")).unwrap();
    assert_eq!(memory["reached"], true, "{report}");
    let samples = std::fs::read_to_string(csv).unwrap();
    for kind in ["login_ms,passkey,", "authority_ms,password,password,", "session_ms,flood,"] {
        assert!(samples.contains(&format!("\n{kind}")), "{kind}");
    }
}

#[test]
fn connections_to_a_database_are_measured_every_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (csv, html, svg) = (path("samples.csv"), path("report.html"), path("pictures"));
    let output = ok(lab(&[
        "db-suite",
        "--quick",
        "--seconds",
        "0.5",
        "--copy",
        "2",
        "--format",
        "json",
        "--csv",
        &csv,
        "--html",
        &html,
        "--svg",
        &svg,
    ]));
    let report = json(&output);
    let rows = report["rows"].as_array().unwrap();
    let figure = |row: &serde_json::Value, name: &str| {
        let figures = row["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).unwrap()["value"].as_f64()
    };
    assert_eq!(rows[0]["what"], "direct TLS");
    for row in rows {
        for name in ["conn/s", "p50 ms", "p99 ms", "postgres ms", "client ms"] {
            assert!(figure(row, name).is_some_and(|value| value > 0.0), "{name}: {row}");
        }
    }
    let row = |name: &str| rows.iter().find(|row| row["what"] == name).unwrap_or_else(|| panic!("{report}"));
    // As it is, repeat connections make no keys; the architecture that it is measured against makes at least
    // one on each hop.
    for (name, least, most) in [
        ("published architecture, balanced-v1", 2.0, 4.0),
        ("sallyport, balanced-v1", 0.0, 0.0),
        ("sallyport, warm transport, balanced-v1", 0.0, 0.0),
    ] {
        let keys = figure(row(name), "keys/conn").unwrap();
        assert!((least..=most).contains(&keys), "{name}: {keys} keys: {report}");
        assert!(figure(row(name), "proxy ms").is_some_and(|cost| cost > 0.0), "{name}: {report}");
    }
    assert!(figure(row("sallyport, balanced-v1"), "agent KiB").is_some(), "{report}");
    assert!(figure(&rows[0], "pgbench tps").is_some_and(|rate| rate > 1.0), "{report}");

    let samples = std::fs::read_to_string(csv).unwrap();
    let mut lines = samples.lines();
    assert_eq!(lines.next(), Some("kind,way,round,number,value"));
    let mut kinds = std::collections::BTreeSet::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert!(fields.len() == 5 && fields[4].parse::<f64>().is_ok(), "{line}");
        kinds.insert(fields[0].to_owned());
    }
    for kind in ["full_ms", "full_rate", "full_cpu_postgres", "copy_in_mib_s", "pgbench_tps"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("direct TLS") && page.contains("<svg") && page.contains("PostgreSQL"), "{page}");
    let picture = directory.path().join(svg).join("db-rate.svg");
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg"));
}

fn figure(row: &serde_json::Value, name: &str) -> Option<f64> {
    row["figures"].as_array()?.iter().find(|figure| figure["name"] == name)?["value"].as_f64()
}

#[test]
fn keys_are_measured_by_type_and_size() {
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("samples.csv");
    let svg = directory.path().join("pictures");
    let output = ok(lab(&[
        "keys",
        "--quick",
        "--passes",
        "4",
        "--format",
        "json",
        "--csv",
        csv.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
    ]));
    let report = json(&output);
    let rows = report["rows"].as_array().unwrap();
    let row = |start: &str| {
        let mut rows = rows.iter();
        rows.find(|row| row["what"].as_str().unwrap().starts_with(start))
            .unwrap_or_else(|| panic!("{start}: {report}"))
    };
    for size in [1024, 2048, 3072, 4096, 8192] {
        assert!(figure(row(&format!("sign rsa-{size} (")), "us").unwrap() > 0.0, "{report}");
    }
    // A factor of seven is expected.
    let ratio = figure(row("sign rsa-4096 ("), "to rsa-2048").unwrap();
    assert!((3.0..15.0).contains(&ratio), "{ratio}");
    assert!(row("verify ml-dsa-65 (")["figures"][0]["interval"][0].as_f64().unwrap() > 0.0);
    let samples = std::fs::read_to_string(csv).unwrap();
    assert!(samples.starts_with("operation,key,source,pass,microseconds\n"), "{samples}");
    assert!(std::fs::read_to_string(svg.join("keys.svg")).unwrap().starts_with("<svg"));

    let error = support::refused(&lab(&["keys", "--key", "dsa"]), 2);
    assert!(error.contains("unknown key algorithm"), "{error}");
}

#[test]
fn handshakes_are_measured_whole_and_by_phases() {
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("samples.csv");
    let arguments = ["handshake", "--quick", "--rounds", "3", "--key", "ecdsa-p256,rsa-2048,rsa-4096"];
    let more = ["--format", "json", "--csv", csv.to_str().unwrap()];
    let report = json(&ok(lab(&[&arguments[..], &more].concat())));
    let rows = report["rows"].as_array().unwrap();
    let row = |what: &str| {
        rows.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("{what}: {report}"))
    };
    for (what, round_trips) in [
        ("TLS 1.3 ecdsa-p256 x25519 chain 2", 1.0),
        ("TLS 1.3 ecdsa-p256 X25519MLKEM768 chain 2", 1.0),
        ("TLS 1.3 ecdsa-p256 x25519 chain 2, guessed secp256r1", 2.0),
        ("TLS 1.2 ecdsa-p256 x25519 chain 2", 2.0),
        ("TLS 1.3 rsa-4096 x25519 chain 2, loopback", 1.0),
        ("SSH rsa-4096 certificate, mlkem768x25519-sha256, user ed25519 certificate", 5.0),
    ] {
        // Two threads answer each other in SSH: on a busy machine two messages may travel apart.
        let most = if what.starts_with("SSH") { round_trips + 1.0 } else { round_trips };
        let counted = figure(row(what), "round trips").unwrap();
        assert!((round_trips..=most).contains(&counted), "{what}: {report}");
    }
    // In a build without optimisations the rest of a handshake costs as much as a signature: that phase is told apart.
    let signature =
        |key: &str| figure(row(&format!("TLS 1.3 {key} x25519 chain 2")), "server signature us").unwrap();
    assert!(signature("rsa-4096") > 2.5 * signature("rsa-2048"), "{report}");
    assert!(signature("rsa-2048") > 3.0 * signature("ecdsa-p256"), "{report}");
    let samples = std::fs::read_to_string(csv).unwrap();
    assert!(samples.contains("\nhandshake,SSH,") && samples.contains("\nverify_chain,"), "{samples}");

    let error = support::refused(&lab(&["handshake", "--tls", "1.1"]), 1);
    assert!(error.contains("unknown version of TLS"), "{error}");
    let arguments = ["handshake", "--key", "ml-dsa-65", "--tls", "1.2", "--ssh", "none"];
    let error = support::refused(&lab(&arguments), 1);
    assert!(error.contains("TLS 1.2 has no ML-DSA"), "{error}");
}

#[test]
fn a_cluster_and_its_database_are_looked_at() {
    let cluster = support::Cluster::bare();
    let ours = format!("127.0.0.1:{}", cluster.port);
    let output = lab(&["scan", "--quick", "--no-costs", "--format", "json", &ours]);
    let scans = json(&output);
    let scan = &scans[0];
    assert_eq!((scan["protocol"].as_str(), scan["address"].as_str()), (Some("tls"), Some(ours.as_str())));
    assert_eq!(scan["tls"]["versions"][0]["name"], "TLS 1.3", "{scans}");
    assert_eq!(scan["tls"]["groups"][0], "X25519MLKEM768", "{scans}");
    let failures: Vec<_> =
        scan["findings"].as_array().unwrap().iter().filter(|finding| finding["level"] == "failure").collect();
    assert!(failures.is_empty(), "{failures:?}");
    // In words, with what it costs here.
    let output = lab(&["scan", "--quick", &ours]);
    let text = stdout(&output);
    assert!(
        text.contains("X25519MLKEM768") && text.contains("on this machine, where the lab runs"),
        "{text}"
    );

    let postgres = support::postgres::Postgres::start(&cluster);
    let output = lab(&[
        "scan",
        "--quick",
        "--no-costs",
        "--starttls",
        "postgres",
        &postgres.address(),
        "--format",
        "json",
    ]);
    let scans = json(&output);
    assert_eq!(scans[0]["software"], "PostgreSQL", "{scans}");
    assert!(scans[0]["tls"]["chains"].as_array().is_some_and(|chains| !chains.is_empty()), "{scans}");

    let output = lab(&["scan", "127.0.0.1:1"]);
    assert!(!output.status.success() && stderr(&output).contains("cannot connect"), "{}", stderr(&output));
}

/// Reports of measurements that need nothing but this program.
fn report(directory: &std::path::Path) -> Output {
    lab(&["report", "--quick", "--only", "keys,strength", directory.to_str().unwrap()])
}

#[test]
fn a_report_is_a_directory_that_can_be_compared_with_another() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("a"), directory.path().join("deep/b"));
    for path in [&first, &second, &second] {
        let text = String::from_utf8(ok(report(path)).stdout).unwrap();
        assert!(text.contains("report.html"), "{text}");
    }
    let read = |name: &str| std::fs::read_to_string(first.join(name)).unwrap();
    let page = read("report.html");
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme") && !page.contains("<script"));
    assert!(page.contains("rsa-2048") && page.contains("116.88"), "{page}");
    let machine: serde_json::Value = serde_json::from_str(&read("machine.json")).unwrap();
    assert!(machine["processors"].as_u64().unwrap() > 0 && machine["load_seen"].is_array(), "{machine}");
    assert!(machine["versions"]["ssh"].as_str().unwrap().contains("OpenSSH"), "{machine}");
    assert!(read("commands.txt").contains("sallyport lab keys --quick"));
    assert!(read("keys.csv").lines().count() > 10);

    let compared = |a: &std::path::Path, b: &std::path::Path| {
        lab(&["compare", "--all", "--format", "json", a.to_str().unwrap(), b.to_str().unwrap()])
    };
    let comparison = json(&ok(compared(&first, &second)));
    let differences = comparison["differences"].as_array().unwrap();
    let strength = differences.iter().filter(|one| one["measurement"] == "strength");
    assert!(strength.clone().count() > 3 && strength.into_iter().all(|one| one["change"] == "same"));
    assert!(differences.iter().any(|one| one["measurement"] == "keys" && one["ratio"].is_f64()));

    // What is not a report says so, and nothing is written over.
    let other = directory.path().join("deep");
    let refused = compared(&first, &other);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("report.json"));
    let refused = report(directory.path());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not empty"), "{refused:?}");
    let refused = lab(&["report", "--only", "luck"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("a report can have"), "{refused:?}");
}

#[test]
fn a_browser_times_its_own_handshakes() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (csv, svg) = (path("samples.csv"), path("pictures"));
    let arguments = ["browser", "--quick", "--rounds", "2", "--format", "json", "--csv", &csv, "--svg", &svg];
    let output = ok(lab(&arguments));
    let report = json(&output);
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    let expected = [
        "RSA-2048, X25519",
        "RSA-4096, X25519",
        "P-256, X25519",
        "P-256, X25519MLKEM768",
        "first page of a process: P-256, X25519",
    ];
    assert_eq!(names, expected, "{report}");
    for row in rows {
        let figures = row["figures"].as_array().unwrap();
        let handshake = figures.iter().find(|figure| figure["name"] == "handshake ms").unwrap();
        assert!(handshake["value"].as_f64().unwrap() > 0.1, "{row}");
    }
    // The setup brings certutil, so chains are really verified.
    let conditions = report["conditions"].to_string();
    assert!(
        conditions.contains("verified as any other") && conditions.contains("resolution 5 "),
        "{conditions}"
    );
    let samples = std::fs::read_to_string(csv).unwrap();
    // On a busy machine a browser may be given up; its row then has the other round.
    assert!((1 + 4 * 2..=1 + 2 * 4 * 2).contains(&samples.lines().count()), "{samples}");
    assert!(
        std::fs::read_to_string(directory.path().join("pictures/browser.svg")).unwrap().starts_with("<svg")
    );
}

#[test]
fn a_browser_that_is_not_there_is_named_with_its_package() {
    let said = stderr(&lab(&["browser", "--browser", "/no/such/chromium"]));
    assert!(
        said.contains("cannot run /no/such/chromium") && said.contains("apt-get install chromium"),
        "{said}"
    );
}

#[test]
fn a_flame_graph_names_the_functions_that_work() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (svg, folded) = (path("pictures"), path("folded"));
    let output = ok(lab(&[
        "flame",
        "--quick",
        "--under",
        "download",
        "--seconds",
        "5",
        "--at-a-time",
        "2",
        "--size",
        "8",
        "--rate",
        "997",
        "--svg",
        &svg,
        "--folded",
        &folded,
        "--format",
        "json",
    ]));
    let report = json(&output);
    for (process, function) in
        [("proxy", "sallyport_wire::tunnel::"), ("node", "sallyport_audit::recording::")]
    {
        let stacks = std::fs::read_to_string(format!("{folded}/{process}-download.folded")).unwrap();
        assert!(stacks.contains(function), "{process}: {stacks}");
        let samples: u64 =
            stacks.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        let note = format!("{process}, download: {samples} samples");
        let notes = report["notes"].as_array().unwrap();
        assert!(notes.iter().any(|said| said.as_str().unwrap().starts_with(&note)), "{report}");
        let picture = std::fs::read_to_string(format!("{svg}/flame-{process}-download.svg")).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains(function), "{process}");
        // Nothing of the machine: neither directories nor names of hosts.
        assert!(!picture.contains("/tmp/") && !picture.contains("index.crates.io"), "{process}");
        // Every sample is in one crate's share of itself, so that shares of crates are at most all of it.
        let rows = report["rows"].as_array().unwrap().iter();
        let of =
            rows.filter(|row| row["what"].as_str().unwrap().starts_with(&format!("{process}, download: ")));
        assert!(of.count() > 4, "{report}");
    }
}

#[test]
fn a_sampler_that_is_not_there_is_named_with_its_package() {
    let empty = tempfile::tempdir().unwrap();
    for (measurement, said) in
        [("flame", "install linux-perf (Debian)"), ("instructions", "install valgrind")]
    {
        let output = Command::new(LAB).arg(measurement).env("PATH", empty.path()).output().unwrap();
        assert!(!output.status.success() && stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn instructions_of_a_piece_do_not_depend_on_how_often_it_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (saved, csv) = (path("saved.csv"), path("counts.csv"));
    let workloads = ["--workload", "postgres-statement,tunnel-stream", "--format", "json"];
    let count = |more: &[&str]| json(&ok(lab(&[&["instructions"], &workloads[..], more].concat())));
    // A quarter of the work for each count, and then all of it.
    count(&["--quick", "--save", &saved]);
    let report = count(&["--baseline", &saved, "--csv", &csv]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{report}");
    for row in rows {
        let figures = row["figures"].as_array().unwrap();
        let figure = |name: &str| {
            figures.iter().find(|figure| figure["name"] == name).unwrap()["value"].as_f64().unwrap()
        };
        assert!(figure("instructions") > 500.0 && figure("change %").abs() < 1.0, "{row}");
    }
    // Both counts of each, and the second has more.
    let counts = std::fs::read_to_string(csv).unwrap();
    let counts: Vec<u64> =
        counts.lines().skip(1).map(|line| line.rsplit_once(',').unwrap().1.parse().unwrap()).collect();
    assert!(counts.len() == 4 && counts[0] < counts[1] && counts[2] < counts[3], "{counts:?}");
    // Something that costs more than it did is an aim that was missed.
    std::fs::write(&saved, "piece,instructions,unit\npostgres-statement,1,\"statement\"\n").unwrap();
    let refused =
        lab(&["instructions", "--quick", "--piece", "postgres-statement", "--baseline", &saved, "--strict"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
}
