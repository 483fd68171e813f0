//! `GET /api/whoami`: the sender of the request.

use axum::Json;

use crate::auth::actor::Actor;
use crate::clock;
use crate::http::present::caller::caller;
use crate::http::present::shapes;

pub(crate) async fn show() -> Json<shapes::Caller> {
    Json(caller(&Actor::current(), clock::now().utc))
}
