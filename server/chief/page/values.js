// Numbers and words of a report as people read them.
//
// Place: below all other files of the page; knows no document.
// Terms: a value may be missing, null or the text "NaN", as JSON of protos
//   writes it. Every function here takes such a value and gives a text.

const NARROW = "\u202f"; // a space that no line breaks at
export const NOTHING = "\u2013"; // a dash

// The finite number that a value is, or a substitute.
export function number(value, substitute = 0) {
  return typeof value === "number" && Number.isFinite(value)
    ? value
    : substitute;
}

// A list that a report holds; an empty one where it is none.
export function list(value) {
  return Array.isArray(value) ? value : [];
}

export function text(value) {
  return typeof value === "string" ? value : "";
}

// A formatter that is kept is ten times as fast as toLocaleString.
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

// An exact count with marks between thousands: 12,345.
export function count(value) {
  return WHOLE.format(number(value));
}

// A number with so many significant digits, a whole one as it is, and an
// exponent only where it is very large or small.
export function digits(value, significant = 3) {
  const x = number(value, NaN);
  if (Number.isNaN(x)) return NOTHING;
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size < 1e-4 || size >= 1e7) return x.toExponential(significant - 1);
  if (size >= 10 ** (significant - 1) || Number.isInteger(x)) return count(x);
  return x.toPrecision(significant);
}

// The loss of a job. One that is no number is the news of the night.
export function loss(value) {
  if (value === "NaN" || value === null) return "not a number";
  if (value === "Infinity" || value === "-Infinity") return "infinite";
  return digits(value, 4);
}

function scaled(value, steps, base) {
  const x = number(value);
  let at = 0;
  while (at + 1 < steps.length && Math.abs(x) >= base ** (at + 1)) ++at;
  const shown = x / base ** at;
  const whole = Math.abs(shown) >= 100 || at === 0 || shown === 0;
  return (whole ? count(shown) : shown.toPrecision(3)) + NARROW + steps[at];
}

export function bytes(value) {
  return scaled(value, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024);
}

export function bytesPerSecond(value) {
  return bytes(value) + "/s";
}

// A rate without its unit: 3.21, 480, 12.3k, 4.56M.
export function rate(value) {
  const x = number(value);
  if (Math.abs(x) < 10000) return digits(x);
  return scaled(x, ["", "k", "M", "G"], 1000).replace(NARROW, "");
}

// A share of a whole, 0 to 1.
export function percent(value) {
  const x = 100 * number(value);
  if (x === 0) return "0" + NARROW + "%";
  if (x < 0.1) return "<" + NARROW + "0.1" + NARROW + "%";
  return x.toFixed(x < 9.95 ? 1 : 0) + NARROW + "%";
}

// A share where there is room for two digits only.
export function shortPercent(value) {
  return Math.round(100 * number(value)) + NARROW + "%";
}

const SMALL = [
  [1e-6, 1e9, "ns"],
  [1e-3, 1e6, "\u00b5s"],
  [1, 1e3, "ms"],
];

// How long something takes: 412 µs, 31.2 ms, 4.1 s, 3 min 20 s, 5 h 12 min.
export function seconds(value) {
  const x = number(value);
  if (x <= 0) return "0";
  for (const [below, scale, unit] of SMALL) {
    if (x < below) return digits(x * scale) + NARROW + unit;
  }
  return x < 100 ? digits(x) + NARROW + "s" : longTime(x);
}

// An age or the time that is left, in whole seconds, minutes, hours or days.
export function longTime(value) {
  const x = Math.max(0, Math.round(number(value)));
  const two = (a, unit, b, smaller) =>
    a + NARROW + unit + (b > 0 ? " " + b + NARROW + smaller : "");
  if (x < 100) return x + NARROW + "s";
  if (x < 3600) return two(Math.floor(x / 60), "min", x % 60, "s");
  const minutes = Math.floor(x / 60);
  if (minutes < 1440) {
    return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  }
  const hours = Math.floor(minutes / 60);
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

// A time of day, of the reader's zone; with the day where it is another one.
export function clock(unixSeconds, now = new Date()) {
  const x = number(unixSeconds);
  if (x <= 0) return NOTHING;
  const when = new Date(1000 * x);
  const two = (n) => String(n).padStart(2, "0");
  const time =
    `${two(when.getHours())}:${two(when.getMinutes())}:` +
    two(when.getSeconds());
  if (when.toDateString() === now.toDateString()) return time;
  const day = `${two(when.getMonth() + 1)}-${two(when.getDate())}`;
  return `${when.getFullYear()}-${day} ${time}`;
}

// "1 worker", "3 workers".
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

// The middle of some numbers; 0 of none.
export function median(values) {
  if (values.length === 0) return 0;
  const sorted = Float64Array.from(values).sort();
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? sorted[half]
    : (sorted[half - 1] + sorted[half]) / 2;
}
