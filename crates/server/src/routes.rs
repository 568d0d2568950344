//! The pages of an address, in one list: an address serves no path that is not in it.

use std::future::ready;

use axum::Router;
use axum::extract::Request;
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use tower::Service;

/// What an address serves, with the list of the paths. There is no other way to a router that is served, so a path that the
/// tests' table of answers to strangers does not have cannot be missed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Routes {
    router: Router,
    paths: Vec<&'static str>,
}

impl Routes {
    /// A page: what a path answers, by method.
    pub(crate) fn page(self, path: &'static str, page: MethodRouter) -> Self {
        let router = self.router.route(path, page);
        Self { router, ..self }.listed(path)
    }

    /// A service that answers every method of its paths itself.
    pub(crate) fn service<T>(self, path: &'static str, service: T) -> Self
    where
        T: Service<Request, Error = std::convert::Infallible> + Clone + Send + Sync + 'static,
        T::Response: IntoResponse,
        T::Future: Send + 'static,
    {
        let router = self.router.route_service(path, service);
        Self { router, ..self }.listed(path)
    }

    /// These and others.
    pub(crate) fn and(self, others: Self) -> Self {
        Self { router: self.router.merge(others.router), paths: [self.paths, others.paths].concat() }
    }

    /// The same, with something done to every answer of the pages that are here by now, and to that there is none.
    pub(crate) fn answering(self, with: fn(Response) -> Response) -> Self {
        let router = self.router.layer(map_response(move |response: Response| ready(with(response))));
        Self { router, ..self }
    }

    /// What serves them.
    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// Every path, as it was listed.
    pub(crate) fn paths(&self) -> &[&'static str] {
        &self.paths
    }

    fn listed(mut self, path: &'static str) -> Self {
        self.paths.push(path);
        self
    }
}
