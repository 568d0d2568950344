//! Browsers at a proxy's pages.

use std::net::{IpAddr, SocketAddr};

use sallyport_audit::{Code, Event};
use sallyport_wire::{convert, v1};
use tonic::Status;

use crate::authority::caller::{Caller, TellingHost};
use crate::authority::challenges::records::ChallengeRecord;

/// A browser, as a proxy tells of it. The proxy's word for where it is counts for bounds and is on record as that.
#[derive(Debug, Clone)]
pub(crate) struct Browser {
    /// It has no certificate, wherever it is.
    pub(crate) caller: Caller,
}

impl Browser {
    /// # Errors
    /// The address is none.
    pub(crate) fn at(address: &str, proxy: TellingHost) -> Result<Self, Status> {
        let ip = address.parse::<IpAddr>().ok();
        let address = ip.map(|ip| SocketAddr::new(ip, 0)).or_else(|| address.parse::<SocketAddr>().ok());
        let address = address.ok_or_else(|| {
            Status::invalid_argument("the browser's address is no IP address, with or without a port")
        })?;
        Ok(Self { caller: Caller::Behind { proxy, address } })
    }

    /// No browser: a program that proves what it has begun itself.
    pub(crate) fn none(caller: &Caller) -> Self {
        Self { caller: caller.clone() }
    }

    pub(crate) fn event(&self, code: Code) -> Event {
        self.caller.event(code)
    }
}

/// What a page shows that the authority knows itself.
pub(super) fn detail(label: &str, value: impl Into<String>) -> v1::WebDetail {
    v1::WebDetail { label: label.to_owned(), value: value.into(), said: false }
}

/// Who has asked for a challenge.
pub(crate) fn client(record: &ChallengeRecord) -> v1::WebClient {
    v1::WebClient {
        host_name: record.host_name.clone(),
        address: record.address.to_string(),
        time: Some(convert::time_to_proto(record.created)),
    }
}
