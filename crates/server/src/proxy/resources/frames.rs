//! The messages of `ProxyResource`.

use std::io;

use bytes::Bytes;
use sallyport_access::HostId;
use sallyport_wire::v1;
use sallyport_wire::v1::proxy_resource_request::Frame as Asked;
use sallyport_wire::v1::proxy_resource_response::Frame as Answered;

use crate::proxy::client::{Frames, named_already};

/// The messages of `ProxyResource`.
#[derive(Debug)]
pub(crate) struct ResourceFrames;

impl Frames for ResourceFrames {
    type Request = v1::ProxyResourceRequest;
    type Response = v1::ProxyResourceResponse;

    fn bytes(request: v1::ProxyResourceRequest) -> io::Result<Option<Bytes>> {
        match request.frame {
            Some(Asked::Data(bytes)) => Ok(Some(bytes)),
            Some(Asked::Target(_)) => Err(named_already()),
            None => Ok(None),
        }
    }

    fn response(bytes: Bytes) -> v1::ProxyResourceResponse {
        v1::ProxyResourceResponse { frame: Some(Answered::Data(bytes)) }
    }
}

/// What a client is told first.
pub(crate) fn connected(agent: HostId) -> v1::ProxyResourceResponse {
    let connected = v1::ResourceConnected { agent: agent.to_string() };
    v1::ProxyResourceResponse { frame: Some(Answered::Connected(connected)) }
}
