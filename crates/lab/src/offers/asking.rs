//! Servers are asked: one at an address, or both of a cluster that is started for it.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_ssh::capabilities::SshOffer;
use sallyport_testing::Testbed;

use super::greeting::{greet, read_offer};
use super::verdict::{Finding, judge};
use crate::LabError;
use crate::scan::dial;

/// How long a server may take to say what it offers, all of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server at `host:port` offers.
///
/// # Errors
/// When it does not answer, or not in SSH.
pub fn ask_address(address: &str) -> Result<SshOffer, LabError> {
    let mut line = dial(address, PATIENCE)?;
    greet(address, &mut line)?;
    read_offer(address, &mut line)
}

/// Starts a cluster and judges both of its SSH faces: the proxy's, for `ssh -J`, and the node's, behind the proxy.
///
/// # Errors
/// When it does not start or answer.
pub fn ours(program: &Path, talk: &Talk) -> Result<Vec<Finding>, LabError> {
    let testbed = Testbed::start(program, &|line| talk.say(line))?;
    let proxy = ask_address(&format!("127.0.0.1:{}", testbed.cluster.port))?;
    let mut findings = judge("proxy", &proxy);
    findings.extend(judge("node", &ask_node(&testbed)?));
    Ok(findings)
}

struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The node has no port of its own: it is asked as `ssh` would ask it.
fn ask_node(testbed: &Testbed) -> Result<SshOffer, LabError> {
    let target = format!("{}@{}:22", testbed.login, sallyport_testing::NODE);
    let mut command = testbed.cluster.client(&["proxy", "ssh", &target]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().map_err(|source| sallyport_testing::missing(&command, source))?;
    let mut child = Reaped(child);
    let gone = || LabError::Connection("sallyport proxy ssh has no pipes".to_owned());
    let mut input = child.0.stdin.take().ok_or_else(gone)?;
    let mut output = child.0.stdout.take().ok_or_else(gone)?;
    greet("node", &mut input)?;
    read_offer("node", &mut output)
}
