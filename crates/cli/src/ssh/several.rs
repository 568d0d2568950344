//! Labels in the place of a node: a command on all that they select.

use std::process::ExitCode;

use futures::StreamExt;
use sallyport_ssh::client::Program;
use sallyport_wire::v1::{NodeInfo, SessionTarget};

use super::alone::alone;
use super::link::Link;
use super::login::login;
use super::plan::Plan;
use super::session;
use super::target::Target;
use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::factor;
use crate::global::Global;
use crate::ls::Wanted;
use crate::ui;
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::Asking;

/// What ssh exits with when there is no connection.
const UNREACHABLE: u8 = 255;

/// What a command exits with that all nodes have done that are online, where others are offline: neither ssh's own 255, nor what a
/// shell says of a command that it does not find or that a signal ends (126 to 192).
const LEFT_OUT: u8 = 254;

/// Nodes that a command runs on at a time.
const AT_A_TIME: usize = 16;

/// Labels: one node for a person, all of them for a command.
pub(super) async fn selected(
    global: &Global,
    stored: &Stored,
    plan: &Plan,
    target: &Target,
) -> CliResult<ExitCode> {
    let chosen = Global { proxy: Some(stored.profile.proxy.clone()), ..global.clone() };
    let authority = authority::open(&chosen, &AuthorityArgs::default()).await?;
    let wanted = Wanted { terms: vec![target.host.clone()], ..Wanted::default() };
    let mut nodes = crate::ls::fetch(&authority, &wanted).await?;
    nodes.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    let (online, others): (Vec<NodeInfo>, Vec<NodeInfo>) = nodes.into_iter().partition(|node| node.online);
    let offline = others.iter().any(|node| !is_registered(node));
    let login = login(stored, plan, target)?;
    match (online.as_slice(), &plan.program) {
        ([], _) if others.is_empty() => {
            Err(CliError::new(format!("no node that you may reach has the labels {}", target.host))
                .hint("sallyport ls"))
        }
        ([], _) => Err(CliError::new(format!(
            "no node with the labels {} is online: {}",
            target.host,
            list(&others)
        ))
        .hint(if offline { "sallyport ls" } else { "name one: sallyport ssh NAME" })),
        ([only], _) => {
            let is_command = is_command(plan);
            if is_command {
                say_left_out(&others);
            }
            let asking = Asking::default();
            let outcome = factor::proven(stored, &asking, &[], async || {
                let link = Link::open(stored, &only.id, &login, plan).await?;
                let outcome = alone(&link, plan).await;
                link.connection.disconnect().await;
                outcome
            });
            let outcome = outcome.await?;
            Ok(if is_command && outcome == ExitCode::SUCCESS { ending(0, offline) } else { outcome })
        }
        (several, Some(_)) if is_command(plan) && plan.trace.is_some() => Err(CliError::new(format!(
            "--trace shows one connection, and the labels {} select {} nodes",
            target.host,
            several.len()
        ))
        .hint("name one of them")
        .exit(Exit::Usage)),
        (_, Some(program)) if is_command(plan) => {
            say_left_out(&others);
            Ok(ending(everywhere(stored, plan, program, &login, &online).await, offline))
        }
        (several, _) => {
            let names: Vec<String> =
                several.iter().map(|node| format!("  {}  {}", node.name, node.id)).collect();
            Err(CliError::new(format!(
                "the labels {} select {} nodes:\n{}",
                target.host,
                several.len(),
                names.join("\n")
            ))
            .hint("name one of them, or give a command to run on all"))
        }
    }
}

/// Whether the nodes that labels select all run the same thing, and a node that does not is missed.
fn is_command(plan: &Plan) -> bool {
    plan.stdio.is_none() && matches!(plan.program, Some(Program::Exec(_) | Program::Subsystem(_)))
}

/// A stock OpenSSH server: the authority does not know whether it is there until a user goes to it by its name.
fn is_registered(node: &NodeInfo) -> bool {
    node.kind == "openssh"
}

fn list(left_out: &[NodeInfo]) -> String {
    let state = |node| if is_registered(node) { "registered, reached by name only" } else { "offline" };
    left_out.iter().map(|node| format!("{} ({})", node.name, state(node))).collect::<Vec<_>>().join(", ")
}

fn say_left_out(left_out: &[NodeInfo]) {
    if !left_out.is_empty() {
        ui::say(format!("left out: {}", list(left_out)));
    }
}

/// What tells a script which of the nodes did not do it: one that failed before one that was not there.
fn ending(worst: u8, some_offline: bool) -> ExitCode {
    ExitCode::from(if worst == 0 && some_offline { LEFT_OUT } else { worst })
}

/// What sessions with nodes as one login are with.
pub(crate) fn targets(nodes: &[NodeInfo], login: &str) -> Vec<SessionTarget> {
    let target = |node: &NodeInfo| SessionTarget {
        kind: "node".to_owned(),
        resource: node.id.clone(),
        account: login.to_owned(),
        db_name: String::new(),
    };
    nodes.iter().map(target).collect()
}

/// A command on several nodes, a prefix before every line: the highest of their exit codes.
async fn everywhere(stored: &Stored, plan: &Plan, program: &Program, login: &str, nodes: &[NodeInfo]) -> u8 {
    let width = nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    // The first node that demands a second factor has it asked for all.
    let (asking, all) = (Asking::default(), targets(nodes, login));
    let runs = futures::stream::iter(nodes).map(|node| {
        let (asking, all) = (&asking, &all);
        async move {
            let prefix = format!("{:width$} | ", node.name);
            let outcome = factor::proven(stored, asking, all, async || {
                let link = Link::open(stored, &node.id, login, plan).await?;
                let request = plan.request(program.clone(), false);
                let started = link.start(request).await?;
                let code = session::collect(&link, started, &prefix).await;
                link.connection.disconnect().await;
                code
            });
            outcome.await.unwrap_or_else(|error| {
                ui::say(format!("{prefix}{error}"));
                UNREACHABLE
            })
        }
    });
    runs.buffer_unordered(AT_A_TIME).fold(0, |worst, code| async move { code.max(worst) }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_offline_are_told_apart_from_a_command_that_failed() {
        assert_eq!(ending(0, false), ExitCode::SUCCESS);
        assert_eq!(ending(0, true), ExitCode::from(LEFT_OUT));
        assert_eq!(ending(3, true), ExitCode::from(3));
        assert_eq!(ending(UNREACHABLE, true), ExitCode::from(UNREACHABLE));
    }

    #[test]
    fn what_is_left_out_is_said_with_the_reason() {
        let node = |name: &str, kind: &str| NodeInfo {
            name: name.to_owned(),
            kind: kind.to_owned(),
            ..NodeInfo::default()
        };
        let said = list(&[node("web-2", ""), node("db-1", "openssh")]);
        assert_eq!(said, "web-2 (offline), db-1 (registered, reached by name only)");
    }
}
