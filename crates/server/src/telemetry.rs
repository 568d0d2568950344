//! Traces of this process: how far peers' words about them go, and the way to the collector.
//!
//! A trace costs those who look at it, so that what is kept is for this process to say: what a user asks for is bounded
//! (`sallyport_telemetry::Trust`), and who has not proven anything asks for nothing.

use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderMap;
use hyper_util::rt::TokioIo;
use sallyport_access::Identity;
use sallyport_ca::tls::database::{ServerCheck, database_client_config};
use sallyport_ssh::client::PHASE;
use sallyport_telemetry::{Exporter, Settings, Telemetry, Trust};
use sallyport_wire::trace_context::{TRACEPARENT, TraceContext};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tracing::{Span, info};

use crate::ServerError;
use crate::config::{Config, TelemetrySection, host_name};
use crate::dialling::{BoxIo, dial, handshake};
use crate::member::host::certificates;
use crate::tasks;

/// A stopping process waits so long for the last traces; the exporter gives itself less.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// TCP, TLS and HTTP/2 together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

static TELEMETRY: OnceLock<Telemetry> = OnceLock::new();

/// What of a peer's trace counts for what is done for it. `None` as well where nothing is traced.
pub(crate) fn admitted(said: Option<TraceContext>, by: Trust) -> Option<TraceContext> {
    TELEMETRY.get()?.admit(said, by)
}

/// The same of a request's headers, by whom its connection proves.
pub(crate) fn parent(headers: &HeaderMap, by: Option<&Identity>) -> Option<TraceContext> {
    let telemetry = TELEMETRY.get()?;
    let said = headers.get(TRACEPARENT)?.to_str().ok().and_then(TraceContext::parse);
    let by = match by {
        Some(identity) if identity.user().is_some() => Trust::User,
        Some(_) => Trust::Host,
        None => Trust::Stranger,
    };
    telemetry.admit(said, by)
}

/// Tells the service that is called to which trace the call belongs.
pub(crate) fn tell(headers: &mut HeaderMap) {
    let context = sallyport_telemetry::context(&Span::current());
    if let Some(Ok(context)) = context.map(|context| context.to_string().parse()) {
        headers.insert(TRACEPARENT, context);
    }
}

/// What makes traces in this process, and what is to take them away.
pub(crate) struct Prepared {
    pub(crate) telemetry: Telemetry,
    exporter: Exporter,
    channel: Channel,
    endpoint: String,
}

/// The export of a process that has one.
pub(crate) struct Export {
    exporting: JoinHandle<()>,
    stop: CancellationToken,
}

impl Export {
    /// Begins to export.
    pub(crate) fn start(prepared: Prepared) -> Self {
        let stop = CancellationToken::new();
        info!(endpoint = prepared.endpoint, "traces of slow and failed connections go to a collector");
        Self { exporting: tasks::start(prepared.exporter.run(prepared.channel, stop.clone())), stop }
    }

    /// Sends what is left, within a bound.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(STOP_PATIENCE, self.exporting).await;
    }
}

/// What makes traces in this process, and what takes them away; nothing connects yet.
///
/// # Errors
/// [`ServerError::File`] or [`ServerError::Certificates`] when the collector's CA cannot be read.
pub(crate) fn prepare(config: &Config) -> Result<Option<Prepared>, ServerError> {
    let Some(section) = &config.telemetry else { return Ok(None) };
    let channel = channel(section)?;
    let services =
        [("auth", config.auth.is_some()), ("proxy", config.proxy.is_some()), ("node", config.node.is_some())];
    let services: Vec<&str> = services.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let mut resource = vec![
        ("service.name".to_owned(), section.service_name.clone()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("sallyport.cluster".to_owned(), config.cluster.to_string()),
        ("sallyport.services".to_owned(), services.join(",")),
    ];
    resource.extend(host_name().ok().map(|name| ("host.name".to_owned(), name.to_string())));
    let settings = Settings { target: PHASE, slow: section.slow, sample: section.sample, resource };
    let (telemetry, exporter) = Telemetry::new(settings);
    let _ = TELEMETRY.set(telemetry.clone());
    Ok(Some(Prepared { telemetry, exporter, channel, endpoint: section.endpoint.to_string() }))
}

/// A channel that connects when it is first used.
fn channel(section: &TelemetrySection) -> Result<Channel, ServerError> {
    let config = match &section.ca_file {
        None => None,
        Some(path) => {
            let failed = |source| ServerError::File { action: "read", path: path.clone(), source };
            let roots = fs::read_to_string(path).map_err(failed)?;
            let mut config = database_client_config(ServerCheck::Full, &roots, None)
                .map_err(|error| certificates("cannot use telemetry.ca_file", error))?;
            config.alpn_protocols = vec![b"h2".to_vec()];
            Some(Arc::new(config))
        }
    };
    let address = section.endpoint.address.clone();
    let connector = tower::service_fn(move |_| {
        let (address, config) = (address.clone(), config.clone());
        async move {
            let tcp = dial(&address).await?;
            let io: BoxIo = match config {
                Some(config) => Box::new(handshake(tcp, config, &address.host).await?),
                None => Box::new(tcp),
            };
            Ok::<_, io::Error>(TokioIo::new(io))
        }
    });
    Ok(Endpoint::from_static("http://collector.sallyport.internal")
        .connect_timeout(CONNECT_TIMEOUT)
        .connect_with_connector_lazy(connector))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_is_traced_no_collector_is_asked_or_told() {
        let mut headers = HeaderMap::new();
        tell(&mut headers);
        assert!(headers.is_empty());
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        headers.insert(TRACEPARENT, header.parse().unwrap());
        assert_eq!(parent(&headers, None), None);
        assert_eq!(admitted(TraceContext::parse(header), Trust::Host), None);
    }
}
