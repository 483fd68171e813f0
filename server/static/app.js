// Keeps a page current, and adds keys and confirmations. Every page works without this file.
import { follow } from "./stream.js";

const base = document.body.dataset.base;
const main = document.getElementById("main");
const live = document.getElementById("live");

// Times: relative ones, or for those who ask for them the exact ones, in the zone of the browser.
function relative(at, now) {
  const seconds = Math.abs(now - at) / 1000;
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "now";
  const [name, size] = units[first];
  let text = Math.floor(seconds / size) + name;
  if (units[first + 1] && name !== "m") text += " " + Math.floor((seconds % size) / units[first + 1][1]) + units[first + 1][0];
  return at > now ? "in " + text : text + " ago";
}
const zoneName = new Intl.DateTimeFormat("en", { timeZoneName: "short" });
function exact(text) {
  const at = new Date(text);
  if (isNaN(at)) return text;
  const two = (number) => String(number).padStart(2, "0");
  const zone = zoneName.formatToParts(at).find((part) => part.type === "timeZoneName").value;
  const [day, time] = [[at.getMonth() + 1, at.getDate()], [at.getHours(), at.getMinutes(), at.getSeconds()]];
  return `${at.getFullYear()}-${day.map(two).join("-")} ${time.map(two).join(":")} ${zone}`;
}
const EXACT = "exact-times";
const timesButton = document.getElementById("times");
let showsExact = false;
try { showsExact = sessionStorage.getItem(EXACT) === "1"; } catch { /* The choice lasts for this page. */ }
function refreshTimes() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[datetime]")) {
    time.textContent = showsExact ? exact(time.dateTime) : relative(Date.parse(time.dateTime), now);
    time.toggleAttribute("data-exact", showsExact);
  }
  for (const instant of document.querySelectorAll("[data-instant]")) instant.textContent = exact(instant.dataset.instant);
}
function toggleTimes() {
  showsExact = !showsExact;
  try { sessionStorage.setItem(EXACT, showsExact ? "1" : "0"); } catch { /* As above. */ }
  timesButton.setAttribute("aria-pressed", showsExact);
  refreshTimes();
}
timesButton.addEventListener("click", toggleTimes);
timesButton.setAttribute("aria-pressed", showsExact);
timesButton.hidden = false;
setInterval(refreshTimes, 5000);

// Confirmations.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-confirm]");
  if (button && !confirm(button.dataset.confirm)) event.preventDefault();
});

// Keys.
const pages = { o: "/", j: "/jobs", b: "/batches", d: "/definitions", s: "/schedules", w: "/workers", n: "/notifications" };
let leading = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const rows = [...document.querySelectorAll("a.row")];
  const at = rows.indexOf(document.activeElement);
  if (leading && pages[event.key]) location.href = base + pages[event.key];
  else if (event.key === "/") document.getElementById("search")?.focus();
  else if (event.key === "?") document.getElementById("help").showModal();
  else if (event.key === "t") toggleTimes();
  else if (event.key === "j" && rows.length) rows[Math.min(at + 1, rows.length - 1)].focus();
  else if (event.key === "k" && rows.length) rows[Math.max(at - 1, 0)].focus();
  else { leading = event.key === "g"; return; }
  leading = false;
  event.preventDefault();
});

// Live updates: a summary of events means that this page may have changed, so it is read again, at most once a second and never while it
// is hidden, someone is typing into it or has typed, has selected text, or is in the middle of a click: a click needs its button to stay.
const LIVE = "live";
let wanted = false, running = false, isPressed = false, events = null;
function isChanged(field) {
  if (field.type === "hidden" || field.type === "submit") return false;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
  return field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
}
function isBusy() {
  const active = document.activeElement;
  if ([...document.querySelectorAll("main form :is(input, select, textarea)")].some(isChanged)) return true;
  const selected = getSelection();
  if (isPressed || (!selected.isCollapsed && selected.rangeCount && selected.getRangeAt(0).intersectsNode(main))) return true;
  return document.hidden || (active && active.closest("main form")) || document.querySelector("main details[open], dialog[open]");
}
// The foot of the page says that it is paused only as long as its connection is there.
let connection = "";
function showState(isPaused) {
  live.textContent = isPaused && connection === LIVE ? "paused while you use this page" : connection;
}
function setConnection(text) {
  connection = text;
  showState(false);
}
async function refresh() {
  if (running || !wanted) return;
  const isPaused = isBusy();
  if (events) showState(isPaused && !document.hidden);
  if (isPaused) return;
  running = true;
  wanted = false;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.ok && !answer.redirected) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      const focused = document.activeElement.closest("main a")?.getAttribute("href");
      if (isBusy()) wanted = true;
      else if (fresh) {
        main.replaceChildren(...fresh.childNodes);
        refreshTimes();
        if (focused) [...main.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
      }
    }
  } catch { /* The next event tries again. */ }
  setTimeout(() => { running = false; refresh(); }, 1000);
}
// A change that came meanwhile is shown afterwards: behind the click that the release of the pointer makes.
const press = (event) => { isPressed = event.button === 0; };
const release = () => { if (isPressed) setTimeout(() => { isPressed = false; refresh(); }); };
document.addEventListener("pointerdown", press, { capture: true, passive: true });
for (const released of ["pointerup", "pointercancel", "dragend"]) document.addEventListener(released, release, { capture: true, passive: true });
addEventListener("blur", release);
document.addEventListener("selectionchange", () => { if (wanted && getSelection().isCollapsed) refresh(); });
document.addEventListener("focusout", () => { if (wanted) setTimeout(refresh); });
// A search is not repeated by itself: it reads much.
const isLive = !document.getElementById("output") && !main.querySelector(".login, [data-still]");
const changed = () => { wanted = true; refresh(); };
// Only the page that is looked at is connected: browsers allow six connections to a server, and each page that stays open would hold one.
function connect() {
  if (!isLive || events || document.hidden) return;
  // The page of a job that has not ended is also told of samples of its resources.
  const sampled = main.querySelector("[data-usage]")?.dataset.usage;
  events = follow(() => base + "/api/events?summary=1" + (sampled ? "&usage=" + sampled : ""), (source) => {
    // What changed between the reading of the page and this connection is seen by one more reading.
    source.onopen = () => { setConnection(LIVE); changed(); };
    source.onerror = () => setConnection("not connected: this page may be old");
    source.addEventListener("summary", changed);
    source.addEventListener("usage", changed);
  }, (answer) => { if (answer.isFinal) setConnection("not connected: reload the page"); });
}
function disconnect() {
  events?.close();
  events = null;
}
document.addEventListener("visibilitychange", () => { if (document.hidden) disconnect(); else connect(); });
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
connect();
refreshTimes();
