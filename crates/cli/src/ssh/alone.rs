//! One node: forwards, then a session.

use std::process::ExitCode;
use std::sync::Arc;

use sallyport_ssh::client::{Endpoint, Forward, Listener, RemoteForward, Report};

use super::link::Link;
use super::options::{ForwardSpec, Options, RequestTty};
use super::plan::Plan;
use super::{background, session};
use crate::error::{CliError, CliResult};
use crate::ui;

/// One node: forwards, then a session.
pub(super) async fn alone(link: &Link, plan: &Plan) -> CliResult<ExitCode> {
    if let Some((host, port)) = &plan.stdio {
        return session::stdio(link, host, *port).await.map_err(CliError::of_begun);
    }
    let _forwards = forwards(link, &plan.options).await?;
    match &plan.program {
        None => {
            background::ready()?;
            session::wait(link).await;
            Err(link.said().unwrap_or_else(|| session::lost(&link.node, "")))
        }
        Some(program) => {
            let with_terminal = plan.wants_terminal();
            if plan.options.request_tty == RequestTty::Yes && !with_terminal {
                ui::say(
                    "no terminal is asked for, because standard input is not one (-tt asks all the same)",
                );
            }
            let mut request = plan.request(program.clone(), with_terminal);
            request.display = plan.display().await;
            let started = link.start(request).await?;
            background::ready()?;
            // What the program was given on standard input is gone, so that nothing is tried again from here on.
            let ran = session::run(link, started, with_terminal, &plan.options).await;
            ran.map_err(CliError::of_begun)
        }
    }
}

/// What forwards, for as long as this lives.
#[derive(Default)]
struct Forwards {
    _local: Vec<Forward>,
    _remote: Vec<RemoteForward>,
}

async fn forwards(link: &Link, options: &Options) -> CliResult<Forwards> {
    let report: Report = Arc::new(|text: &str| ui::say(format!("forward: {text}")));
    let mut running = Forwards::default();
    for spec in &options.forwards {
        let begun = match (spec.remote, &spec.to) {
            (true, Some(to)) => {
                remote_forward(link, spec, to, &report).await.map(|forward| running._remote.push(forward))
            }
            (_, to) => Listener::bind(&spec.listen, options.replace_sockets)
                .await
                .map(|listener| {
                    running._local.push(match to {
                        Some(to) => link.connection.forward(listener, to.clone(), Arc::clone(&report)),
                        None => link.connection.forward_dynamic(listener, Arc::clone(&report)),
                    });
                })
                .map_err(|error| CliError::new(format!("cannot listen on {}: {error}", spec.listen))),
        };
        match begun {
            Err(error) if options.exit_on_forward_failure || options.no_session => return Err(error),
            Err(error) => ui::say(format!("forward: {error}")),
            Ok(()) => {}
        }
    }
    Ok(running)
}

async fn remote_forward(
    link: &Link,
    spec: &ForwardSpec,
    to: &Endpoint,
    report: &Report,
) -> CliResult<RemoteForward> {
    let asked = link.connection.forward_remote(spec.listen.clone(), to.clone(), Arc::clone(report)).await;
    let forward = asked.map_err(|error| link.explain(&error))?;
    if let (Endpoint::Port { port: 0, .. }, Endpoint::Port { port, .. }) = (&spec.listen, &forward.at) {
        ui::say(format!("Allocated port {port} for remote forward to {to}"));
    }
    Ok(forward)
}
