// The curves of a job: loss, examples/s, staleness, with one cursor.
//
// Place: draws what `GET curve` answered; uPlot is a global of uplot.js.
// Invariants
//   I1. What a chart shows is also text: its label has the newest value, and
//       the caption the value below the cursor.

import { find, setAttribute, setText } from "./dom.js";
import { count, digits, list, longTime, number, rate } from "./values.js";

const HEIGHT = 190; // CSS pixels
const SYNC = "weir";
const CHARTS = [
  { key: "loss", id: "loss", name: "Loss", say: (y) => digits(y, 4) },
  {
    key: "examples_per_second",
    id: "speed",
    name: "Examples per second",
    say: rate,
    fromZero: true,
  },
  {
    key: "staleness_mean",
    id: "stale",
    name: "Mean staleness",
    say: (y) => digits(y),
    fromZero: true,
  },
];

function color(name) {
  const style = getComputedStyle(document.documentElement);
  return style.getPropertyValue(name).trim();
}

// A column of a curve: numbers, and null where there is none to draw.
function numbers(values, size) {
  const column = new Array(size);
  for (let i = 0; i < size; ++i) {
    const y = values[i];
    column[i] = typeof y === "number" && Number.isFinite(y) ? y : null;
  }
  return column;
}

// How ticks of the x axis read, by what runs across.
const SAY_X = {
  step: (x) => (x >= 1e5 ? rate(x) : count(x)),
  seconds: (x) => longTime(x),
};

export class Charts {
  constructor() {
    this.curve = {};
    this.log = false;
    this.across = "step";
    this.range = 1; // the share of the newest points that is shown
    this.plots = new Map();
    find("log").addEventListener("click", () => {
      this.log = !this.log;
      setAttribute(find("log"), "aria-pressed", String(this.log));
      this.#rebuild();
    });
    find("across").addEventListener("change", (event) => {
      this.across = event.target.value;
      this.#rebuild();
    });
    find("range").addEventListener("change", (event) => {
      this.range = number(Number(event.target.value), 1);
      this.#fill();
    });
    const resized = new ResizeObserver(() => this.#fit());
    for (const chart of CHARTS) resized.observe(find(`${chart.id}-chart`));
  }

  show(curve) {
    this.curve = curve;
    this.#fill();
  }

  // Draws again in the colours of another theme.
  recolor() {
    this.#rebuild();
  }

  #rebuild() {
    for (const plot of this.plots.values()) plot.destroy();
    this.plots.clear();
    this.#fill();
  }

  #fit() {
    for (const [id, plot] of this.plots) {
      const width = find(`${id}-chart`).clientWidth;
      if (width > 0 && width !== plot.width) {
        plot.setSize({ width, height: HEIGHT });
      }
    }
  }

  #fill() {
    const x = list(this.curve[this.across]);
    const first = Math.min(
      Math.max(0, x.length - 2),
      Math.floor(x.length * (1 - this.range)),
    );
    for (const chart of CHARTS) {
      const all = numbers(list(this.curve[chart.key]), x.length);
      const log = this.log && chart.key === "loss";
      const y = all.slice(first).map((v) => (log && v <= 0 ? null : v));
      let plot = this.plots.get(chart.id);
      if (plot === undefined && x.length === 0) {
        this.#label(chart, all);
        continue; // no axes without a curve
      }
      if (plot === undefined) {
        plot = this.#makePlot(chart, log);
        this.plots.set(chart.id, plot);
      }
      plot.setData([x.slice(first), y]);
      this.#label(chart, all);
    }
  }

  // I1.
  #label(chart, values) {
    const steps = list(this.curve.step);
    let at = values.length - 1;
    while (at >= 0 && values[at] === null) --at;
    const label =
      at < 0
        ? `${chart.name}: no value yet`
        : `${chart.name} from step ${count(steps[0])} to ` +
          `${count(steps[at])}: newest ${chart.say(values[at])}`;
    setAttribute(find(`${chart.id}-chart`), "aria-label", label);
    setText(
      find(`${chart.id}-at`),
      at < 0 ? "no value yet" : chart.say(values[at]),
    );
  }

  // I1: while the cursor is over a chart the captions show what is below it.
  #follow(chart, plot) {
    const at = plot.cursor.idx;
    const y = at === null || at === undefined ? null : plot.data[1][at];
    if (y === null || y === undefined) {
      const all = numbers(list(this.curve[chart.key]), this.#size());
      this.#label(chart, all);
      return;
    }
    const where = SAY_X[this.across](plot.data[0][at]);
    const unit = this.across === "step" ? `step ${where}` : where;
    setText(find(`${chart.id}-at`), `${chart.say(y)} at ${unit}`);
  }

  #size() {
    return list(this.curve[this.across]).length;
  }

  #makePlot(chart, log) {
    const axis = (more) => ({
      stroke: color("--muted"),
      font: "11px system-ui, sans-serif",
      grid: { stroke: color("--line"), width: 1 },
      ticks: { stroke: color("--line"), width: 1, size: 4 },
      ...more,
    });
    const low = (lowest) => (chart.fromZero ? Math.min(0, lowest) : lowest);
    const options = {
      width: Math.max(100, find(`${chart.id}-chart`).clientWidth),
      height: HEIGHT,
      padding: [8, 26, 0, 0],
      legend: { show: false },
      cursor: {
        drag: { x: false, y: false },
        sync: { key: SYNC, setSeries: false },
        points: { size: 7 },
      },
      scales: {
        x: { time: false },
        y: log
          ? { distr: 3 }
          : {
              range: (_, lowest, highest) =>
                lowest === null
                  ? [0, 1]
                  : uPlot.rangeNum(low(lowest), highest, 0.08, true),
            },
      },
      axes: [
        axis({
          size: 26,
          space: 70,
          values: (_, ticks) => ticks.map(SAY_X[this.across]),
        }),
        axis({
          size: 52,
          space: 30,
          values: (_, ticks) =>
            ticks.map((y) => (y === null ? "" : shortTick(y))),
        }),
      ],
      series: [
        {},
        {
          stroke: color(`--curve-${chart.id}`),
          width: 1.75,
          points: { show: false },
        },
      ],
      hooks: { setCursor: [(plot) => this.#follow(chart, plot)] },
    };
    return new uPlot(options, [[], []], find(`${chart.id}-chart`));
  }
}

// A tick as short as it can be: 0.5, 12k.
function shortTick(y) {
  if (y === 0) return "0";
  if (Math.abs(y) >= 1e4) return rate(y).replace(/\.?0+(?=[kMG]$)/, "");
  return Math.abs(y) >= 1000 ? count(y) : String(Number(y.toPrecision(4)));
}
