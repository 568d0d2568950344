//! The cryptography of this process: configured before anything uses it, proven before a client can connect, and
//! watched from then on.

use std::collections::BTreeSet;
use std::sync::{Arc, Once, OnceLock};
use std::time::Instant;

use metrics::gauge;
use sallyport_audit::{Code, Event, Sink};
use sallyport_sal::provider::{self, Module};
use sallyport_sal::selection::{self, Incident};
use sallyport_sal::{Primitive, Selection, needs, tls};
use time::OffsetDateTime;
use tokio::runtime::Handle;
use tracing::{error, info, warn};

use crate::ServerError;
use crate::authority::Authority;
use crate::config::{Config, rule};
use crate::health::{Health, metrics_handle};

/// The part of readiness that waits when no provider is left that serves a primitive.
const PART: &str = "cryptography";

/// What went wrong with the profile before the selection could see it.
static AT_START: OnceLock<Incident> = OnceLock::new();

/// Sets what the configuration says for the whole process. It must come before anything used cryptography.
pub(crate) fn configure(config: &Config) -> Result<(), ServerError> {
    let failed = |action| {
        move |source: Box<dyn std::error::Error + Send + Sync>| ServerError::Cryptography { action, source }
    };
    let (policy, incident) = config
        .crypto
        .policy(&config.data_dir)
        .map_err(|error| failed("read the measured profile of this machine")(error.into()))?;
    let groups = config.crypto.groups(&policy.mode);
    let applied = selection::configure(policy).and_then(|_| tls::configure_groups(groups));
    applied.map_err(|error| failed("choose the sources of cryptography")(error.into()))?;
    sallyport_ca::remember_chains(config.crypto.remember());
    if let Some(incident) = incident {
        let _ = AT_START.set(incident);
    }
    Ok(())
}

/// Runs every self-test that a connection would otherwise wait for, and draws the first random number of each library,
/// which some take 50 to 100 ms to prepare. Blocks.
pub(crate) fn prepare() -> Result<(), ServerError> {
    let selection = selection::global();
    observe(selection);
    let began = Instant::now();
    draw(selection);
    let drawn = began.elapsed();
    let primitives = needs::prepare_services(selection, tls::groups()).map_err(|error| {
        ServerError::Cryptography { action: "prove the cryptography", source: error.into() }
    })?;
    // Composed of what is proven by now.
    let _ = tls::provider();
    let all = began.elapsed();
    let module = selection.fips_module();
    if let Some(module) = &module {
        provider::prove_module().map_err(|error| ServerError::Cryptography {
            action: "prove the FIPS module",
            source: error.into(),
        })?;
        // The numbers of a gauge are labels here: what is asked is whether it is there.
        gauge!("sallyport_crypto_fips_module", "version" => module.version).set(1.0);
    }
    info!(
        selection = rule(&selection.policy().mode),
        module = module.map(|module| format!("{module}, self-tests passed")),
        primitives,
        entropy_ms = millis(drawn),
        self_tests_ms = millis(all.saturating_sub(drawn)),
        "cryptography is proven"
    );
    Ok(())
}

/// The first bytes of every library that can work here.
fn draw(selection: &Selection) {
    for provider in selection.providers().iter().filter(|provider| selection.may_compute(**provider)) {
        if provider.needs().iter().all(|feature| selection.cpu().has(*feature)) {
            // One that has none says so; the self-test judges those that are used.
            let _ = provider.random(&mut [0; 32]);
        }
    }
}

fn millis(span: std::time::Duration) -> f64 {
    (span.as_secs_f64() * 1e4).round() / 10.0
}

/// Logs and counts incidents, once for the process.
fn observe(selection: &Selection) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // What is set without a recorder is lost.
        let _ = metrics_handle();
        if let Some(incident) = AT_START.get() {
            note(incident);
        }
        selection.on_incident(note);
    });
}

fn note(incident: &Incident) {
    match incident {
        Incident::Quarantined { primitive, provider, .. } => {
            error!(%primitive, provider, "{incident}");
            gauge!("sallyport_crypto_quarantined", "primitive" => primitive.to_string(), "provider" => *provider)
                .set(1.0);
        }
        _ => warn!("{incident}"),
    }
}

/// Puts incidents on record, and takes readiness away when no provider is left. It ends with its last owner.
#[derive(Debug)]
pub(crate) struct Reporter {
    sink: Arc<dyn Sink>,
    /// In whose name.
    host: String,
    health: Health,
    needed: BTreeSet<Primitive>,
}

impl Reporter {
    /// Reports the incidents of a selection so far, and from now on.
    pub(crate) fn start(
        selection: &Selection,
        sink: Arc<dyn Sink>,
        host: impl Into<String>,
        health: Health,
    ) -> Arc<Self> {
        let groups = tls::groups().iter().flat_map(|group| needs::of_group(*group));
        let needed = needs::indispensable().into_iter().chain(groups).collect();
        let reporter = Arc::new(Self { sink, host: host.into(), health, needed });
        if let Some(incident) = AT_START.get() {
            reporter.take(incident);
        }
        if let Some(module) = selection.fips_module() {
            reporter.sink.emit(reporter.module(&module));
        }
        // The selection keeps its listeners for ever.
        let listening = Arc::downgrade(&reporter);
        selection.on_incident(move |incident| {
            if let Some(reporter) = listening.upgrade() {
                reporter.take(incident);
            }
        });
        reporter
    }

    /// It may be called while a source is being sought: nothing here may use the selection.
    fn take(&self, incident: &Incident) {
        self.sink.emit(self.event(incident));
        if let Incident::Quarantined { primitive, next: None, .. } = incident
            && self.needed.contains(primitive)
        {
            self.health.waiting(PART, format!("no provider is left that serves {primitive}"));
        }
    }

    fn module(&self, module: &Module) -> Event {
        Event::new(Code::CryptoModule, OffsetDateTime::now_utc())
            .user(self.host.as_str())
            .origin(self.host.as_str())
            .field("module", module.name)
            .field("version", module.version)
            .message(format!("cryptography comes from {module}, whose self-tests have passed"))
    }

    fn event(&self, incident: &Incident) -> Event {
        let event = |code| {
            Event::new(code, OffsetDateTime::now_utc())
                .user(self.host.as_str())
                .origin(self.host.as_str())
                .message(incident.to_string())
        };
        match incident {
            Incident::Quarantined { primitive, provider, reason, next } => {
                let event = event(Code::CryptoQuarantined)
                    .field("primitive", primitive.to_string())
                    .field("provider", *provider)
                    .field("reason", reason.as_str());
                match next {
                    Some(next) => event.field("next", *next),
                    None => event,
                }
            }
            Incident::StaleProfile { reason } => {
                event(Code::CryptoProfileStale).field("reason", reason.as_str())
            }
            // A kind that this crate does not know yet is no reason to say nothing.
            _ => event(Code::CryptoQuarantined),
        }
    }
}

/// The authority's log, from any thread.
#[derive(Debug)]
pub(crate) struct OwnLog {
    authority: Authority,
    runtime: Handle,
}

impl OwnLog {
    /// The log of an authority, written by the runtime that this is called in.
    pub(crate) fn of(authority: Authority) -> Self {
        Self { authority, runtime: Handle::current() }
    }
}

impl Sink for OwnLog {
    fn emit(&self, event: Event) {
        let _inside = self.runtime.enter();
        self.authority.emit(event);
    }
}

#[cfg(test)]
mod tests {
    use sallyport_audit::event::MemorySink;
    use sallyport_sal::{KeyAlgorithm, Policy, provider};

    use super::*;

    fn selection() -> Selection {
        Selection::new(provider::ALL, Policy::default())
    }

    #[test]
    fn a_quarantine_is_on_record_and_leaves_readiness_while_a_source_is_left() {
        let (selection, sink, health) = (selection(), Arc::new(MemorySink::default()), Health::new());
        let primitive = Primitive::Sign(KeyAlgorithm::EcdsaP256);
        let ranking = selection.ranking(primitive);
        let able = || ranking.iter().filter(|place| place.obstacle.is_none());
        // An incident from before the reporter started.
        selection.quarantine(primitive, able().next().unwrap().provider, "it lied");
        let reporter =
            Reporter::start(&selection, Arc::<MemorySink>::clone(&sink), "node:web-1", health.clone());
        let events = sink.events();
        assert_eq!(events.len(), 1);
        assert_eq!(
            (events[0].code.clone(), events[0].user.as_str()),
            (Code::CryptoQuarantined, "node:web-1")
        );
        assert_eq!(events[0].fields["primitive"], "sign/ecdsa-p256");
        assert_eq!(events[0].fields["provider"], able().next().unwrap().provider.name());
        assert_eq!(events[0].fields["next"], able().nth(1).unwrap().provider.name());
        assert!(events[0].message.contains("it lied"), "{}", events[0].message);
        assert!(health.readiness().waiting.is_empty());

        for place in able().skip(1) {
            assert!(health.readiness().waiting.is_empty());
            selection.quarantine(primitive, place.provider, "it lied as well");
        }
        assert_eq!(sink.events().len(), able().count());
        assert_eq!(
            health.readiness().waiting,
            ["cryptography: no provider is left that serves sign/ecdsa-p256"]
        );
        drop(reporter);
        selection.quarantine(Primitive::Random, provider::ALL[0], "no reporter listens any more");
        assert_eq!(sink.events().len(), able().count());
    }

    #[test]
    fn an_algorithm_that_no_service_needs_takes_no_readiness() {
        let (selection, sink, health) = (selection(), Arc::new(MemorySink::default()), Health::new());
        let _reporter = Reporter::start(&selection, Arc::<MemorySink>::clone(&sink), "auth", health.clone());
        let primitive = Primitive::Verify(KeyAlgorithm::Rsa8192);
        for place in selection.ranking(primitive) {
            selection.quarantine(primitive, place.provider, "it broke");
        }
        assert!(!sink.events().is_empty() && health.readiness().waiting.is_empty());
    }

    #[test]
    fn a_stale_profile_is_on_record() {
        let (sink, health) = (Arc::new(MemorySink::default()), Health::new());
        let reporter = Reporter::start(&selection(), Arc::<MemorySink>::clone(&sink), "auth", health.clone());
        reporter.take(&Incident::StaleProfile { reason: "it was measured on another CPU".to_owned() });
        let events = sink.events();
        assert_eq!(events[0].code, Code::CryptoProfileStale);
        assert_eq!(events[0].fields["reason"], "it was measured on another CPU");
        assert!(health.readiness().waiting.is_empty());
    }

    #[test]
    fn quarantines_are_counted() {
        let selection = selection();
        let handle = metrics_handle().expect("a recorder");
        selection.on_incident(note);
        selection.quarantine(Primitive::Random, provider::ALL[0], "it gave zeros");
        let row = format!(
            "sallyport_crypto_quarantined{{primitive=\"random\",provider=\"{}\"}} 1",
            provider::ALL[0].name()
        );
        let text = handle.render();
        assert!(text.contains(&row), "{text}");
    }

    #[test]
    fn services_are_prepared_and_say_how_long_it_took() {
        prepare().unwrap();
        let again = || {
            let began = Instant::now();
            prepare().unwrap();
            began.elapsed()
        };
        // All of it happens once. The quickest of a few: a busy machine may interrupt any.
        let took = (0..5).map(|_| again()).min().unwrap();
        assert!(took < std::time::Duration::from_millis(50), "{took:?}");
    }
}
