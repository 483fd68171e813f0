// Text as a terminal would show it: colours, bold, italic, underlined and inverse text, and of a line that carriage returns overwrite its last
// state. Every other sequence and control character is dropped. The text is hostile: it never becomes HTML, and no colour can hide it.
// A sequence is bounded, because without its end it would be looked for again and again.
const ESCAPE = /\u001b(?:\[[0-9;:?<=>]{0,400}[ -/]{0,20}[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_a-z0-9=>()#%])/g;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const SPECIAL = new RegExp(CONTROL.source);
const COLOURS = /^\u001b\[[0-9;:]*m$/;

// Characters, pieces and escape sequences of one line that the page shows: a line can be as long as the output.
const CHARS_MAX = 10_000, PIECES_MAX = 1_000, SEQUENCES_MAX = 5_000;

export const visible = (text) => (SPECIAL.test(text) ? text.replace(ESCAPE, "").replace(CONTROL, "") : text);

// A colour is a number up to 15, or its red, green and blue; null is that of the page.
const NORMAL = { fore: null, back: null, bold: false, italic: false, underline: false, inverse: false };

const byte = (text) => Math.min(255, Number(text) || 0);
function indexed(text) {
  const index = byte(text);
  if (index < 16) return index;
  if (index >= 232) return Array(3).fill(8 + (index - 232) * 10);
  const level = (step) => (step ? 55 + step * 40 : 0);
  return [Math.floor((index - 16) / 36), Math.floor((index - 16) / 6) % 6, (index - 16) % 6].map(level);
}
// The colour that follows 38 or 48, and how many numbers it has: 5 and an index, or 2 and three parts. Without one, the rest means nothing.
function extended(numbers) {
  if (numbers[0] === "5" && numbers.length > 1) return [indexed(numbers[1]), 2];
  if (numbers[0] === "2" && numbers.length > 3) return [numbers.slice(1, 4).map(byte), 4];
  return [null, numbers.length];
}
function applied(style, sequence) {
  let next = { ...style };
  const codes = sequence.slice(2, -1).split(";");
  for (let at = 0; at < codes.length; at++) {
    const [first, ...rest] = codes[at].split(":"), code = Number(first);
    if (code === 38 || code === 48 || code === 58) {
      // With colons a name of the colour space may stand before red, green and blue.
      if (rest[0] === "2" && rest.length > 4) rest.splice(1, 1);
      const [colour, used] = extended(rest.length ? rest : codes.slice(at + 1));
      if (!rest.length) at += used;
      if (colour !== null && code !== 58) next[code === 38 ? "fore" : "back"] = colour;
    } else if (code === 0) next = { ...NORMAL };
    else if (code === 1 || code === 22) next.bold = code === 1;
    else if (code === 3 || code === 23) next.italic = code === 3;
    else if (code === 4 || code === 24) next.underline = code === 4 && rest[0] !== "0";
    else if (code === 7 || code === 27) next.inverse = code === 7;
    else if (code === 39) next.fore = null;
    else if (code === 49) next.back = null;
    else if (code >= 30 && code <= 37) next.fore = code - 30;
    else if (code >= 90 && code <= 97) next.fore = code - 90 + 8;
    else if (code >= 40 && code <= 47) next.back = code - 40;
    else if (code >= 100 && code <= 107) next.back = code - 100 + 8;
  }
  return next;
}
const isNormal = (style) => Object.keys(NORMAL).every((key) => style[key] === NORMAL[key]);

// The style behind a text that begins with this style. No style is the normal one.
export function styleAfter(text, style) {
  if (!text.includes("\u001b")) return style;
  let state = style ?? NORMAL;
  for (const [sequence] of text.matchAll(ESCAPE)) if (COLOURS.test(sequence)) state = applied(state, sequence);
  return isNormal(state) ? undefined : state;
}

// A line that carriage returns overwrite becomes its last state. One at the end may be half of a line's end, and overwrites nothing yet.
export function lastState(text, style) {
  let end = text.length;
  while (end > 0 && text[end - 1] === "\r") end--;
  const at = end > 0 ? text.lastIndexOf("\r", end - 1) : -1;
  if (at < 0) return { text, style };
  return { text: text.slice(at + 1, end + 1), style: styleAfter(text.slice(0, at), style) };
}

const SIXTEEN = ["000000", "cd3131", "0dbc79", "e5e510", "2472c8", "bc3fbc", "11a8cd", "e5e5e5", "666666", "f14c4c", "23d18b", "f5f543", "3b8eea", "d670d6", "29b8db", "ffffff"]
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const rgb = (colour, otherwise) => (colour === null ? otherwise : typeof colour === "number" ? SIXTEEN[colour] : colour);
const css = (colour) => `rgb(${colour.join(" ")})`;

// A colour that can be read on its ground, as WCAG asks for: mixed with black or white as far as that takes.
const readableColours = new Map();
const luminance = (colour) => colour
  .map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
  .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
function contrast(a, b) {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}
function readable(colour, ground) {
  const key = colour.join() + "/" + ground.join();
  let found = readableColours.get(key);
  if (!found) {
    const end = luminance(ground) > 0.179 ? 0 : 255;
    found = colour;
    for (let step = 1; step <= 10 && contrast(found, ground) < 5; step++) found = colour.map((part) => Math.round(part + ((end - part) * step) / 10));
    if (readableColours.size >= 4096) readableColours.clear();
    readableColours.set(key, found);
  }
  return found;
}

function piece(text, style, page) {
  const span = document.createElement("span"), names = [];
  for (const [key, name] of [["bold", "b1"], ["italic", "i1"], ["underline", "u1"]]) if (style[key]) names.push(name);
  const hasGround = style.back !== null || style.inverse;
  if (typeof style.fore === "number" && !hasGround) names.push("c" + (style.fore & 7));
  else if (style.fore !== null || hasGround) {
    let [fore, back] = [rgb(style.fore, page.text), rgb(style.back, page.ground)];
    if (style.inverse) [fore, back] = [back, fore];
    span.style.color = css(readable(fore, back));
    if (hasGround) span.style.backgroundColor = css(back);
  }
  if (names.length) span.className = names.join(" ");
  span.textContent = text;
  return span;
}

// Writes a line into an element, and returns how many pieces that took. `page` has the colours of the page: `text` and `ground`.
export function write(text, style, page, into) {
  let state = style ?? NORMAL, at = 0, left = CHARS_MAX, pieces = 0, sequences = 0;
  const put = (part) => {
    part = part.replace(CONTROL, "");
    if (part.length > left || (part && pieces >= PIECES_MAX) || sequences++ > SEQUENCES_MAX) {
      into.append(piece(part.slice(0, left).replace(/[\ud800-\udbff]$/, ""), state, page), cut());
      return false;
    }
    left -= part.length;
    if (part) pieces++;
    if (part) into.append(isNormal(state) ? part : piece(part, state, page));
    return true;
  };
  for (const match of text.matchAll(ESCAPE)) {
    if (!put(text.slice(at, match.index))) return pieces;
    at = match.index + match[0].length;
    if (COLOURS.test(match[0])) state = applied(state, match[0]);
  }
  put(text.slice(at));
  return pieces;
}
// The same without colours, in one piece.
export const plain = (text) => visible(text).slice(0, CHARS_MAX);
function cut() {
  const span = document.createElement("span");
  span.className = "cut";
  span.textContent = " … the line goes on; download the output to see all of it";
  return span;
}
