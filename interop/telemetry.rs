//! Traces of a whole cluster, as a collector of OpenTelemetry sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::postgres::Postgres;
use crate::support::{Cluster, User, free_port, me, ok, refused, stderr, target, wait_for};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

/// A collector that remembers.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<(String, Span)>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let mut spans = self.spans.lock().unwrap();
        for resource in request.into_inner().resource_spans {
            let about = &resource.resource.as_ref().unwrap().attributes;
            let name = about.iter().find(|attribute| attribute.key == "sallyport.services");
            let name =
                name.or_else(|| about.iter().find(|attribute| attribute.key == "service.name")).unwrap();
            let Some(Value::StringValue(name)) = name.value.clone().unwrap().value else { panic!("no text") };
            let found = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(found.map(|span| (name.clone(), span)));
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// One that listens, for as long as the runtime lives.
    fn start(runtime: &tokio::runtime::Runtime) -> (Self, SocketAddr) {
        let collector = Self::default();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let service = TraceServiceServer::new(collector.clone());
        runtime.spawn(async move {
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        (collector, address)
    }

    fn of_trace(&self, id: &str) -> Vec<(String, Span)> {
        let spans = self.spans.lock().unwrap();
        spans.iter().filter(|(_, span)| hex(&span.trace_id) == id).cloned().collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A cluster whose processes export, with a node and a user.
fn traced(endpoint: &str, slow: &str) -> (Cluster, User) {
    let section = format!("telemetry:\n  endpoint: {endpoint}\n  slow: {slow}\n");
    let mut cluster = Cluster::with_proxy_settings(&section);
    cluster.add_node_with("web-1", "env: prod", &section);
    let alice = cluster.add_user("alice", "access", &me());
    (cluster, alice)
}

fn ssh(user: &User, endpoint: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = match endpoint {
        Some(_) => user.command(&[&["ssh", "--trace=otlp"], arguments].concat()),
        None => user.command(&[&["ssh"], arguments].concat()),
    };
    command.env("SALLYPORT_CONNECT", "off");
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.unwrap_or_default());
    command.output().unwrap()
}

fn trace_id(output: &Output) -> String {
    let said = stderr(output);
    said.lines().find_map(|line| line.strip_prefix("trace ")).expect("a trace").to_owned()
}

#[test]
fn one_trace_has_the_parts_of_client_proxy_authority_and_node() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (collector, address) = Collector::start(&runtime);
    let endpoint = format!("http://{address}");
    let (_cluster, alice) = traced(&endpoint, "1h");
    // Selected by a label, so that the authority is asked as well.
    let output = ok(ssh(&alice, Some(&endpoint), &["-l", &me(), "env=prod", "true"]));
    let id = trace_id(&output);
    let spans = wait_for("all parts of the trace", || {
        let spans = collector.of_trace(&id);
        let names: BTreeSet<&str> = spans.iter().map(|(_, span)| span.name.as_str()).collect();
        let wanted = ["ssh", "proxy.connect", "authority.call", "node.connect"];
        wanted.iter().all(|name| names.contains(name)).then_some(spans)
    });
    let by_id: BTreeMap<String, &Span> = spans.iter().map(|(_, span)| (hex(&span.span_id), span)).collect();
    let above = |span: &Span| by_id.get(&hex(&span.parent_span_id)).map(|above| above.name.clone());
    let find = |name: &str| &spans.iter().find(|(_, span)| span.name == name).unwrap().1;
    for (name, parent) in [
        ("dial", "ssh"),
        ("stream", "ssh"),
        ("proxy.connect", "stream"),
        ("decision", "proxy.connect"),
        ("tunnel", "proxy.connect"),
        ("node.first_byte", "proxy.connect"),
        ("node.connect", "proxy.connect"),
        ("native.hello", "node.connect"),
        ("native.program", "node.connect"),
    ] {
        let found = spans.iter().any(|(_, span)| span.name == name && above(span).as_deref() == Some(parent));
        assert!(
            found,
            "{name} under {parent}: {:#?}",
            spans.iter().map(|(by, span)| (by, &span.name, above(span))).collect::<Vec<_>>()
        );
    }
    // The names of calls are there, what ran is not.
    assert!(find("ssh").parent_span_id.is_empty());
    let services: BTreeSet<&str> = spans.iter().map(|(by, _)| by.as_str()).collect();
    assert_eq!(services, BTreeSet::from(["sallyport-ssh", "auth,proxy", "node"]));
    assert!(spans.iter().all(|(_, span)| span.end_time_unix_nano >= span.start_time_unix_nano));
    assert!(!format!("{spans:?}").contains("env=prod"));
}

/// What alice may.
const ROLE: &str = "kind: role\nversion: v1\nmetadata: {name: dba}\nspec:\n  allow:\n    db_labels: {env: test}\n    \
                    db_users: [app]\n    db_names: [shop]\n";

/// A span's name, the services that export it, and the name of the span above it.
type Part = (String, String, Option<String>);

/// The parts of the trace of a connection to a database that has one which fits, once proxy and node have exported theirs.
fn database_trace(collector: &Collector, fits: impl Fn(&str, &str) -> bool) -> Vec<Part> {
    wait_for("a trace with all parts of proxy and node", || {
        let spans = collector.spans.lock().unwrap();
        let (_, fitting) = spans.iter().find(|(whose, span)| fits(whose, &span.name))?;
        let of_trace: Vec<&(String, Span)> =
            spans.iter().filter(|(_, span)| span.trace_id == fitting.trace_id).collect();
        let by_id: BTreeMap<&[u8], &Span> =
            of_trace.iter().map(|(_, span)| (span.span_id.as_slice(), span)).collect();
        let above = |span: &Span| by_id.get(span.parent_span_id.as_slice()).map(|above| above.name.clone());
        let exported = |name: &str| of_trace.iter().any(|(_, span)| span.name == name);
        ["proxy.connect", "node.connect"].into_iter().all(exported).then(|| {
            of_trace.iter().map(|(whose, span)| (span.name.clone(), whose.clone(), above(span))).collect()
        })
    })
}

/// Holds a trace to what every connection to a database has, and to what this one has besides.
fn hold(trace: &[Part], besides: &[(&str, &str, &str)]) {
    let every = [
        ("decision", "auth,proxy", "proxy.connect"),
        ("tunnel", "auth,proxy", "proxy.connect"),
        ("database.first_byte", "auth,proxy", "proxy.connect"),
        ("node.connect", "node", "proxy.connect"),
        ("database.startup", "node", "node.connect"),
        ("recording", "node", "node.connect"),
        ("database.credentials", "node", "node.connect"),
        ("database.dial", "node", "node.connect"),
        ("database.tls", "node", "node.connect"),
        ("database.login", "node", "node.connect"),
    ];
    for (name, by, parent) in every.iter().chain(besides) {
        let found =
            trace.iter().any(|part| part.0 == *name && part.1 == *by && part.2.as_deref() == Some(*parent));
        assert!(found, "{name} of {by} under {parent}: {trace:#?}");
    }
}

#[test]
fn a_connection_to_a_database_is_one_trace_from_the_proxy_to_the_login() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (collector, address) = Collector::start(&runtime);
    let (cluster, _) = traced(&format!("http://{address}"), "1ms");
    let postgres = Postgres::start(&cluster);
    ok(cluster.create(ROLE));
    let dave = cluster.add_user("dave", "dba", &me());
    postgres.register(&cluster, "prod", "web-1");
    let connect = |db_user: &str| {
        let arguments = ["db", "connect", "prod", "-u", db_user, "-n", "shop", "--", "-Atc", "select 6 * 7"];
        dave.command(&arguments).env("SALLYPORT_CONNECT", "off").output().unwrap()
    };
    // The node hears of the database a moment later.
    let output = wait_for("the database", || Some(connect("app")).filter(|output| output.status.success()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n");
    // The proxy reads nothing of what the program and the agent say to each other.
    let end_to_end =
        database_trace(&collector, |whose, name| (whose, name) == ("node", "database.handshake"));
    assert!(!end_to_end.iter().any(|part| part.0 == "database.startup" && part.1 == "auth,proxy"));
    hold(&end_to_end, &[("database.handshake", "node", "node.connect")]);
    // Where psql itself comes to the proxy's port, its TLS ends there.
    let services = dave.home.join("services.conf");
    let login = ["db", "login", "prod", "--db-user", "app", "--db-name", "shop"];
    ok(dave.command(&login).env("PGSERVICEFILE", &services).output().unwrap());
    let mut stock = Command::new("psql");
    stock.env("PGSERVICEFILE", &services).env("PGCONNECT_TIMEOUT", "20").stdin(Stdio::null());
    ok(stock.args(["-X", "service=prod", "-Atc", "select 6 * 7"]).output().unwrap());
    let stock = database_trace(&collector, |whose, name| (whose, name) == ("auth,proxy", "database.startup"));
    assert!(!stock.iter().any(|part| part.0 == "database.handshake"));
    hold(&stock, &[("database.startup", "auth,proxy", "proxy.connect")]);
    // What was asked is not there; that a user was refused is.
    assert!(!format!("{:?}", collector.spans.lock().unwrap()).contains("6 * 7"));
    refused(&connect("postgres"), 2);
    wait_for("the refusal", || {
        let spans = collector.spans.lock().unwrap();
        let failed = spans.iter().filter(|(_, span)| span.status.as_ref().is_some_and(|s| s.code == 2));
        failed.clone().any(|(_, span)| span.name == "proxy.connect").then_some(())
    });
}

#[test]
fn slow_and_failed_connections_are_exported_and_quick_ones_are_not() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (collector, address) = Collector::start(&runtime);
    let (_cluster, alice) = traced(&format!("http://{address}"), "2s");
    ok(ssh(&alice, None, &[&target("web-1"), "true"]));
    // Up to the first byte or the end: this one takes its time.
    ok(ssh(&alice, None, &[&target("web-1"), "sleep 2.1"]));
    refused(&ssh(&alice, None, &[&target("nowhere"), "true"]), 255);
    wait_for("the slow one and the failed one", || {
        let spans = collector.spans.lock().unwrap();
        let slow = spans.iter().filter(|(_, span)| span.name == "node.connect").count();
        let failed =
            spans.iter().filter(|(_, span)| span.status.as_ref().is_some_and(|s| s.code == 2)).count();
        (slow == 1 && failed >= 1).then_some(())
    });
    // A node exports in the order in which connections end, so that the quick one would have come before the slow one.
    let spans = collector.spans.lock().unwrap();
    let count = |name: &str| spans.iter().filter(|(_, span)| span.name == name).count();
    assert_eq!(count("node.connect"), 1, "the quick one was exported");
    let failed =
        spans.iter().find(|(_, span)| span.status.as_ref().is_some_and(|status| status.code == 2)).unwrap();
    assert!(failed.1.attributes.iter().any(|attribute| attribute.key == "error.type"), "{failed:?}");
}

#[test]
fn a_collector_that_is_away_or_silent_slows_nothing() {
    // One that takes connections and never answers, one that is not there.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    std::thread::scope(|scope| {
        for address in [silent.local_addr().unwrap(), SocketAddr::from(([127, 0, 0, 1], free_port()))] {
            scope.spawn(move || {
                let (_cluster, alice) = traced(&format!("http://{address}"), "1ms");
                let began = Instant::now();
                for _ in 0..5 {
                    ok(ssh(&alice, None, &[&target("web-1"), "true"]));
                }
                // One that waited for its collector would take as long as an export may.
                assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
            });
        }
    });
}
