//! A call that changes something goes on to its end also when its caller leaves: what it has written is then on record, too.

use std::future::Future;

use axum::response::Response;
use sallyport_wire::acts::{self, Weight};
use tokio::sync::oneshot;
use tonic::Status;

use crate::tasks::Tasks;

/// Serves a call. What only reads ends with its caller; all else is finished by a task of its own, which keeps `counted` until then, so that
/// a caller who leaves again and again has no more calls under way than one who stays.
pub(super) async fn finished(
    tasks: &Tasks,
    method: &str,
    counted: impl Send + 'static,
    serving: impl Future<Output = Response> + Send + 'static,
) -> Response {
    if acts::of_method(method) == Weight::Reading {
        let response = serving.await;
        drop(counted);
        return response;
    }
    let (answer, answered) = oneshot::channel();
    tasks.spawn(async move {
        let response = serving.await;
        drop(counted);
        // The caller may have left.
        let _ = answer.send(response);
    });
    answered.await.unwrap_or_else(|_| Status::internal("the call ended without an answer").into_http())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::body::Body;
    use tokio::sync::Notify;

    use super::*;

    /// Begins a call whose caller leaves between two of its steps; gives whether the second is taken.
    async fn second_step_of(method: &str) -> bool {
        let tasks = Tasks::new();
        let (first, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (done, second) = oneshot::channel();
        let serving = {
            let (first, go_on) = (Arc::clone(&first), Arc::clone(&go_on));
            async move {
                first.notify_one();
                go_on.notified().await;
                let _ = done.send(());
                Response::new(Body::empty())
            }
        };
        let caller = finished(&tasks, method, (), serving);
        tokio::select! {
            _ = caller => unreachable!("it waits to go on"),
            () = first.notified() => {}
        }
        go_on.notify_one();
        tokio::time::timeout(Duration::from_secs(10), second).await.unwrap().is_ok()
    }

    #[tokio::test]
    async fn what_changes_something_is_finished_without_its_caller_and_what_reads_is_not() {
        assert!(second_step_of("Factors.BeginProof").await);
        assert!(second_step_of("Admin.CreateResource").await);
        assert!(!second_step_of("Factors.AwaitChallenge").await);
    }
}
