// The page of a chief's admin port: asks for the report, shows what it says.
//
// Place: the entry. feed.js asks the chief; the parts of the page are
//   in workers.js, sections.js and charts.js.
// Invariants
//   I1. While text is selected, or while the reader pauses, nothing of the
//       view changes. Only the age of the data goes on.
//   I2. A screen reader hears a sentence when its cause changes, and at most
//       every SAY_AGAIN_MS otherwise, since its numbers change each second.

import { Charts } from "./charts.js";
import {
  find,
  setAttribute,
  setClass,
  setHidden,
  setState,
  setText,
  stateSymbol,
} from "./dom.js";
import { Feed } from "./feed.js";
import { ramp } from "./heat.js";
import { Sections } from "./sections.js";
import {
  clock,
  count,
  digits,
  list,
  longTime,
  loss,
  NOTHING,
  number,
  percent,
  rate,
  text,
} from "./values.js";
import { Workers } from "./workers.js";

const SAY_AGAIN_MS = 30000;
const PACE_SECONDS = 60; // of which the newest steps give the time left
const PACE_SECONDS_MIN = 5;

// What a kind of cause is called, and how grave it is.
const KINDS = {
  compute: ["Compute bound", "good"],
  processors: ["Too few processors", "watch"],
  slow_worker: ["A slow worker", "watch"],
  slow_link: ["A slow link", "watch"],
  slow_ps: ["A slow ps", "watch"],
  slow_data: ["Slow data", "watch"],
  small_model: ["A small model", "watch"],
  checkpoints: ["Checkpoints", "watch"],
  memory: ["Memory pressure", "bad"],
  gpu_input: ["The GPU waits for input", "watch"],
  unknown: ["Too early to say", "neutral"],
};
const PHASES = {
  waiting: ["The job waits", "watch"],
  finishing: ["The job finishes", "good"],
  done: ["The job is done", "good"],
  failed: ["The job failed", "bad"],
};
const SYMBOLS = {
  good: "\u2713",
  watch: "\u25b2",
  bad: "\u2715",
  neutral: "?",
};

// How fast steps go, from the reports of the last minute.
class Pace {
  constructor() {
    this.seen = [];
  }

  add(report) {
    const at = number(report.unix_seconds);
    const step = number(report.step);
    const newest = this.seen.at(-1);
    if (newest !== undefined && (step < newest.step || at < newest.at)) {
      this.seen = []; // the job went back to a checkpoint
    }
    this.seen.push({ at, step });
    while (this.seen[0].at < at - PACE_SECONDS) this.seen.shift();
  }

  // Steps a second; 0 where that is not known.
  stepsPerSecond(report) {
    const [first, newest] = [this.seen[0], this.seen.at(-1)];
    const span = newest.at - first.at;
    if (span >= PACE_SECONDS_MIN) return (newest.step - first.step) / span;
    const seconds = number(report.train_seconds);
    return seconds > 0 ? newest.step / seconds : 0;
  }
}

class Page {
  constructor() {
    this.charts = new Charts();
    this.workers = new Workers();
    this.sections = new Sections();
    this.pace = new Pace();
    this.report = null; // the newest
    this.shown = null; // what the view shows; another one while it is held
    this.held = false;
    this.said = { what: "", at: 0 };
    this.feed = new Feed({
      onReport: (report) => this.#take(report),
      onCurve: (curve) => this.charts.show(curve),
      onAnswer: () => this.#showAge(),
    });
    this.#connect();
  }

  #connect() {
    find("pause").addEventListener("click", () => {
      this.feed.pause(!this.feed.paused);
      setAttribute(find("pause"), "aria-pressed", String(this.feed.paused));
      this.#showAge();
    });
    find("cause-task").addEventListener("click", () => this.#goToTask());
    new Theme(() => {
      ramp.read();
      this.charts.recolor();
      this.workers.draw();
    });
    document.addEventListener("selectionchange", () => this.#show());
    setInterval(() => this.#showAge(), 1000);
  }

  start() {
    this.feed.run();
  }

  #take(report) {
    this.report = report;
    this.pace.add(report);
    this.#show();
  }

  // I1. To ask is as dear as a layout, so the answer is kept.
  #isHeld() {
    const selection = document.getSelection();
    this.held = selection !== null && !selection.isCollapsed;
    return this.held;
  }

  #show() {
    const report = this.report;
    if (report === null || report === this.shown || this.#isHeld()) return;
    this.shown = report;
    this.#showTop(report);
    this.#showCause(report);
    this.workers.show(report);
    this.sections.show(report);
    this.#showAge();
    if (performance.getEntriesByName("weir-drawn").length === 0) {
      performance.mark("weir-drawn");
    }
  }

  #showTop(report) {
    const [step, steps] = [number(report.step), number(report.step_count)];
    const share = steps > 0 ? Math.min(1, step / steps) : 0;
    const name = text(report.job) || "Weir";
    const symbol = stateSymbol(text(report.phase));
    document.title = steps > 0
      ? `${symbol} ${name} ${Math.floor(100 * share)}%`
      : `${symbol} ${name}`;
    setText(find("job"), name);
    setState(find("phase"), text(report.phase));
    setText(find("mode"), text(report.mode).replaceAll("_", " "));
    find("bar").value = share;
    setHidden(find("bar"), steps === 0);
    setText(
      find("steps"),
      steps > 0
        ? `step ${count(step)} of ${count(steps)}, ${percent(share)}`
        : `step ${count(step)}, without an end`,
    );
    setText(find("loss"), step > 0 ? loss(report.loss) : NOTHING);
    const learns = typeof report.loss === "number" || step === 0;
    find("loss").classList.toggle("alarm", !learns);
    setText(find("speed"), rate(report.examples_per_second));
    setText(find("trained"), longTime(report.train_seconds));
    setText(
      find("staleness"),
      number(report.staleness_max) > 0
        ? `${digits(report.staleness_mean)} (max ` +
            `${digits(report.staleness_max)})`
        : "0",
    );
    this.#showEta(report, steps - step);
    const workers = list(report.worker);
    const there = workers.filter((w) => w.state !== "absent").length;
    setText(
      find("worker-count"),
      (there < workers.length ? "\u25b2 " : "") +
        `${count(there)} of ${count(workers.length)}`,
    );
    find("worker-count").classList.toggle("alarm", there < workers.length);
    const saved = report.checkpoint ?? {};
    setText(
      find("saved"),
      text(saved.newest) === ""
        ? "none yet"
        : `${longTime(saved.age_seconds)} old`,
    );
  }

  #showEta(report, left) {
    const pace = this.pace.stepsPerSecond(report);
    const known = report.phase === "training" && left > 0 && pace > 0;
    setText(find("eta"), known ? longTime(left / pace) : NOTHING);
  }

  // The sentence; where the job does not train, what its phase says instead.
  #showCause(report) {
    const cause = report.cause ?? {};
    const phase = PHASES[report.phase];
    const message = text(report.message);
    const [kind, tone] = phase ?? KINDS[cause.kind] ?? KINDS.unknown;
    const sentence = phase === undefined ? text(cause.sentence) : message;
    const advice = phase === undefined ? text(cause.advice) : "";
    setClass(find("cause"), `box ${tone}`);
    setText(find("cause-kind"), `${SYMBOLS[tone]} ${kind}`);
    const share = phase === undefined ? number(cause.share) : 0;
    setText(
      find("cause-share"),
      share > 0 ? `costs ${percent(share)} of the workers\u2019 time` : "",
    );
    setText(find("sentence"), sentence);
    setHidden(find("sentence"), sentence === "");
    setText(find("advice"), advice === "" ? "" : `Try: ${advice}`);
    setHidden(find("advice"), advice === "");
    const task = phase === undefined ? text(cause.task) : "";
    setText(find("cause-task"), `Show ${task}`);
    setHidden(find("cause-task"), task === "");
    this.#say(`${kind} ${task}`, `${kind}. ${sentence} ${advice}`);
  }

  // I2.
  #say(what, sentence) {
    const now = performance.now();
    const again = now - this.said.at >= SAY_AGAIN_MS;
    if (what === this.said.what && !again) return;
    this.said = { what, at: now };
    setText(find("announcer"), sentence);
  }

  #goToTask() {
    const [role, index] = text(this.shown?.cause?.task).split("/");
    if (role === "worker") this.workers.choose(Number(index));
    find(role === "ps" ? "shards" : "workers").scrollIntoView();
  }

  #showAge() {
    const { feed } = this;
    const silent = feed.silentSeconds();
    setHidden(find("trouble"), feed.trouble === "");
    if (feed.trouble !== "") {
      const ended = ["done", "failed"].includes(this.shown?.phase);
      const since = feed.isSilent
        ? `The chief does not answer since ${longTime(silent)}.`
        : feed.trouble;
      const view = this.shown
        ? ` This is the view of ${clock(this.shown.unix_seconds)}.`
        : "";
      const end = ended ? " The job has ended, and with it the chief." : "";
      setText(find("trouble"), `\u25b2 ${since}${view}${end}`);
      this.#say(feed.trouble, since);
    }
    if (this.shown === null) return;
    const when = clock(this.shown.unix_seconds);
    let age = silent < 2 ? "now" : `${longTime(silent)} ago`;
    if (feed.paused) age = "paused";
    else if (this.held) age = "held while text is selected";
    setText(find("age"), `${when}, ${age}`);
  }
}

// Light, dark, or as the reader's system says.
class Theme {
  constructor(onChange) {
    this.button = find("theme");
    this.onChange = onChange;
    this.name = "auto";
    try {
      this.name = localStorage.getItem("weir-theme") ?? "auto";
    } catch {
      // A browser that keeps nothing starts with "auto" each time.
    }
    this.#apply();
    ramp.read();
    this.button.addEventListener("click", () => this.#next());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      this.onChange(),
    );
  }

  #apply() {
    if (!["light", "dark"].includes(this.name)) this.name = "auto";
    setAttribute(document.documentElement, "data-theme", this.name);
    setText(this.button, `Theme: ${this.name}`);
  }

  #next() {
    this.name = { auto: "light", light: "dark", dark: "auto" }[this.name];
    try {
      localStorage.setItem("weir-theme", this.name);
    } catch {
      // As above.
    }
    this.#apply();
    this.onChange();
  }
}

new Page().start();
