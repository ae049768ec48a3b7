//! Accept loop: HTTP/1.1 and HTTP/2, with or without TLS, within limits, until shutdown.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebbtide::SystemRng;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::app::App;
use crate::http::connection::Connection;
pub(crate) use crate::http::connection::ConnectionSlot;
use crate::http::cores::{Cores, Handles};
use crate::http::edge::{Edge, Front};
use crate::http::problem::Problem;
use crate::http::request_id::{HEADER, RequestId};
use crate::{front, operator_front, public_front};

/// Maximum size of a request's head.
const MOST_HEAD_BYTES: usize = 64 * 1_024;

/// Time for connections to end after the requests in flight are answered.
const STUCK_PATIENCE: Duration = Duration::from_secs(2);

/// Serves on `listener` until `stop` resolves, then drains in-flight requests within the shutdown timeout.
pub async fn serve(listener: TcpListener, app: App, stop: impl Future<Output = ()> + Send) -> io::Result<()> {
    Serving { listener, operator: None, tls: None, cores: None }.run(app, stop).await
}

/// Serves TLS only; otherwise like [`serve`].
pub async fn serve_tls(
    listener: TcpListener,
    app: App,
    tls: Arc<ServerConfig>,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (_files, tls) = watch::channel(tls);
    Serving { listener, operator: None, tls: Some(tls), cores: None }.run(app, stop).await
}

/// Listeners of a server.
#[derive(Debug)]
pub struct Serving {
    /// Listener of the API.
    pub listener: TcpListener,
    /// Plain listener for operators. With it, metrics, the description and its page are served there alone.
    pub operator: Option<TcpListener>,
    /// Configuration of TLS; a new one applies to new connections.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// Threads that serve the connections of the API; without them, the current runtime does.
    pub cores: Option<Arc<Cores>>,
}

impl Serving {
    /// Serves until `stop` resolves. From then on the server is not ready; after the drain delay it accepts no more
    /// connections, and drains the requests in flight.
    pub async fn run(self, app: App, stop: impl Future<Output = ()> + Send) -> io::Result<()> {
        let edge = Arc::clone(&app.edge);
        let (stopping, stopped) = watch::channel(());
        let here = Handles::current();
        let api = Server {
            cores: self.cores.as_ref().map_or_else(|| Arc::clone(&here), |cores| cores.handles()),
            edge: Arc::clone(&edge),
            front: if self.operator.is_some() { public_front(app.clone()) } else { front(app.clone()) },
            builder: builder(&edge),
            tls: self.tls,
            stopped: stopped.clone(),
        };
        let operator = self.operator.map(|listener| {
            let own = Arc::new(Edge::new(edge.limits));
            let server = Server {
                // Operators are answered while the threads of the API are busy.
                cores: here,
                builder: builder(&own),
                // Connections of operators have a bound of their own.
                edge: own,
                front: operator_front(app),
                tls: None,
                stopped,
            };
            (listener, server)
        });
        let mut stop = pin!(async {
            stop.await;
            edge.draining.store(true, Ordering::Relaxed);
            edge.drain_delay().await;
        });
        let operators = async {
            match &operator {
                Some((listener, server)) => accept(listener, server).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut stop => {}
            () = accept(&self.listener, &api) => {}
            () = operators => {}
        }
        // The system refuses new connections from here on, so that clients try another node.
        drop((self.listener, api, operator));
        let _ = stopping.send(());
        if timeout(edge.limits.shutdown_timeout, stopping.closed()).await.is_err() {
            let connections = edge.connections.load(Ordering::Relaxed);
            tracing::warn!(
                connections,
                "shutdown timeout reached; closing connections with requests in flight"
            );
        }
        Ok(())
    }
}

async fn accept(listener: &TcpListener, server: &Server) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => server.take_on(stream),
            Err(error) => rest(&error).await,
        }
    }
}

fn builder(edge: &Edge) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // A connection whose head does not arrive is looked at as an idle one: no timer for each request.
    builder.http1().header_read_timeout(None).max_buf_size(MOST_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        // A connection may have this much in memory that no route has read.
        .initial_stream_window_size(64 * 1_024)
        .initial_connection_window_size(256 * 1_024)
        .max_send_buf_size(64 * 1_024)
        .max_header_list_size(16 * 1_024)
        // Detects peers that are gone, and frees their connections.
        .keep_alive_interval(edge.limits.header_timeout)
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Ignores a connection that was closed before it was accepted; waits if the process is out of file descriptors.
pub(crate) async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "cannot accept a connection");
        sleep(Duration::from_millis(100)).await;
    }
}

struct Server {
    cores: Arc<Handles>,
    edge: Arc<Edge>,
    front: Front,
    builder: Builder<TokioExecutor>,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    stopped: watch::Receiver<()>,
}

impl Server {
    fn take_on(&self, stream: TcpStream) {
        let Some(place) = ConnectionSlot::take(&self.edge) else {
            metrics::counter!("ebbtide_connections_refused_total").increment(1);
            // A TLS client could not read a plain answer; close its connection.
            if self.tls.is_none() {
                tokio::spawn(turn_away(stream));
            }
            return;
        };
        // Send small answers at once.
        let _ = stream.set_nodelay(true);
        let connection = Connection {
            place,
            front: self.front.clone(),
            builder: self.builder.clone(),
            stopped: self.stopped.clone(),
            stuck_patience: STUCK_PATIENCE,
        };
        match self.tls.as_ref().map(|tls| TlsAcceptor::from(Arc::clone(&tls.borrow()))) {
            None => self.cores.serve(stream, |stream| connection.run(stream)),
            Some(tls) => self.cores.serve(stream, |stream| async move {
                let patience = connection.place.limits().header_timeout;
                let accepted = timeout(patience, tls.accept(stream));
                match connection.place.unless_evicted(accepted).await {
                    Some(Ok(Ok(stream))) => connection.run(stream).await,
                    Some(Ok(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
                    Some(Err(_)) => tracing::debug!("TLS handshake timed out"),
                    None => {}
                }
            }),
        }
    }
}

async fn turn_away(mut stream: TcpStream) {
    let id = RequestId::made(&SystemRng);
    let body = Problem::too_many_connections().text(id.as_str());
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
         {HEADER}: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        id.as_str(),
        body.len()
    );
    let answer = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    };
    // Best effort: the client may not read it.
    let _ = timeout(Duration::from_secs(1), answer).await;
}
