//! A connection of the cluster's thread, as it is or within TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ashlar_replica::{Incarnation, NodeId};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, Connection};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::Trust;
use super::cipher::{Cipher, PeerSocket};
use crate::key::{Key, MAC_BYTES};
use crate::peer::NameHash;

const EXPORTED: &[u8] = b"EXPORTER-ashlar-peer-1";

#[derive(Debug)]
pub(crate) enum Line {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Line {
    /// To a node of this number and name.
    pub(crate) async fn to(
        trust: &Trust,
        stream: TcpStream,
        node: NodeId,
        name: NameHash,
    ) -> io::Result<Self> {
        let Trust::Certificates(identity) = trust else {
            return Ok(Self::Plain(stream));
        };
        let expected = identity.expected(node, name).map_err(io::Error::other)?;
        Self::within_tls(identity.client(), stream, expected).await
    }

    pub(crate) async fn within_tls(
        config: Arc<ClientConfig>,
        stream: TcpStream,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        Ok(Self::Tls(Box::new(stream.into())))
    }

    /// From who calls.
    pub(crate) async fn from(trust: &Trust, stream: TcpStream) -> io::Result<Self> {
        let Trust::Certificates(identity) = trust else {
            return Ok(Self::Plain(stream));
        };
        let stream = TlsAcceptor::from(identity.server()).accept(stream).await?;
        Ok(Self::Tls(Box::new(stream.into())))
    }

    /// Sends, and has it leave.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await?;
        self.flush().await
    }

    /// What both ends prove in the handshake that they know: the cluster's key, or what only this connection's ends
    /// can derive from it.
    pub(crate) fn key(&self, trust: &Trust) -> io::Result<Key> {
        let secret = [0; MAC_BYTES];
        let exported = match (self, trust) {
            (Self::Plain(_), Trust::Key(key)) => return Ok(key.clone()),
            (Self::Plain(_), Trust::Certificates(_)) => {
                return Err(io::Error::other("it is not encrypted"));
            }
            (Self::Tls(stream), _) => match &**stream {
                TlsStream::Client(stream) => {
                    let (_, connection) = stream.get_ref();
                    connection.export_keying_material(secret, EXPORTED, None)
                }
                TlsStream::Server(stream) => {
                    let (_, connection) = stream.get_ref();
                    connection.export_keying_material(secret, EXPORTED, None)
                }
            },
        };
        let exported = exported.map_err(io::Error::other)?;
        Key::new(&exported).map_err(io::Error::other)
    }

    fn certificate(&self) -> Option<&CertificateDer<'static>> {
        let Self::Tls(stream) = self else { return None };
        let (_, state) = stream.get_ref();
        state.peer_certificates()?.first()
    }

    /// Whether who calls may say that it is this node.
    pub(crate) fn may_be(&self, trust: &Trust, node: NodeId, name: NameHash) -> bool {
        match trust {
            // Its proof of the key says so.
            Trust::Key(_) => true,
            Trust::Certificates(identity) => {
                let shown = self.certificate();
                shown.is_some_and(|certificate| identity.is_of(certificate, node, name))
            }
        }
    }

    /// For other threads: the handshake has read nothing beyond its own, or the cipher has it.
    pub(crate) fn into_socket(
        self,
        version: u16,
        incarnation: Incarnation,
    ) -> io::Result<PeerSocket> {
        let (stream, cipher) = match self {
            Self::Plain(stream) => (stream, None),
            Self::Tls(stream) => {
                let (stream, connection) = match *stream {
                    TlsStream::Client(stream) => {
                        let (stream, connection) = stream.into_inner();
                        (stream, Connection::Client(connection))
                    }
                    TlsStream::Server(stream) => {
                        let (stream, connection) = stream.into_inner();
                        (stream, Connection::Server(connection))
                    }
                };
                (stream, Some(Cipher::new(connection)))
            }
        };
        Ok(PeerSocket {
            fd: stream.into_std()?.into(),
            cipher,
            version,
            incarnation,
        })
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, buffer),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
