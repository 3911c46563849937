use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_replica::NodeId;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use uuid::Uuid;

use super::authority::{Authority, certificate_of, private_key_of};
use super::files::read_private;
use crate::members::EtcdPlace;
use crate::peer::NameHash;
use crate::problem::Problem;

/// Whom a certificate is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) cluster: Uuid,
    /// 0: a witness, which is no node.
    pub(crate) node: NodeId,
    pub(crate) name: String,
}

impl Subject {
    /// The name in the certificate: a node's name may have characters that a host's must not have.
    pub(crate) fn dns_name(&self) -> String {
        dns_name(self.cluster, self.node, NameHash::of(&self.name))
    }
}

fn dns_name(cluster: Uuid, node: NodeId, name: NameHash) -> String {
    let hash: String = name.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hash}.{}.{}.ashlar", node.0, cluster.simple())
}

/// What a node proves itself with, and knows others by.
pub struct Identity {
    folder: PathBuf,
    cluster: Uuid,
    /// A witness has none.
    authority: Option<Authority>,
    /// The member of etcd that this machine runs.
    etcd: Option<EtcdPlace>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.folder.display())
    }
}

/// The files of an identity, in its folder.
pub(crate) mod file {
    pub(crate) const AUTHORITY: &str = "ca.pem";
    pub(crate) const AUTHORITY_KEY: &str = "ca.key";
    pub(crate) const CERTIFICATE: &str = "node.pem";
    pub(crate) const KEY: &str = "node.key";
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl Identity {
    /// What is in a node's folder.
    pub(crate) fn read(folder: &Path, cluster: Uuid) -> Result<Self, Problem> {
        let read = |name: &str| read_private(&folder.join(name));
        let named = |name: &str, problem: Problem| {
            let path = folder.join(name);
            Problem::environment(format!("{}: {}", path.display(), problem.message))
        };
        let authority = read(file::AUTHORITY)?;
        let root = certificate_of(&authority).map_err(|why| named(file::AUTHORITY, why))?;
        let own = read(file::CERTIFICATE)?;
        let own = certificate_of(&own).map_err(|why| named(file::CERTIFICATE, why))?;
        let key = read(file::KEY)?;
        let key = || private_key_of(&key).map_err(|why| named(file::KEY, why));
        let signs = match folder.join(file::AUTHORITY_KEY).exists() {
            true => {
                let key = read(file::AUTHORITY_KEY)?;
                let whole = Authority::of(cluster, authority, key);
                Some(whole.map_err(|why| named(file::AUTHORITY_KEY, why))?)
            }
            false => None,
        };
        // Who joins is shown the authority's own certificate, too: it knows that by its hash only.
        let chain = vec![own, root.clone()];
        let unfit = |error: rustls::Error| {
            Problem::environment(format!(
                "{}: its certificates do not fit each other: {error}",
                folder.display()
            ))
        };
        let client = client_config(root.clone())
            .map_err(unfit)?
            .with_client_auth_cert(chain.clone(), key()?);
        let server = server_config(root)?.with_single_cert(chain, key()?);
        let mut client = client.map_err(unfit)?;
        client.resumption = Resumption::disabled();
        let mut server = server.map_err(unfit)?;
        // Connections are long, and each proves itself anew.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            folder: folder.to_owned(),
            cluster,
            authority: signs,
            etcd: None,
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }

    pub(crate) fn with_etcd(mut self, etcd: Option<EtcdPlace>) -> Self {
        self.etcd = etcd;
        self
    }

    pub(crate) fn etcd(&self) -> Option<EtcdPlace> {
        self.etcd
    }

    /// Which cluster it is of.
    pub(crate) fn cluster(&self) -> Uuid {
        self.cluster
    }

    /// Where it lies.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn authority(&self) -> Result<&Authority, Problem> {
        self.authority.as_ref().ok_or_else(|| {
            let folder = self.folder.display();
            Problem::environment(format!(
                "{folder} has no {}: this node cannot let others join; ask another one",
                file::AUTHORITY_KEY
            ))
        })
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// What a node of this number and name has in its certificate.
    pub(super) fn expected(
        &self,
        node: NodeId,
        name: NameHash,
    ) -> Result<ServerName<'static>, String> {
        let name = dns_name(self.cluster, node, name);
        ServerName::try_from(name).map_err(|error| error.to_string())
    }

    /// Whether a certificate, which the authority has signed, is this node's.
    pub(super) fn is_of(
        &self,
        certificate: &CertificateDer<'_>,
        node: NodeId,
        name: NameHash,
    ) -> bool {
        let Ok(expected) = self.expected(node, name) else {
            return false;
        };
        ParsedCertificate::try_from(certificate)
            .is_ok_and(|certificate| verify_server_name(&certificate, &expected).is_ok())
    }
}

type ClientBuilder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;
type ServerBuilder = rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert>;

fn client_config(root: CertificateDer<'static>) -> Result<ClientBuilder, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(root)?;
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(builder.with_root_certificates(roots))
}

/// Who has no certificate is let in as far as a token goes.
fn server_config(root: CertificateDer<'static>) -> Result<ServerBuilder, Problem> {
    let unfit = |error: &dyn std::fmt::Display| {
        Problem::environment(format!("the authority's certificate is of no use: {error}"))
    };
    let mut roots = RootCertStore::empty();
    roots.add(root).map_err(|error| unfit(&error))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| unfit(&error))?;
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = builder.map_err(|error| unfit(&error))?;
    Ok(builder.with_client_cert_verifier(verifier))
}
