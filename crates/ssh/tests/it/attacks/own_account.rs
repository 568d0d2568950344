//! Sessions of a node that is not root run as its own account, and could remove what it records.

use sallyport_audit::Code;

use crate::world::{World, ok, output, text};

#[tokio::test(flavor = "multi_thread")]
async fn what_has_to_be_recorded_does_not_run_where_it_could_remove_the_recording() {
    let world = World::with("record_session: strict", |config| config.out_of_reach = false).await;
    let refused = output(world.ssh(&[], &["echo in"])).await;
    assert_eq!(refused.status.code(), Some(255));
    assert_eq!(text(&refused.stdout), "");
    assert!(text(&refused.stderr).contains("which could remove the recording"), "{}", text(&refused.stderr));
    let event = world.event(&Code::SessionRefused).await;
    assert!(event.message.contains("runs as the account"), "{}", event.message);

    let world = World::with("record_session: best_effort", |config| config.out_of_reach = false).await;
    assert_eq!(ok(&output(world.ssh(&[], &["echo in"])).await), "in\n");
}
