//! Finding nodes: labels from commands and from the host, words, predicates, and names, each of which one node has.

use std::fs;
use std::process::{Command, Output};
use std::time::Instant;

use crate::support::{
    CLUSTER, Cluster, PROGRAM, Process, User, me, ok, refused, ssh, stdout, target, wait_for,
};

fn ls(user: &User, arguments: &[&str]) -> Output {
    let mut all = vec!["ls"];
    all.extend(arguments);
    user.run(&all)
}

fn names(user: &User, arguments: &[&str]) -> Vec<String> {
    let mut all = arguments.to_vec();
    all.extend(["--format", "names"]);
    stdout(&ok(ls(user, &all))).lines().map(str::to_owned).collect()
}

/// A second node of a name that is taken, in a process of its own; what it says when it has given up.
fn twin(cluster: &Cluster, name: &str, labels: &str) -> String {
    let token = cluster.token(&[]);
    let config = cluster.node_config(name, labels, Some(&token));
    let text = fs::read_to_string(&config).unwrap();
    let config = cluster.path(&format!("twin-{name}.yaml"));
    let (from, to) = (format!("node-{name}"), format!("twin-{name}"));
    fs::write(&config, text.replace(&from, &to)).unwrap();
    let mut process = Process::spawn(
        Command::new(PROGRAM).args(["start", "-c"]).arg(&config),
        cluster.path(&format!("twin-{name}.log")),
    );
    let status = wait_for("the twin to give up", || process.child.try_wait().unwrap());
    assert!(!status.success());
    fs::read_to_string(&process.log).unwrap()
}

#[test]
fn nodes_are_found_by_words_labels_and_predicates() {
    let mut cluster = Cluster::bare();
    cluster.add_node("web-1", "{env: prod, team: shop}");
    cluster.add_node("web-2", "{env: dev, team: shop}");
    cluster.add_node("db", "{env: prod, team: data}");
    cluster.add_node("db-2", "{env: dev, team: data}");
    let alice = cluster.add_user("alice", "access", &me());
    wait_for("all nodes", || (names(&alice, &[]).len() == 4).then_some(()));
    assert_eq!(names(&alice, &["env=prod"]).len(), 2);
    assert_eq!(names(&alice, &["web"]), ["web-1", "web-2"]);
    assert_eq!(names(&alice, &["SHOP", "dev"]), ["web-2"]);
    assert_eq!(names(&alice, &["env=p*", "--search", "web"]), ["web-1"]);
    let query = |query: &str| names(&alice, &["--query", query]);
    assert_eq!(query(r#"labels["env"] == "prod" && name.startsWith("web")"#), ["web-1"]);
    assert_eq!(
        query(r#"labels["host/os"] == "linux" && online && !("x" in labels) && labels.team != "data""#).len(),
        2
    );
    assert_eq!(query(&format!("\"{}\" in logins", me())).len(), 4);
    assert!(query("\"other\" in logins").is_empty());
    // A mistake is told with its place.
    let error = refused(&ls(&alice, &["--query", "name = 'x'"]), 1);
    assert!(error.contains("column 6: got a single =, expected ==\n  name = 'x'\n       ^"), "{error}");
    // What is there for people, and for programs.
    let text = stdout(&ok(ls(&alice, &["web-1"])));
    assert!(text.contains("env=prod,team=shop") && !text.contains("host/"), "{text}");
    let text = stdout(&ok(ls(&alice, &["web-1", "-v"])));
    assert!(text.contains("host/os=linux") && text.contains("RUNS AS"), "{text}");
    let json: serde_json::Value =
        serde_json::from_slice(&ok(ls(&alice, &["web-1", "--format", "json"])).stdout).unwrap();
    let kernel = stdout(&Command::new("uname").arg("-r").output().unwrap());
    assert_eq!(json[0]["labels"]["host/kernel"], kernel.trim());
    assert!(ls(&alice, &["nothing-like-it"]).status.success());

    // A name has one node, and an id leads to it as well.
    let said = twin(&cluster, "db", "{env: dev, team: data}");
    assert!(said.contains("the name db belongs to the node db"), "{said}");
    let ids = names(&alice, &["db", "--query", r#"name == "db""#]);
    assert_eq!(ids, ["db"]);
    let direct = alice.ssh_config(&[]);
    let json: serde_json::Value =
        serde_json::from_slice(&ok(ls(&alice, &["--query", r#"name == "db""#, "--format", "json"])).stdout)
            .unwrap();
    let by_id = format!("{}@{}.{CLUSTER}", me(), json[0]["id"].as_str().unwrap());
    assert_eq!(stdout(&ok(ssh(&direct, &[&by_id, "echo by id"]))), "by id\n");
    // Who may reach some of them hears nothing of the others.
    ok(cluster.create(&format!(
        "kind: role\nversion: v1\nmetadata: {{name: developer}}\nspec:\n  allow:\n    logins: [{}]\n    node_labels: \
         {{env: dev}}\n",
        me()
    )));
    let bob = cluster.add_user("bob", "developer", &me());
    assert_eq!(names(&bob, &[]), ["db-2", "web-2"]);
    assert_eq!(names(&bob, &["--query", r#"labels.env == "prod""#]), Vec::<String>::new());
    let output = ok(ssh(&bob.ssh_config(&[]), &[&target("db-2"), "echo $SALLYPORT_USER"]));
    assert_eq!(stdout(&output), "bob\n");
    for user in [&alice, &bob] {
        let _ = user.run(&["connect", "--stop"]);
    }
}

#[test]
fn labels_of_commands_decide_who_may_enter() {
    let mut cluster = Cluster::bare();
    let (stage, marker) = (cluster.path("stage"), cluster.path("marker"));
    fs::write(&stage, "open").unwrap();
    fs::write(&marker, "before").unwrap();
    // The token fixes a label that neither the configuration nor a command can change.
    let token = cluster.token(&["--label", "zone=inner"]);
    let config = cluster.node_config("web-1", "env: prod", Some(&token));
    let settings = format!(
        "  commands:\n    - {{name: stage, command: [cat, {}], period: 1s}}\n    - {{name: marker, command: [cat, {}], \
         period: 1s}}\n    - {{name: zone, command: [echo, \
         outer], period: 1h}}\n    - {{name: slow, command: [sleep, '60'], period: 1h, timeout: 1s}}\n",
        stage.display(),
        marker.display()
    );
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("  proxy_server:", &format!("{settings}  proxy_server:"))).unwrap();
    let process = cluster.spawn_node("web-1", &config);
    cluster.nodes.push(("web-1".to_owned(), process));
    cluster.wait_online("web-1");
    ok(cluster.create(&format!(
        "kind: role\nversion: v1\nmetadata: {{name: staged}}\nspec:\n  allow:\n    logins: [{}]\n    node_labels: \
         {{stage: open, zone: inner}}\n",
        me()
    )));
    let alice = cluster.add_user("alice", "staged", &me());
    let ssh_config = alice.ssh_config(&[]);
    let enters = || ssh(&ssh_config, &[&target("web-1"), "true"]).status.success();
    wait_for("the label to let alice in", || enters().then_some(()));
    let labels = || {
        let nodes = stdout(&ok(cluster.admin(&["nodes", "ls", "--format", "json"])));
        serde_json::from_str::<serde_json::Value>(&nodes).unwrap()[0]["labels"].clone()
    };
    assert_eq!(labels()["zone"], "inner");
    assert_eq!(labels()["slow"], serde_json::Value::Null);
    // A failing command keeps the last value.
    fs::remove_file(&stage).unwrap();
    wait_for("the command to fail", || {
        let log = fs::read_to_string(cluster.path("node-web-1.log")).unwrap();
        log.contains("failed; its last value stays").then_some(())
    });
    // Labels are told together: what came of the failure is there with a value that was written after it.
    fs::write(&marker, "after").unwrap();
    wait_for("a label that changed later", || (labels()["marker"] == "after").then_some(()));
    assert!(enters() && labels()["stage"] == "open");
    // Another value counts within seconds, at the authority, the proxy and the node.
    fs::write(&stage, "shut").unwrap();
    let began = Instant::now();
    wait_for("the label to keep alice out", || (!enters()).then_some(()));
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    assert_eq!(labels()["stage"], "shut");
    let log = fs::read_to_string(cluster.path("node-web-1.log")).unwrap();
    assert!(
        log.contains("did not end within") && log.matches("failed; its last value stays").count() <= 3,
        "{log}"
    );
    let _ = alice.run(&["connect", "--stop"]);
}
