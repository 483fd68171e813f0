//! The bodies of the larger targets. Tests of the workspace compile these files too, so that they neither rot nor wait for a nightly compiler.

mod acts;
pub mod http_requests;
pub mod strange_server;
pub mod strange_worker;

use {::scheduler, ::server, ::worker};
