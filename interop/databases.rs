//! Databases through the cluster: stock clients of PostgreSQL at one end and a stock server at the other.

mod drivers;

use crate::support;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::postgres::Postgres;
use crate::support::{Cluster, Process, User, me, ok, refused, stderr, stdout, wait_for};

/// What alice may: two users of the server and two of its databases.
const ROLE: &str = "kind: role\nversion: v1\nmetadata: {name: dba}\nspec:\n  options: {record_db_parameters: true}\n  allow:\n    \
                    db_labels: {env: test}\n    db_users: [app, reader]\n    db_names: [shop, ledger]\n";

/// The one for which Debian has drivers.
const PYTHON: &str = "/usr/bin/python3";

struct Rig {
    postgres: Postgres,
    cluster: Cluster,
    alice: User,
}

impl Rig {
    /// A cluster whose node `web-1` serves one PostgreSQL as the databases `prod` and `second`, and alice, logged in to
    /// the former as `app` with the name `shop`.
    fn new() -> Self {
        let mut cluster = Cluster::bare();
        let postgres = Postgres::start(&cluster);
        // Before the node, whose first heartbeat tells how they are.
        postgres.register(&cluster, "prod", "web-1");
        postgres.register(&cluster, "second", "web-1");
        cluster.add_node("web-1", "env: prod");
        ok(cluster.create(ROLE));
        let alice = cluster.add_user("alice", "dba", &me());
        let rig = Self { postgres, cluster, alice };
        for name in ["prod", "second"] {
            rig.wait_healthy(name);
        }
        ok(rig.db(&["login", "prod", "--db-user", "app", "--db-name", "shop"]));
        rig
    }

    fn wait_healthy(&self, name: &str) {
        wait_for(&format!("database {name} to be healthy"), || {
            let listed = self.alice.run(&["db", "ls", "--format", "json"]);
            let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).ok()?;
            let mut all = listed.as_array()?.iter();
            all.any(|one| one["name"] == name && one["health"] == "healthy").then_some(())
        });
    }

    fn services(&self) -> PathBuf {
        self.alice.home.join("services.conf")
    }

    /// `sallyport db …` with a service file of alice's own.
    fn db(&self, arguments: &[&str]) -> Output {
        self.db_command(arguments).output().unwrap()
    }

    fn db_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.alice.command(&[&["db"], arguments].concat());
        command.env("PGSERVICEFILE", self.services());
        command
    }

    /// A program that finds the service.
    fn stock(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PGSERVICEFILE", self.services()).env("PGCONNECT_TIMEOUT", "20").stdin(Stdio::null());
        command
    }

    /// psql straight to the public port.
    fn psql(&self, arguments: &[&str]) -> Output {
        self.stock("psql").args(["-X", "-A", "-t", "service=prod"]).args(arguments).output().unwrap()
    }

    fn select(&self, statement: &str) -> String {
        stdout(&ok(self.psql(&["-q", "-c", statement]))).trim().to_owned()
    }

    /// `sallyport proxy db … --tunnel`, with the port that it was given.
    fn tunnel(&self, arguments: &[&str]) -> Tunnel {
        let mut all = vec!["proxy", "db"];
        all.extend(arguments);
        all.extend(["--format", "json"]);
        Tunnel::start(self.alice.command(&all))
    }

    fn recording(&self, matches: impl Fn(&serde_json::Value) -> bool) -> String {
        self.cluster.wait_recording("complete", |one| one["kind"] == "db" && matches(one))
    }
}

struct Tunnel {
    child: Child,
    ports: Vec<u16>,
}

impl Tunnel {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !text.ends_with("]\n") {
            assert!(lines.read_line(&mut text).unwrap() > 0, "it ended: {text}");
        }
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        let port = |one: &serde_json::Value| one["port"].as_u64().unwrap_or(0).try_into().unwrap();
        Self { child, ports: all.as_array().unwrap().iter().map(port).collect() }
    }

    fn url(&self, user: &str, name: &str) -> String {
        format!(
            "host=127.0.0.1 port={} user={user} dbname={name} sslmode=disable connect_timeout=20",
            self.ports[0]
        )
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn psql(target: &str, arguments: &[&str]) -> Output {
    Command::new("psql")
        .args(["-X", "-A", "-t", target])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Writes a script and runs it.
fn script(rig: &Rig, interpreter: &mut Command, name: &str, text: &str, arguments: &[&str]) -> Output {
    let path = rig.cluster.path(name);
    fs::write(&path, text).unwrap();
    interpreter.arg(path).args(arguments).output().unwrap()
}

#[test]
fn people_see_choose_and_use_what_their_roles_allow() {
    let rig = Rig::new();
    let listed = stdout(&ok(rig.db(&["ls"])));
    let line = listed.lines().find(|line| line.starts_with("prod")).unwrap_or_else(|| panic!("{listed}"));
    for part in ["healthy", "app,reader", "ledger,shop", "env=test", "app@shop"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert_eq!(stdout(&ok(rig.db(&["ls", "--format", "names", "second"]))), "second\n");

    let services = fs::read_to_string(rig.services()).unwrap();
    assert!(services.contains("[prod]") && services.contains("sslmode=verify-full"), "{services}");
    assert_eq!(rig.select("select current_user || '@' || current_database()"), "app@shop");
    assert_eq!(
        rig.select("select pg_backend_pid() <> 0 and ssl from pg_stat_ssl where pid = pg_backend_pid()"),
        "t"
    );

    // The same from the environment, and from the command line that is printed.
    let env = stdout(&ok(rig.db(&["env", "prod"])));
    let line = format!("{env}psql -X -A -t -c 'select current_user'");
    assert_eq!(stdout(&ok(Command::new("sh").args(["-c", &line]).output().unwrap())), "app\n");
    let line = stdout(&ok(rig.db(&["config", "--format", "cmd"])));
    let line = format!("{} -X -A -t -c 'select 7'", line.trim());
    assert_eq!(stdout(&ok(Command::new("sh").args(["-c", &line]).output().unwrap())), "7\n");

    // What is not allowed is said where it is chosen, and by the cluster to a client that asks all the same.
    let said = refused(&rig.db(&["login", "prod", "--db-user", "postgres", "--db-name", "shop"]), 4);
    assert!(
        said.contains("do not allow the database user \"postgres\"") && said.contains("app, reader"),
        "{said}"
    );
    let said = refused(&rig.db(&["login", "nosuch", "--db-user", "app"]), 4);
    assert!(said.contains("no database \"nosuch\"") && said.contains("sallyport db ls"), "{said}");
    let output =
        rig.stock("psql").args(["-X", "service=prod user=postgres", "-c", "select 1"]).output().unwrap();
    let said = refused(&output, 2);
    assert!(said.contains("FATAL") && said.contains("postgres"), "{said}");
    let verbose = ["-v", "VERBOSITY=verbose", "-c", "\\c template1"];
    let said = stderr(&rig.psql(&verbose));
    assert!(said.contains("template1"), "{said}");
    rig.cluster.wait_event("db.session.refused", |event| event["user"] == "alice");

    let why = |user: &str| {
        let asked = ["--user", "alice", "--db", "prod", "--db-user", user, "--db-name", "shop", "--data-dir"];
        let mut command = Command::new(support::PROGRAM);
        command.args(["access", "why"]).args(asked).arg(rig.cluster.data_dir()).output().unwrap()
    };
    assert!(stdout(&ok(why("app"))).starts_with("allowed: "));
    assert_eq!(why("postgres").status.code(), Some(4));

    // A client without a certificate gets nowhere.
    let bare = format!("host=127.0.0.1 port={} user=app dbname=shop sslmode=require", rig.cluster.port);
    let said = refused(&psql(&bare, &["-c", "select 1"]), 2);
    assert!(!said.is_empty());

    ok(rig.db(&["login", "second", "--db-user", "reader", "--db-name", "ledger", "--service", "other"]));
    let output =
        rig.stock("psql").args(["-X", "-A", "-t", "service=other", "-c", "select current_user"]).output();
    assert_eq!(stdout(&ok(output.unwrap())), "reader\n");
    ok(rig.db(&["logout"]));
    let services = fs::read_to_string(rig.services()).unwrap();
    assert!(!services.contains('['), "{services}");
    refused(&rig.db(&["env", "prod"]), 3);
}

#[test]
fn psql_is_opened_copies_cancels_and_leaves_its_exit_code() {
    let rig = Rig::new();
    let connect = |more: &[&str]| rig.db(&[&["connect", "prod", "--", "-X", "-A", "-t"], more].concat());
    assert_eq!(stdout(&ok(connect(&["-c", "select current_user, current_database()"]))), "app|shop\n");
    // psql's own exit codes.
    assert_eq!(connect(&["-c", "selec"]).status.code(), Some(1));
    assert_eq!(connect(&["-v", "ON_ERROR_STOP=1", "-f", "/nonexistent"]).status.code(), Some(1));
    let said = stderr(&rig.db(&[
        "connect",
        "prod",
        "--db-user",
        "postgres",
        "--db-name",
        "shop",
        "--",
        "-c",
        "select 1",
    ]));
    assert!(said.contains("FATAL"), "{said}");
    let output = rig.db(&["connect", "prod", "--psql", "psql-is-not-here"]);
    let said = refused(&output, 1);
    assert!(said.contains("postgresql-client"), "{said}");

    // Both ways of \copy.
    let (into, out) = (rig.cluster.path("in.csv"), rig.cluster.path("out.csv"));
    let rows: String = (0..20_000).map(|row| format!("{row},row {row}\n")).collect();
    fs::write(&into, &rows).unwrap();
    ok(connect(&["-q", "-c", "create table goods (id int, what text)"]));
    ok(connect(&["-q", "-c", &format!("\\copy goods from '{}' csv", into.display())]));
    ok(connect(&[
        "-q",
        "-c",
        &format!("\\copy (select * from goods order by id) to '{}' csv", out.display()),
    ]));
    assert_eq!(fs::read_to_string(&out).unwrap(), rows);

    // Ctrl-C, as a terminal sends it: to the whole group. psql cancels, and goes on to the next statement.
    let statements = "select 'begun';\n\\! touch {begun}\nselect pg_sleep(60);\nselect 'after';\n";
    let begun = rig.cluster.path("begun");
    let file = rig.cluster.path("cancel.sql");
    fs::write(&file, statements.replace("{begun}", &begun.display().to_string())).unwrap();
    let mut command =
        rig.db_command(&["connect", "prod", "--", "-X", "-A", "-t", "-f", &file.display().to_string()]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the statement to run", || {
        let running =
            "select count(*) from pg_stat_activity where query = 'select pg_sleep(60);' and state = 'active'";
        (rig.postgres.sql("postgres", running) == "1").then_some(())
    });
    let cancelled = Instant::now();
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let status = wait_for("psql to go on", || child.try_wait().unwrap());
    let output = child.wait_with_output().unwrap();
    assert!(cancelled.elapsed() < Duration::from_secs(20), "{:?}", cancelled.elapsed());
    assert!(
        stderr(&output).contains("canceling statement due to user request"),
        "{status} {}",
        stderr(&output)
    );
    rig.cluster.wait_event("db.cancel", |_| true);
}

#[test]
fn the_tunnel_serves_many_clients_and_several_databases() {
    let rig = Rig::new();
    let tunnel = rig.tunnel(&["second=0", "prod=0", "--tunnel"]);
    let open = tunnel.url("reader", "ledger");
    assert_eq!(
        stdout(&ok(psql(&open, &["-c", "select current_user, current_database()"]))),
        "reader|ledger\n"
    );
    // The other one has a login, which says who comes. psql says a name where its user has said none, and no other
    // database than the one that was said is opened.
    let chosen = format!("host=127.0.0.1 port={} user=anything sslmode=prefer", tunnel.ports[1]);
    let said = refused(&psql(&chosen, &["-c", "select 1"]), 2);
    assert!(said.contains("as \"app\" with \"anything\""), "{said}");
    let chosen = format!("{chosen} dbname=shop");
    assert_eq!(stdout(&ok(psql(&chosen, &["-c", "select current_user, current_database()"]))), "app|shop\n");
    let strict = format!("host=127.0.0.1 port={} user=app dbname=shop sslmode=require", tunnel.ports[1]);
    assert!(stderr(&psql(&strict, &["-c", "select 1"])).contains("does not support SSL"));
    let said = refused(&psql(&tunnel.url("postgres", "ledger"), &["-c", "select 1"]), 2);
    assert!(said.contains("FATAL"), "{said}");

    // One name alone, through a socket.
    let place = rig.cluster.path("run");
    fs::create_dir(&place).unwrap();
    let place = place.display().to_string();
    let only = rig.tunnel(&["prod", "--tunnel", "--listen", &place, "--db-user", "app", "--db-name", "shop"]);
    let socket = |name: &str| format!("host={place} user=me dbname={name}");
    assert_eq!(stdout(&ok(psql(&socket("shop"), &["-c", "select current_user"]))), "app\n");
    let said = refused(&psql(&socket("ledger"), &["-c", "select 1"]), 2);
    assert!(said.contains("\"shop\" alone") && said.contains("without --db-name"), "{said}");
    drop(only);

    // Many at once, over one connection.
    let mut children: Vec<Child> = (0..20)
        .map(|_| {
            let mut command = Command::new("psql");
            command.args(["-X", "-q", &open, "-c", "select pg_sleep(1)"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));

    // Bytes as they are: the client's own TLS ends at the cluster.
    let relay = rig.tunnel(&["prod"]);
    let way = format!("service=prod host=127.0.0.1 port={}", relay.ports[0]);
    let output =
        rig.stock("psql").args(["-X", "-A", "-t", &way, "-c", "select current_user"]).output().unwrap();
    assert_eq!(stdout(&ok(output)), "app\n");
    let said = refused(&rig.alice.run(&["proxy", "db", "nosuch", "--tunnel"]), 4);
    assert!(said.contains("no database \"nosuch\""), "{said}");
    refused(&rig.alice.run(&["proxy", "db", "prod", "--tunnel", "--listen", "0.0.0.0:0"]), 2);
}

#[test]
fn a_tunnel_outlives_the_proxy_and_the_login() {
    let mut rig = Rig::new();
    let tunnel = rig.tunnel(&["prod=0", "--tunnel"]);
    let target = tunnel.url("app", "shop");
    let mut idle = Command::new(PYTHON);
    let text = "import sys, psycopg2\nc = psycopg2.connect(sys.argv[1])\nprint('in', flush=True)\nsys.stdin.readline()\n\
                try: c.cursor().execute('select 1')\nexcept psycopg2.OperationalError: print('lost', flush=True)\n";
    idle.args(["-c", text, &target]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut idle = idle.spawn().unwrap();
    let mut lines = support::lines_of(&mut idle);
    support::read_until(&mut lines, "in");
    rig.cluster.services.as_mut().unwrap().kill_9();
    // A client that comes now is told, in the server's own words, and one that was in has lost the connection.
    let said = refused(&psql(&target, &["-c", "select 1"]), 2);
    assert!(said.contains("FATAL") && said.contains("cannot connect to"), "{said}");
    idle.stdin.take().unwrap().write_all(b"\n").unwrap();
    support::read_until(&mut lines, "lost");
    idle.wait().unwrap();
    rig.cluster.start_services();
    wait_for("the tunnel to serve again", || {
        psql(&target, &["-c", "select 1"]).status.success().then_some(())
    });
    wait_for("the server to be rid of the lost session", || {
        let left = "select count(*) from pg_stat_activity where usename = 'app'";
        (rig.postgres.sql("postgres", left) == "0").then_some(())
    });

    // Without the helper it is the same; and a login that is forgotten is asked for.
    let arguments = ["connect", "prod", "--", "-X", "-A", "-t", "-c", "select 7"];
    let output = rig.db_command(&arguments).env("SALLYPORT_CONNECT", "off").output().unwrap();
    assert_eq!(stdout(&ok(output)), "7\n");
    ok(rig.db_command(&arguments).env("SALLYPORT_CONNECT", "1m").output().unwrap());
    let mut logout = rig.alice.command(&["logout"]);
    ok(logout.env("PGSERVICEFILE", rig.services()).output().unwrap());
    assert!(!fs::read_to_string(rig.services()).unwrap().contains('['));
    let said = refused(&psql(&target, &["-c", "select 1"]), 2);
    assert!(
        said.contains("FATAL") && said.contains("not logged in") && said.contains("sallyport login"),
        "{said}"
    );
    ok(rig.alice.login(&[]));
    assert_eq!(stdout(&ok(psql(&target, &["-c", "select 8"]))), "8\n");
}

#[test]
fn pgbench_and_dumps_go_through() {
    let rig = Rig::new();
    let bench =
        |arguments: &[&str]| ok(rig.stock("pgbench").args(arguments).arg("service=prod").output().unwrap());
    bench(&["-i", "-q", "-s", "1"]);
    for mode in ["simple", "extended", "prepared"] {
        let said = stdout(&bench(&["-n", "-S", "-M", mode, "-c", "4", "-t", "50"]));
        assert!(said.contains("number of transactions actually processed: 200/200"), "{mode}: {said}");
    }
    bench(&["-n", "-M", "prepared", "-c", "2", "-t", "20"]);
    // A new connection for each transaction.
    bench(&["-n", "-S", "-C", "-c", "2", "-t", "5"]);

    // Copies of the whole server would carry all rows past the record: each program reads that, whatever way it takes.
    let place = rig.cluster.path("copy").display().to_string();
    let tunnel = rig.tunnel(&["prod=0", "--tunnel"]);
    fs::create_dir(&place).unwrap();
    for target in ["service=prod".to_owned(), tunnel.url("app", "shop")] {
        for arguments in [&["pg_basebackup", "-D"][..], &["pg_receivewal", "--no-loop", "-D"]] {
            let (program, rest) = arguments.split_first().unwrap();
            let output =
                rig.stock(program).args(rest).args([place.as_str(), "-d", &target]).output().unwrap();
            let said = refused(&output, 1);
            assert!(
                said.contains("FATAL:  replication connections (pg_basebackup"),
                "{program} {target}: {said}"
            );
            assert!(said.contains("for a copy of one database: pg_dump"), "{program} {target}: {said}");
        }
    }

    let dump = rig.cluster.path("shop.dump").display().to_string();
    ok(rig.stock("pg_dump").args(["-Fc", "-f", &dump, "-d", "service=prod"]).output().unwrap());
    ok(rig
        .stock("pg_restore")
        .args(["--no-owner", "-d", "service=prod dbname=ledger", &dump])
        .output()
        .unwrap());
    for table in ["pgbench_accounts", "pgbench_history"] {
        let sum = format!("select count(*), sum(hashtext({table}::text)) from {table}");
        assert_eq!(rig.postgres.sql("shop", &sum), rig.postgres.sql("ledger", &sum), "{table}");
    }
}

#[test]
fn a_session_is_played_back_and_its_statements_are_found() {
    let rig = Rig::new();
    let statements = "create table plays (id int, what text);\ninsert into plays values (1, 'one'), (2, 'two');\n\
                      select * from plays;\nselect nosuch;\n";
    let file = rig.cluster.path("played.sql");
    fs::write(&file, statements).unwrap();
    rig.psql(&["-f", &file.display().to_string()]);
    let name = "select %s::text || what from plays where id = %s";
    let text = format!(
        "import psycopg\nwith psycopg.connect('service=prod') as c: c.execute({name:?}, ('says ', 2), prepare=True).fetchall()\n"
    );
    ok(script(&rig, &mut rig.stock(PYTHON), "bound.py", &text, &[]));
    let is_of = |recording: &serde_json::Value| {
        recording["user"] == "alice" && recording["login"] == "app" && recording["node"] == "prod"
    };
    let mut sessions = Vec::new();
    wait_for("both recordings", || {
        sessions = rig.cluster.recordings();
        sessions.retain(|one| one["kind"] == "db" && one["state"] == "complete" && is_of(one));
        (sessions.len() == 2).then_some(())
    });
    let played = |format: &str| -> String {
        let one = |one: &serde_json::Value| rig.cluster.playback(one["session_id"].as_str().unwrap(), format);
        sessions.iter().map(one).collect()
    };
    let text = played("text");
    for part in [
        "alice as app on prod, database shop with psql",
        "shop=> create table plays (id int, what text);\nCREATE TABLE (",
        "INSERT 0 2 (",
        "shop=> select * from plays;\nSELECT 2 (2 rows, ",
        "ERROR:  column \"nosuch\" does not exist [42703] (",
        "shop=> select $1::text || what from plays where id = $2\n-- $1 = 'says ', $2 = ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("says two"), "rows are not on record");
    // A script that can be run again.
    let sql: String =
        played("sql").lines().filter(|line| !line.contains("$1")).map(|line| format!("{line}\n")).collect();
    rig.postgres.sql("shop", "drop table plays");
    let again = rig.cluster.path("again.sql");
    fs::write(&again, &sql).unwrap();
    let output = rig.psql(&["-f", &again.display().to_string()]);
    assert!(stdout(&output).contains("1|one\n2|two"), "{sql}\n{}", stderr(&output));
    for line in played("json").lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert!(played("asciicast").contains("shop=> select * from plays"));

    // On a terminal: in colours, with its timing, from where one likes.
    let psql = sessions
        .iter()
        .find(|one| rig.cluster.playback(one["session_id"].as_str().unwrap(), "text").contains("nosuch"));
    let session = psql.unwrap()["session_id"].as_str().unwrap();
    let data = rig.cluster.data_dir().display().to_string();
    let line = format!("{} play {session} --speed 20 --skip-idle 1s --data-dir {data}", support::PROGRAM);
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    // Its input stays open, or no key could be pressed.
    let keys = terminal.stdin.take();
    let shown = stdout(&terminal.wait_with_output().unwrap());
    drop(keys);
    for part in ["shop=> select nosuch;\r\n", "\u{1b}[31mERROR:  column", "ended after"] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown:?}");
    }

    // What was run is found by its words, by who may read the audit log.
    rig.cluster.wait_event("db.query", |event| event["fields"]["statement"] == "select nosuch;");
    let search = |words: &[&str]| -> Vec<serde_json::Value> {
        let output = Command::new(support::PROGRAM)
            .args(["recordings", "search"])
            .args(words)
            .args(["--format", "json", "--data-dir"])
            .arg(rig.cluster.data_dir())
            .output()
            .unwrap();
        serde_json::from_slice(&ok(output).stdout).unwrap()
    };
    let found = search(&["PLAYS", "insert"]);
    assert!(
        !found.is_empty() && found.iter().all(|one| one["statement"].as_str().unwrap().starts_with("insert"))
    );
    assert_eq!(found[0]["database"], "prod");
    assert!(search(&["never", "written", "here"]).is_empty());
    refused(&rig.alice.run(&["recordings", "search", "plays"]), 4);
    let listed = stdout(&ok(rig.alice.run(&["recordings", "ls", "--kind", "db"])));
    assert!(listed.contains("app@prod") && listed.contains("(database shop)"), "{listed}");
}

/// A static database of the agent's own configuration, with a password of its own file where certificates cannot be.
#[test]
fn agents_bring_databases_of_their_own() {
    let mut cluster = Cluster::bare();
    let postgres = Postgres::start_with(&cluster, "hostssl all all 127.0.0.1/32 scram-sha-256\n");
    postgres.sql("postgres", "alter role app password 'of the file'");
    let token = cluster.token(&["--databases", "old", "--own-labels", "env=*"]);
    let config = cluster.node_config("web-1", "env: prod", Some(&token));
    let pgpass = cluster.path("pgpass");
    fs::write(&pgpass, format!("127.0.0.1:{}:*:app:of the file\n", postgres.port())).unwrap();
    Postgres::make_private(&pgpass);
    let databases = format!(
        "  pgpass: {}\n  databases:\n    - name: old\n      labels: {{env: test}}\n      address: {}\n      login: password\n",
        pgpass.display(),
        postgres.address()
    );
    append(&config, &databases);
    let process: Process = cluster.spawn_node("web-1", &config);
    cluster.nodes.push(("web-1".to_owned(), process));
    cluster.wait_online("web-1");
    ok(cluster.create(ROLE));
    let alice = cluster.add_user("alice", "dba", &me());
    let rig = Rig { postgres, cluster, alice };
    rig.wait_healthy("old");
    let output = rig.db(&[
        "connect",
        "old",
        "--db-user",
        "app",
        "--db-name",
        "shop",
        "--",
        "-X",
        "-A",
        "-t",
        "-c",
        "select current_user",
    ]);
    assert_eq!(stdout(&ok(output)), "app\n");
    // Without a password for that user there is no login, and it is said so.
    let output =
        rig.db(&["connect", "old", "--db-user", "reader", "--db-name", "shop", "--", "-X", "-c", "select 1"]);
    let said = refused(&output, 2);
    assert!(said.contains("FATAL"), "{said}");
    let session = rig.recording(|one| one["login"] == "app");
    assert!(rig.cluster.playback(&session, "text").contains("shop=> select current_user"));
}

mod attacks {
    use super::*;

    #[test]
    fn a_role_that_wants_it_end_to_end_takes_no_session_whose_tls_ends_at_a_proxy() {
        let rig = Rig::new();
        assert_eq!(rig.select("select 1"), "1");
        ok(rig.cluster.create(&ROLE.replace("{record_db", "{db_end_to_end: required, record_db")));
        let straight = || rig.psql(&["-q", "-c", "select 1"]);
        let said = wait_for("the role to count", || {
            let output = straight();
            (!output.status.success()).then(|| stderr(&output))
        });
        // The program itself is told what to do instead.
        assert!(said.contains("db_end_to_end: required") && said.contains("sallyport db connect"), "{said}");
        // psql by a tunnel, and started by us, speaks to the agent.
        let tunnel = rig.tunnel(&["prod=0", "--tunnel"]);
        let by_tunnel = psql(&tunnel.url("app", "shop"), &["-c", "select 2"]);
        assert_eq!(stdout(&ok(by_tunnel)).trim(), "2");
        let started = rig.db(&["connect", "prod", "--", "-X", "-A", "-t", "-c", "select 3"]);
        assert_eq!(stdout(&ok(started)).trim(), "3");
        assert!(!straight().status.success());
    }
}

fn append(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
