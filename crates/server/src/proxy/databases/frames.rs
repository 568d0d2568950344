//! The messages of `ProxyDatabase`.

use std::io;

use bytes::Bytes;
use sallyport_wire::v1;
use sallyport_wire::v1::proxy_database_request::Frame as Asked;
use sallyport_wire::v1::proxy_database_response::Frame as Answered;

use crate::proxy::client::{Frames, named_already};

/// The messages of `ProxyDatabase`.
#[derive(Debug)]
pub(crate) struct DatabaseFrames;

impl Frames for DatabaseFrames {
    type Request = v1::ProxyDatabaseRequest;
    type Response = v1::ProxyDatabaseResponse;

    fn bytes(request: v1::ProxyDatabaseRequest) -> io::Result<Option<Bytes>> {
        match request.frame {
            Some(Asked::Data(bytes)) => Ok(Some(bytes)),
            Some(Asked::Target(_)) => Err(named_already()),
            None => Ok(None),
        }
    }

    fn response(bytes: Bytes) -> v1::ProxyDatabaseResponse {
        v1::ProxyDatabaseResponse { frame: Some(Answered::Data(bytes)) }
    }
}

/// What a client is told first.
pub(crate) fn connected(database: &str) -> v1::ProxyDatabaseResponse {
    let connected = v1::DatabaseConnected { database: database.to_owned() };
    v1::ProxyDatabaseResponse { frame: Some(Answered::Connected(connected)) }
}
