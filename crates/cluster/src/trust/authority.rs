use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
    SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use uuid::Uuid;

use super::identity::Subject;
use crate::problem::Problem;

pub(crate) use rcgen::KeyPair;

/// Bytes of a public key: an uncompressed point of P-256.
const PUBLIC_KEY_BYTES: usize = 65;

/// In every certificate: a token says which authority is right, not which node.
pub(crate) const ANY_NODE: &str = "node.ashlar";

/// Signs the certificates of a cluster's nodes.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// Where a node is: others meet these addresses, and find them in its certificate.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) addresses: Vec<IpAddr>,
}

/// A public key, as a node that joins has sent it.
pub(crate) struct PublicKey([u8; PUBLIC_KEY_BYTES]);

impl PublicKey {
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; PUBLIC_KEY_BYTES] = bytes.try_into().ok()?;
        // 4: both coordinates follow.
        (bytes[0] == 4).then_some(Self(bytes))
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

pub(crate) fn cannot(error: impl std::fmt::Display) -> Problem {
    Problem::internal(format!("a certificate cannot be made: {error}"))
}

/// A key pair of a node or an authority.
pub(crate) fn key_pair() -> Result<KeyPair, Problem> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(cannot)
}

/// Membership decides who belongs, not a date: a clock that is wrong must not take a node away.
fn forever(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(4000, 1, 1);
    let serial = Uuid::new_v4().into_bytes();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
}

fn own_params(cluster: Uuid) -> CertificateParams {
    let mut params = CertificateParams::default();
    forever(&mut params);
    params.distinguished_name = DistinguishedName::new();
    let name = format!("Ashlar cluster {cluster}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    /// A new one.
    pub(crate) fn new(cluster: Uuid) -> Result<Self, Problem> {
        let key = key_pair()?;
        let certificate = own_params(cluster).self_signed(&key).map_err(cannot)?;
        Ok(Self {
            key: key.serialize_pem(),
            certificate: certificate.pem(),
            issuer: Issuer::new(own_params(cluster), key),
        })
    }

    /// The one of which a node has the files.
    pub(crate) fn of(cluster: Uuid, certificate: String, key: String) -> Result<Self, Problem> {
        let pair = KeyPair::from_pem(&key)
            .map_err(|error| Problem::environment(format!("the authority's key: {error}")))?;
        Ok(Self {
            issuer: Issuer::new(own_params(cluster), pair),
            certificate,
            key,
        })
    }

    /// Its own certificate, as PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its private key, as PEM: what lets a node sign, too.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Says who has a key, and where; as PEM.
    pub(crate) fn sign(
        &self,
        subject: &Subject,
        place: &Place,
        key: &impl PublicKeyData,
    ) -> Result<String, Problem> {
        let names = vec![subject.dns_name(), ANY_NODE.to_owned()];
        let mut params = CertificateParams::new(names).map_err(cannot)?;
        forever(&mut params);
        params.distinguished_name = DistinguishedName::new();
        let common = subject.name.as_str();
        params.distinguished_name.push(DnType::CommonName, common);
        let addresses = place.addresses.iter().copied();
        let addresses = addresses.map(SanType::IpAddress);
        params.subject_alt_names.extend(addresses);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let signed = params.signed_by(key, &self.issuer).map_err(cannot)?;
        Ok(signed.pem())
    }
}

impl Place {
    /// What is met at these addresses. On loopback others are met at another address than they have.
    pub(crate) fn of(addresses: &[IpAddr]) -> Self {
        let mut all: Vec<IpAddr> = Vec::new();
        let loopback = addresses.iter().filter(|address| address.is_loopback());
        let loopback: Vec<IpAddr> = loopback
            .map(|address| match address {
                IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
                IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            })
            .collect();
        for address in addresses.iter().chain(&loopback) {
            if !all.contains(address) {
                all.push(*address);
            }
        }
        Self { addresses: all }
    }
}

/// A certificate from PEM.
pub(crate) fn certificate_of(pem: &str) -> Result<CertificateDer<'static>, Problem> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| Problem::environment(format!("it is no certificate: {error}")))
}

/// A private key from PEM.
pub(crate) fn private_key_of(pem: &str) -> Result<PrivateKeyDer<'static>, Problem> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| Problem::environment(format!("it is no private key: {error}")))
}
