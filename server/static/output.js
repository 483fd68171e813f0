// The log viewer: all lines of a job, live. Only the lines that can be seen are in the page, so a million lines cost no more than fifty.
import { lastState, plain, styleAfter, visible, write } from "./ansi.js";
import { follow } from "./stream.js";

const view = document.getElementById("output");
const tools = document.getElementById("output-tools");
const HEIGHT = 18; // Pixels of a line; app.css has the same number.
const SPACE_MAX = 12_000_000; // Pixels: browsers draw no taller element. With more rows a pixel of the scroll bar stands for several.
const LINES_MAX = 2_000_000, CHARS_MAX = 250_000_000, LINE_MAX = 1_000_000; // Lines and characters that are kept, and characters of a line.
const PIECES_MAX = 5_000; // Coloured pieces that are in the page at once; lines beyond have no colours.

// {text, kind, style, at}: kind is stdout, stderr or note; style is that of the line's begin, if it is not the normal one; at is when the server
// received its first byte, if that is known.
const lines = [];
let unfinished = { stdout: null, stderr: null }, styles = {}, chars = 0, isFull = false;
let wrap = false, times = false, atEnd = true, found = [], foundAt = -1, needle = "", marked = Number(location.hash.slice(2)) || 0;
// A link from a search names a line by its stream and its position there in bytes: #stderr@81.
let sought = /^#(stdout|stderr)@(\d+)$/.exec(location.hash);
// A link to a line (#L120) leads there once the line has come, or at the end of a shorter output.
let awaited = sought ? 0 : marked;
let pinned = -1; // The line that stays in view until the reader moves.
let offsets = [0]; // Rows before each line; with wrapping a line has several.

function button(text, act) {
  const made = document.createElement("button");
  made.textContent = text;
  made.type = "button";
  made.addEventListener("click", () => act(made));
  tools.append(made);
  return made;
}

// Rows of a line, from the width that its text has: the font is monospaced.
let columns = 80;
function measure() {
  const line = document.createElement("div"), text = document.createElement("span"), probe = document.createElement("span");
  line.className = "line";
  probe.textContent = "0".repeat(100);
  probe.style.position = "absolute";
  probe.style.whiteSpace = "pre";
  text.append(probe);
  line.append(document.createElement("a"), ...(times ? [document.createElement("time")] : []), text);
  view.append(line);
  const width = probe.getBoundingClientRect().width / 100 || 8;
  columns = Math.max(1, Math.floor(text.getBoundingClientRect().width / width));
  line.remove();
}
function rowsOf(line) {
  return wrap ? Math.max(1, Math.ceil(plain(line.text).length / columns)) : 1;
}
function layout(from = 0) {
  offsets.length = from + 1;
  for (let index = from; index < lines.length; index++) offsets.push(offsets[index] + rowsOf(lines[index]));
}

// The local time of a line; the date, the zone and the instant are shown on hover. A text that is copied has none of it.
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const full = new Intl.DateTimeFormat("en-GB", {
  weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  fractionalSecondDigits: 3, timeZoneName: "longOffset",
});
const zone = full.resolvedOptions().timeZone;
function timeOf(line) {
  const shown = document.createElement("time"), at = Date.parse(line.at);
  if (Number.isNaN(at)) return shown;
  shown.textContent = clock.format(at);
  shown.title = `${line.at}\n${full.format(at)} (${zone})`;
  return shown;
}

// Drawing: a tall empty block gives the scroll bar, a sheet has the lines that can be seen.
const space = document.createElement("div"), sheet = document.createElement("div"), page = {};
space.className = "space";
sheet.className = "sheet";
function lineAt(row) {
  let low = 0, high = lines.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= row) low = middle; else high = middle - 1;
  }
  return low;
}
// The colours of the page, as numbers.
function readColours() {
  const style = getComputedStyle(view), parts = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);
  page.text = parts(style.color);
  page.ground = parts(style.backgroundColor);
}
// Where the view begins, in pixels of all rows.
let scale = 1;
const top = () => view.scrollTop * scale;
const scrollTo = (at) => { view.scrollTop = Math.max(0, at) / scale; };
function stretch() {
  const total = offsets[lines.length] * HEIGHT, before = top(), shown = view.clientHeight;
  const now = total > SPACE_MAX ? (total - shown) / (SPACE_MAX - shown) : 1;
  space.style.height = Math.min(total, SPACE_MAX) + "px";
  if (now === scale) return;
  scale = now;
  scrollTo(before);
}
let drawing = false;
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    stretch();
    if (pinned >= 0) scrollTo(offsets[pinned] * HEIGHT - view.clientHeight / 3);
    else if (atEnd) view.scrollTop = view.scrollHeight;
    const first = Math.max(0, lineAt(Math.floor(top() / HEIGHT)) - 10);
    const last = Math.min(lines.length, lineAt(Math.ceil((top() + view.clientHeight) / HEIGHT)) + 11);
    sheet.style.top = view.scrollTop + offsets[first] * HEIGHT - top() + "px";
    const nodes = [];
    let left = PIECES_MAX;
    for (let index = first; index < last; index++) {
      const line = document.createElement("div"), number = document.createElement("a"), text = document.createElement("span");
      line.className = "line " + lines[index].kind;
      if (index === found[foundAt]) line.classList.add("found");
      if (index + 1 === marked) line.classList.add("marked");
      number.href = "#L" + (index + 1);
      number.textContent = index + 1;
      if (left > 0) left -= write(lines[index].text, lines[index].style, page, text);
      else text.textContent = plain(lines[index].text);
      if (times) line.append(number, timeOf(lines[index]), text); else line.append(number, text);
      nodes.push(line);
    }
    sheet.replaceChildren(...nodes);
    ends.disabled = atEnd;
  });
}
function show(index) {
  atEnd = false;
  pinned = -1;
  stretch();
  scrollTo(offsets[index] * HEIGHT - view.clientHeight / 3);
  draw();
}
function pin(index) {
  sought = null;
  marked = index + 1;
  pinned = index;
  atEnd = false;
}
for (const moved of ["wheel", "pointerdown", "touchstart", "keydown"]) view.addEventListener(moved, () => { pinned = -1; awaited = 0; }, { passive: true });

// Lines as they arrive. A line that is not finished grows.
function push(text, kind, at) {
  lines.push({ text: "", kind, style: styles[kind], at });
  append(lines[lines.length - 1], text);
  offsets.push(offsets[lines.length - 1] + rowsOf(lines[lines.length - 1]));
}
function append(line, text) {
  const before = line.text.length;
  if (before < LINE_MAX || text.includes("\r")) line.text += text;
  if (line.text.includes("\r")) Object.assign(line, lastState(line.text, line.style));
  if (line.text.length > LINE_MAX) line.text = line.text.slice(0, LINE_MAX);
  chars += line.text.length - before;
}
function output(stream, text, offset, at) {
  if (lines.length >= LINES_MAX || chars >= CHARS_MAX) return fill();
  const parts = text.split("\n");
  let from = lines.length;
  const wanted = partSought(stream, text, offset);
  parts.forEach((part, index) => {
    const open = unfinished[stream];
    if (open !== null && index === 0) {
      append(lines[open], part);
      from = Math.min(from, open);
    } else if (part || index < parts.length - 1) {
      push(part, stream, at);
      if (index === parts.length - 1) unfinished[stream] = lines.length - 1;
    }
    if (index === wanted) pin(open !== null && index === 0 ? open : Math.max(0, lines.length - 1));
    if (index === parts.length - 1) return;
    const ended = open !== null && index === 0 ? lines[open] : lines[lines.length - 1];
    styles[stream] = styleAfter(ended.text, ended.style);
    unfinished[stream] = null;
  });
  layout(from);
  reachAwaited();
  draw();
}
function reachAwaited() {
  if (!awaited || lines.length < awaited) return;
  pin(awaited - 1);
  awaited = 0;
}
// The part of this output in which the sought line begins; -1 if it does not. Bytes are counted only for a link from a search.
function partSought(stream, text, offset) {
  if (!sought || sought[1] !== stream || Number(sought[2]) < offset) return -1;
  const bytes = new TextEncoder().encode(text), begin = Number(sought[2]) - offset;
  return begin < bytes.length ? bytes.subarray(0, begin).filter((byte) => byte === 10).length : -1;
}
const note = (text) => { push(text, "note"); reachAwaited(); draw(); };
let stream = null, isEnded = false;
function fill() {
  if (isFull) return;
  isFull = isEnded = true;
  stream.close();
  note(`this page keeps ${lines.length.toLocaleString("en")} lines; download the output to see the rest`);
  showMarked();
}
function showMarked() {
  if (awaited && lines.length) show(lines.length - 1);
  awaited = 0;
}

// The line above the output that says why it does not go on.
const status = document.getElementById("output-status");
const tell = (text) => { status.textContent = text; };
const LOST = "The connection to the server is lost. The output goes on here when the server is back.";
function tellRefusal(answer) {
  const { problem } = answer, why = problem?.detail || `the server answers ${answer.status}`;
  if (problem?.code === "output_removed") tell(`No output is shown: ${why}. Either the oldest output was deleted to make room (--keep-output-max), or it never arrived.`);
  else if (answer.isFinal) tell(`The output does not go on: ${why}. Reload the page to try again.`);
  else if (problem) tell(`The output does not go on yet: ${why}. This page tries again by itself.`);
  else if (!status.textContent) tell(LOST);
}

function start() {
  view.replaceChildren(space, sheet);
  measure();
  readColours();
  let attempt = null, withheld = null, ended = null, received = "";
  // A new stream goes on behind the last event of the one before.
  const address = () => view.dataset.logs + (received && "&after=" + encodeURIComponent(received));
  stream = follow(address, (source) => {
    const on = (name, act) => source.addEventListener(name, (event) => {
      received = event.lastEventId || received;
      act(JSON.parse(event.data || "null"));
    });
    on("attempt", (data) => {
      // A stream that goes on after a break begins with the same attempt.
      if (data.attempt === attempt) return;
      unfinished = { stdout: null, stderr: null };
      styles = {};
      if (attempt !== null) note(`attempt ${data.attempt} on ${data.worker}`);
      attempt = data.attempt;
    });
    on("output", (data) => output(data.stream, data.text, data.offset, data.received_at));
    const noteLine = (text) => note(text.replace(/^longshore: /, ""));
    on("gap", (data) => noteLine(data.text));
    // A stream that goes on after a break says both again.
    on("withheld", (data) => {
      if (withheld !== attempt) noteLine(data.text);
      withheld = attempt;
    });
    on("attempt_ended", (data) => {
      if (ended !== data.attempt) noteLine(data.text);
      ended = data.attempt;
    });
    on("late", (data) => note(`${data.late_bytes} bytes of output have not arrived yet`));
    on("leaving", () => tell("The server is shutting down, which does not affect the job. The output goes on here when the server is back."));
    on("end", (data) => {
      if (data.text) note(data.text);
      stream.close();
      isEnded = true;
      const state = document.getElementById("job-state");
      if (data.state && state) state.textContent = data.state;
      showMarked();
    });
    source.addEventListener("open", () => tell(""));
    // Both the event `error` of the server, which has data, and the loss of the connection.
    source.addEventListener("error", (event) => {
      if (event.data) {
        stream.close();
        tell(`The server could not read the rest of the output (${JSON.parse(event.data).code}). Reload the page to try again.`);
      } else if (!status.textContent && source.readyState === EventSource.CONNECTING) {
        tell(LOST);
      }
    });
  }, tellRefusal);
  // A page that is left gives its connection back; a browser that shows it again reads it anew.
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}

const ends = button("Jump to the end", () => { atEnd = true; pinned = -1; draw(); });
// A button that changes how lines are shown; the first line in view stays there.
function toggle(name, change) {
  const made = button(name, () => {
    const first = lineAt(Math.floor(top() / HEIGHT)), isOn = change();
    made.setAttribute("aria-pressed", isOn);
    view.classList.toggle(name.toLowerCase(), isOn);
    measure();
    layout();
    stretch();
    if (!atEnd) scrollTo(offsets[first] * HEIGHT);
    draw();
  });
  made.setAttribute("aria-pressed", false);
}
toggle("Wrap", () => (wrap = !wrap));
toggle("Times", () => (times = !times));
const field = document.createElement("input");
field.type = "search";
field.placeholder = "Find in output";
field.setAttribute("aria-label", "Find in output");
const count = document.createElement("span");
count.className = "muted";
count.setAttribute("role", "status");
tools.append(field, count);
function find(step) {
  const text = field.value.toLowerCase();
  if (text !== needle || !text) {
    needle = text;
    found = text ? lines.flatMap((line, index) => (visible(line.text).toLowerCase().includes(text) ? [index] : [])) : [];
    foundAt = step > 0 ? -1 : found.length;
  }
  if (found.length) foundAt = (foundAt + step + found.length) % found.length;
  count.textContent = text ? (found.length ? `${foundAt + 1} of ${found.length}` : "nothing found") : "";
  if (found.length) show(found[foundAt]); else draw();
}
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { find(event.shiftKey ? -1 : 1); event.preventDefault(); }
});
view.addEventListener("scroll", () => {
  atEnd = pinned < 0 && view.scrollTop + view.clientHeight >= view.scrollHeight - HEIGHT;
  draw();
});
window.addEventListener("hashchange", () => {
  marked = Number(location.hash.slice(2)) || 0;
  awaited = marked > lines.length && !isEnded ? marked : 0;
  if (marked && !awaited && lines.length) show(Math.min(marked, lines.length) - 1);
});
window.addEventListener("resize", () => { measure(); if (wrap) layout(); draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });
start();
