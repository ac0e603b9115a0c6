// Asks the chief for its report and curve, one request after another.
//
// Invariants
//   I1. There are never two requests at once: the chief serves one connection
//       at a time.
//   I2. After each failure the next try comes later, at most
//       RETRY_MS_MAX later, and the first answer ends that.
//   I3. A page that nobody sees asks nothing.

import { number } from "./values.js";

const POLL_MS = 1000;
const POLL_MS_MIN = 10;
const CURVE_MS = 5000;
const RETRY_MS_MAX = 5000;
const ANSWER_MS_MAX = 10000;
const WHY_MAX = 500; // letters of a refusal

// For tests: `?poll_ms=20` polls as often as that.
function pollMs(query) {
  const asked = Number(query.get("poll_ms"));
  return asked > 0 ? Math.max(POLL_MS_MIN, asked) : POLL_MS;
}

// An answer that is none of a report: refused, or not to be read.
class BadAnswer extends Error {}

// The cookie that the page's link has set goes along.
async function ask(path) {
  const answer = await fetch(path, {
    cache: "no-store",
    signal: AbortSignal.timeout(ANSWER_MS_MAX),
  });
  const body = await answer.text();
  if (!answer.ok) {
    // The chief's own refusals are plain text and say what to do; a proxy's
    // may be a page.
    const type = answer.headers.get("Content-Type") ?? "";
    const why = type.startsWith("text/plain") ? body.slice(0, WHY_MAX) : "";
    throw new BadAnswer(
      `The chief answers with status ${answer.status}. ${why}`.trim(),
    );
  }
  try {
    const value = JSON.parse(body);
    if (value !== null && typeof value === "object") return value;
  } catch {
    // Said below.
  }
  throw new BadAnswer(`The chief's answer to \u201c${path}\u201d is no JSON.`);
}

export class Feed {
  // handlers: onReport(report), onCurve(curve), and onAnswer() after each try.
  constructor(handlers) {
    this.handlers = handlers;
    this.pollMs = pollMs(new URLSearchParams(location.search));
    this.curveMs = (CURVE_MS / POLL_MS) * this.pollMs;
    this.paused = false;
    this.trouble = ""; // what is wrong; empty after a good answer
    this.isSilent = false; // no answer came at all
    this.failures = 0;
    this.answeredAt = performance.now();
    this.curveOf = null; // the step and phase of the newest curve
    this.curveAt = -Infinity;
    this.wake = () => {};
    document.addEventListener("visibilitychange", () => this.wake());
  }

  pause(paused) {
    this.paused = paused;
    this.wake();
  }

  // Since the newest good answer, or since the start.
  silentSeconds() {
    return (performance.now() - this.answeredAt) / 1000;
  }

  // I1: the only place that asks, in one loop that never ends.
  async run() {
    for (;;) {
      while (this.paused || document.hidden) await this.#sleep(Infinity);
      const begin = performance.now();
      await this.#poll();
      this.handlers.onAnswer();
      const took = performance.now() - begin;
      await this.#sleep(this.#pause(took));
    }
  }

  async #poll() {
    try {
      const report = await ask("report");
      this.answeredAt = performance.now();
      this.handlers.onReport(report);
      await this.#pollCurve(report);
      this.trouble = "";
      this.isSilent = false;
      this.failures = 0;
    } catch (error) {
      this.isSilent = !(error instanceof BadAnswer);
      this.trouble = this.isSilent ? "The chief is silent." : error.message;
      ++this.failures;
    }
  }

  // A curve is large: asked for when its job has moved, not at each poll.
  async #pollCurve(report) {
    const moved = `${report.step} ${report.phase}`;
    const now = performance.now();
    if (moved === this.curveOf || now - this.curveAt < this.curveMs) return;
    const curve = await ask("curve");
    this.curveOf = moved;
    this.curveAt = now;
    this.handlers.onCurve(curve);
  }

  // I2. A chief that is slow to answer has at least half of the time free.
  #pause(tookMs) {
    if (this.failures > 0) {
      const doubled = this.pollMs * 2 ** Math.min(10, this.failures - 1);
      return Math.min(RETRY_MS_MAX, doubled);
    }
    return Math.max(this.pollMs - tookMs, Math.min(tookMs, this.pollMs));
  }

  // Ends early when the page is paused or resumed, hidden or seen again.
  #sleep(milliseconds) {
    return new Promise((resolve) => {
      this.wake = resolve;
      if (milliseconds !== Infinity) setTimeout(resolve, number(milliseconds));
    });
  }
}
