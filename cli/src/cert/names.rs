//! The names of the server's certificate that a directory has: a renewal keeps them, and names that get lost are told.

use std::net::IpAddr;
use std::path::Path;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

use super::{AUTHORITY, Flags, LOCAL, SERVER, read};
use crate::failure::{Exit, Failure};
use crate::quoting::shell_join;
use crate::screen;

/// The names of the present certificate, for a renewal without `--host`.
///
/// # Errors
/// There is no certificate or no authority to go on from.
pub(super) fn to_keep(flags: &Flags) -> anyhow::Result<Vec<String>> {
    let (certificate, authority) = (flags.dir.join(SERVER), flags.ca_dir().join(AUTHORITY));
    let refuse = |text: String, hint: &str| Err(Failure::new(Exit::Usage, text).hint(hint).into());
    // A new authority is trusted by nobody yet: that is no renewal.
    for (path, hint) in [(&certificate, NAME_HOST), (&authority, NAME_AUTHORITY)] {
        if !path.exists() {
            let text = format!("without --host there is nothing to renew: {} does not exist", path.display());
            return refuse(text, hint);
        }
    }
    match in_file(&certificate)? {
        Some(names) => Ok(names),
        None => {
            let text = format!("{} is no certificate whose names can be kept", certificate.display());
            refuse(text, NAME_HOST)
        }
    }
}

const NAME_HOST: &str = "name the server with --host, for example --host jobs.example";
const NAME_AUTHORITY: &str =
    "name the directory of its authority with --ca-dir, or make a new one with --host";

/// The names in the present certificate that these do not have; none if there is no certificate that can be read.
pub(super) fn dropped(flags: &Flags) -> anyhow::Result<Vec<String>> {
    let mut names = in_file(&flags.dir.join(SERVER))?.unwrap_or_default();
    names.retain(|name| !flags.host.iter().any(|host| host.trim().eq_ignore_ascii_case(name)));
    Ok(names)
}

/// Warns of dropped names, with the command that keeps them.
pub(super) fn warn(dropped: &[String], flags: &Flags) {
    if dropped.is_empty() {
        return;
    }
    let mut words = vec!["longshore".to_owned(), "cert".to_owned()];
    for host in flags.host.iter().chain(dropped) {
        words.extend(["--host".to_owned(), host.trim().to_owned()]);
    }
    words.extend(["--dir".to_owned(), flags.dir.display().to_string()]);
    if let Some(dir) = &flags.ca_dir {
        words.extend(["--ca-dir".to_owned(), dir.display().to_string()]);
    }
    words.extend(["--days".to_owned(), flags.days.to_string()]);
    screen::note(&format!(
        "warning: the certificate does not name {} any more: workers and clients that use such a name refuse the server; to keep them: {}",
        dropped.join(", "),
        shell_join(&words)
    ));
}

/// Names and addresses of the certificate in a file, without those that each certificate has. None if it is no certificate.
fn in_file(path: &Path) -> anyhow::Result<Option<Vec<String>>> {
    let Some(text) = read(path)? else { return Ok(None) };
    let Ok((_, pem)) = parse_x509_pem(text.as_bytes()) else { return Ok(None) };
    Ok(pem.parse_x509().ok().map(|certificate| names(&certificate)))
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    };
    let names = extension.value.general_names.iter().filter_map(name);
    names.filter(|name| !LOCAL.contains(&name.as_str())).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let of_4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    of_4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
