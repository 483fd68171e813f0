//! `longshore cert`: certificates for the server and for clients, signed by a certificate authority of one's own.

mod names;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _, Zoned};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use x509_parser::certificate::X509Certificate;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

use crate::failure::{Exit, Failure};
use crate::files::{PRIVATE, PUBLIC, replace};
use crate::screen;

/// Make certificates for the server and for clients, and a certificate authority that signs them.
///
/// For sites without a certificate authority. Workers and commands trust the authority with --ca-file. A directory that has one
/// already keeps it: the command only renews the certificates, and running servers and workers notice that. Without --host the server's
/// certificate keeps its names.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore cert --host jobs.example --host 10.0.0.5
  longshore server --tls-cert tls/server.pem --tls-key tls/server-key.pem
  longshore worker --server https://jobs.example:8080 --ca-file ca.pem
  longshore cert --dir tls                          renew the server's certificate, with its names
  longshore cert --client anna                      client-anna.pem, for --tls-client-cert
  longshore cert --host jobs.example --dir tls --ca-dir ca --ca-copy tls/ca.pem

Give ca.pem to workers and users. ca-key.pem signs certificates: keep it where only you can read it.")]
pub(crate) struct Flags {
    /// Name or IP address by which clients reach the server. May be repeated; localhost and 127.0.0.1 are always added
    /// [default: the names of the certificate in --dir].
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// Name of a worker or user that gets a certificate to show to the server: client-NAME.pem and client-NAME-key.pem. May be repeated.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    client: Vec<String>,
    /// Directory for ca.pem, ca-key.pem, server.pem and server-key.pem.
    #[arg(long, value_name = "DIR", default_value = "tls")]
    dir: PathBuf,
    /// Directory for ca.pem and ca-key.pem, so that the server has no access to the key of the authority [default: that of --dir].
    #[arg(long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// Also write ca.pem to this file, for workers and users. May be repeated.
    #[arg(long, value_name = "FILE")]
    ca_copy: Vec<PathBuf>,
    /// Days until the certificates expire, at most 825. The authority lasts ten years.
    #[arg(long, value_name = "N", default_value = "397", value_parser = clap::value_parser!(u16).range(1..=825))]
    days: u16,
}

impl Flags {
    /// The directory of the authority.
    fn ca_dir(&self) -> &PathBuf {
        self.ca_dir.as_ref().unwrap_or(&self.dir)
    }
}

/// Makes the certificates.
pub(crate) fn cert(flags: &Flags) -> anyhow::Result<()> {
    let today = Zoned::now().date();
    // A wrong name is refused before anything is made.
    let (hosts, dropped) = match (flags.host.is_empty(), flags.client.is_empty()) {
        (true, true) => (Some(names::to_keep(flags)?), Vec::new()),
        (true, false) => (None, Vec::new()),
        (false, _) => (Some(flags.host.clone()), names::dropped(flags)?),
    };
    let server = hosts.as_ref().map(|hosts| server_params(hosts, today, flags.days)).transpose()?;
    let mut clients = Vec::new();
    for name in &flags.client {
        clients.push((name, client_params(name, today, flags.days)?));
    }
    let ca_dir = flags.ca_dir();
    for dir in [&flags.dir, ca_dir] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let authority = Authority::in_directory(ca_dir, today)?;
    let made = if authority.is_new { "made" } else { "kept" };
    screen::line(&format!("{made} the authority {}", ca_dir.join(AUTHORITY).display()))?;
    // Before the certificates, so that a client that meets a renewed one can trust it.
    for copy in &flags.ca_copy {
        replace(copy, &authority.certificate, PUBLIC)?;
    }
    if let Some(params) = server {
        authority.issue(params, flags, SERVER, SERVER_KEY)?;
        names::warn(&dropped, flags);
    }
    for (name, params) in clients {
        let files = (format!("client-{name}.pem"), format!("client-{name}-key.pem"));
        authority.issue(params, flags, &files.0, &files.1)?;
    }
    Ok(())
}

/// The certificate authority of a site.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate in PEM, as `ca.pem` has it.
    certificate: String,
    /// Its name in DER.
    name: Vec<u8>,
    /// The end of its validity. Nobody accepts a certificate of the authority after it.
    ends: ASN1Time,
    is_new: bool,
}

impl Authority {
    /// The authority in a directory; a new one if there is none.
    fn in_directory(dir: &Path, today: Date) -> anyhow::Result<Self> {
        let (certificate, key) = (dir.join(AUTHORITY), dir.join(AUTHORITY_KEY));
        match (read(&certificate)?, read(&key)?) {
            (Some(certificate_pem), Some(key_pem)) => {
                let pair = KeyPair::from_pem(&key_pem)
                    .with_context(|| format!("{AUTHORITY_KEY} is no private key"))?;
                let (name, ends) = name_and_end(&certificate_pem, &pair)?;
                if ends <= ASN1Time::now() {
                    let text =
                        format!("the authority {} has expired on {}", certificate.display(), date(ends));
                    return Err(Failure::new(Exit::Failed, text).hint(NEW_AUTHORITY).into());
                }
                let issuer = Issuer::from_ca_cert_pem(&certificate_pem, pair)
                    .with_context(|| format!("cannot use {AUTHORITY}"))?;
                Ok(Self { issuer, certificate: certificate_pem, name, ends, is_new: false })
            }
            (None, None) => {
                let (params, pair) =
                    (authority_params(today)?, KeyPair::generate().context("cannot make a key")?);
                let signed = params.self_signed(&pair).context("cannot sign the authority")?.pem();
                let (name, ends) = name_and_end(&signed, &pair)?;
                replace(&key, &pair.serialize_pem(), PRIVATE)?;
                replace(&certificate, &signed, PUBLIC)?;
                Ok(Self { issuer: Issuer::new(params, pair), certificate: signed, name, ends, is_new: true })
            }
            (has_certificate, _) => {
                let [there, missing] =
                    if has_certificate.is_some() { [certificate, key] } else { [key, certificate] };
                let text = format!("{} exists, but {} does not", there.display(), missing.display());
                Err(Failure::new(Exit::Failed, text)
                    .hint("restore it, or choose another --dir or --ca-dir")
                    .into())
            }
        }
    }
}

impl Authority {
    /// Signs a certificate and writes it with its key.
    fn issue(
        &self,
        mut params: CertificateParams,
        flags: &Flags,
        certificate_file: &str,
        key_file: &str,
    ) -> anyhow::Result<()> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let (own_end, last_end) = (params.not_after, self.ends.to_datetime());
        params.not_after = own_end.min(last_end);
        let certificate = params.signed_by(&key, &self.issuer).context("cannot sign the certificate")?;
        self.check_issuer(certificate.der())?;
        let path = flags.dir.join(certificate_file);
        // The key first: a running program looks for a new certificate and its key at any time, and keeps the old pair while the two differ.
        replace(&flags.dir.join(key_file), &key.serialize_pem(), PRIVATE)?;
        replace(&path, &certificate.pem(), PUBLIC)?;
        let validity = match own_end <= last_end {
            true => format!("for {} days", flags.days),
            false => format!("until {} only, when the authority expires", date(self.ends)),
        };
        screen::line(&format!("made the certificate {}, valid {validity}", path.display()))
    }

    /// Refuses a certificate that names another issuer than this authority, so that no client would accept it: rcgen keeps one part of each
    /// kind in a name, and some authorities have two, such as `DC=example, DC=corp`.
    fn check_issuer(&self, certificate: &[u8]) -> anyhow::Result<()> {
        let (_, parsed) =
            X509Certificate::from_der(certificate).context("cannot read the new certificate")?;
        if parsed.issuer().as_raw() == self.name {
            return Ok(());
        }
        let text = format!("the name of {AUTHORITY} repeats a part, which certificates cannot repeat");
        Err(Failure::new(Exit::Failed, text).hint(NEW_AUTHORITY).into())
    }
}

/// The name in DER and the end of the validity of an authority to which this key belongs.
fn name_and_end(certificate: &str, key: &KeyPair) -> anyhow::Result<(Vec<u8>, ASN1Time)> {
    let (_, pem) = parse_x509_pem(certificate.as_bytes())
        .map_err(|_| Failure::new(Exit::Failed, format!("{AUTHORITY} is no certificate in PEM")))?;
    let parsed = pem.parse_x509().with_context(|| format!("cannot read {AUTHORITY}"))?;
    if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
        let text = format!("{AUTHORITY_KEY} is not the key of {AUTHORITY}");
        return Err(Failure::new(Exit::Failed, text)
            .hint("restore the one that belongs to the other")
            .into());
    }
    Ok((parsed.subject().as_raw().to_vec(), parsed.validity().not_after))
}

/// The day of an instant, in UTC.
fn date(at: ASN1Time) -> String {
    Timestamp::from_second(at.timestamp()).map_or_else(|_| at.to_string(), |at| at.strftime("%F").to_string())
}

fn authority_params(today: Date) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Longshore private CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, today, today.checked_add(AUTHORITY_YEARS.years())?)?;
    Ok(params)
}

fn server_params(hosts: &[String], today: Date, days: u16) -> anyhow::Result<CertificateParams> {
    let mut names: Vec<String> = hosts.iter().map(|host| host.trim().to_owned()).collect();
    names.extend(LOCAL.map(str::to_owned));
    names.dedup();
    for name in &names {
        if name.parse::<std::net::IpAddr>().is_err() && !is_host_name(name) {
            let text = format!("--host: `{}` is neither a host name nor an IP address", name.escape_debug());
            return Err(Failure::new(Exit::Usage, text).hint("for example jobs.example or 10.0.0.5").into());
        }
    }
    let mut params = CertificateParams::new(names).context("cannot use the hosts")?;
    params.distinguished_name.push(DnType::CommonName, "Longshore server");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_validity(&mut params, today, today.checked_add(i64::from(days).days())?)?;
    Ok(params)
}

fn client_params(name: &str, today: Date, days: u16) -> anyhow::Result<CertificateParams> {
    if !is_client_name(name) {
        let text = format!("--client: `{}` is no name for a file", name.escape_debug());
        let hint = "up to 64 letters, digits, dots, dashes and underscores, such as anna or worker-3";
        return Err(Failure::new(Exit::Usage, text).hint(hint).into());
    }
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // It cannot pose as the server, nor the server's as a client.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    set_validity(&mut params, today, today.checked_add(i64::from(days).days())?)?;
    Ok(params)
}

fn is_client_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}

/// Valid from the day before, because clocks and zones differ.
fn set_validity(params: &mut CertificateParams, today: Date, end: Date) -> anyhow::Result<()> {
    let day = |date: Date| {
        date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(today.checked_sub(1.day())?);
    params.not_after = day(end);
    Ok(())
}

/// Labels of letters, digits and dashes; the first may be `*`.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.len() <= 63 && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    name.len() <= 253 && name.strip_prefix("*.").unwrap_or(name).split('.').all(is_label)
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

const AUTHORITY: &str = "ca.pem";
const AUTHORITY_KEY: &str = "ca-key.pem";
const SERVER: &str = "server.pem";
const SERVER_KEY: &str = "server-key.pem";
const AUTHORITY_YEARS: i64 = 10;
const NEW_AUTHORITY: &str =
    "move ca.pem and ca-key.pem away, make a new authority, and give its ca.pem to workers and users";
/// For health checks on the server's own machine.
const LOCAL: [&str; 2] = ["localhost", "127.0.0.1"];

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with an authority of the site that ends on this day.
    fn with_authority(ends: Date) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut params = authority_params(ends).unwrap();
        params.distinguished_name.push(DnType::CommonName, "Site CA");
        set_validity(&mut params, ends.checked_sub(100.days()).unwrap(), ends).unwrap();
        let key = KeyPair::generate().unwrap();
        let write = |name, text| std::fs::write(directory.path().join(name), text).unwrap();
        write(AUTHORITY, params.self_signed(&key).unwrap().pem());
        write(AUTHORITY_KEY, key.serialize_pem());
        directory
    }

    fn make_in(directory: &tempfile::TempDir) -> anyhow::Result<()> {
        let dir = directory.path().to_owned();
        let host = vec!["jobs.example".to_owned()];
        cert(&Flags { host, client: Vec::new(), dir, ca_dir: None, ca_copy: Vec::new(), days: 397 })
    }

    #[test]
    fn certificate_names_the_authority_that_was_kept_and_ends_no_later() {
        let ends = Zoned::now().date().checked_add(20.days()).unwrap();
        let directory = with_authority(ends);
        make_in(&directory).unwrap();
        let read = |name| std::fs::read(directory.path().join(name)).unwrap();
        let (authority, server) = (read(AUTHORITY), read(SERVER));
        let (authority, server) = (parse_x509_pem(&authority).unwrap().1, parse_x509_pem(&server).unwrap().1);
        let (authority, server) = (authority.parse_x509().unwrap(), server.parse_x509().unwrap());
        assert_eq!(server.issuer().to_string(), "CN=Site CA");
        assert_eq!(server.issuer(), authority.subject());
        assert_eq!(server.validity().not_after, authority.validity().not_after);
    }

    #[test]
    fn authority_that_has_expired_signs_nothing() {
        let error = make_in(&with_authority(Zoned::now().date().checked_sub(2.days()).unwrap())).unwrap_err();
        assert!(error.to_string().contains("has expired on "), "{error}");
    }

    #[test]
    fn key_of_another_authority_is_refused() {
        let directory = with_authority(Zoned::now().date().checked_add(20.days()).unwrap());
        let other = KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(directory.path().join(AUTHORITY_KEY), other).unwrap();
        let error = make_in(&directory).unwrap_err();
        assert!(error.to_string().starts_with("ca-key.pem is not the key of ca.pem"), "{error}");
        assert!(!directory.path().join(SERVER).exists());
    }

    #[test]
    fn authority_whose_name_repeats_a_part_signs_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(AUTHORITY), include_str!("cert/two-dc.pem")).unwrap();
        std::fs::write(directory.path().join(AUTHORITY_KEY), include_str!("cert/two-dc-key.pem")).unwrap();
        let error = make_in(&directory).unwrap_err();
        assert!(error.to_string().starts_with("the name of ca.pem repeats a part"), "{error}");
        assert!(!directory.path().join(SERVER).exists());
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        for host in ["jobs", "jobs.example", "*.jobs.example", "a-1.b"] {
            assert!(is_host_name(host), "{host}");
        }
        for host in ["", "https://jobs", "jobs:8080", "a..b", "jobs example"] {
            assert!(!is_host_name(host), "{host}");
        }
    }
}
