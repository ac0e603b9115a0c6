// Many workers as cells of a canvas whose colour says how much.
//
// Terms: heat is a number from 0 to 1. Its colours grow in lightness in one
//   direction only, so they order for those who do not see hues.
// Cost: a fill for each cell or pixel column, some milliseconds for 20,000.

const STOPS = 5;
const SHADES = 64; // that are kept as text; more than an eye tells apart

// The colours of heat, from the style sheet's --heat-0 to --heat-4.
class Ramp {
  constructor() {
    this.read();
  }

  // Reads the colours again, after the theme has changed.
  read() {
    const style = getComputedStyle(document.documentElement);
    const hex = (name) => style.getPropertyValue(name).trim();
    this.stops = [];
    for (let i = 0; i < STOPS; ++i) {
      const value = parseInt(hex(`--heat-${i}`).slice(1), 16);
      this.stops.push([value >> 16, (value >> 8) & 255, value & 255]);
    }
    this.shades = Array.from(
      { length: SHADES },
      (_, i) => `rgb(${this.rgb(i / (SHADES - 1)).join(" ")})`,
    );
    this.ink = hex("--ink");
    this.muted = hex("--muted");
    this.ground = hex("--card");
  }

  rgb(heat) {
    const at = Math.min(1, Math.max(0, heat)) * (STOPS - 1);
    const low = Math.min(STOPS - 2, Math.floor(at));
    const mix = (i) =>
      Math.round(
        this.stops[low][i] +
          (this.stops[low + 1][i] - this.stops[low][i]) * (at - low),
      );
    return [mix(0), mix(1), mix(2)];
  }

  color(heat) {
    const at = Math.round(Math.min(1, Math.max(0, heat)) * (SHADES - 1));
    return this.shades[at];
  }

  // Black or white, whichever can be read on the colour of this heat.
  inkOn(heat) {
    const [r, g, b] = this.rgb(heat).map((x) => {
      const y = x / 255;
      return y <= 0.03928 ? y / 12.92 : ((y + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
  }
}

export const ramp = new Ramp();

// Gives a canvas its size in CSS pixels and returns what draws on it.
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const CELL_MAX = 22; // CSS pixels
const CELL_MIN = 5;
const GRID_HEIGHT = 210; // about; ten thousand workers take more
const STROKES = {
  absent: [[0, 0, 1, 1], [1, 0, 0, 1]],
  starting: [[0, 1, 1, 0]],
  done: [[0, 0.5, 1, 0.5]],
};

// A cell for each worker, in rows. The reader chooses one by pointer or keys.
export class Grid {
  constructor(canvas, onChoose) {
    this.canvas = canvas;
    this.onChoose = onChoose; // by its place, 0 to count - 1
    this.count = 0;
    this.chosen = 0;
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerdown", (event) => this.#point(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #point(event) {
    const column = Math.floor(event.offsetX / this.cell);
    const at = Math.floor(event.offsetY / this.cell) * this.columns + column;
    if (column < this.columns && at < this.count) this.onChoose(at);
  }

  #key(event) {
    const moves = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: this.columns,
      ArrowUp: -this.columns,
      PageDown: 5 * this.columns,
      PageUp: -5 * this.columns,
      Home: -this.count,
      End: this.count,
    };
    const move = moves[event.key];
    if (move === undefined || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    const last = Math.max(0, this.count - 1);
    this.onChoose(Math.min(last, Math.max(0, this.chosen + move)));
  }

  // cells: [{heat, state, marked}] in their order; `chosen` is a place.
  draw(cells, chosen) {
    const width = Math.max(50, this.canvas.clientWidth);
    const fit = Math.sqrt((width * GRID_HEIGHT) / Math.max(1, cells.length));
    const cell = Math.min(CELL_MAX, Math.max(CELL_MIN, Math.floor(fit)));
    this.count = cells.length;
    this.chosen = chosen;
    this.cell = cell;
    this.columns = Math.max(1, Math.floor(width / cell));
    const rows = Math.max(1, Math.ceil(cells.length / this.columns));
    const context = prepare(this.canvas, width, rows * cell + 2);
    const gap = cell > 8 ? 2 : 1;
    cells.forEach((one, i) => {
      const x = (i % this.columns) * cell + 1;
      const y = Math.floor(i / this.columns) * cell + 1;
      this.#drawCell(context, one, x, y, cell - gap);
      if (i === chosen) {
        context.strokeStyle = ramp.ink;
        context.lineWidth = 2;
        context.strokeRect(x - 0.5, y - 0.5, cell - gap + 1, cell - gap + 1);
      }
    });
  }

  #drawCell(context, one, x, y, size) {
    const strokes = STROKES[one.state];
    if (strokes === undefined) {
      context.fillStyle = ramp.color(one.heat);
      context.fillRect(x, y, size, size);
      return;
    }
    context.strokeStyle = ramp.muted;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    context.beginPath();
    for (const [x0, y0, x1, y1] of strokes) {
      context.moveTo(x + x0 * size, y + y0 * size);
      context.lineTo(x + x1 * size, y + y1 * size);
    }
    context.stroke();
  }
}

const LABEL_WIDTH = 52;
const WAIT_ROW_MAX = 18;
const WAIT_ROW_MIN = 4;
const WAIT_HEIGHT = 220;

// Workers from left to right, shards from top to bottom.
export class WaitMap {
  constructor(canvas, onPoint) {
    this.canvas = canvas;
    this.workers = this.shards = 0;
    canvas.addEventListener("pointermove", (event) => {
      const span = this.canvas.clientWidth - LABEL_WIDTH;
      const across = (event.offsetX - LABEL_WIDTH) / span;
      const worker = Math.floor(across * this.workers);
      const shard = Math.floor(event.offsetY / this.row);
      if (worker >= 0 && worker < this.workers && shard < this.shards) {
        onPoint(worker, shard);
      }
    });
  }

  // heatOf(worker, shard) is asked for places from 0; a pixel column that
  // several workers share shows the hottest of them.
  draw(workers, shards, heatOf, chosen) {
    const width = Math.max(LABEL_WIDTH + 50, this.canvas.clientWidth);
    const fit = Math.floor(WAIT_HEIGHT / Math.max(1, shards));
    this.row = Math.min(WAIT_ROW_MAX, Math.max(WAIT_ROW_MIN, fit));
    this.workers = workers;
    this.shards = shards;
    const context = prepare(this.canvas, width, shards * this.row + 6);
    const span = Math.floor(width - LABEL_WIDTH);
    const edge = (worker) => Math.floor((worker * span) / workers);
    const every = Math.ceil(11 / this.row); // labels that do not overlap
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (let shard = 0; shard < shards; ++shard) {
      const y = shard * this.row;
      if (shard % every === 0) {
        context.fillStyle = ramp.muted;
        context.fillText(`ps/${shard}`, 0, y + this.row / 2);
      }
      for (let worker = 0; worker < workers; ) {
        const x = edge(worker);
        let heat = 0;
        do {
          heat = Math.max(heat, heatOf(worker++, shard));
        } while (worker < workers && edge(worker) === x);
        context.fillStyle = ramp.color(heat);
        const w = (worker < workers ? edge(worker) : span) - x;
        context.fillRect(LABEL_WIDTH + x, y, w, this.row - 1);
      }
    }
    if (chosen < 0 || workers === 0) return;
    context.fillStyle = ramp.ink;
    const x = LABEL_WIDTH + (edge(chosen) + edge(chosen + 1)) / 2;
    context.beginPath();
    context.moveTo(x, shards * this.row);
    context.lineTo(x - 4, shards * this.row + 6);
    context.lineTo(x + 4, shards * this.row + 6);
    context.fill();
  }
}
