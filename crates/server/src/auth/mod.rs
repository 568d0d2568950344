//! stub
#![allow(missing_docs, clippy::all)]
use crate::ServerError;
use sallyport_access::ClusterName;
use sallyport_wire::v1;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
#[derive(Debug, Clone)]
pub struct AuthConfig {
    pub cluster: ClusterName,
    pub data_dir: PathBuf,
    pub second_factor: crate::config::SecondFactor,
    pub public_addr: String,
}
#[derive(Debug, Clone)]
pub struct Authority;
#[derive(Debug, Clone)]
pub struct PeerInfo {
    pub address: SocketAddr,
}
impl Authority {
    pub async fn open(_: AuthConfig, _: OffsetDateTime) -> Result<Self, ServerError> {
        Ok(Self)
    }
    pub async fn serve(&self, _io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, _: PeerInfo) {}
    pub async fn issue_host(&self, _: v1::JoinRequest) -> Result<v1::HostCertificates, ServerError> {
        Ok(Default::default())
    }
    pub async fn serve_admin_socket(&self, _: &Path) -> Result<(), ServerError> {
        Ok(())
    }
    pub async fn shutdown(&self) {}
}
