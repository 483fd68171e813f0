// Streams of events that go on by themselves. An EventSource connects again after a broken connection, but gives up for good once the answer is
// no stream of events, such as the 502 of a proxy while the server restarts. Here it is opened again, unless the answer is final.
const WAIT_MIN = 1000, WAIT_MAX = 30_000; // Milliseconds between two attempts: the wait doubles.

// Opens a stream at address(), and calls listen(source) each time it is opened. refused(answer) is told of answers that are no stream.
export function follow(address, listen, refused) {
  let source = null, timer = 0, wait = WAIT_MIN, isClosed = false;
  function open() {
    source = new EventSource(address());
    source.addEventListener("open", () => { wait = WAIT_MIN; });
    // An event `error` of the server has data, and closes nothing by itself.
    source.addEventListener("error", (event) => {
      if (!event.data && source.readyState === EventSource.CLOSED) retry();
    });
    listen(source);
  }
  async function retry() {
    const answer = await ask(address());
    if (isClosed) return;
    refused(answer);
    if (answer.isFinal) return;
    // A random part spreads the pages that lost the same server.
    timer = setTimeout(open, wait * (0.5 + Math.random() / 2));
    wait = Math.min(2 * wait, WAIT_MAX);
  }
  open();
  return {
    close() {
      isClosed = true;
      clearTimeout(timer);
      source.close();
    },
  };
}

// A stream that was refused does not say why; the same request does. Status 0 means no answer.
async function ask(address) {
  const asked = new AbortController();
  try {
    const answer = await fetch(address, { headers: { accept: "text/event-stream" }, signal: asked.signal });
    const isProblem = answer.headers.get("content-type")?.startsWith("application/problem+json");
    const problem = isProblem ? await answer.json() : null;
    asked.abort();
    return { status: answer.status, problem, isFinal: isFinal(answer.status, problem) };
  } catch {
    return { status: 0, problem: null, isFinal: false };
  }
}
// Without a problem document a 404 may be that of a proxy that does not find the server for a while.
function isFinal(status, problem) {
  if ([401, 403, 410].includes(status)) return true;
  return problem !== null && status >= 400 && status < 500 && ![408, 429].includes(status);
}
