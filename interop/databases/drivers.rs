//! Drivers of other languages, as their users have them.

use super::*;

const PSYCOPG: &str = r#"
import psycopg, sys, threading
with psycopg.connect(sys.argv[1], autocommit=True) as c:
    with c.pipeline():
        cursors = [c.execute("select %s::int + 1", (n,)) for n in range(200)]
    assert [cursor.fetchone()[0] for cursor in cursors] == list(range(1, 201))
    try:
        with c.pipeline():
            c.execute("select 1")
            c.execute("select 1/0")
            c.execute("select 2")
    except psycopg.errors.DivisionByZero: pass
    else: raise SystemExit("no error in the pipeline")
    c.execute("create table if not exists things (id int primary key, what text, raw bytea)")
    with c.cursor().copy("copy things from stdin (format binary)") as copy:
        copy.set_types(["int4", "text", "bytea"])
        for n in range(5000): copy.write_row((n, "thing %d" % n, bytes([n % 256]) * 100))
    with c.transaction():
        with c.cursor(name="far") as far:
            far.itersize = 100
            far.execute("select id from things order by id")
            assert [row[0] for row in far] == list(range(5000))
    total = 0
    with c.cursor().copy("copy things to stdout") as copy:
        for data in copy: total += len(data)
    assert total > 500000, total
    c.execute("listen news")
    with psycopg.connect(sys.argv[1], autocommit=True) as other: other.execute("notify news, 'hello'")
    note = next(c.notifies())
    assert (note.channel, note.payload) == ("news", "hello"), note
    timer = threading.Timer(1, c.cancel); timer.start()
    try: c.execute("select pg_sleep(60)")
    except psycopg.errors.QueryCanceled: pass
    else: raise SystemExit("not cancelled")
    try: c.execute("select * from nosuch")
    except psycopg.errors.UndefinedTable: pass
    for _ in range(8): c.execute("select id from things where id = %s", (5,), prepare=True)
    notices = []
    c.add_notice_handler(lambda d: notices.append(d.message_primary))
    c.execute("do $$ begin raise notice 'look'; end $$")
    assert notices == ["look"], notices
print("psycopg fine")
"#;

const PSYCOPG2: &str = r#"
import psycopg2, psycopg2.extras, io, sys
c = psycopg2.connect(sys.argv[1])
cursor = c.cursor()
cursor.execute("create temp table t (a int, b text)")
psycopg2.extras.execute_values(cursor, "insert into t values %s", [(n, str(n)) for n in range(1000)])
cursor.copy_expert("copy t from stdin csv", io.StringIO("".join("%d,x\n" % n for n in range(1000))))
cursor.execute("select count(*) from t"); assert cursor.fetchone() == (2000,)
named = c.cursor("far"); named.execute("select a from t"); assert len(named.fetchall()) == 2000
c.commit(); c.close()
print("psycopg2 fine")
"#;

#[test]
fn drivers_of_python_do_all_they_can() {
    let rig = Rig::new();
    let tunnel = rig.tunnel(&["prod=0", "--tunnel"]);
    // Straight to the public port, and through the tunnel.
    for target in ["service=prod".to_owned(), tunnel.url("app", "shop")] {
        for (name, text) in [("with_psycopg.py", PSYCOPG), ("with_psycopg2.py", PSYCOPG2)] {
            let output = script(&rig, &mut rig.stock(PYTHON), name, text, &[&target]);
            assert!(stdout(&ok(output)).contains("fine"), "{name}");
            rig.postgres.sql("shop", "drop table if exists things");
        }
    }
}

const JDBC: &str = r#"
import java.io.*; import java.nio.charset.StandardCharsets; import java.sql.*;
import org.postgresql.PGConnection; import org.postgresql.copy.CopyManager;
public class Client {
    public static void main(String[] args) throws Exception {
        try (Connection c = DriverManager.getConnection(args[0])) {
            try (Statement s = c.createStatement()) { s.execute("create temp table t (a int, b text)"); }
            try (PreparedStatement p = c.prepareStatement("insert into t values (?, ?)")) {
                for (int n = 0; n < 500; n++) { p.setInt(1, n); p.setString(2, "row " + n); p.addBatch(); }
                if (p.executeBatch().length != 500) throw new Exception("batch");
            }
            try (PreparedStatement p = c.prepareStatement("select b from t where a = ?")) {
                for (int n = 0; n < 20; n++) {
                    p.setInt(1, n);
                    try (ResultSet r = p.executeQuery()) { r.next(); if (!r.getString(1).equals("row " + n)) throw new Exception("row"); }
                }
            }
            c.setAutoCommit(false);
            try (Statement s = c.createStatement()) {
                s.setFetchSize(50);
                int rows = 0;
                try (ResultSet r = s.executeQuery("select * from t")) { while (r.next()) rows++; }
                if (rows != 500) throw new Exception("cursor");
            }
            c.commit(); c.setAutoCommit(true);
            try (Statement s = c.createStatement()) {
                s.setQueryTimeout(1);
                s.execute("select pg_sleep(60)");
                throw new Exception("not cancelled");
            } catch (SQLException e) { if (!"57014".equals(e.getSQLState())) throw e; }
            CopyManager copies = c.unwrap(PGConnection.class).getCopyAPI();
            long in = copies.copyIn("copy t from stdin csv", new ByteArrayInputStream("1,a\n2,b\n".getBytes(StandardCharsets.UTF_8)));
            StringWriter out = new StringWriter();
            long rows = copies.copyOut("copy t to stdout csv", out);
            if (in != 2 || rows != 502) throw new Exception("copy " + in + " " + rows);
        }
        System.out.println("jdbc fine");
    }
}
"#;

#[test]
fn java_connects_with_the_url_that_is_printed() {
    let rig = Rig::new();
    let url = stdout(&ok(rig.db(&["config", "prod", "--format", "jdbc"])));
    let tunnel = rig.tunnel(&["prod=0", "--tunnel"]);
    let plain = format!("jdbc:postgresql://127.0.0.1:{}/shop?user=app&sslmode=disable", tunnel.ports[0]);
    for url in [url.trim(), &plain] {
        let mut java = Command::new("java");
        java.args(["-cp", "/usr/share/java/postgresql.jar"]);
        let output = script(&rig, &mut java, "Client.java", JDBC, &[url]);
        assert!(stdout(&ok(output)).contains("jdbc fine"), "{url}");
    }
}

/// What SQLAlchemy's own tests of its pool hold: a connection that is gone is noticed, and the pool begins anew.
const SQLALCHEMY: &str = r#"
import sys, sqlalchemy as sa
from sqlalchemy import exc, text
def cut(pid):
    with admin.connect() as c: c.execute(text("select pg_terminate_backend(%d)" % pid))
def pid(c): return c.execute(text("select pg_backend_pid()")).scalar()
url = "postgresql+psycopg2:///?" + sys.argv[1]
admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
# pool_pre_ping: a connection that was cut in the pool is replaced before the program notices.
engine = sa.create_engine(url, pool_pre_ping=True, pool_size=2)
with engine.connect() as c: first = pid(c)
cut(first)
with engine.connect() as c: assert pid(c) != first
# Without it: the error says that the connection is gone, the pool is invalidated, and the next one is new.
engine = sa.create_engine(url, pool_size=1, max_overflow=0)
with engine.connect() as c:
    first = pid(c); cut(first)
    try: c.execute(text("select 1"))
    except exc.DBAPIError as e: assert e.connection_invalidated, e
    else: raise SystemExit("a cut connection answered")
    assert c.invalidated
    c.rollback() if hasattr(c, "rollback") else None
    assert pid(c) != first
# Invalidating by hand, recycling, a transaction that is rolled back on return.
with engine.connect() as c: c.invalidate(); assert pid(c)
engine = sa.create_engine(url, pool_recycle=0, pool_size=1)
with engine.connect() as c: first = pid(c)
with engine.connect() as c: assert pid(c) != first
with engine.connect() as c:
    t = c.begin(); c.execute(text("create table gone (a int)")); t.rollback()
assert not sa.inspect(engine).has_table("gone")
engine.dispose()
print("sqlalchemy fine")
"#;

#[test]
fn a_pool_notices_what_was_cut() {
    let rig = Rig::new();
    // Sessions of one's own user are one's own to end.
    let output = script(&rig, &mut rig.stock(PYTHON), "pool.py", SQLALCHEMY, &["service=prod"]);
    assert!(stdout(&ok(output)).contains("fine"));

    // A lock cuts what runs, in the server's own words, and the pool sees that the connection is gone.
    let text = "import sys, psycopg2, time\nc = psycopg2.connect('service=prod')\nprint('in', flush=True)\n\
                sys.stdin.readline()\n\
                try: c.cursor().execute('select 1')\nexcept psycopg2.OperationalError as e: print('cut', e, flush=True)\n\
                print(c.closed, flush=True)\n";
    let path = rig.cluster.path("cut.py");
    fs::write(&path, text).unwrap();
    let mut child =
        rig.stock(PYTHON).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = support::lines_of(&mut child);
    support::read_until(&mut lines, "in");
    ok(rig.cluster.admin(&["lock", "--user", "alice", "--message", "on leave"]));
    rig.cluster.wait_event("db.session.cut", |event| event["user"] == "alice");
    let mut stdin: ChildStdin = child.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    support::read_until(&mut lines, "cut");
    child.wait().unwrap();
    let said = refused(&rig.psql(&["-c", "select 1"]), 2);
    assert!(said.contains("FATAL"), "{said}");
}
