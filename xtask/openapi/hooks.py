"""How values are made and sent that schemathesis does not know."""

import schemathesis
from hypothesis import strategies

# Lines of JSON are sent as the text that they are.
schemathesis.serializer.alias("application/x-ndjson", "text/plain")

DURATIONS = strategies.sampled_from(["250ms", "90s", "1h30m", "2 days", "0s", "36500d"])
schemathesis.openapi.format("longshore-duration", DURATIONS)
schemathesis.openapi.format("longshore-timeout", DURATIONS | strategies.just("none"))
