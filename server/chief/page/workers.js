// The workers: a table with the parts of each one's step, and where they are
// too many for that, a cell for each and the first of an order in full.
//
// Terms
//   measure  what the cells are coloured by and the table is sorted by.
//   chosen   the worker that the reader looks at, by slot.

import {
  fillBar,
  find,
  make,
  setAttribute,
  setHidden,
  setState,
  setStyle,
  setText,
  stateSymbol,
  Table,
} from "./dom.js";
import { Grid, ramp, WaitMap } from "./heat.js";
import { HOST_COLUMNS } from "./sections.js";
import {
  bytes,
  bytesPerSecond,
  count,
  list,
  median,
  NOTHING,
  number,
  percent,
  plural,
  rate,
  seconds,
  shortPercent,
  text,
} from "./values.js";

const MANY = 40; // above it there is the grid
const SHOWN_OF_MANY = 20;
const WAIT_CELLS_MAX = 20000;
const WAIT_HOT = 0.25; // of a step; smaller ones never look alarming
const WAIT_TABLE_MAX = 400; // cells with their numbers as text
const HEARTBEAT_ALARM = 5; // seconds
const LABEL_SHARE = 0.08; // of a bar, with room for a number
const NAME_SHARE = 0.3; // with room for a name, too

const PHASES = ["data", "pull", "compute", "push", "rest"];

// Shares are shown beside the largest; a step beside the median, so that
// workers that are alike look alike.
const MEASURES = [
  ["slot", "slot", (w) => number(w.slot), count],
  ["step", "step time", (w) => number(w.step_seconds), seconds],
  ["last", "last to come", (w) => number(w.last_share), percent],
  ["data", "wait for data", (w) => number(w.data_share), percent],
  ["pull", "wait for values", (w) => number(w.pull_share), percent],
  ["compute", "compute", (w) => number(w.compute_share), percent],
  ["push", "wait for receipts", (w) => number(w.push_share), percent],
  ["beat", "heartbeat age", (w) => number(w.heartbeat_age_seconds), seconds],
  ["host", "host", (w) => text(w.host), String],
].map(([key, name, get, say]) => ({ key, name, get, say }));

function measureOf(key) {
  return MEASURES.find((measure) => measure.key === key);
}

function phasesOf(worker) {
  const shares = PHASES.slice(0, 4).map((phase) =>
    Math.min(1, Math.max(0, number(worker[`${phase}_share`]))),
  );
  const sum = shares.reduce((a, b) => a + b, 0);
  return number(worker.step_seconds) > 0
    ? [...shares, Math.max(0, 1 - sum)]
    : [0, 0, 0, 0, 0];
}

// The parts of a step as pieces of a bar, with their numbers where there is
// room, and all of them as words for screen readers.
function fillPhases(cell, worker) {
  if (cell.firstElementChild === null) {
    const bar = make("span", "phases");
    bar.setAttribute("aria-hidden", "true");
    bar.append(...PHASES.map((phase) => make("span", `phase ${phase}`, "")));
    cell.append(bar, make("span", "for-readers", ""));
  }
  const [bar, words] = cell.children;
  const shares = phasesOf(worker);
  const said = [];
  shares.forEach((share, i) => {
    setStyle(bar.children[i], "width", `${(100 * share).toFixed(1)}%`);
    let label = share >= LABEL_SHARE ? shortPercent(share) : "";
    if (share >= NAME_SHARE) label = `${PHASES[i]} ${label}`;
    setText(bar.children[i], label);
    if (share > 0) said.push(`${PHASES[i]} ${shortPercent(share)}`);
  });
  setText(words, said.length > 0 ? said.join(", ") : "no step yet");
}

const COLUMNS = [
  {
    title: "Worker",
    sort: "slot",
    value: (w) => `${w.isCause ? "\u25b6 " : ""}${w.slot}`,
  },
  {
    title: "Host",
    kind: "place",
    sort: "host",
    value: (w) => text(w.host),
  },
  {
    title: "State",
    fill(cell, worker) {
      if (cell.firstElementChild === null) cell.append(make("span"));
      setState(cell.firstElementChild, text(worker.state));
    },
  },
  { title: "Where its step goes", fill: fillPhases },
  {
    title: "Step",
    sort: "step",
    help: "how long a contribution takes, mean",
    numeric: true,
    value: (w) => seconds(w.step_seconds),
  },
  {
    title: "\u00f7 median",
    help: "its step, in medians of all workers",
    numeric: true,
    value: (w) =>
      w.relative > 0 ? `${w.relative.toFixed(2)} \u00d7` : NOTHING,
    alarm: (w) => w.relative >= 1.5,
  },
  {
    title: "Last",
    kind: "last",
    sort: "last",
    help: "share of the steps for which it came last",
    numeric: true,
    fill: (cell, w) =>
      fillBar(cell, number(w.last_share), percent(w.last_share)),
  },
  {
    title: "Examples/s",
    numeric: true,
    value: (w) => rate(w.examples_per_second),
  },
  {
    title: "Heartbeat",
    sort: "beat",
    help: "age of the newest one",
    numeric: true,
    value: (w) => seconds(w.heartbeat_age_seconds),
    alarm: (w) => number(w.heartbeat_age_seconds) > HEARTBEAT_ALARM,
  },
  ...HOST_COLUMNS,
  {
    title: "GPU",
    kind: "gpu",
    help: "share of the step for which it is busy, by its clock; its memory",
    numeric: true,
    value: (w) =>
      w.on_gpu
        ? `${percent(w.gpu_busy_share)}, ${bytes(w.device_bytes)}`
        : NOTHING,
  },
  {
    title: "Held",
    help: "share of the time in which it stood still for a checkpoint",
    numeric: true,
    value: (w) => percent(w.hold_share),
  },
  {
    title: "Pushes",
    numeric: true,
    value: (w) => bytesPerSecond(w.bytes_pushed_per_second),
  },
  {
    title: "Pulls",
    numeric: true,
    value: (w) => bytesPerSecond(w.bytes_pulled_per_second),
  },
];

export class Workers {
  constructor() {
    this.measure = null; // until the reader or the number of workers says it
    this.descending = true;
    this.largestFirst = false; // of the grid
    this.chosen = null;
    this.chosenByReader = false;
    this.report = {};
    const sort = (key) => this.sortBy(key);
    this.table = new Table(find("worker-table"), COLUMNS, sort);
    this.one = new Table(find("worker-one"), COLUMNS);
    this.grid = new Grid(find("worker-grid"), (place) =>
      this.choose(number(this.cells[place]?.slot)),
    );
    this.map = new WaitMap(find("wait-map"), (worker, shard) =>
      this.#sayWait(worker, shard),
    );
    this.#connect();
  }

  #connect() {
    const measures = find("worker-measure");
    for (const { key, name } of MEASURES) {
      const option = make("option", "", name);
      option.value = key;
      measures.append(option);
    }
    measures.addEventListener("change", () => this.sortBy(measures.value));
    find("worker-state").addEventListener("change", () => this.draw());
    find("worker-order").addEventListener("click", () => {
      this.largestFirst = !this.largestFirst;
      const pressed = String(this.largestFirst);
      setAttribute(find("worker-order"), "aria-pressed", pressed);
      this.draw();
    });
    find("worker-find").addEventListener("input", (event) =>
      this.#search(event.target.value.trim()),
    );
    let width = 0; // to draw changes the height, which means nothing new
    new ResizeObserver(() => {
      const now = find("workers").clientWidth;
      if (now !== width) this.draw();
      width = now;
    }).observe(find("workers"));
  }

  sortBy(key) {
    if (this.measure === key) this.descending = !this.descending;
    else this.descending = key !== "slot" && key !== "host";
    this.measure = key;
    this.draw();
  }

  // Shows a worker in full, by its slot.
  choose(slot) {
    this.chosen = slot;
    this.chosenByReader = true;
    this.draw();
  }

  #search(words) {
    const workers = list(this.report.worker);
    const slot = words.replace(/^worker\//, "");
    const found =
      workers.find((w) => String(w.slot) === slot) ??
      workers.find((w) => text(w.host).includes(words));
    if (words !== "" && found !== undefined) this.choose(found.slot);
  }

  show(report) {
    this.report = report;
    this.draw();
  }

  draw() {
    const workers = list(this.report.worker);
    const many = workers.length > MANY;
    if (this.measure === null && workers.length > 0) {
      this.measure = many ? "step" : "slot";
      this.descending = many;
    }
    const middle = median(
      workers.map((w) => number(w.step_seconds)).filter((x) => x > 0),
    );
    const cause = text(this.report.cause?.task);
    const all = workers.map((worker) => ({
      ...worker,
      relative: middle > 0 ? number(worker.step_seconds) / middle : 0,
      isCause: cause === `worker/${worker.slot}`,
    }));
    const wanted = find("worker-state").value;
    const some = wanted === "" ? all : all.filter((w) => w.state === wanted);
    this.#chooseCause(all);
    find("workers").classList.toggle("few", !many);
    setHidden(find("no-worker"), some.length > 0 || all.length === 0);
    setHidden(find("worker-table"), some.length === 0);
    setHidden(find("phase-legend"), some.length === 0);
    this.#summarize(all, middle);
    const sorted = this.#sorted(some);
    this.#fillTable(sorted, many);
    this.cells = this.largestFirst ? sorted : some;
    if (many) this.#drawGrid(middle);
    this.#drawWaits(many ? this.cells : sorted, many);
  }

  // Before the reader chooses, the worker that the sentence names is chosen.
  #chooseCause(all) {
    if (this.chosenByReader && all.some((w) => w.slot === this.chosen)) return;
    this.chosen = (all.find((w) => w.isCause) ?? all[0])?.slot ?? null;
  }

  #sorted(workers) {
    const { get } = measureOf(this.measure ?? "slot");
    const sign = this.descending ? -1 : 1;
    return workers.slice().sort((a, b) => {
      const [x, y] = [get(a), get(b)];
      if (x === y) return number(a.slot) - number(b.slot);
      return x < y ? -sign : sign;
    });
  }

  #summarize(all, middle) {
    const states = new Map();
    for (const { state } of all) {
      states.set(state, (states.get(state) ?? 0) + 1);
    }
    const parts = [...states].map(
      ([state, n]) => `${stateSymbol(state)} ${count(n)} ${state}`,
    );
    const slowest = all.reduce(
      (most, w) => (w.relative > (most?.relative ?? 0) ? w : most),
      null,
    );
    let said = plural(all.length, "worker");
    if (parts.length > 0) said += `: ${parts.join(", ")}`;
    if (slowest !== null) {
      said +=
        `. Step: median ${seconds(middle)}, slowest ` +
        `${seconds(slowest.step_seconds)} (worker/${slowest.slot}, ` +
        `${slowest.relative.toFixed(2)} \u00d7)`;
    }
    setText(find("worker-summary"), said + ".");
  }

  #fillTable(sorted, many) {
    const measure = measureOf(this.measure ?? "slot");
    if (find("worker-measure").value !== measure.key) {
      find("worker-measure").value = measure.key;
    }
    const shown = many ? sorted.slice(0, SHOWN_OF_MANY) : sorted;
    this.table.fill(shown);
    this.table.showOrder(measure.key, this.descending);
    this.#mark(this.table, shown);
    const end = this.descending ? "largest" : "smallest";
    setText(
      find("worker-caption"),
      many && sorted.length > shown.length
        ? `The ${shown.length} workers with the ${end} ${measure.name}`
        : "Workers",
    );
    for (const name of ["worker-table", "worker-one"]) {
      const onGpu = sorted.some((worker) => worker.on_gpu);
      find(name).classList.toggle("no-gpu", !onGpu);
      find(name).classList.toggle("no-last", this.report.mode !== "sync");
    }
  }

  #mark(table, workers) {
    workers.forEach((worker, i) => {
      table.body.children[i].classList.toggle("cause", worker.isCause);
    });
  }

  // From measures of all cells a function that gives the heat of one, and the
  // words for both ends of the colours.
  #scale(middle) {
    const { key, get, say } = measureOf(this.measure);
    if (key === "step" || key === "slot" || key === "host") {
      // Steps that are about the median stay pale; twice of it is full heat.
      const heat = (w) => (middle > 0 ? (w.relative - 0.9) / 1.1 : 0);
      return {
        heat,
        low: `step \u2264 ${seconds(0.9 * middle)}`,
        high: `\u2265 ${seconds(2 * middle)}`,
      };
    }
    const floor = key === "beat" ? HEARTBEAT_ALARM : 0.1;
    const most = this.cells.reduce((m, w) => Math.max(m, get(w)), floor);
    const { name } = measureOf(key);
    return { heat: (w) => get(w) / most, low: `${name} 0`, high: say(most) };
  }

  #drawGrid(middle) {
    const { heat, low, high } = this.#scale(middle);
    const place = this.cells.findIndex((w) => w.slot === this.chosen);
    this.grid.draw(
      this.cells.map((w) => ({ heat: heat(w), state: w.state })),
      place,
    );
    setText(find("grid-low"), low);
    setText(find("grid-high"), high);
    const chosen = this.cells[place];
    this.one.fill(chosen === undefined ? [] : [chosen]);
    const grid = find("worker-grid");
    setAttribute(grid, "aria-valuemax", String(this.cells.length));
    setAttribute(grid, "aria-valuenow", String(place + 1));
    const said =
      chosen === undefined
        ? "none"
        : `worker ${chosen.slot}, ${text(chosen.host)}, ${chosen.state}, ` +
          `step ${seconds(chosen.step_seconds)}`;
    setAttribute(grid, "aria-valuetext", said);
  }

  #drawWaits(workers, many) {
    const shards = Math.max(
      0,
      ...workers.map((w) => list(w.shard_wait_share).length),
    );
    const cells = shards * workers.length;
    const shown = cells > 0 && cells <= WAIT_CELLS_MAX;
    setHidden(find("waits"), !shown);
    if (!shown) return;
    this.waits = { workers, most: WAIT_HOT, largest: null };
    for (const worker of workers) {
      list(worker.shard_wait_share).forEach((share, shard) => {
        if (number(share) <= (this.waits.largest?.share ?? 0)) return;
        this.waits.largest = { worker: worker.slot, shard, share };
      });
    }
    const { largest } = this.waits;
    this.waits.most = Math.max(this.waits.most, largest?.share ?? 0);
    const asTable = !many && cells <= WAIT_TABLE_MAX;
    setHidden(find("wait-scroll"), !asTable);
    setHidden(find("wait-legend"), asTable);
    setText(find("wait-high"), percent(this.waits.most));
    setHidden(find("wait-map"), asTable);
    const said =
      largest === null
        ? "No worker waits for a ps."
        : `The largest: worker/${largest.worker} waits ` +
          `${percent(largest.share)} of its step for ps/${largest.shard}.`;
    setText(find("wait-at"), said);
    if (asTable) {
      this.#fillWaits(workers, shards);
    } else {
      const place = workers.findIndex((w) => w.slot === this.chosen);
      this.map.draw(
        workers.length,
        shards,
        (worker, shard) => this.#wait(worker, shard) / this.waits.most,
        place,
      );
      setAttribute(find("wait-map"), "aria-label", `Map of waits. ${said}`);
    }
  }

  #wait(place, shard) {
    return number(this.waits.workers[place]?.shard_wait_share?.[shard]);
  }

  #sayWait(place, shard) {
    const slot = this.waits.workers[place].slot;
    const share = percent(this.#wait(place, shard));
    setText(
      find("wait-at"),
      `worker/${slot} waits ${share} of its step for ps/${shard}.`,
    );
  }

  #fillWaits(workers, shards) {
    if (this.waitTable?.columns.length !== shards + 1) {
      const table = find("wait-table");
      table.querySelector("thead")?.remove();
      table.querySelector("tbody")?.remove();
      this.waitTable = new Table(table, [
        { title: "Worker", value: (w) => String(w.slot) },
        ...Array.from({ length: shards }, (_, shard) => ({
          title: `ps/${shard}`,
          numeric: true,
          fill: (cell, worker) => {
            const share = number(worker.shard_wait_share?.[shard]);
            const heat = share / this.waits.most;
            setText(cell, percent(share));
            setStyle(cell, "background-color", ramp.color(heat));
            setStyle(cell, "color", ramp.inkOn(heat));
          },
        })),
      ]);
    }
    this.waitTable.fill(workers);
  }
}
