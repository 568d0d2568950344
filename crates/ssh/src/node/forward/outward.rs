//! Connections that a client asks the node to make (`ssh -L`, RFC 4254 §7.2; OpenSSH's PROTOCOL §2.4 for sockets).

use russh::server::ChannelOpenHandle;
use sallyport_audit::Code;
use sallyport_audit::recording::Direction;
use tokio::time::timeout;

use super::error::NotMade;
use super::{About, CONNECT_TIMEOUT, Granted, Passage, Room};
use crate::node::backend::Connected;
use crate::node::endpoint::ChannelEndpoint;

/// Makes the connection and carries it to its end. `reply` is what SSH answers with, `from` where the client says that it
/// came from.
#[tracing::instrument(name = "forward", skip_all, fields(target = %granted.target))]
pub(in crate::node) async fn run(
    endpoint: ChannelEndpoint,
    reply: Option<ChannelOpenHandle>,
    granted: Granted,
    room: Room,
    from: Option<String>,
) {
    let shared = endpoint.shared.clone();
    let name = granted.target.to_string();
    let connected = match timeout(CONNECT_TIMEOUT, granted.place.connect(&granted.target)).await {
        Ok(made) => made.map_err(NotMade::from),
        Err(_) => Err(NotMade::Silent { seconds: CONNECT_TIMEOUT.as_secs() }),
    };
    let mut about = About { direction: Direction::Local, target: name.clone(), from, peer: None };
    match connected {
        Ok(Connected { stream, peer }) => {
            about.peer = peer;
            let passage = Passage::open(shared, room, about).await;
            endpoint.let_in(reply).await;
            passage.carry(&endpoint, stream).await;
        }
        Err(reason) => {
            let event = about
                .event(&shared, Code::SessionPortForward)
                .message(format!("cannot connect: {reason}"))
                .field("success", false);
            shared.server.sink.emit(event);
            endpoint.inbox.refuse();
            let reason = match granted.decided_here {
                true => format!("cannot connect to {name}: {reason}"),
                false => reason.to_string(),
            };
            endpoint.keep_out(reply, reason).await;
        }
    }
}
