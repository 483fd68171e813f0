//! A mail server for tests: it plays its script of refusals, speaks STARTTLS and AUTH PLAIN, and keeps the mails that it took.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::wait::wait_for;

/// A mail that was taken.
#[derive(Clone, Debug)]
pub struct Mail {
    /// The argument of `MAIL FROM`.
    pub from: String,
    /// The argument of `RCPT TO`.
    pub to: String,
    /// Headers and text.
    pub text: String,
    /// The user that logged in.
    pub user: Option<String>,
    /// True if the connection was encrypted.
    pub encrypted: bool,
}

impl Mail {
    /// The value of a header that stands on one line.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let line = self.text.lines().take_while(|line| !line.is_empty());
        let value = line.filter_map(|line| line.split_once(": ")).find(|(known, _)| *known == name);
        value.unwrap_or_else(|| panic!("no {name} in {}", self.text)).1
    }
}

/// The conduct of one conversation that does not take a mail.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Answers the first line that begins with a word, such as `RCPT`, with this line. The word `.` is the end of the text.
    Answer(&'static str, &'static str),
    /// Says nothing until [`MailServer::release`].
    Hang,
}

/// Encryption and login that a mail server has.
#[derive(Clone, Default)]
pub struct Offer {
    /// Certificate and key, for STARTTLS.
    tls: Option<TlsAcceptor>,
    /// TLS from the first byte instead.
    is_implicit: bool,
    /// User and password without which no mail is taken.
    login: Option<(&'static str, &'static str)>,
    /// A recipient that it does not know.
    unknown: Option<&'static str>,
}

impl Offer {
    /// TLS by STARTTLS, with the certificate that `longshore cert` has made in this directory.
    #[must_use]
    pub fn tls(directory: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(directory.join("server.pem")).unwrap();
        let chain = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(directory.join("server-key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        Self { tls: Some(TlsAcceptor::from(Arc::new(config))), ..Self::default() }
    }

    /// TLS from the first byte.
    #[must_use]
    pub fn implicit(self) -> Self {
        Self { is_implicit: true, ..self }
    }

    /// Refuses this recipient for good.
    #[must_use]
    pub fn without_mailbox(self, address: &'static str) -> Self {
        Self { unknown: Some(address), ..self }
    }

    /// Takes no mail without this user and password.
    #[must_use]
    pub fn login(self, user: &'static str, password: &'static str) -> Self {
        Self { login: Some((user, password)), ..self }
    }
}

/// A mail server on a port of its own. It ends with its test.
#[derive(Clone)]
pub struct MailServer {
    /// Its port on 127.0.0.1.
    pub port: u16,
    state: Arc<State>,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer").field("is_implicit", &self.is_implicit).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for MailServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MailServer").field("port", &self.port).finish_non_exhaustive()
    }
}

struct State {
    offer: Offer,
    mails: Mutex<Vec<Mail>>,
    refusals: Mutex<VecDeque<Refusal>>,
    released: Semaphore,
}

impl MailServer {
    /// Refuses as many mails as the script has entries, and takes the others.
    pub async fn start(offer: Offer, refusals: &[Refusal]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mails, refusals) = (Mutex::default(), Mutex::new(refusals.iter().cloned().collect()));
        let state = Arc::new(State { offer, mails, refusals, released: Semaphore::new(0) });
        let server = Self { port, state };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().serve(stream));
            }
        });
        server
    }

    /// Everything taken so far.
    #[must_use]
    pub fn mails(&self) -> Vec<Mail> {
        self.state.mails.lock().unwrap().clone()
    }

    /// Waits until this number of mails was taken, and returns them.
    pub async fn wait_for(&self, count: usize) -> Vec<Mail> {
        wait_for(&format!("{count} mails"), async || {
            let mails = self.mails();
            (mails.len() >= count).then_some(mails)
        })
        .await
    }

    /// Ends a conversation that hangs.
    pub fn release(&self) {
        self.state.released.add_permits(1);
    }

    async fn serve(self, stream: TcpStream) -> Option<()> {
        let refusal = self.state.refusals.lock().unwrap().pop_front();
        if matches!(refusal, Some(Refusal::Hang)) {
            self.state.released.acquire().await.ok()?.forget();
            return None;
        }
        let mut conversation = Conversation::new(Box::new(stream), self.state.clone(), refusal);
        if self.state.offer.is_implicit {
            conversation = conversation.encrypt().await?;
        }
        conversation.say("220 mail.test ESMTP").await?;
        while let Some(line) = conversation.line().await {
            conversation = conversation.answer(&line).await?;
        }
        None
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

struct Conversation {
    stream: BufReader<Box<dyn Stream>>,
    state: Arc<State>,
    refusal: Option<Refusal>,
    mail: Mail,
}

impl Conversation {
    fn new(stream: Box<dyn Stream>, state: Arc<State>, refusal: Option<Refusal>) -> Self {
        let (from, to, text) = (String::new(), String::new(), String::new());
        let mail = Mail { from, to, text, user: None, encrypted: false };
        Self { stream: BufReader::new(stream), state, refusal, mail }
    }

    async fn encrypt(self) -> Option<Self> {
        let acceptor = self.state.offer.tls.clone()?;
        let stream = acceptor.accept(self.stream.into_inner()).await.ok()?;
        let mail = Mail { encrypted: true, ..self.mail };
        Some(Self { stream: BufReader::new(Box::new(stream)), mail, ..self })
    }

    async fn say(&mut self, line: &str) -> Option<()> {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).await.ok()
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.stream.read_line(&mut line).await.ok()?;
        (count > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The line of the script for this word, once.
    fn refuse(&mut self, word: &str) -> Option<&'static str> {
        let Some(Refusal::Answer(at, line)) = self.refusal else { return None };
        (at == word).then(|| {
            self.refusal = None;
            line
        })
    }

    async fn answer(mut self, line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(refusal) = self.refuse(word) {
            self.say(refusal).await?;
            return Some(self);
        }
        let has_tls = self.state.offer.tls.is_some() && !self.mail.encrypted;
        let login = self.state.offer.login;
        match word {
            "EHLO" => {
                let start_tls = if has_tls { "250-STARTTLS\r\n" } else { "" };
                let auth = if login.is_some() { "250-AUTH PLAIN\r\n" } else { "" };
                self.say(&format!("250-mail.test\r\n{start_tls}{auth}250 8BITMIME")).await?;
            }
            "STARTTLS" if has_tls => {
                self.say("220 go on").await?;
                self = self.encrypt().await?;
            }
            "AUTH" => {
                let given = rest.strip_prefix("PLAIN ").and_then(|it| BASE64.decode(it.as_bytes()).ok());
                let (user, password) = login?;
                if given == Some(format!("\0{user}\0{password}").into_bytes()) {
                    self.mail.user = Some(user.to_owned());
                    self.say("235 welcome").await?;
                } else {
                    // A bad server repeats what it was told.
                    self.say(&format!("535 5.7.8 no such user: {rest}")).await?;
                }
            }
            "MAIL" if login.is_some() && self.mail.user.is_none() => self.say("530 log in first").await?,
            "MAIL" => {
                self.mail.from = rest.to_owned();
                self.say("250 ok").await?;
            }
            "RCPT" if self.state.offer.unknown.is_some_and(|unknown| rest == format!("TO:<{unknown}>")) => {
                self.say("550 5.1.1 this mailbox does not exist").await?;
            }
            "RCPT" => {
                self.mail.to = rest.to_owned();
                self.say("250 ok").await?;
            }
            "DATA" => {
                self.say("354 go on").await?;
                self.take().await?;
            }
            "QUIT" => {
                self.say("221 bye").await?;
                return None;
            }
            _ => self.say("502 what?").await?,
        }
        Some(self)
    }

    async fn take(&mut self) -> Option<()> {
        let mut text = String::new();
        loop {
            let line = self.line().await?;
            if line == "." {
                break;
            }
            text.push_str(line.strip_prefix('.').unwrap_or(&line));
            text.push('\n');
        }
        if let Some(refusal) = self.refuse(".") {
            return self.say(refusal).await;
        }
        self.mail.text = text;
        self.state.mails.lock().unwrap().push(self.mail.clone());
        self.say("250 taken").await
    }
}
