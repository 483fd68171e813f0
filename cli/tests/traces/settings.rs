//! The variables of OpenTelemetry.

use crate::collector::{Answer, Collector};
use crate::{Stage, start_server};

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn name_attributes_headers_and_path_follow_the_variables() {
    let collector = Collector::start(Answer::Ok).await;
    let endpoint = format!("http://127.0.0.1:{}/own/path", collector.port);
    let variables = [
        pair("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
        pair("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint),
        pair("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc,x-tenant=7"),
        pair("OTEL_SERVICE_NAME", "night-shift"),
        pair("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
        pair("OTEL_TRACES_SAMPLER", "xray"),
    ];
    let stage = Stage::start(&variables).await;
    let job = stage.run("shows", None).await;
    collector.wait_for_job(job).await;
    let resource = collector.resource();
    assert_eq!(resource["service.name"], "night-shift");
    assert_eq!(resource["deployment.environment"], "test");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
    let head = collector.head();
    for part in ["post /own/path ", "authorization: bearer abc", "x-tenant: 7", "application/x-protobuf"] {
        assert!(head.contains(part), "{part}: {head}");
    }
    let log = stage.server.log();
    let says = "OTEL_TRACES_SAMPLER is \"xray\", which a server does not have: parentbased_always_on is used";
    assert!(log.contains(says) && !log.contains("abc"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_is_called_longshore_by_default_and_nothing_is_sent_if_switched_off() {
    let collector = Collector::start(Answer::Ok).await;
    let mut stage = Stage::start(&[collector.endpoint(), pair("OTEL_SDK_DISABLED", "true")]).await;
    stage.run("shows", None).await;
    stage.server.terminate().await;
    assert_eq!(collector.posts(), 0);
    for off in [pair("OTEL_TRACES_SAMPLER", "always_off"), pair("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")] {
        stage.server = start_server(&stage.cluster, &[collector.endpoint(), off]).await;
        stage.api.wait_for_ready_worker("only").await;
        stage.run("shows", None).await;
        stage.server.terminate().await;
        assert_eq!(collector.posts(), 0);
    }
    let says = "OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\": a server speaks http/protobuf only";
    assert!(stage.server.log().contains(says), "{}", stage.server.log());
    stage.server = start_server(&stage.cluster, &[collector.endpoint()]).await;
    stage.api.wait_for_ready_worker("only").await;
    let job = stage.run("shows", None).await;
    collector.wait_for_job(job).await;
    assert_eq!(collector.resource()["service.name"], "longshore");
}
