//! Memory of proxy and agent for sessions that stand idle.

use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_bench::cost::memory;
use sallyport_bench::report::Csv;

use super::candidates::{Candidate, Kind, Service};
use super::client::Client;
use super::outcome::Outcome;
use crate::LabError;

/// Memory comes and goes for a while after sessions were opened.
const SETTLE: Duration = Duration::from_secs(3);

/// Opens so many sessions through each cluster's public port and looks what they take.
pub(super) fn measure(
    candidates: &[Candidate],
    outcomes: &mut [Outcome],
    count: usize,
    csv: &mut Csv,
    talk: &Talk,
) -> Result<(), LabError> {
    for (candidate, outcome) in candidates.iter().zip(outcomes) {
        let services = [candidate.pid(Service::Proxy), candidate.pid(Service::Agent)];
        let ([Some(proxy), Some(agent)], Kind::Native, false) = (services, candidate.kind, talk.stopping())
        else {
            continue;
        };
        talk.say(format!("{count} idle sessions: {}", candidate.name));
        let now = || [proxy, agent].map(|pid| memory(pid).proportional);
        let before = now();
        let held = (0..count)
            .map(|_| {
                let mut client = Client::connect(&candidate.route)?;
                client.query(super::load::QUERY)?;
                Ok(client)
            })
            .collect::<Result<Vec<_>, LabError>>()
            .map_err(|error| candidate.failed(&error))?;
        std::thread::sleep(SETTLE);
        let after = now();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each =
            |(after, before): (u64, u64)| after.saturating_sub(before) as f64 / 1024.0 / count.max(1) as f64;
        let [proxy, agent] = [each((after[0], before[0])), each((after[1], before[1]))];
        let name = candidate.name.replace(',', "");
        csv.line(&format!("idle_proxy_kib,{name},0,{count},{proxy:.2}"))?;
        csv.line(&format!("idle_agent_kib,{name},0,{count},{agent:.2}"))?;
        outcome.memory = Some([proxy, agent]);
        for client in held {
            client.terminate()?;
        }
        std::thread::sleep(SETTLE);
    }
    Ok(())
}
