//! The key `notify`: who is told about a job of a definition, and when. It is no part of the revision, because no attempt depends on it.

use reqwest::Url;

use super::fault::{FaultCode, Position};
use super::grammar::{self, ValueFault};
use super::keys::{self, notify as notify_keys};
use super::reader::Reader;
use super::scope::{self, Scope};
use super::substitute::MailSupport;
use super::tree::{Node, Value};
use crate::notifications::mail::Recipient;
use crate::notifications::occasion::{Occasion, Occasions};
use crate::notifications::target::{ChatFormat, Endpoint, SigningSecret, Target, Targets};
use crate::notifications::target_key::TargetKind;

/// Targets of one definition: each end of a job looks at all of them.
const TARGETS_MAX: usize = 16;
/// Secrets of one target: the old one and the new one, and one to spare.
const SECRETS_MAX: usize = 3;
/// Longer than any service hands out.
const URL_BYTES_MAX: usize = 2_000;

/// Reads the targets. A URL may stand anywhere below a wrong key, so no fault shows a value.
pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> Targets {
    let Some(node) = scope.find("notify") else { return Targets::default() };
    reader.collector.hide_values(true);
    let targets = targets(node, reader);
    reader.collector.hide_values(false);
    targets
}

fn targets(node: &Node, reader: &mut Reader<'_>) -> Targets {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        Value::Map(_) | Value::Scalar(_) => std::slice::from_ref(node),
    };
    let mut count = items.len();
    let mut targets: Vec<Target> = Vec::new();
    for item in items {
        let read = entry(item, reader);
        count += read.len().saturating_sub(1);
        // A long list of addresses is not compared with itself.
        if count > TARGETS_MAX {
            continue;
        }
        for target in read {
            if targets.iter().any(|other| other.key() == target.key()) {
                reader.fault(
                    item.at,
                    FaultCode::DuplicateKey,
                    "the same target stands above; put their occasions together",
                );
            }
            targets.push(target);
        }
    }
    if count > TARGETS_MAX {
        let text = format!("{count} targets are too many (max {TARGETS_MAX})");
        reader.fault(node.at, FaultCode::TooLong, text);
    }
    targets.into()
}

/// Reads an entry: a target for each recipient of e-mail, or one.
fn entry(node: &Node, reader: &mut Reader<'_>) -> Vec<Target> {
    let Value::Map(map) = &node.value else {
        reader.wrong_type(node, "a map with webhook, slack or email");
        return Vec::new();
    };
    scope::check_keys(map, notify_keys::TARGET, &[], reader);
    let scope = Scope::new(map, None);
    let on = scope.find("on").map(|node| occasions(node, reader));
    let period = scope
        .find("period")
        .and_then(|node| reader.duration(node, keys::DURATION_MIN, notify_keys::PERIOD_MAX));
    let output_lines = scope
        .find("output_lines")
        .and_then(|node| reader.integer(node, notify_keys::OUTPUT_LINES))
        .and_then(|lines| u32::try_from(lines).ok());
    let secrets = scope.find("secret").map(|node| secrets(node, reader)).unwrap_or_default();
    let format = scope.find("format").and_then(|node| reader.choice(node, &notify_keys::FORMATS));
    let mut kinds = TargetKind::ALL.into_iter().filter_map(|kind| Some((kind, scope.find(kind.name())?)));
    let (kind, place) = match (kinds.next(), kinds.next()) {
        (Some(only), None) => only,
        (Some(_), Some((_, second))) => {
            let text = "a target has one of webhook, slack and email; make two targets of these";
            reader.fault(second.at, FaultCode::InvalidValue, text);
            return Vec::new();
        }
        (None, _) => {
            let text = "a target needs \"webhook\" or \"slack\" with a URL, or \"email\" with an address";
            reader.fault(node.at, FaultCode::MissingField, text);
            return Vec::new();
        }
    };
    if let Some(node) = scope.find("secret").filter(|_| kind != TargetKind::Webhook) {
        reader.fault(node.at, FaultCode::InvalidValue, "only messages to a webhook are signed");
    }
    if let Some(node) = scope.find("format").filter(|_| kind != TargetKind::Slack) {
        reader.fault(node.at, FaultCode::InvalidValue, "only messages to slack have a format");
    }
    let endpoints = match kind {
        TargetKind::Webhook => {
            read_url(place, reader).map(|url| Endpoint::Webhook { url, secrets }).into_iter().collect()
        }
        TargetKind::Slack => chat(place, format.unwrap_or_default(), reader).into_iter().collect(),
        TargetKind::Email => recipients(place, reader),
    };
    let on = on.unwrap_or_else(Occasions::standard);
    let period = period.unwrap_or(notify_keys::PERIOD);
    endpoints.into_iter().map(|endpoint| Target { endpoint, on, period, output_lines }).collect()
}

fn chat(place: &Node, format: ChatFormat, reader: &mut Reader<'_>) -> Option<Endpoint> {
    let url = read_url(place, reader)?;
    if format == ChatFormat::Discord && url.path().ends_with("/slack") {
        let text = "Discord takes the format of Slack at a URL that ends with /slack: remove either this end or \"format\"";
        reader.fault(place.at, FaultCode::InvalidValue, text);
    }
    Some(Endpoint::Slack { url, format })
}

fn recipients(node: &Node, reader: &mut Reader<'_>) -> Vec<Endpoint> {
    match reader.environment.mail() {
        MailSupport::Absent => {
            let text = "this server sends no e-mail; start it with --smtp and --smtp-from (LONGSHORE_SMTP, LONGSHORE_SMTP_FROM)";
            reader.fault(node.at, FaultCode::InvalidValue, text);
        }
        MailSupport::Unknown => {
            let text = "a server without --smtp and --smtp-from refuses recipients of e-mail";
            reader.collector.warning(node.at, FaultCode::NeedsMailServer, text);
        }
        MailSupport::Present => {}
    }
    let texts = reader.texts(node);
    if node.is_empty_list() {
        reader.fault(node.at, FaultCode::InvalidValue, "name at least one address");
    }
    let mut recipients = Vec::new();
    for (at, text) in texts {
        match Recipient::parse(&text) {
            Some(recipient) => recipients.push(Endpoint::Email(recipient)),
            None => {
                let text = "this is not an address such as ops@example.org, without a name";
                reader.fault(at, FaultCode::InvalidValue, text);
            }
        }
    }
    recipients
}

fn occasions(node: &Node, reader: &mut Reader<'_>) -> Occasions {
    let chosen: Vec<Occasion> =
        reader.texts(node).iter().filter_map(|(at, text)| occasion(*at, text, reader)).collect();
    if node.is_empty_list() {
        reader.fault(node.at, FaultCode::InvalidValue, "name at least one occasion");
    }
    chosen.into_iter().collect()
}

fn occasion(at: Position, text: &str, reader: &mut Reader<'_>) -> Option<Occasion> {
    let found = Occasion::find(text);
    if found.is_none() {
        let names = Occasion::ALL.map(Occasion::name);
        let synonym = notify_keys::OCCASION_SYNONYMS.iter().find(|(word, _)| *word == text);
        let meant = synonym
            .map(|(_, occasion)| occasion.name())
            .or_else(|| grammar::nearest(text, names.into_iter()))
            .map(|name| format!(": did you mean \"{name}\"?"))
            .unwrap_or_default();
        let form = format!("is none of {}{meant}", names.join(", "));
        reader.refuse(at, ValueFault::input(FaultCode::InvalidChoice, text, form));
    }
    found
}

fn read_url(node: &Node, reader: &mut Reader<'_>) -> Option<Url> {
    let text = reader.text(node)?;
    if text.len() > URL_BYTES_MAX {
        let text = format!("the URL is too long with {} bytes (max {URL_BYTES_MAX})", text.len());
        reader.fault(node.at, FaultCode::TooLong, text);
        return None;
    }
    let url = Url::parse(&text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
    let Some(url) = url else {
        reader.fault(
            node.at,
            FaultCode::InvalidValue,
            "this is not a URL that begins with https:// or http://",
        );
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        reader.fault(node.at, FaultCode::InvalidValue, "a URL with a user or password is not supported");
        return None;
    }
    Some(url)
}

fn secrets(node: &Node, reader: &mut Reader<'_>) -> Vec<SigningSecret> {
    let texts = reader.texts(node);
    // Without a secret, messages would not be signed.
    if node.is_empty_list() {
        reader.fault(node.at, FaultCode::InvalidValue, "give at least one secret, or leave out the key");
    }
    if texts.len() > SECRETS_MAX {
        let text = format!("{} secrets are too many (max {SECRETS_MAX})", texts.len());
        reader.fault(node.at, FaultCode::TooLong, text);
    }
    let mut secrets = Vec::new();
    for (at, text) in texts {
        match SigningSecret::parse(&text) {
            Some(secret) => secrets.push(secret),
            None => {
                let text = "a secret is whsec_ and 24 to 64 random bytes as Base64: echo whsec_$(openssl rand -base64 32)";
                reader.fault(at, FaultCode::InvalidValue, text);
            }
        }
    }
    secrets
}
